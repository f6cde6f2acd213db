"""Decides whether an image can run on this machine, and whether as a container or as a process."""

from vertex_rehearsal.execution import containers
from vertex_rehearsal.settings import Settings


def is_reduction_server(image: str) -> bool:
    """Whether an image is Google's reduction server, which only waits here: without GPUs there is nothing to reduce."""
    return "/vertex-ai-restricted/training/reductionserver" in image


def can_run(image: str, settings: Settings) -> bool:
    """Whether an image can run on this machine."""
    return bool(settings.process_image(image)) or is_reduction_server(image) or bool(containers.find_engine())


def explain_unrunnable(image: str, settings: Settings) -> str:
    """Return why an image cannot run on this machine; "" if it can."""
    if can_run(image, settings):
        return ""
    prefixes = ", ".join(f"{known.prefix}*" for known in settings.process_images)
    return (
        f"{image} cannot run here: neither podman nor docker works on this machine, "
        + (f"and only images named {prefixes} run without them." if prefixes else "and no image runs as a process.")
        + " vertex-rehearsal start --process-image adds some."
    )


def runs_in_container(image: str, settings: Settings) -> bool:
    """Whether an image runs as a container: if it is available locally or no process replaces it."""
    return containers.has_image(image) or not (settings.process_image(image) or is_reduction_server(image))
