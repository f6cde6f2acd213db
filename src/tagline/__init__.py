"""Tagline: labelled text to a trained, measured, served text classifier.

>>> import tagline
>>> run = tagline.train("reviews.csv")
>>> tagline.load(run.bundle).predict(["It broke after a day."])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagline.data.dataset import Dataset
    from tagline.errors import TaglineError
    from tagline.models import Prediction
    from tagline.prediction.bundle import Bundle
    from tagline.prediction.predictor import Predictor, load
    from tagline.prediction.signatures import sign, verify
    from tagline.reports.compare import compare
    from tagline.reports.evaluate import evaluate
    from tagline.runs.run import Run
    from tagline.spec import Spec
    from tagline.training import train

__version__ = "0.1.0"

_PUBLIC = {
    "Bundle": "tagline.prediction.bundle:Bundle",
    "Dataset": "tagline.data.dataset:Dataset",
    "Prediction": "tagline.models:Prediction",
    "Predictor": "tagline.prediction.predictor:Predictor",
    "Run": "tagline.runs.run:Run",
    "Spec": "tagline.spec:Spec",
    "TaglineError": "tagline.errors:TaglineError",
    "compare": "tagline.reports.compare:compare",
    "evaluate": "tagline.reports.evaluate:evaluate",
    "load": "tagline.prediction.predictor:load",
    "sign": "tagline.prediction.signatures:sign",
    "train": "tagline.training:train",
    "verify": "tagline.prediction.signatures:verify",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import tagline` is quick."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tagline' has no attribute '{name}'")
    module, _, attribute = _PUBLIC[name].partition(":")
    try:
        value = globals()[name] = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        from tagline.system import extras

        raise extras.explain(error) or error from error
    return value
