"""Reading the files of a saved model; damaged content is an error that names the file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tagline.errors import BundleError, PlaceError, TaglineError, first_line

MACHINE_ERRORS = ("MemoryError", "OutOfMemoryError", "AcceleratorError")
"""Names of Python and torch errors whose cause is the machine and not the files being loaded."""
PANIC = "PanicException"
"""The type name of a panic in a Rust library, which derives from `BaseException` only."""


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate errors raised while reading a file or a directory, whatever its content.

    An ImportError passes through: the caller names the missing package.
    """
    try:
        yield
    except (TaglineError, ImportError):
        raise
    except BaseException as error:  # tokenizers raises a bare Exception; a Rust panic is not even that
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        if type(error).__name__ in MACHINE_ERRORS:
            hint = "free some memory of it; CUDA_VISIBLE_DEVICES= computes without a GPU"
            raise PlaceError(f"cannot load {path} here: {first_line(error)}", hint=hint) from error
        problem = f"{path} is damaged: {type(error).__name__}: {first_line(error)}"
        raise BundleError(problem, hint="make it again, or restore it") from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise BundleError if it is damaged."""
    with translate_errors(path):
        return json.loads(path.read_text("utf-8"))
