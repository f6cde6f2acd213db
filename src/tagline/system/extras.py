"""Optional packages: which extra of Tagline brings each of them, and the error if one is not installed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from importlib.util import find_spec

from tagline.errors import PlaceError

COLLECTIONS = frozenset({"all", "dev"})
"""Extras that combine other extras: never the smallest one that brings a package."""
PROVIDERS = {
    "google": "google-cloud-aiplatform",
    "google_crc32c": "google-cloud-storage",
    "huggingface_hub": "transformers",
    "requests": "google-cloud-storage",
    "sklearn": "scikit-learn",
}
"""Modules whose name differs from the requirement that provides them."""


@contextmanager
def explain_missing_packages() -> Iterator[None]:
    """Turn a failed import of an optional package into a PlaceError with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if explained := explain_import_error(error):
            raise explained from error
        raise


def explain_import_error(error: ModuleNotFoundError) -> PlaceError | None:
    """Return the error for a missing module of one of Tagline's requirements; None for any other module."""
    requirement = find_requirement(error.name or "")
    if not requirement:
        return None
    return PlaceError(f"this needs the package {requirement}, which is not installed", hint=hint_for(requirement))


def find_requirement(module: str) -> str:
    """Return the requirement of Tagline that provides a missing module; "" if none does."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        prefix = ".".join(parts[:end])
        requirement = PROVIDERS.get(prefix) or normalize_name(prefix)
        if requirement in _extras_by_requirement():
            # A submodule missing from an installed package means an incompatible version, which is a bug in Tagline.
            is_part = end < len(parts) and parts[0] != "google"
            return "" if is_part and _can_import(prefix) else requirement
    return ""


def hint_for(requirement: str) -> str:
    """Return the command that installs a requirement of Tagline: its extra, or Tagline itself."""
    extra = _extras_by_requirement().get(normalize_name(requirement), "")
    return install_command(extra)


def install_command(extra: str) -> str:
    """Return the command that installs an extra, or Tagline itself if the extra is empty."""
    return f'pip install "tagline[{extra}]"' if extra else "pip install tagline"


def missing_requirements(extra: str) -> list[str]:
    """Return the requirements of an extra that are not installed."""
    return [name for name in _requirements_by_extra().get(extra, []) if not _is_installed(name)]


def normalize_name(name: str) -> str:
    """Return a package's name in the normalised form that package indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_installed(requirement: str) -> bool:
    try:
        metadata.version(requirement)
    except metadata.PackageNotFoundError:
        return False
    return True


def _can_import(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of a parent package
        return False


@cache
def _extras_by_requirement() -> dict[str, str]:
    """Map each requirement to the smallest extra that has it, "" for those always installed."""
    by_size = sorted(_requirements_by_extra().items(), key=lambda item: (item[0] != "", len(item[1])))
    return {name: extra for extra, names in reversed(by_size) for name in names}


@cache
def _requirements_by_extra() -> dict[str, list[str]]:
    """Map each extra to its requirements by the installed metadata; those of no extra are under the empty name."""
    from packaging.requirements import Requirement

    try:
        package = metadata.metadata("tagline")
    except metadata.PackageNotFoundError:  # run from source without being installed
        return {}
    requirements: dict[str, list[str]] = {"": []}
    requirements |= {extra: [] for extra in package.get_all("Provides-Extra") or [] if extra not in COLLECTIONS}
    for line in package.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        marker = requirement.marker
        is_always_needed = marker is None or marker.evaluate({"extra": ""})
        for extra, names in requirements.items():
            is_needed = is_always_needed if extra == "" else marker and marker.evaluate({"extra": extra})
            if is_needed and not (extra and is_always_needed):
                names.append(normalize_name(requirement.name))
    return requirements
