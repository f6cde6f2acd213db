"""The error tree: every error has its exit code, its sentence and its place in the map."""

import re
import signal

import pytest

from tagline import errors
from tagline.errors import (
    BundleError,
    CheckFailed,
    Conflict,
    DataError,
    Interrupted,
    NameTaken,
    PlaceError,
    RunError,
    SpecError,
    TaglineError,
)

CODES = {
    CheckFailed: 1, SpecError: 2, DataError: 3, BundleError: 4, RunError: 4, Conflict: 4, NameTaken: 4, PlaceError: 5,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_an_error_has_the_exit_code_of_its_kind(kind: type[TaglineError], code: int) -> None:
    error = kind("what happened", hint="what to do")
    assert (error.exit_code, error.message, error.hint, str(error)) == (
        code,
        "what happened",
        "what to do",
        "what happened",
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_has_the_code_that_shells_give_its_signal(number: int, code: int) -> None:
    assert Interrupted("stopped", signal_number=number).exit_code == code


def test_the_map_in_the_docstring_names_every_error_and_its_code() -> None:
    direct = TaglineError.__subclasses__()
    kinds = {kind.__name__ for first in direct for kind in (first, *first.__subclasses__())}
    drawn = dict(re.findall(r"[├└]── (\w+) +exit (\d+)", errors.__doc__ or ""))
    assert drawn.keys() == kinds == {kind.__name__ for kind in CODES} | {"Interrupted"}
    assert {name: int(code) for name, code in drawn.items() if name != "Interrupted"} == {
        kind.__name__: code for kind, code in CODES.items()
    }


def test_only_our_own_errors_are_in_the_tree_and_none_is_a_bug() -> None:
    assert errors.BUG_EXIT_CODE == 70
    assert errors.BUG_EXIT_CODE not in CODES.values()
    assert issubclass(TaglineError, Exception)


@pytest.mark.parametrize(
    ("problems", "text"),
    [
        (["a.b: needed"], "x.toml has 1 problem:\n  a.b: needed"),
        (["a.b: needed", "a.c: odd"], "x.toml has 2 problems:\n  a.b: needed\n  a.c: odd"),
    ],
)
def test_a_listing_counts_and_names_every_problem(problems: list[str], text: str) -> None:
    error = SpecError.from_problems("x.toml", problems)
    assert error.message == text
    assert error.problems == tuple(problems)
