"""Runs as jobs on another machine: plan, check, price, submit and follow them, and explain their failures.

Files, in the order of their imports:

- prices.py: What a job would cost: by the hour from the table of machines, and how many hours it may take.
- uploads.py: What of this machine a job in a bucket's reach needs: the files its spec names, each at an address of
  its own.
- custom_job.py: A run as a custom job of Vertex AI: the request, as the REST API takes it, and the same for gcloud.
- diagnosis/: Why a job failed: its log, the root of its traceback, known causes and what helps.
- launchers/: The contract of a launcher, which takes a job to a place, and what it is told about the job.
- records.py: Jobs: what a run remembers of the job that does it, how it is watched, why it failed, and where it
  goes next.
- throughput.py: How fast earlier runs have learned, read from their events, for those who want to know how long
  another will take.
- emulator.py: The local emulator of Vertex AI, a distribution of its own: found, started and stopped, its errors
  made Tagline's.
- places.py: Where a training runs: this machine, the emulator of Vertex AI, or Vertex AI itself.
- plans.py: The job that a spec makes, and Plan: what would be submitted, as `tagline train --plan --json` prints
  it.
- preflight.py: Everything that is wrong with a training and the place it would go to, and its price, before
  anything is spent.
- launch.py: A training as a job: planned, checked, priced, submitted, followed, moved to a fallback, and brought
  home.
"""

from typing import Any

from tagline.system.lazy_names import import_on_use

COMMANDS = {
    "list": "tagline.commands.jobs:list_",
    "show": "tagline.commands.jobs:show",
    "logs": "tagline.commands.jobs:logs",
    "cancel": "tagline.commands.jobs:cancel",
}
"""The commands of `tagline jobs` as functions: each is imported from a later room when it is first used."""


def __getattr__(name: str) -> Any:
    """Import a command's function."""
    return import_on_use(__name__, name, COMMANDS)


def __dir__() -> list[str]:
    """Return all names, including those that are not imported yet."""
    return sorted({*globals(), *COMMANDS})
