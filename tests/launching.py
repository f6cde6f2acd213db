"""`tagline` commands against a rehearsal that stands for Google, in this process, as jobs are in theirs."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rehearsing import Rehearsal, rehearsing
from tagline import gcp
from tagline.cli import run
from tagline.jobs import emulator

BUCKET = "tagline-rehearsal"
LINEAR = (
    "model.family=linear",
    "model.max_features=800",
    "model.strength=4.0",
    "model.characters=0",
    "vertex.accelerators=0",
)
TINY = (
    "model.max_tokens=16", "data.fraction=0.3", "training.epochs=2", "training.batch_size=30",
    "training.baseline=false", "training.export=false", "vertex.accelerators=0",
)  # fmt: skip
"""Of an encoder: quick, and the same whoever computes it."""


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which is one document."""
        assert self.code == 0, self.err
        return json.loads(self.out)


def command(*words: str | Path) -> Ran:
    """Run a command in this process."""
    arguments = list(map(str, words))
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        pytest.MonkeyPatch.context() as typed,
    ):
        typed.setattr(sys, "argv", ["tagline", *arguments])
        code = run(arguments)
    return Ran(code, out.getvalue(), err.getvalue())


@contextmanager
def google(directory: Path, *arguments: str) -> Iterator[Rehearsal]:
    """A rehearsal that stands for Google until the end, with a cache that nobody else uses."""
    with (
        pytest.MonkeyPatch.context() as patch,
        rehearsing(directory / "rehearsal", "--grace", "5", *emulator.start_options(), *arguments) as found,
    ):
        patch.setenv("XDG_CACHE_HOME", str(directory / "cache"))
        with gcp.use_rehearsal(found.address, found.token):
            yield found
