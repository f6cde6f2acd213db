"""Google's prebuilt training images: their versions and end dates, and whether Tagline can run in one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from tagline.images import wheels

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

SOURCE = "https://docs.cloud.google.com/vertex-ai/docs/training/pre-built-containers"
"""As of 2026; the page has no date."""
ADDRESS = re.compile(r"(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai/training/(?P<name>[^/:@]+)(?::(?P<tag>[\w.-]+))?")
SCHEME = re.compile(r"pytorch-(?P<device>gpu|xla|cpu|tpu)\.(?P<torch>\d+-\d+)(?:\.[pc][yp](?P<python>3\d+))?")
"""Google's naming scheme; an image without a Python version has 3.7."""
INSTEAD = 'use our own image: vertex.image = ""'


@dataclass(frozen=True)
class PrebuiltImage:
    """One of Google's images with PyTorch."""

    name: str
    python: str
    torch: str
    device: str
    """gpu, cpu or tpu; older GPU images also run on CPUs."""
    ends: date | None = None
    """The last day of its availability, where Google has announced one."""


def _iter_known_images() -> Iterator[tuple[str, date]]:
    retired = date(2024, 9, 1)
    for version in ("1-4", "1-6", "1-7", "1-9", "1-10", "1-11"):
        yield f"pytorch-gpu.{version}", retired
        yield f"pytorch-{'cpu' if version == '1-4' else 'xla'}.{version}", retired
    yield "pytorch-gpu.1-12", retired
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
    """Return whether an image is one of Google's for training, which takes a Python package."""
    return ADDRESS.fullmatch(image) is not None


def describe_image(image: str) -> PrebuiltImage | None:
    """Describe one of Google's images by its name and the table; None if the name does not follow the scheme."""
    address = ADDRESS.fullmatch(image)
    parts = SCHEME.fullmatch(address["name"]) if address else None
    if not address or not parts:
        return None
    python = parts["python"] or "37"
    device = "gpu" if parts["device"] == "gpu" else "tpu" if parts["device"] == "tpu" else "cpu"
    torch = parts["torch"].replace("-", ".")
    return PrebuiltImage(address["name"], f"{python[0]}.{python[1:]}", torch, device, ENDS.get(address["name"]))


def find_misfits(image: str, today: date, *, gpu: bool | None = None) -> list[str]:
    """Return the reasons why Tagline cannot run in one of Google's images; `gpu` says whether the machine has one.

    An image that is newer than the table is judged by its name.
    """
    from packaging.version import Version

    described = describe_image(image)
    if described is None:
        return [f"{image} is none of Google's images with PyTorch that are known here ({SOURCE}); {INSTEAD}"]
    python, torch = find_minimum_versions()
    problems = []
    if Version(described.python) < Version(python):
        problems.append(f"{described.name} has Python {described.python}, and Tagline needs {python}")
    if Version(described.torch) < Version(torch):
        problems.append(f"{described.name} has torch {described.torch}, and Tagline needs {torch}")
    if described.ends and described.ends < today:
        problems.append(f"{described.name} has not been available since {described.ends:%Y-%m-%d}")
    if described.device == "tpu" or (gpu and described.device == "cpu"):
        problems.append(f"{described.name} is for {described.device.upper()}s, and would leave the machine's GPUs idle")
    return [f"{problem}; {INSTEAD}" for problem in problems]


def find_minimum_versions() -> tuple[str, str]:
    """Return the minimum versions of Python and torch from Tagline's metadata."""
    from packaging.specifiers import SpecifierSet

    python = SpecifierSet(wheels.find_distribution().metadata["Requires-Python"])
    return _lowest_version(python), _lowest_version(wheels.find_specifier("torch"))


def _lowest_version(versions: "SpecifierSet") -> str:
    return next(each.version for each in versions if each.operator == ">=")
