"""Progress: the record of a run's checkpoints: which are kept, and which to go back to where one is damaged."""

from dataclasses import dataclass, field, replace

from pydantic import ConfigDict, with_config

from tagline.runs import formats
from tagline.runs.stores import RunStore
from tagline.storage import hashing

PROGRESS = "checkpoints/progress.json"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Progress:
    """What is needed to go on: the last and the best checkpoint, and what had happened by then."""

    last: str = ""
    best: str = ""
    best_value: float | None = None
    best_settings: dict[str, int | float] = field(default_factory=dict)
    """Some count and some measure: an option that is a whole number is read back as one."""
    evaluations_without_gain: int = 0
    events: int = 0
    """Lines of events.jsonl that were written before the last checkpoint."""
    seconds: float = 0.0
    """Spent on learning, over all attempts."""
    stopped: str = ""
    """Why learning ended before its last step: patience or budget."""
    time: str = ""
    """When the last checkpoint was made."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file of the last checkpoint; empty in runs of versions that did not record them."""
    earlier: list["Progress"] = field(default_factory=list)
    """The progress at earlier checkpoints that were the best of their time, newest first: what `find_intact_progress`
    goes back to when a later checkpoint is damaged."""

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
        """This progress with a way back: to the best checkpoint, and from there to the one that was best before."""
        records = (previous, *previous.earlier)
        bests = [replace(each, earlier=[]) for each in records if each.last and each.last == each.best != self.last]
        return replace(self, earlier=bests[: 1 if self.last == self.best else 2])


def format_directory(name: str) -> str:
    """A checkpoint's directory, below its run."""
    return f"checkpoints/{name}"


def read_progress(store: RunStore) -> Progress:
    """The last checkpoint's progress, or none."""
    if not store.local_path(PROGRESS).is_file():
        return Progress()
    progress = formats.read_as(store, PROGRESS, Progress)
    if not all(name.isdecimal() for name in progress.checkpoints) or progress.events < 0:
        named = f"it names {', '.join(progress.checkpoints)} after {progress.events} events"
        raise formats.make_damage_error(store, PROGRESS, named)
    return progress


def find_intact_progress(store: RunStore) -> tuple[Progress, str]:
    """The newest progress whose checkpoints are undamaged, and what is wrong with later ones, if anything is.

    Where no checkpoint is left, learning starts from the beginning: it comes to the same end, only later.
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
    """What is wrong with a checkpoint's files; nothing where they are as recorded, or no hashes were recorded."""
    recorded = progress.hashes.get(name, {})
    if name and recorded:
        store.fetch_directory(format_directory(name))
    for file, expected in recorded.items():
        where = f"{format_directory(name)}/{file}"
        try:
            found = hashing.hash_file(store.directory / where)
        except FileNotFoundError:
            return f"{store.address}/{where} is missing"
        except OSError as error:
            return f"{store.address}/{where} cannot be read: {error.strerror}"
        if found != expected:
            return f"{store.address}/{where} has changed since it was written"
    return ""
