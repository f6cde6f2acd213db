"""Runs: their directories, local or in a bucket, their locks and events, and trackers that record them elsewhere.

Files, in the order of their imports:

- stores/: The contract of a store, which holds the files of a run: a local directory, or Cloud Storage mirrored in
  one.
- formats.py: The files of a run, beside its report and events: their names, contents and readers.
- checkpoints.py: Progress: the record of a run's checkpoints, those to keep and those to fall back to if one is
  damaged.
- names.py: Names of runs: chosen by the time, checked, and listed.
- events.py: Event: something that happens in a run, with a frozen model for each kind of line of events.jsonl.
- lock.py: Lock: what a run depends on, and how a spec or data differ from it.
- run.py: Run: one training of a spec, local or in a bucket: its spec, lock, state, events, checkpoints and results.
- lookup.py: Lookup of runs by name, local or in a bucket: listing, opening, downloading, and their bundles.
- notifications.py: Notifications that a training or job has ended: to a command, a webhook, or e-mail by the user's
  own server.
- resource_usage.py: Resource usage of a training (processor, memory, GPUs): sampled while it runs, summarised
  afterwards.
- trackers/: The contract of a tracker, which records a run elsewhere, and the delivery of events in a thread of its
  own.
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
