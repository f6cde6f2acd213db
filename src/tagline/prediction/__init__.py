"""Bundles and predictions: calibration, the decision layer, attribution, prediction of whole files.

Files, in the order of their imports:

- calibration.py: Calibration: a score of 0.8 is right 8 times in 10, by the method with the lowest out-of-fold log
  loss.
- thresholds.py: Thresholds tuned on validation rows: for F1, a precision or a recall of each label, and for
  abstention.
- conformal.py: Split conformal prediction: sets of labels that hold the truth with a promised coverage.
- decisions.py: The decision layer, which turns scores into answers: calibration, thresholds, abstention, prediction
  sets.
- attribution.py: Word attributions of an answer: exact if the classifier can compute them, else by occlusion.
- onnx_runtime.py: OnnxScorer: a network in ONNX form, run by onnxruntime without the framework that trained it.
- bundle.py: Bundle: a self-contained directory to predict from, with a hash of every file.
- signatures.py: Detached ed25519 signatures of bundles: made with a private key, verified offline with public ones.
- predictor.py: Predictor: predictions from a bundle, for evaluation, command line, server and batch alike. Needs no
  torch.
- files.py: Prediction of whole files: each row with its answer, in parts, by several processes, and resumable.
"""
