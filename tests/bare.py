"""Python as it is where only the base install is: importing what training needs is an error."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import tagline

SERVING_LACKS = (
    "torch",
    "transformers",
    "sklearn",
    "scipy",
    "pyarrow",
    "google",
    "optuna",
    "peft",
    "datasets",
    "starlette",
    "uvicorn",
    "cryptography",
    "vertex_rehearsal",
)


def run_bare(code: str, *arguments: str) -> str:
    """What a piece of Python prints there."""
    refuse = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SERVING_LACKS!r}:
            raise ModuleNotFoundError(name + " is not installed", name=name)
sys.meta_path.insert(0, Refuse())
"""
    done = subprocess.run(
        [sys.executable, "-c", refuse + code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_environment(directory: Path, *extras: str) -> dict[str, str]:
    """The variables of an environment that has Tagline and what these extras bring, and no other package.

    A directory of links to what is installed here, for `python -S`, which looks for packages in no other.
    """
    for name in sorted(_required({"tagline": set(extras)})):
        for file in metadata.files(name) or ():
            if ".." not in file.parts and file.parts[0] != "__pycache__":
                _link(directory, Path(str(file.locate())).parents[len(file.parts) - 1], file.parts)
    sources = Path(tagline.__file__).parents[1]
    return {"PYTHONPATH": f"{directory}:{sources}", "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "")}


def _link(directory: Path, installed: Path, parts: Sequence[str]) -> None:
    """A link to the package that a file is of, or to the file: several packages may share a namespace above theirs."""
    for end in range(1, len(parts) + 1):
        here, there = directory.joinpath(*parts[:end]), installed.joinpath(*parts[:end])
        if here.is_symlink() or not there.exists():
            return
        if end == len(parts) or (there / "__init__.py").exists():
            here.parent.mkdir(parents=True, exist_ok=True)
            here.symlink_to(there)
            return


def _required(wanted: dict[str, set[str]]) -> set[str]:
    """Every package that these ones need, with their extras."""
    found: set[str] = set()
    waiting = [(name, extra) for name, extras in wanted.items() for extra in ("", *extras)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # optional, and not here
            continue
        found.add(name)
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                waiting += [(requirement.name, each) for each in ("", *requirement.extras)]
    return found
