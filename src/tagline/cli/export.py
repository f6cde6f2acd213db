"""`tagline export`: a bundle in another runtime, checked to give the same answers."""

from pathlib import Path
from typing import Annotated

import typer

from tagline.cli.options import BundleName, Debug, Json, Runs


def export(
    bundle: BundleName,
    to: Annotated[str, typer.Option("--to", metavar="FORM", help="onnx: for machines without torch.")] = "onnx",
    runs: Runs = Path("runs"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Add another form to a bundle, checked on the test rows of its run; predict and serve use it from then on."""
    from tagline import console, exporting
    from tagline.runs import Run, find_bundle, is_run

    directory = find_bundle(bundle, runs)
    measured = Run(directory.parent).predictions() if is_run(directory.parent) else []
    found = exporting.export(directory, to, measured=measured)
    if json:
        console.out_json(found)
    else:
        console.show_export(found)
