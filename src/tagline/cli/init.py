"""`tagline init`: write a spec for a data file."""

from shlex import quote
from typing import Annotated

import typer

from tagline.cli.options import Debug, Json


def init(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file of labelled text, a glob, or -.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to begin with.")
    ] = None,
    output: Annotated[str, typer.Option("--output", metavar="FILE", help="Where to write the spec.")] = "tagline.toml",
    force: Annotated[bool, typer.Option("--force", help="Replace a spec that is already there.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a complete, commented spec for this file, saying what was guessed."""
    from tagline.cli import console
    from tagline.commands.init import init as write_spec

    resolved = write_spec(data, *(overrides or ()), output=output, force=force)
    for guess in resolved.guesses:
        console.say(f"guessed {guess}")
    if json:
        console.out_json(
            {"spec": output, "guesses": list(resolved.guesses), "data": resolved.spec.data.model_dump(mode="json")}
        )
    else:
        console.out(f"wrote {output}; next: tagline check {quote(output)}")
