"""Evaluation: metrics, intervals, baselines, error analysis, slices and gates.

Files, in the order of their imports:

- schema.py: Report: what report.json holds, a frozen model for the whole and for each of its parts.
- metrics.py: Scores against truth.
- resampling.py: Figures of a thousand test sets drawn from the rows of one: the bootstrap that intervals and paired
  tests share.
- intervals.py: How sure a figure is: bootstrap intervals, and Wilson's interval of a share.
- paired_tests.py: Paired tests of two models on the same rows: a bootstrap interval of the difference, and
  McNemar's exact test.
- cross_fitting.py: Out-of-fold scores, on which a refitted model's decision layer is tuned: each row by a model
  that did not see it.
- baselines.py: What others reach on the same test rows: one answer for all, family linear, and with few rows a
  rival.
- label_errors.py: Labels that are probably wrong, from scores of rows that the model did not learn from.
- error_analysis.py: Errors worth reading: the most confident mistakes, labels that are often confused, labels that
  are probably wrong.
- slices.py: Slices of a test split that do worse than the rest: by length, words, likeness, script, file, or any
  column.
- gates.py: Gates: figures that a model must reach before anyone may use it.
"""
