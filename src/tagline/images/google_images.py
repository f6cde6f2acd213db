"""Google's own images for training, and whether Tagline fits into one: facts with their dates."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from tagline.images import wheels

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

SOURCE = "https://docs.cloud.google.com/vertex-ai/docs/training/pre-built-containers"
"""As it was in 2026; the page bears no date."""
ADDRESS = re.compile(r"(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai/training/(?P<name>[^/:@]+)(?::(?P<tag>[\w.-]+))?")
SCHEME = re.compile(r"pytorch-(?P<device>gpu|xla|cpu|tpu)\.(?P<torch>\d+-\d+)(?:\.[pc][yp](?P<python>3\d+))?")
"""What Google's names say; one without a Python has 3.7."""
INSTEAD = 'use our own image: vertex.image = ""'


@dataclass(frozen=True)
class PrebuiltImage:
    """An image with PyTorch in it."""

    name: str
    python: str
    torch: str
    device: str
    """gpu, or cpu; older ones of Google's GPU images do for both."""
    ends: date | None = None
    """Of its availability, where Google has said one."""


def _iter_known_images() -> Iterator[tuple[str, date]]:
    long_gone = date(2024, 9, 1)
    for version in ("1-4", "1-6", "1-7", "1-9", "1-10", "1-11"):
        yield f"pytorch-gpu.{version}", long_gone
        yield f"pytorch-{'cpu' if version == '1-4' else 'xla'}.{version}", long_gone
    yield "pytorch-gpu.1-12", long_gone
    yield "pytorch-gpu.1-13", date(2024, 12, 8)
    for version in ("1-12", "1-13"):
        yield f"pytorch-gpu.{version}.py310", date(2025, 5, 15)
    for version, ends in (
        ("2-0", date(2025, 3, 15)),
        ("2-1", date(2025, 10, 4)),
        ("2-2", date(2026, 1, 30)),
        ("2-3", date(2026, 4, 24)),
        ("2-4", date(2026, 7, 24)),
    ):
        yield f"pytorch-gpu.{version}.py310", ends
        yield f"pytorch-xla.{version}.py310", date(2026, 10, 23) if version == "2-2" else ends


ENDS = dict(_iter_known_images())
"""PyTorch images by name, each with the last day of its availability."""


def is_prebuilt(image: str) -> bool:
    """Whether an image is one of Google's for training, which takes a Python package."""
    return ADDRESS.fullmatch(image) is not None


def describe_image(image: str) -> PrebuiltImage | None:
    """What is in one of Google's images, from the table and from its name; none if neither says."""
    address = ADDRESS.fullmatch(image)
    said = SCHEME.fullmatch(address["name"]) if address else None
    if not address or not said:
        return None
    python = said["python"] or "37"
    device = "gpu" if said["device"] == "gpu" else "tpu" if said["device"] == "tpu" else "cpu"
    torch = said["torch"].replace("-", ".")
    return PrebuiltImage(address["name"], f"{python[0]}.{python[1:]}", torch, device, ENDS.get(address["name"]))


def find_misfits(image: str, today: date, *, gpu: bool | None = None) -> list[str]:
    """Why Tagline cannot run in one of Google's images, each a sentence; `gpu`: whether the machine has one.

    A name that follows Google's scheme and is newer than the table is judged by what it says.
    """
    from packaging.version import Version

    found = describe_image(image)
    if found is None:
        return [f"{image} is none of Google's images with PyTorch that are known here ({SOURCE}); {INSTEAD}"]
    python, torch = find_minimum_versions()
    problems = []
    if Version(found.python) < Version(python):
        problems.append(f"{found.name} has Python {found.python}, and Tagline needs {python}")
    if Version(found.torch) < Version(torch):
        problems.append(f"{found.name} has torch {found.torch}, and Tagline needs {torch}")
    if found.ends and found.ends < today:
        problems.append(f"{found.name} has not been available since {found.ends:%Y-%m-%d}")
    if found.device == "tpu" or (gpu and found.device == "cpu"):
        problems.append(f"{found.name} is for {found.device.upper()}s, and would leave the machine's GPUs idle")
    return [f"{problem}; {INSTEAD}" for problem in problems]


def find_minimum_versions() -> tuple[str, str]:
    """The oldest Python and the oldest torch that Tagline runs with, as it says itself."""
    from packaging.specifiers import SpecifierSet

    python = SpecifierSet(wheels.find_distribution().metadata["Requires-Python"])
    return _lowest_version(python), _lowest_version(wheels.find_specifier("torch"))


def _lowest_version(versions: "SpecifierSet") -> str:
    return next(each.version for each in versions if each.operator == ">=")
