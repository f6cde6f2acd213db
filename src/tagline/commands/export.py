"""A bundle in another runtime, added to it or packed beside it, checked on the test rows of its run."""

from pathlib import Path
from typing import Any

from tagline.commands.bundles import Say, fetch_bundle
from tagline.errors import SpecError
from tagline.exports import export as exporting
from tagline.exports import pack
from tagline.runs.run import Run
from tagline.storage import addresses
from tagline.system import extras


@extras.explain_missing_packages()
def export(
    bundle: str | Path,
    *,
    to: str = "onnx",
    output: str | Path | None = None,
    base: str | None = None,
    build: bool | None = None,
    runs: str | Path = "runs",
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Export a bundle to another runtime, checked on the test rows of its run; returns what was made of it.

    `to="onnx"` is added to the bundle, and used from then on. "torchserve", "image" and "transformers" are written to
    `output`, or beside the bundle. Of an image, `base` is what it is built on, and `build` whether it is built here.
    `say` is told which run `last` is.
    """
    options = {name: value for name, value in (("base", base), ("build", build)) if value is not None}
    if options and to != "image":
        raise SpecError("--base and --build go with --to image")
    is_package = pack.is_package(to)
    if output and not is_package:
        raise SpecError(f"--output goes with torchserve, image and transformers: {to} is added to the bundle")
    directory = fetch_bundle(bundle, runs, say=say)
    if addresses.is_copy(directory) and not output:
        problem = "nothing is put beside it" if is_package else f"{to} would be added to it"
        hint = "name a place with --output DIR" if is_package else "bring the bundle here first: gcloud storage cp"
        raise SpecError(f"a bundle in Cloud Storage is not changed, and {problem}", hint=hint)
    run = Run(directory.parent)
    measured = run.predictions() if run.exists() else []
    if is_package:
        return pack.pack(directory, to, output=output, measured=measured, **options)
    return exporting.export(directory, to, measured=measured)
