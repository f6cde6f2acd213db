"""What every test may ask for: the sample data, the real corpora, and the command line as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "examples" / "support"
CORPORA = Path(os.environ.get("TAGLINE_DATA", ROOT.parent / "shared" / "data"))


@dataclass(frozen=True)
class Result:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


@pytest.fixture
def support() -> Path:
    """The directory of the sample data."""
    return SUPPORT


@pytest.fixture
def corpus() -> Callable[[str], Path]:
    """A file of the real corpora; skips the test where they are missing."""

    def find(name: str) -> Path:
        path = CORPORA / name
        if not path.exists():
            pytest.skip(f"{path} is missing (set TAGLINE_DATA)")
        return path

    return find


@pytest.fixture
def tagline(tmp_path: Path) -> Callable[..., Result]:
    """Run `tagline ARGUMENTS...` as a process of its own, in an empty directory."""

    def run(*arguments: str | Path, stdin: str | bytes = b"", cwd: Path = tmp_path) -> Result:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "tagline", *map(str, arguments)],
            input=content, capture_output=True, cwd=cwd, timeout=300, check=False,
        )  # fmt: skip
        result = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in result.err, result.err
        return result

    return run
