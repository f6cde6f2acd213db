"""Arguments and options that several commands take."""

from typing import Annotated

import typer

Source = Annotated[str, typer.Argument(metavar="SPEC|DATA", help="A spec (.toml), or a data file to guess one for.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change, as section.key=value.")
]
BundleName = Annotated[str, typer.Argument(metavar="BUNDLE", help="A bundle, the run that made it, or last.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's path or name, or last.")]
Runs = Annotated[str, typer.Option("--runs", metavar="DIR", help="Where runs are kept: a directory, or gs://.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
