"""The one door to the emulator of Vertex AI: imported when it is called, since it is an optional part."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tagline.rehearsal.finding import Facts as Facts


def check_installed() -> None:
    """Raise a PlaceError that says how to install what the emulator needs."""
    from tagline.rehearsal import requirements

    requirements.check_installed()


def find_running(directory: Path) -> "Facts":
    """The emulator that runs in a directory; a PlaceError if none does."""
    from tagline.rehearsal import finding

    return finding.find(directory)


def serve(directory: Path, *, ready: "Callable[[Facts], None]", **settings: Any) -> None:
    """Run the emulator in this process until it is told to stop; `ready` is called once it can be reached."""
    from tagline.rehearsal import house
    from tagline.rehearsal.stage import Settings

    house.serve(Settings(directory=directory, **settings), ready=ready)


def start_detached(directory: Path, arguments: list[str]) -> "Facts":
    """Start the emulator in a process of its own, and wait until it can be reached."""
    from tagline.rehearsal import finding

    return finding.start_detached(directory, arguments)


def ask(directory: Path, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request to the emulator's own routes; returns the JSON answer."""
    from tagline.rehearsal import finding

    return finding.ask(directory, path, body)


def stop(directory: Path) -> "Facts":
    """Stop the emulator that runs in a directory."""
    from tagline.rehearsal import finding

    return finding.stop(directory)


def reset(directory: Path) -> None:
    """Delete everything that the emulator keeps in a directory."""
    from tagline.rehearsal import finding

    finding.reset(directory)


def describe_clients(facts: "Facts") -> Mapping[str, str]:
    """How each client is pointed at the emulator."""
    from tagline.rehearsal.directions import directions

    file = token_file(facts)
    return directions(
        http_port=facts.http_port, grpc_port=facts.grpc_port, token=facts.token, ca=facts.ca, token_file=file
    )


def token_file(facts: "Facts") -> str:
    """The file that holds the token; "" if none is demanded."""
    from tagline.rehearsal.access import TOKEN_FILE

    return str(Path(facts.directory) / TOKEN_FILE) if facts.token else ""


def list_methods() -> list[tuple[str, str, str]]:
    """Every method of the emulated APIs: its name, to what extent it is there, and what is missing."""
    from tagline.rehearsal.services import listing

    return listing()


def explain_unplayable(image: str) -> str:
    """Why the emulator could not run a container image; "" if it can."""
    from tagline.rehearsal import containers

    return containers.explain_unplayable(image)
