"""Tagline: labelled text to a trained, measured, served text classifier.

>>> import tagline
>>> run = tagline.train("reviews.csv")
>>> tagline.load(run.bundle).predict(["It broke after a day."])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagline.bundle import Bundle
    from tagline.comparison import compare
    from tagline.dataset import Dataset
    from tagline.errors import TaglineError
    from tagline.evaluation import evaluate
    from tagline.models import Prediction
    from tagline.predictor import Predictor, load
    from tagline.runs import Run
    from tagline.signatures import sign, verify
    from tagline.spec import Spec
    from tagline.training import train

__version__ = "0.1.0"

_PUBLIC = {
    "Bundle": "tagline.bundle:Bundle",
    "Dataset": "tagline.dataset:Dataset",
    "Prediction": "tagline.models:Prediction",
    "Predictor": "tagline.predictor:Predictor",
    "Run": "tagline.runs:Run",
    "Spec": "tagline.spec:Spec",
    "TaglineError": "tagline.errors:TaglineError",
    "compare": "tagline.comparison:compare",
    "evaluate": "tagline.evaluation:evaluate",
    "load": "tagline.predictor:load",
    "sign": "tagline.signatures:sign",
    "train": "tagline.training:train",
    "verify": "tagline.signatures:verify",
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
        from tagline import extras

        raise extras.explain(error) or error from error
    return value
