"""Hyperparameter tuning jobs: studies, trials, and the metrics that trials report."""
