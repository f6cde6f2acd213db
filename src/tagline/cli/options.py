"""Arguments and options shared by several commands."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer

Source = Annotated[str, typer.Argument(metavar="SPEC|DATA", help="A spec (.toml), or a data file to guess one for.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change, as section.key=value.")
]
BundleName = Annotated[
    str, typer.Argument(metavar="BUNDLE", help="A bundle, the run that made it, or last: the newest with one.")
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's path or name, or last.")]
On = Annotated[str, typer.Option("--on", metavar="PLACE", help="Where: local, rehearsal or vertex.")]
Runs = Annotated[str, typer.Option("--runs", metavar="DIR", help="Where runs are kept: a directory, or gs://.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]

WITH_OVERRIDES = ("train", "check")
"""Commands that take settings as arguments."""
SETTING = re.compile(r"--([a-z_]+\.[^=\s]+)(?:=(.*))?", re.S)
WHOLE_FLOAT = re.compile(r"(-?\d+)\.0+")
"""A whole number as tuning jobs may write it, with decimals."""


def understand_settings(arguments: Sequence[str]) -> list[str]:
    """Turn `--section.key value` and `--section.key=value`, as tuning jobs append them, into overrides."""
    from tagline.errors import SpecError

    understood: list[str] = []
    words = iter(arguments)
    for word in words:
        setting = SETTING.fullmatch(word) if understood and understood[0] in WITH_OVERRIDES else None
        if setting is None:
            understood.append(word)
            if word == "--":
                break
            continue
        value = setting[2] if setting[2] is not None else next(words, None)
        if value is None:
            raise SpecError(f"{word} has no value", hint=f"{setting[1]}=VALUE")
        whole = WHOLE_FLOAT.fullmatch(value)
        understood.append(f"{setting[1]}={whole[1] if whole else value}")
    return [*understood, *words]
