"""AttemptContext: what one attempt at a run works with, from its first step to its report."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tagline.data.checks import Finding
from tagline.data.dataset import Dataset, Split
from tagline.models import Scores
from tagline.prediction.decisions import TunedDecisions, tune
from tagline.runs.events import Event
from tagline.runs.resource_usage import UsageSampler
from tagline.runs.run import Run
from tagline.spec import Spec


@dataclass(frozen=True)
class AttemptContext:
    """A run with its spec, data and findings."""

    run: Run
    spec: Spec
    data: Dataset
    findings: Sequence[Finding]
    """What the checks of the data found."""
    usage: UsageSampler = field(default_factory=UsageSampler)

    @property
    def family(self) -> str:
        return self.spec.model.family

    def record(self, event: Event) -> Event:
        """Append an event to the run, with the time."""
        written = event.model_copy(update={"time": datetime.now(UTC).isoformat()})
        self.run.append_event(written)
        return written

    def tune_decisions(self, scores: Scores, split: Split, *, is_quick: bool = False) -> TunedDecisions:
        """Tune a decision layer on the scores of a split."""
        return tune(
            self.spec.decisions,
            task=self.data.task,
            labels=self.data.labels,
            none_label=self.data.none_label,
            scores=scores,
            truth=split.targets,
            is_quick=is_quick,
        )


@dataclass
class Clock:
    """Training time, that of earlier attempts included, against its budget."""

    before: float
    budget_s: float

    def __post_init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        return self.before + time.monotonic() - self._start

    def is_over(self) -> bool:
        return 0 < self.budget_s <= self.seconds()
