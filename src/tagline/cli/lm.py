"""`tagline lm`: train a language model to be shared."""

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
    from tagline.cli import console
    from tagline.errors import SpecError
    from tagline.training import language_models

    files, settings = [[text for text in texts if _is_setting(text) == is_setting] for is_setting in (False, True)]
    if not files:
        raise SpecError("there is no file to learn from", hint="tagline lm TEXTS --output DIR")
    with console.ProgressDisplay() as progress:
        for event in language_models.train_language_model(files, *settings, output=output, column=column):
            progress.show(event)
    use = f"model.pretrained={output}"
    if language_models.reads_backward(settings):
        use = f"model.direction=backward model.pretrained_backward={output}"
    if json:
        console.out_json({"language_model": output})
    else:
        console.out(f"language model   {output}")
        console.out(f"use it           tagline train DATA model.family=ulmfit {use}")


def _is_setting(text: str) -> bool:
    """Return whether it is `section.key=value` rather than a file, whose path may have `=` in it."""
    key, equals, _ = text.partition("=")
    return bool(equals) and not set("/*?[") & set(key) and not Path(text).exists()
