"""`tagline export`: export a bundle to another runtime, and compare its predictions."""

from typing import Annotated

import typer

from tagline.cli.options import BundleName, Debug, Json, Runs


def export(
    bundle: BundleName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORM",
            help="onnx: no torch needed; torchserve: an archive; image: a container image; transformers: its own form.",
        ),
    ] = "onnx",
    output: Annotated[
        str | None,
        typer.Option(
            "--output", metavar="DIR", help="torchserve, image, transformers: where to; else beside the bundle."
        ),
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="IMAGE", help="image: what it is built on; Python's own.")
    ] = None,
    build: Annotated[
        bool | None,
        typer.Option("--build/--no-build", help="image: by docker, podman or buildah, where one works."),
    ] = None,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Give a bundle another form, checked on the test rows of its run.

    onnx is added to the bundle; predict and serve use it from then on. The others are written beside it.
    """
    from tagline.cli import console
    from tagline.commands.export import export as export_bundle
    from tagline.exports import pack

    result = export_bundle(bundle, to=to, output=output, base=base, build=build, runs=runs, say=console.say)
    if json:
        console.out_json(result)
    elif pack.is_package(to):
        console.show_package(result)
    else:
        console.show_export(result)
