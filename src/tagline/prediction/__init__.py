"""Bundles and predictions: calibration, the decision layer, attribution, prediction of whole files.

Files, in the order of their imports:

- calibration.py: Calibration: a score of 0.8 made to be right 8 times in 10, by the map that does best on rows it
  has not seen.
- thresholds.py: Thresholds tuned on validation rows: for F1, a precision or a recall of each label, and for
  abstention.
- conformal.py: Split conformal prediction: sets of labels that hold the truth with a promised coverage.
- decisions.py: The decision layer, which turns scores into answers: calibration, thresholds, abstention, sets of
  labels.
- attribution.py: Which words push an answer: exactly where a classifier can tell, else by leaving each of them out.
- onnx_runtime.py: A network in ONNX form, run by onnxruntime: a classifier's scores without what it was learned
  with.
- bundle.py: Bundle: a directory that predicts by itself, every file of it checked.
- signatures.py: Detached ed25519 signatures of bundles: made with a private key, verified offline with public ones.
- predictor.py: Bundle in, predictions out: what evaluation, command line, server and batch all use. Needs no torch.
- files.py: A file of texts in, the same rows with answers out: in parts, by several processes, and from where it
  was stopped.
"""
