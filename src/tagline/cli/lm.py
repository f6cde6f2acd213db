"""`tagline lm`: a language model to be shared."""

from pathlib import Path
from typing import Annotated

import typer

from tagline.cli.options import Debug, Json


def lm(
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXTS... [KEY=VALUE]...", help="Files of texts, and settings to change.")
    ],
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="Where the language model goes.")],
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="Of a table: the one that holds texts.")] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Learn a language model of texts without labels, for family ulmfit: model.pretrained=DIR."""
    from tagline import console, language_models, storage
    from tagline.errors import SpecError
    from tagline.gcp import cloud_storage

    files = [text for text in texts if not _is_setting(text)]
    if not files:
        raise SpecError("there is no file to learn from", hint="tagline lm TEXTS --output DIR")
    place = storage.staged(output)
    if storage.is_remote(output) and cloud_storage.objects(f"{output}/"):
        raise SpecError(f"{output} is already there", hint="name another --output, or remove it")
    with console.Progress() as progress:
        for event in language_models.learn(
            files, *(text for text in texts if _is_setting(text)), output=place, column=column
        ):
            progress.show(event)
    storage.deliver(place, output)
    if json:
        console.out_json({"language_model": output})
    else:
        console.out(f"language model   {output}")
        console.out(f"use it           tagline train DATA model.family=ulmfit model.pretrained={output}")


def _is_setting(text: str) -> bool:
    """Whether it is `section.key=value` rather than a file."""
    return "=" in text and not Path(text).exists()
