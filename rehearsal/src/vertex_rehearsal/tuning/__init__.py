"""Hyperparameter tuning jobs: studies, trials, and the metrics that trials report.

Files, in the order of their imports:

- parameters.py: The parameters of a tuning job: what Vertex AI refuses of them, and which values they may take.
- metric_files.py: What trials report: the file that cloudml-hypertune writes, read while it is written, and what
  follows from it.
- studies.py: The search of a tuning job: which values to try next, by Optuna or along a grid.
- runner.py: A tuning job that runs: trials that are custom jobs, a few at a time, each with values that a study
  suggests.
- service.py: Hyperparameter tuning jobs: accepted or refused, searched and kept.
"""
