"""Lock: what a run depends on, and how a spec or data differ from it."""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from tagline import __version__, registry
from tagline import spec as specs
from tagline.models.nn import devices
from tagline.models.nn.workers import world
from tagline.spec import Spec
from tagline.storage import addresses, hashing

if TYPE_CHECKING:
    from tagline.data.dataset import Dataset

PRETRAINED_KEYS = ("pretrained", "pretrained_backward", "vectors")
"""Keys of `[model]` that name pretrained weights."""
LOCKED_PACKAGES = (
    "numpy", "scipy", "scikit-learn", "pyarrow", "torch", "transformers", "tokenizers", "spacy", "sentencepiece",
    "onnxruntime",
)  # fmt: skip


def create_lock(spec: Spec, data: "Dataset", *, command: str, job: str = "") -> dict[str, Any]:
    """Return the lock of a run: what it depends on, and what is needed to reproduce it."""
    return lock_before_start(spec, command=command) | lock_at_start(spec, data, job=job)


def lock_before_start(spec: Spec, *, command: str) -> dict[str, Any]:
    """Return the part of a lock that is known before a run starts, possibly on another machine."""
    return {
        "spec_fingerprint": spec.fingerprint(),
        "settings": spec.settings(),
        "seed": spec.training.seed,
        "git_commit": _git_commit(),
        "command": command,
        "directory": str(Path.cwd()),
    }


def describe_device(spec: Spec) -> dict[str, str]:
    """Return the device that a run of this spec uses on this machine and, with torch, its precision."""
    family = registry.find("models", spec.model.family)
    if not family.uses_device:
        return {"device": "cpu"}
    device = devices.choose_device(devices.find_devices(), local_rank=world().local_rank)
    precision = devices.precision_of(spec.training.precision, device) if "precision" in family.uses else "float32"
    return {"device": f"{device.kind}: {device.name}", "precision": precision}


def pretrained_weights(model: BaseModel) -> dict[str, dict[str, str]]:
    """Return a model's pretrained weights by their keys: SHA-256 and, for those of the hub, the revision."""
    weights = {}
    for key in PRETRAINED_KEYS:
        if name := str(getattr(model, key, "")):
            weights[f"model.{key}"] = {"name": name, **_identify_weights(name)}
    return weights


def _identify_weights(name: str) -> dict[str, str]:
    if name in registry.PACKAGED:
        return {"sha256": registry.PACKAGED[name][1]["model.safetensors"]}  # verified whenever it is loaded
    path = addresses.fetch_copy(name).expanduser()
    if path.is_file():
        return {"sha256": hashing.hash_file(path)}
    if path.is_dir():
        return {"sha256": _hash_weights(path)}
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        snapshot = Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return {}
    return {"revision": snapshot.name, "sha256": _hash_weights(snapshot)}


def _hash_weights(directory: Path) -> str:
    """Return the SHA-256 of the weights in a directory; of a single file its own, as other tools compute it."""
    weights = sorted(directory.glob("*.safetensors")) or hashing.files_below(directory)
    if len(weights) == 1:
        return hashing.hash_file(weights[0])
    return hashing.combine_hashes({path.relative_to(directory).as_posix(): hashing.hash_file(path) for path in weights})


def lock_at_start(spec: Spec, data: "Dataset", *, job: str = "") -> dict[str, Any]:
    """Return the part of a lock that is known when a run starts, on the machine that it starts on."""
    return {
        "data_fingerprint": data.fingerprint,
        "split_fingerprint": data.split_fingerprint,
        **describe_device(spec),
        "pretrained": pretrained_weights(spec.model),
        "processors": devices.core_count(),
        "workers": world().size,
        "job": job,
        "versions": list_versions(),
    }


def list_versions() -> dict[str, str]:
    """Return the versions of Tagline, Python and the installed packages that can change a result."""
    versions = {"tagline": __version__, "python": sys.version.split()[0]}
    for package in LOCKED_PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def describe_changes(lock: Mapping[str, Any], spec: Spec) -> str:
    """Describe the settings of a spec that differ from those of the lock; empty if none does."""
    if spec.fingerprint() == lock["spec_fingerprint"]:
        return ""
    before, now = lock.get("settings", {}), spec.settings()
    changed = [f"{key} was {old!r} and is {now.get(key)!r}" for key, old in before.items() if old != now.get(key)]
    if before and not changed:  # written before some settings existed, which count by their defaults
        defaults = list_defaults(spec)
        added = [key for key in now if key not in before]
        changed = [
            f"{key} was {defaults.get(key)!r} and is {now[key]!r}" for key in added if now[key] != defaults.get(key)
        ]
        return "; ".join(changed)
    return "; ".join(changed) or "it is another spec"


def list_defaults(spec: Spec) -> dict[str, Any]:
    """Return every `section.key` with its default value for this family."""
    raw = {"data": {"train": "-"}, "model": {"family": spec.model.family}}
    return specs.parse(raw, where="the defaults").settings()


def describe_split_changes(lock: Mapping[str, Any], spec: Spec, data: "Dataset") -> str:
    """Describe why the rows of the splits differ from those of a started run; empty if they do not."""
    if "split_fingerprint" not in lock:
        if spec.data.fraction == 1:
            return ""
        return "it was started when data.fraction left out training rows alone, and now it is of every split"
    return "" if lock["split_fingerprint"] == data.split_fingerprint else "its rows are split in another way now"


def _git_commit() -> str:
    """Return the commit of the working directory, if it is in a repository and git is installed."""
    try:
        result = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip()
