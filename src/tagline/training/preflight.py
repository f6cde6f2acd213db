"""Checks of a spec, its data and its model before a training begins: for check, train and launch."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tagline import registry
from tagline.data import checks, dataset
from tagline.data.checks import Finding, Severity
from tagline.data.dataset import Dataset, Task
from tagline.errors import DataError, PlaceError, SpecError, TaglineError
from tagline.evaluation import gates, metrics
from tagline.models import Classifier, ValidatesTexts
from tagline.prediction.bundle import create_classifier
from tagline.reports import compare
from tagline.spec import Data, Decisions, ModelOptions, Spec, Training, Tuning, changed_settings
from tagline.storage import inputs
from tagline.training import trials

USES = frozenset({"monitor", "patience", "max_minutes", "log_every", "seed", "baseline", "export"})
"""Keys of `[training]` that every family uses."""
LOOKED_AT = 500
"""Number of training texts whose fit to the model is checked."""


@dataclass(frozen=True)
class Preflight:
    """A spec with its data, and what the checks found."""

    spec: Spec
    data: Dataset
    of_data: tuple[Finding, ...]
    of_settings: tuple[Finding, ...] = ()
    of_model: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings: of the data, of unused settings, of the model."""
        return (*self.of_data, *self.of_settings, *self.of_model)

    @property
    def training_rows(self) -> int:
        """The number of rows to learn from."""
        return len(self.data.splits["train"])

    def insist_on_data(self) -> None:
        """Raise a DataError if the data cannot be trained on."""
        errors = [f"  {finding.message}: {finding.advice}" for finding in self.of_data if finding.severity == "error"]
        if errors:
            raise DataError("the data cannot be trained on:\n" + "\n".join(errors), hint="tagline check shows the rows")


def examine(
    spec: Spec,
    *,
    data: Dataset | None = None,
    runs: str | Path | None = None,
    is_here: bool = True,
    looks_at_model: bool = True,
) -> Preflight:
    """Load the data, unless it is given, and check it together with the spec and the model.

    `runs` are searched for what an earlier run on the same data measured. With `looks_at_model=False` no model is
    built: a training builds its own next, and a plan may not fetch one.
    """
    data = dataset.load(spec.data) if data is None else data
    metrics.check_monitor(spec.training.monitor, data.task)
    gates.check_names(spec.gates, task=data.task, labels=data.labels)
    of_data = checks.examine(data)
    if runs is not None and checks.has_few_shots(data) and (measured := compare.find_few_shot_result(data, runs=runs)):
        of_data = [measured if finding.code == measured.code else finding for finding in of_data]
    unused = (Finding("unused-setting", "warning", text, "leave it out") for text in find_unused(spec, data.task))
    of_model = examine_model(spec, data, is_here=is_here) if looks_at_model else []
    return Preflight(spec, data, tuple(of_data), tuple(unused), tuple(of_model))


def examine_readable_rows(data: Data) -> list[Finding]:
    """Return what else is wrong with data that has bad rows."""
    try:
        readable = dataset.load(data.model_copy(update={"bad_rows": "skip"}))
    except DataError:
        return []
    return [finding for finding in checks.examine(readable) if finding.code != "bad-rows"]


def new_model(spec: Spec, data: Dataset, options: ModelOptions) -> Classifier:
    """Create an untrained model of the spec's family."""
    return create_classifier(spec, options, task=data.task, labels=data.labels, pair=data.pair)


def examine_model(spec: Spec, data: Dataset, *, is_here: bool) -> list[Finding]:
    """Find what a training would refuse of `[model]`, such as a missing or wrong file, and what is
    doubtful about it.

    A family as it comes needs no look: that would take as long as torch takes to be imported. Of a training elsewhere,
    what is in a bucket is not fetched for that, and what this machine lacks is no reason not to go there.
    """
    if not is_here and "://" in spec.model.model_dump_json():
        return []
    try:
        if changed_settings(spec.model):
            new_model(spec, data, spec.model)
        return find_doubts(spec, data)
    except TaglineError as error:
        severity: Severity = "error" if is_here or not isinstance(error, PlaceError) else "warning"
        return [Finding("model", severity, error.message, error.hint or "mend [model] of the spec")]


def find_doubts(spec: Spec, data: Dataset) -> list[Finding]:
    """Return doubts about the model's fit to these texts."""
    family = registry.find("models", spec.model.family)
    if not isinstance(family, ValidatesTexts):
        return []
    return list(family.check_texts(spec.model, islice(data.splits["train"].texts, LOOKED_AT)))


def find_unused(spec: Spec, task: Task) -> list[str]:
    """List changed settings that have no effect on this family and task."""
    family = spec.model.family
    return [
        *unused_settings(spec.training, family),
        *unused_decisions(spec.decisions, task),
        *unused_tuning(spec.tuning),
    ]


def unused_settings(training: Training, family: str) -> list[str]:
    """List changed settings of `[training]` that this family does not use."""
    uses = registry.find("models", family).uses | USES
    return [f"training.{key} has no effect on family {family}" for key in changed_settings(training) if key not in uses]


def unused_decisions(decisions: Decisions, task: Task) -> list[str]:
    """List changed settings of `[decisions]` that this task does not use."""
    if task == "multi" or decisions.thresholds == "tuned":
        return []
    return ["decisions.thresholds has no effect on task single: the likeliest label is the answer"]


def unused_tuning(tuning: Tuning) -> list[str]:
    """List changed settings of `[tuning]` without effect; a trial of a tuning job uses its metric alone."""
    changed = [key for key in changed_settings(tuning) if key != "metric" or not trials.is_trial()]
    return [f"tuning.{key} has no effect: this version trains once and tunes nothing" for key in changed]


def can_share(spec: Spec) -> bool:
    """Return whether this spec's family supports distributed training."""
    return "sharding" in registry.find("models", spec.model.family).uses


def check_sharing(spec: Spec) -> None:
    """Refuse distributed training of a family without it, or of data that can be read only once."""
    if not can_share(spec):
        family = spec.model.family
        raise SpecError(f"family {family} learns in one process", hint="leave out --workers")
    named = (spec.data.train, spec.data.validation, spec.data.test)
    for address in (each for some in named for each in ((some,) if isinstance(some, str) else some)):
        if address == inputs.STANDARD_INPUT or Path(address).is_fifo():
            hint = "write it to a file first"
            raise SpecError(f"every worker reads the data, and {address} can be read only once", hint=hint)
