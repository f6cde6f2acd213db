"""Tagline: labelled text to a trained, measured, served text classifier.

>>> import tagline
>>> run = tagline.train("reviews.csv")
>>> tagline.load(run.bundle).predict(["It broke after a day."])
"""

from typing import TYPE_CHECKING, Any

from tagline.system.lazy_names import import_on_use

if TYPE_CHECKING:
    from tagline import jobs, runs
    from tagline.commands.check import check
    from tagline.commands.compare import compare
    from tagline.commands.evaluate import evaluate
    from tagline.commands.export import export
    from tagline.commands.info import info
    from tagline.commands.init import init
    from tagline.commands.lm import lm
    from tagline.commands.predict import predict
    from tagline.commands.serve import serve
    from tagline.commands.signatures import sign, verify
    from tagline.commands.train import plan, train
    from tagline.data.dataset import Dataset
    from tagline.errors import TaglineError
    from tagline.jobs.plans import Plan
    from tagline.jobs.preflight import CheckResult
    from tagline.models import Prediction
    from tagline.prediction.bundle import Bundle
    from tagline.prediction.predictor import Predictor, load
    from tagline.runs.run import Run
    from tagline.spec import Spec

__version__ = "0.1.0"

_PUBLIC = {
    "Bundle": "tagline.prediction.bundle:Bundle",
    "CheckResult": "tagline.jobs.preflight:CheckResult",
    "Dataset": "tagline.data.dataset:Dataset",
    "Plan": "tagline.jobs.plans:Plan",
    "Prediction": "tagline.models:Prediction",
    "Predictor": "tagline.prediction.predictor:Predictor",
    "Run": "tagline.runs.run:Run",
    "Spec": "tagline.spec:Spec",
    "TaglineError": "tagline.errors:TaglineError",
    "check": "tagline.commands.check:check",
    "compare": "tagline.commands.compare:compare",
    "evaluate": "tagline.commands.evaluate:evaluate",
    "export": "tagline.commands.export:export",
    "info": "tagline.commands.info:info",
    "init": "tagline.commands.init:init",
    "lm": "tagline.commands.lm:lm",
    "jobs": "tagline.jobs",
    "load": "tagline.prediction.predictor:load",
    "plan": "tagline.commands.train:plan",
    "predict": "tagline.commands.predict:predict",
    "runs": "tagline.runs",
    "serve": "tagline.commands.serve:serve",
    "sign": "tagline.commands.signatures:sign",
    "train": "tagline.commands.train:train",
    "verify": "tagline.commands.signatures:verify",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import tagline` is quick."""
    return import_on_use(__name__, name, _PUBLIC)


def __dir__() -> list[str]:
    """List the module's names, public names not yet imported included."""
    return sorted({*globals(), *_PUBLIC})
