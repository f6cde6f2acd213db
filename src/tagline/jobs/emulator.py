"""The local emulator of Vertex AI, a separate distribution: find, start and stop it, and translate its errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tagline.errors import PlaceError, RunError, SpecError, TaglineError

if TYPE_CHECKING:
    from vertex_rehearsal.discovery import RehearsalInfo

DIRECTORY = Path("rehearsal")
"""The directory in which a running emulator is looked up."""
IMAGE_PREFIX = "tagline-"
PROCESS_IMAGES = [f"{IMAGE_PREFIX}=python -m tagline"]
PROCESS_IMAGE_ARGS = [f"{IMAGE_PREFIX}=serve $(AIP_STORAGE_DIR) --host 127.0.0.1 --workers 1"]
"""Options of its `start` by which Tagline's images run as processes, with the packages installed here."""


def is_installed() -> bool:
    """Return whether the emulator is installed."""
    try:
        return find_spec("vertex_rehearsal") is not None
    except ModuleNotFoundError:
        return False


def check_installed() -> None:
    """Raise PlaceError if the emulator is not installed."""
    if not is_installed():
        raise PlaceError(
            "the rehearsal needs a package that is not installed: vertex-rehearsal",
            hint="pip install 'tagline[rehearsal]'",
        )


def find_running(directory: Path = DIRECTORY) -> "RehearsalInfo":
    """Return the emulator that runs in a directory."""
    check_installed()
    from vertex_rehearsal import discovery

    with translate_errors():
        return discovery.find_rehearsal(directory)


@contextmanager
def start_temporary(directory: Path) -> Iterator["RehearsalInfo"]:
    """Run an emulator for the duration of a block."""
    check_installed()
    from vertex_rehearsal import discovery

    options = ["--directory", str(directory), "--port", "0", "--grpc-port", "0", *start_options()]
    with translate_errors():
        facts = discovery.start_detached(directory, options)
    try:
        yield facts
    finally:
        with translate_errors():
            discovery.stop(directory)


def start_options() -> list[str]:
    """Return the options of its `start` by which Tagline's images run as processes."""
    images = [word for each in PROCESS_IMAGES for word in ("--process-image", each)]
    return images + [word for each in PROCESS_IMAGE_ARGS for word in ("--process-image-args", each)]


def explain_unrunnable(image: str) -> str:
    """Return why an image cannot run in an emulator on this machine; "" where it can."""
    from vertex_rehearsal.execution import images
    from vertex_rehearsal.settings import Settings, parse_process_images

    return images.explain_unrunnable(
        image, Settings(process_images=parse_process_images(PROCESS_IMAGES, PROCESS_IMAGE_ARGS))
    )


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the emulator's errors as Tagline's."""
    from vertex_rehearsal.errors import RehearsalError

    try:
        yield
    except RehearsalError as error:
        raise translate(error) or error from error


def translate(error: BaseException) -> TaglineError | None:
    """Return Tagline's error for one of the emulator's; None for any other."""
    kinds: dict[str, type[TaglineError]] = {
        "InvalidSettings": SpecError,
        "RequestRejected": RunError,
        "EmulatorUnavailable": PlaceError,
    }
    is_ours = type(error).__module__ == "vertex_rehearsal.errors"
    kind = kinds.get(type(error).__name__) if is_ours else None
    return kind(error.message, hint=error.hint) if kind else None  # type: ignore[attr-defined]
