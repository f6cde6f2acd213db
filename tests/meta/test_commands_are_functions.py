"""Every command is a function of the same name, with the same arguments and options."""

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
import typer

import tagline
from tagline.cli import app

TERMINAL_ONLY = {
    "help": "prints the help",
    "json": "how the result is printed",
    "debug": "how an error is printed",
    "notify": "a function returns to its caller, who knows when it has ended",
}
"""Options that only concern the terminal, each with the reason why no function has it."""
OTHERWISE = {
    ("train", "plan"): "a function of its own, tagline.plan, because it returns a Plan",
    ("runs delete", "yes"): "answers a question that only the command asks",
}
"""Options of one command that its function has not, each with the reason."""
PYTHON_ONLY = {
    "say": "told what a terminal would show on the way",
}
"""Parameters that no command has, each with the reason."""
MIXED = {("lm", "overrides"): "the command tells settings from files by their form"}
"""Parameters of one function that its command takes as part of another argument."""
NAMESPACES = {"runs": "tagline.runs", "jobs": "tagline.jobs"}
"""Where the functions of sub-commands are."""


def walk(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by what is typed after `tagline`."""
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for part, each in below.items():
        yield from walk(each, f"{name} {part}".strip())


COMMANDS = {name: command for name, command in walk(typer.main.get_command(app)) if not name.startswith("rehearsal ")}
"""All but those of the emulator, which is a package of its own."""


def function_of(name: str) -> Callable[..., Any]:
    group, _, leaf = name.rpartition(" ")
    found: Callable[..., Any] = getattr(import_module(NAMESPACES[group]) if group else tagline, leaf)
    return found


def names_of(command: Any) -> set[str]:
    """The arguments and options of a command, as a function would name them."""
    options = (param.opts[0].lstrip("-") if param.opts[0].startswith("-") else param.name for param in command.params)
    return {name.replace("-", "_") for name in options}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_function_with_the_same_options(name: str) -> None:
    parameters = set(inspect.signature(function_of(name)).parameters)
    left_out = set(TERMINAL_ONLY) | {option for command, option in OTHERWISE if command == name}
    mixed = {parameter for command, parameter in MIXED if command == name}
    assert names_of(COMMANDS[name]) - left_out == parameters - set(PYTHON_ONLY) - mixed


def test_no_exception_is_left_over() -> None:
    used = {(name, option) for name, command in COMMANDS.items() for option in names_of(command)}
    assert set(OTHERWISE) <= used
    assert set(TERMINAL_ONLY) - {"help"} <= {option for _, option in used}
    functions = {name: set(inspect.signature(function_of(name)).parameters) for name in COMMANDS}
    assert set(PYTHON_ONLY) <= set().union(*functions.values())
    assert all(parameter in functions[name] for name, parameter in MIXED)


def test_a_plan_has_the_arguments_of_a_training() -> None:
    planned, trained = (set(inspect.signature(each).parameters) for each in (tagline.plan, tagline.train))
    assert planned <= trained


def test_a_command_and_its_function_have_the_same_defaults() -> None:
    for name, command in COMMANDS.items():
        parameters = inspect.signature(function_of(name)).parameters
        for option in command.params:
            names = {each.lstrip("-").replace("-", "_") for each in option.opts}
            for parameter in (parameters[each] for each in names & set(parameters)):
                is_plain = isinstance(option.default, str | int | float) and not isinstance(option.default, bool)
                if is_plain and parameter.default is not inspect.Parameter.empty:
                    assert str(parameter.default) == str(option.default), (name, parameter.name)
