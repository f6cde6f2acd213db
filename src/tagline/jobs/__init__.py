"""Runs as jobs on another machine: plan, check, price, submit and follow them, and explain their failures.

Files, in the order of their imports:

- prices.py: Price estimates of jobs: the hourly price from the table of machines, and the expected hours.
- uploads.py: Uploads: the local files that a spec names, each copied to a content-addressed place in the bucket.
- custom_job.py: The CustomJob of a run: the request of Vertex AI's REST API, and the same as a gcloud command.
- diagnosis/: Why a job failed: its log, the root of its traceback, known causes and what helps.
- launchers/: The contract of a launcher, which submits jobs to a place, and the types it uses.
- records.py: The record of a run's job in the run; watching a job, explaining its failure, and choosing its next
  fallback.
- throughput.py: Training rates of earlier runs, measured from their events, by which the duration of another is
  estimated.
- emulator.py: The local emulator of Vertex AI, a separate distribution: find, start and stop it, and translate its
  errors.
- places.py: The places where a training can run: this machine, the emulator of Vertex AI, or Vertex AI itself.
- plans.py: The job of a spec, and Plan: what would be submitted, as `tagline train --plan --json` prints it.
- preflight.py: Checks of a training and of its place, and its price, before anything is spent.
- launch.py: Launch a training as a job: plan, check, price, submit and follow it, move it to a fallback, download
  its run.
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
