"""`tagline info`: versions and devices, for a bug report."""

from tagline.cli.options import Debug, Json


def _devices() -> list[str]:
    """What torch can compute on, if it is installed."""
    from importlib.util import find_spec

    from tagline.models.nn import devices

    if find_spec("torch") is None:
        return []
    return [
        f"{device.address} {device.name}, auto: {devices.precision_of('auto', device)}"
        for device in devices.find_devices()
    ]


def info(json: Json = False, debug: Debug = False) -> None:
    """Say which versions, devices, families and places there are, for a bug report."""
    import os
    import platform
    import shutil

    from tagline import registry
    from tagline.cli import console
    from tagline.models.nn import devices
    from tagline.runs.lock import versions

    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lacking = {family: registry.missing_for_training(family) for family in registry.names("models")}
    facts = {
        "versions": versions(),
        "system": platform.platform(),
        "cores": devices.core_count(),
        "memory_gib": round(memory_gib, 1),
        "nvidia_driver": shutil.which("nvidia-smi") is not None,
        "devices": _devices(),
        "families": registry.names("models"),
        "can_train": [family for family, (missing, _) in lacking.items() if not missing],
        "cannot_train": {
            family: {"missing": missing, "install": command}
            for family, (missing, command) in lacking.items()
            if missing
        },
        "places": sorted({*registry.names("launchers"), "rehearsal"}),
    }
    if json:
        console.out_json(facts)
        return
    for name, value in facts.items():
        if name == "versions":
            for package, version in versions().items():
                console.out(f"{package:<16}{version}")
        elif name == "cannot_train":
            for command in dict.fromkeys(command for _, command in lacking.values() if command):
                families = [family for family, (_, install) in lacking.items() if install == command]
                console.out(f"{name:<16}{', '.join(families)}: {command}")
        else:
            console.out(f"{name:<16}{', '.join(value) if isinstance(value, list) else value}")
