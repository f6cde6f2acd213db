"""Writes train.txt and dev.txt: the versions of constraints.txt with the hash of every file that may be installed.

Run by `make lock`, in an environment where everything is installed: what each extra needs is read from there, and the
hashes from the package index that pip is set to.
"""

import os
import re
import sys
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pip._internal.models.index import PyPI  # where pip itself looks unless it is told otherwise

from tagline.images import wheels

HERE = Path(__file__).parent
PYTHON = (3, 11)
"""For other versions `make setup` installs by version alone: another Python may need other packages."""
BUILD = ("editables", "hatchling")
"""The build backend, for an editable install without a build environment of its own."""
WITHOUT_HASH = ("torch",)
"""Installed by version: which build of it there is (CPU, CUDA) is the index's choice."""
LINK = re.compile(r'<a\s[^>]*href="[^"#]*#sha256=([0-9a-f]{64})"[^>]*>\s*([^<\s]+)\s*</a>')
HEADER = (
    "# Made by `make lock` from constraints.txt, for Python 3.11 on any platform. torch is installed beside these.\n"
)


def main() -> None:
    pins = read_pins(HERE.parent / "constraints.txt")
    build = [pin for name in BUILD for pin in wheels.list_pins(of=name)]
    train = select(pins, [*wheels.list_pins("train"), *build])
    rest = [name for name in pins if name not in train and name not in WITHOUT_HASH]
    for file, names in {"train.txt": train, "dev.txt": rest}.items():
        text = HEADER + "".join(format_requirement(name, pins[name]) for name in names)
        (HERE / file).write_text(text)
        sys.stdout.write(f"wrote requirements/{file}: {len(names)} packages\n")


def read_pins(path: Path) -> dict[str, str]:
    """The version of each package."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in sorted(pins)}


def select(pins: Iterable[str], needed: Sequence[str]) -> list[str]:
    """The pinned packages among those that are needed."""
    names = {need.partition("==")[0] for need in needed} - set(WITHOUT_HASH)
    if missing := sorted(names - set(pins)):
        sys.exit(f"constraints.txt has no version of {', '.join(missing)}")
    return [name for name in pins if name in names]


def format_requirement(name: str, version: str) -> str:
    """A requirement with the hashes of the files that this Python can install."""
    hashes = fetch_hashes(name, version)
    if not hashes:
        sys.exit(f"the package index has no file of {name} {version} for Python {'.'.join(map(str, PYTHON))}")
    return " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{each}" for each in hashes)]) + "\n"


def fetch_hashes(name: str, version: str) -> list[str]:
    """As the package index has them."""
    index = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")
    with urllib.request.urlopen(f"{index}/{name}/", timeout=60) as response:
        page = response.read().decode()
    return sorted({sha256 for sha256, file in LINK.findall(page) if is_installable(file, version)})


def is_installable(file: str, version: str) -> bool:
    """Whether a file is of this version and, if it is a wheel, for this Python."""
    try:
        if not file.endswith(".whl"):
            return parse_sdist_filename(file)[1] == Version(version)
        _, found, _, tags = parse_wheel_filename(file)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return False
    return found == Version(version) and any(fits_python(tag.interpreter, tag.abi) for tag in tags)


def fits_python(interpreter: str, abi: str) -> bool:
    """Whether a wheel's tag is for this Python."""
    if interpreter.startswith("py3"):
        return True
    major, minor = PYTHON
    match = re.fullmatch(rf"cp{major}(\d+)", interpreter)
    if match is None:
        return False
    return int(match[1]) <= minor if abi == "abi3" else int(match[1]) == minor


if __name__ == "__main__":
    main()
