"""Versions, devices, families and places, for a bug report."""

import os
import platform
import shutil
from importlib.util import find_spec
from typing import Any

from tagline import registry
from tagline.models.nn import devices
from tagline.runs.lock import list_versions


def info() -> dict[str, Any]:
    """Which versions, devices, families and places there are, for a bug report."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lacking = {family: registry.missing_for_training(family) for family in registry.list_names("models")}
    return {
        "versions": list_versions(),
        "system": platform.platform(),
        "cores": devices.core_count(),
        "memory_gib": round(memory_gib, 1),
        "nvidia_driver": shutil.which("nvidia-smi") is not None,
        "devices": _list_devices(),
        "families": registry.list_names("models"),
        "can_train": [family for family, (missing, _) in lacking.items() if not missing],
        "cannot_train": {
            family: {"missing": missing, "install": command}
            for family, (missing, command) in lacking.items()
            if missing
        },
        "places": sorted({*registry.list_names("launchers"), "rehearsal"}),
    }


def _list_devices() -> list[str]:
    """What torch can compute on, if it is installed."""
    if find_spec("torch") is None:
        return []
    return [
        f"{device.address} {device.name}, auto: {devices.precision_of('auto', device)}"
        for device in devices.find_devices()
    ]
