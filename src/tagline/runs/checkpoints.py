"""Progress: the record of a run's checkpoints, those to keep and those to fall back to if one is damaged."""

from dataclasses import dataclass, field, replace

from pydantic import ConfigDict, with_config

from tagline.runs import formats
from tagline.runs.stores import RunStore
from tagline.storage import hashing

PROGRESS = "checkpoints/progress.json"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Progress:
    """The progress from which a run resumes: its last and best checkpoint, and the record up to there."""

    last: str = ""
    best: str = ""
    best_value: float | None = None
    best_settings: dict[str, int | float] = field(default_factory=dict)
    """`int` and `float`, so that an integer option is read back as an integer."""
    evaluations_without_gain: int = 0
    events: int = 0
    """Lines of events.jsonl that were written before the last checkpoint."""
    seconds: float = 0.0
    """Training time over all attempts."""
    stopped: str = ""
    """Why training ended before its last step: patience (early stopping) or budget."""
    time: str = ""
    """When the last checkpoint was made."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file of the last checkpoint; empty in runs of versions that did not record them."""
    earlier: list["Progress"] = field(default_factory=list)
    """The progress at earlier best checkpoints, newest first: the fallbacks of `find_intact_progress` when a later one
    is damaged."""

    @property
    def checkpoints(self) -> list[str]:
        """The checkpoints that must be kept."""
        names = (self.last, self.best, *(record.last for record in self.earlier))
        return [name for name in dict.fromkeys(names) if name]

    @property
    def hashes(self) -> dict[str, dict[str, str]]:
        """SHA-256 of each file of each checkpoint, by the checkpoint's name, where they were recorded."""
        return {record.last: record.files for record in (self, *self.earlier) if record.files}

    def with_earlier_bests(self, previous: "Progress") -> "Progress":
        """Return this progress with its fallbacks: the best checkpoint, and the one that was best before."""
        records = (previous, *previous.earlier)
        bests = [replace(each, earlier=[]) for each in records if each.last and each.last == each.best != self.last]
        return replace(self, earlier=bests[: 1 if self.last == self.best else 2])


def format_directory(name: str) -> str:
    """Return a checkpoint's directory, below its run."""
    return f"checkpoints/{name}"


def read_progress(store: RunStore) -> Progress:
    """Read the last checkpoint's progress; an empty one if there is none."""
    if not store.local_path(PROGRESS).is_file():
        return Progress()
    progress = formats.read_as(store, PROGRESS, Progress)
    if not all(name.isdecimal() for name in progress.checkpoints) or progress.events < 0:
        named = f"it names {', '.join(progress.checkpoints)} after {progress.events} events"
        raise formats.make_damage_error(store, PROGRESS, named)
    return progress


def find_intact_progress(store: RunStore) -> tuple[Progress, str]:
    """Return the newest progress whose checkpoints are undamaged, and the damage of later ones, if any.

    If no checkpoint is left, training starts from the beginning, with the same result.
    """
    progress, problems = read_progress(store), []
    while progress.last:
        problem = describe_damage(store, progress, progress.last) or describe_damage(store, progress, progress.best)
        if not problem:
            break
        if problem not in problems:
            problems.append(problem)
        progress = replace(progress.earlier[0], earlier=progress.earlier[1:]) if progress.earlier else Progress()
    return progress, "; ".join(problems)


def describe_damage(store: RunStore, progress: Progress, name: str) -> str:
    """Return what is wrong with a checkpoint's files; empty if they match their hashes, or none were recorded."""
    recorded = progress.hashes.get(name, {})
    if name and recorded:
        store.fetch_directory(format_directory(name))
    for file, expected in recorded.items():
        path = f"{format_directory(name)}/{file}"
        try:
            actual = hashing.hash_file(store.directory / path)
        except FileNotFoundError:
            return f"{store.address}/{path} is missing"
        except OSError as error:
            return f"{store.address}/{path} cannot be read: {error.strerror}"
        if actual != expected:
            return f"{store.address}/{path} has changed since it was written"
    return ""
