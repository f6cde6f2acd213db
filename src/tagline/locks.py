"""Lock: what a run depends on, and what has changed since it was written."""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from tagline import __version__, devices, registry
from tagline.dataset import Dataset
from tagline.spec import Spec
from tagline.workers import world

LOCKED_PACKAGES = (
    "numpy", "scipy", "scikit-learn", "pyarrow", "torch", "transformers", "tokenizers", "spacy", "sentencepiece",
    "onnxruntime",
)  # fmt: skip


def lock_of(spec: Spec, data: Dataset, *, command: str, job: str = "") -> dict[str, Any]:
    """What a run depends on, and what it would take to make it again."""
    return planned(spec, command=command) | found_here(spec, data, job=job)


def planned(spec: Spec, *, command: str) -> dict[str, Any]:
    """What is known of a run before it begins, maybe on another machine."""
    return {
        "spec_fingerprint": spec.fingerprint(),
        "settings": spec.settings(),
        "seed": spec.training.seed,
        "git_commit": _git_commit(),
        "command": command,
        "directory": str(Path.cwd()),
    }


def found_here(spec: Spec, data: Dataset, *, job: str = "") -> dict[str, Any]:
    """What is known once it begins, on the machine that it begins on."""
    uses_device = registry.find("models", spec.model.family).uses_device  # type: ignore[attr-defined]
    device = devices.choose(devices.found(), local_rank=world().local_rank) if uses_device else None
    return {
        "data_fingerprint": data.fingerprint,
        "device": f"{device.kind}: {device.name}" if device else "cpu",
        "processors": devices.core_count(),
        "workers": world().size,
        "job": job,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of Tagline, Python and the packages that can change a result; one that is not installed is left out."""
    found = {"tagline": __version__, "python": sys.version.split()[0]}
    for package in LOCKED_PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def changes(lock: Mapping[str, Any], spec: Spec) -> str:
    """Which settings of a spec are not those of the lock, and how; empty if none is."""
    if spec.fingerprint() == lock["spec_fingerprint"]:
        return ""
    before, now = lock.get("settings", {}), spec.settings()
    changed = [f"{key} was {old!r} and is {now.get(key)!r}" for key, old in before.items() if old != now.get(key)]
    return "; ".join(changed) or "it is another spec"


def _git_commit() -> str:
    """The commit of the working directory, if it is in a repository and git is there."""
    try:
        result = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip()
