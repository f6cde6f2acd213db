"""Evaluation: metrics, intervals, baselines, error analysis, slices and gates.

Files, in the order of their imports:

- schema.py: Report: the contents of report.json, a frozen model for the whole and for each of its parts.
- metrics.py: Metrics: the figures of answers and scores, compared with the truth.
- resampling.py: The bootstrap that intervals and paired tests share: figures of a thousand resampled test sets.
- intervals.py: Confidence intervals of figures: bootstrap intervals, and Wilson's interval of a share.
- paired_tests.py: Paired tests of two models on the same rows: a bootstrap interval of the difference, and
  McNemar's exact test.
- cross_fitting.py: Out-of-fold scores, each by a model that was not fitted on the row, to tune a refitted model's
  decision layer.
- baselines.py: Baselines on the same test rows: one answer for all, family linear, and with few rows a rival
  family.
- label_errors.py: Likely label errors, found from the scores of held-out rows.
- error_analysis.py: Error analysis: the most confident mistakes, the most frequent confusions, and likely label
  errors.
- slices.py: Slices of a test split that do worse than the rest: by length, words, likeness, script, file, or any
  column.
- gates.py: Gates: figures that a model must reach before it may be used.
"""
