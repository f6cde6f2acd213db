"""The files of a saved model, read so that whatever they hold is an error that names the file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tagline.errors import BundleError, PlaceError, TaglineError, first_line

OF_THE_MACHINE = ("MemoryError", "OutOfMemoryError", "AcceleratorError")
"""Errors of Python and torch, by their names, which say nothing about the files that were loaded."""
PANIC = "PanicException"
"""How a panic of a library written in Rust arrives; below `BaseException` alone."""


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate whatever is raised while a file, or a directory of them, is read: it may hold anything.

    A package that is not installed is for the caller to name.
    """
    try:
        yield
    except (TaglineError, ImportError):
        raise
    except BaseException as error:  # tokenizers raises a bare Exception, and a panic of Rust is not even that
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        if type(error).__name__ in OF_THE_MACHINE:
            hint = "free some memory of it; CUDA_VISIBLE_DEVICES= computes without a GPU"
            raise PlaceError(f"cannot load {path} here: {first_line(error)}", hint=hint) from error
        problem = f"{path} is damaged: {type(error).__name__}: {first_line(error)}"
        raise BundleError(problem, hint="make it again, or restore it") from error


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    with translate_errors(path):
        return json.loads(path.read_text("utf-8"))
