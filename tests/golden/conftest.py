"""Comparing an output with the file of what it should be; UPDATE_GOLDEN=1 rewrites that file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Assert that a text is what the golden file of this name holds."""

    def compare(name: str, text: str) -> None:
        path = HERE / name
        if os.environ.get("UPDATE_GOLDEN") == "1":
            path.write_text(text, "utf-8")
        assert path.exists(), f"there is no {path}: run the test once with UPDATE_GOLDEN=1, and read what it writes"
        assert text == path.read_text("utf-8"), f"not as in {path}; if it is right now, run with UPDATE_GOLDEN=1"

    return compare
