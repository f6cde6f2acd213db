"""A bundle and its answers: scores, calibration, the decision layer, attribution, whole files."""
