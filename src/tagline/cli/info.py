"""`tagline info`: versions and devices, for a bug report."""

from tagline.cli.options import Debug, Json


def _devices() -> list[str]:
    """What torch can compute on, if it is installed."""
    from importlib.util import find_spec

    from tagline import devices

    if find_spec("torch") is None:
        return []
    return [
        f"{device.address} {device.name}, auto: {devices.precision_of('auto', device)}" for device in devices.found()
    ]


def info(json: Json = False, debug: Debug = False) -> None:
    """Say which versions, devices, families and places there are, for a bug report."""
    import os
    import platform
    import shutil

    from tagline import console, devices, registry
    from tagline.locks import versions

    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    facts = {
        "versions": versions(),
        "system": platform.platform(),
        "cores": devices.core_count(),
        "memory_gib": round(memory_gib, 1),
        "nvidia_driver": shutil.which("nvidia-smi") is not None,
        "devices": _devices(),
        "families": registry.names("models"),
        "places": sorted({*registry.names("launchers"), "rehearsal"}),
    }
    if json:
        console.out_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            for package, version in value.items():
                console.out(f"{package:<16}{version}")
        else:
            console.out(f"{name:<16}{', '.join(value) if isinstance(value, list) else value}")
