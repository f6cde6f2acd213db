"""How good a model is: metrics, intervals, baselines, error analysis, slices and gates."""
