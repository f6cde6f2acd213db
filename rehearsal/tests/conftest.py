"""What the emulator's tests share: its command line as a process, and a browser for its page."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from chromium import browser
from python_processes import run_python

__all__ = ["browser"]

os.environ["NO_GCE_CHECK"] = "true"  # else Google's packages look for a metadata server for seconds
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of a shell's background: processes under test would not hear it
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "emulator", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("emulator")


@dataclass(frozen=True)
class CommandResult:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


@pytest.fixture
def vertex_rehearsal(tmp_path: Path) -> Callable[..., CommandResult]:
    """Run `vertex-rehearsal ARGUMENTS...` as a process of its own, in an empty directory."""

    def run(*arguments: str | Path) -> CommandResult:
        done = run_python("-W", "error", "-m", "vertex_rehearsal", *arguments, cwd=tmp_path, text=True)
        assert "Traceback" not in done.stderr, done.stderr
        return CommandResult(done.returncode, done.stdout, done.stderr)

    return run
