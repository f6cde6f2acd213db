"""`tagline export`: a bundle in another runtime, checked to give the same answers."""

from typing import Annotated, Any

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
    from tagline import storage
    from tagline.cli import console
    from tagline.cli.bundles import fetch_bundle
    from tagline.errors import SpecError
    from tagline.exports import pack
    from tagline.exports.export import export as export_bundle
    from tagline.runs.run import Run, is_run

    options: dict[str, Any] = {
        name: value for name, value in (("base", base), ("build", build)) if value is not None
    }  # fmt: skip
    if options and to != "image":
        raise SpecError("--base and --build go with --to image")
    is_package = pack.is_package(to)
    if output and not is_package:
        raise SpecError(f"--output goes with torchserve, image and transformers: {to} is added to the bundle")
    directory = fetch_bundle(bundle, runs)
    if storage.is_copy(directory) and not output:
        problem = "nothing is put beside it" if is_package else f"{to} would be added to it"
        hint = "name a place with --output DIR" if is_package else "bring the bundle here first: gcloud storage cp"
        raise SpecError(f"a bundle in Cloud Storage is not changed, and {problem}", hint=hint)
    measured = Run(directory.parent).predictions() if is_run(directory.parent) else []
    if is_package:
        found = pack.pack(directory, to, output=output, measured=measured, **options)
        show = console.show_package
    else:
        found = export_bundle(directory, to, measured=measured)
        show = console.show_export
    if json:
        console.out_json(found)
    else:
        show(found)
