"""What a rehearsal needs beyond the base install."""

from importlib.util import find_spec

from tagline.errors import PlaceError

MODULES = (
    "grpc",
    "google.cloud.aiplatform_v1",
    "google.cloud.logging_v2",
    "optuna",
    "yaml",
    "cryptography",
    "google_crc32c",
    "starlette",
    "uvicorn",
)


def check_installed() -> None:
    """All of it is there, or the error says how to get it. Asked before other modules here are imported."""
    missing = [name for name in MODULES if not _is_there(name)]
    if missing:
        raise PlaceError(
            f"the rehearsal needs packages that are not installed: {', '.join(missing)}",
            hint="pip install 'tagline[rehearsal]'",
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:  # not even the package that it would be in
        return False
