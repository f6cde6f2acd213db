"""Runs: their directories, local or in a bucket, their locks and events, and trackers that record them elsewhere.

Files, in the order of their imports:

- stores/: The contract of a store, which is where a run is: a directory of this machine, or Cloud Storage mirrored
  in one.
- formats.py: The files of a run, beside its report and events: what they are called, what they hold, and how they
  are read.
- checkpoints.py: Progress: the record of a run's checkpoints: which are kept, and which to go back to where one is
  damaged.
- names.py: Names of runs: chosen by the time, checked, and listed where they are taken.
- events.py: Event: what happens in a run, a frozen model for each kind of line of events.jsonl.
- lock.py: Lock: what a run depends on, and what has changed since it was written.
- run.py: Run: one attempt at a spec, wherever it is: its spec, lock, state, events, checkpoints and what came out.
- lookup.py: Runs found by name, here or in a bucket: listed, opened, downloaded, and their bundles.
- notifications.py: A word when a training or job has ended: to a command, a webhook, or an e-mail address by the
  user's own server.
- resource_usage.py: How much of processor, memory and GPUs a training uses: sampled while it learns, and summed up
  afterwards.
- trackers/: The contract of a tracker, which records a run elsewhere, and how a run's events get there without harm
  to it.
"""

from typing import Any

from tagline.system.lazy_names import import_on_use

COMMANDS = {
    "list": "tagline.commands.runs:list_",
    "show": "tagline.commands.runs:show",
    "report": "tagline.commands.runs:report",
    "delete": "tagline.commands.runs:delete",
}
"""The commands of `tagline runs` as functions: each is imported from a later room when it is first used."""


def __getattr__(name: str) -> Any:
    """Import a command's function when it is first used."""
    return import_on_use(__name__, name, COMMANDS)


def __dir__() -> list[str]:
    """Return all names, including those not imported yet."""
    return sorted({*globals(), *COMMANDS})
