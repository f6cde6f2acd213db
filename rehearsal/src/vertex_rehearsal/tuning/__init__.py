"""Hyperparameter tuning jobs: studies, trials, and the metrics that trials report.

Files, in the order of their imports:

- parameters.py: The parameters of a tuning job: validation, conditional parameters and their possible values.
- metric_files.py: Reads the metrics that trials report through cloudml-hypertune; decides on early stopping.
- studies.py: The search algorithms of tuning jobs: Optuna's samplers and grid search.
- runner.py: Runs a tuning job: trials as custom jobs, a few at a time, with values that a study suggests.
- service.py: The API of hyperparameter tuning jobs: validation, start, cancellation and deletion.
"""
