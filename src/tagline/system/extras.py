"""Optional packages: which extra of Tagline brings each of them, and what to say where one is not installed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from importlib.util import find_spec

from tagline.errors import PlaceError

COLLECTIONS = frozenset({"all", "dev"})
"""Extras that gather others: never the shortest way to a package."""
PROVIDERS = {
    "google": "google-cloud-aiplatform",
    "google_crc32c": "google-cloud-storage",
    "huggingface_hub": "transformers",
    "requests": "google-cloud-storage",
    "sklearn": "scikit-learn",
}
"""Modules that are not called as the requirement that brings them."""


@contextmanager
def explain_missing_packages() -> Iterator[None]:
    """Raise a PlaceError with the command that helps where an optional package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if explained := explain_import_error(error):
            raise explained from error
        raise


def explain_import_error(error: ModuleNotFoundError) -> PlaceError | None:
    """The error for a module of a package that Tagline names in its requirements; None for any other module."""
    requirement = find_requirement(error.name or "")
    if not requirement:
        return None
    return PlaceError(f"this needs the package {requirement}, which is not installed", hint=hint_for(requirement))


def find_requirement(module: str) -> str:
    """The requirement of Tagline that brings a missing module; empty if none does."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        prefix = ".".join(parts[:end])
        requirement = PROVIDERS.get(prefix) or normalize_name(prefix)
        if requirement in _extras_by_requirement():
            # A part that is missing from a package that is there is a matter of its version, and a bug of ours.
            is_part = end < len(parts) and parts[0] != "google"
            return "" if is_part and _can_import(prefix) else requirement
    return ""


def hint_for(requirement: str) -> str:
    """The command that installs a requirement of Tagline: its extra, or Tagline itself."""
    extra = _extras_by_requirement().get(normalize_name(requirement), "")
    return install_command(extra)


def install_command(extra: str) -> str:
    """The command that installs an extra; for none, what Tagline always needs."""
    return f'pip install "tagline[{extra}]"' if extra else "pip install tagline"


def missing_requirements(extra: str) -> list[str]:
    """The requirements of an extra that are not installed."""
    return [name for name in _requirements_by_extra().get(extra, []) if not _is_installed(name)]


def normalize_name(name: str) -> str:
    """A package's name as package indexes compare it."""
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
    except ImportError:  # of the package above it
        return False


@cache
def _extras_by_requirement() -> dict[str, str]:
    """Each requirement and the smallest extra that has it; empty for what is always installed."""
    by_size = sorted(_requirements_by_extra().items(), key=lambda item: (item[0] != "", len(item[1])))
    return {name: extra for extra, names in reversed(by_size) for name in names}


@cache
def _requirements_by_extra() -> dict[str, list[str]]:
    """The requirements of each extra, and under the empty name those that have none, as the installed metadata has
    them."""
    from packaging.requirements import Requirement

    try:
        about = metadata.metadata("tagline")
    except metadata.PackageNotFoundError:  # run from its sources, and never installed
        return {}
    found: dict[str, list[str]] = {"": []}
    found |= {extra: [] for extra in about.get_all("Provides-Extra") or [] if extra not in COLLECTIONS}
    for line in about.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        marker = requirement.marker
        is_always_needed = marker is None or marker.evaluate({"extra": ""})
        for extra, names in found.items():
            is_needed = is_always_needed if extra == "" else marker and marker.evaluate({"extra": extra})
            if is_needed and not (extra and is_always_needed):
                names.append(normalize_name(requirement.name))
    return found
