"""Packing of a bundle for another runtime, in a directory of its own, with only the files that prediction needs."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagline import registry
from tagline.errors import BundleError, SpecError
from tagline.exports import SIGNATURE, Checkable, Package
from tagline.gcp import cloud_storage
from tagline.prediction import bundle
from tagline.prediction.bundle import CARD, Bundle
from tagline.prediction.onnx_runtime import DIRECTORY, FILES
from tagline.prediction.predictor import Predictor
from tagline.storage import addresses, atomic, hashing

if TYPE_CHECKING:
    from tagline.data.texts import Text

WITHOUT_TORCH = ("linear",)
"""Families whose own form predicts with the base install, without torch."""
MOST_CHECKED = 200
"""The most test rows on which a package is checked."""


def is_package(to: str) -> bool:
    """Return whether an export is written to a directory of its own, rather than into the bundle."""
    return hasattr(registry.find("exports", to), "pack")


def pack(
    directory: Path,
    to: str,
    *,
    output: str | Path | None = None,
    measured: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> dict[str, Any]:
    """Pack a bundle into `output`, by default beside it, possibly in Cloud Storage.

    `measured` are the rows on which the answers are checked.
    """
    package: Package = registry.find("exports", to)(**options)
    loaded = Bundle.load(directory)
    manifest = loaded.manifest
    needs_weights = getattr(package, "needs_weights", False)
    if not needs_weights and not manifest.runtime and manifest.family not in WITHOUT_TORCH:
        hint = f"give it a form that does not: tagline export {directory} --to onnx"
        raise SpecError(f"{directory} needs torch to predict (family {manifest.family})", hint=hint)
    place = directory.resolve()
    target = addresses.choose_staging_path(output).resolve() if output else place.with_name(f"{place.name}-{to}")
    is_remote = output is not None and addresses.is_remote(output)
    if is_remote and cloud_storage.list_objects(f"{output}/"):
        raise SpecError(f"{output} is there already", hint="name another place with --output DIR")
    _check_place(target, place, package)
    with atomic.writing_directory(target, is_private=False) as scratch:
        texts = _select_check_texts(loaded, measured)
        _check_answers(loaded, _write_served_bundle(loaded, scratch / "bundle", has_weights=needs_weights), texts)
        package.pack(scratch)
        if isinstance(package, Checkable):
            package.check(scratch, loaded, texts)
        atomic.remove_directory(target)
    files = {path.relative_to(target).as_posix(): path.stat().st_size for path in hashing.files_below(target)}
    delivered = package.deliver(target)
    if is_remote:
        addresses.deliver(target, str(output), last=package.signed)
        delivered = {name: value.replace(str(target), str(output)) for name, value in delivered.items()}
        delivered["next"] = f"gcloud storage cp --recursive {output} ."
    return {"bundle": str(directory), "output": str(output if is_remote else target), "files": files, **delivered}


def _write_served_bundle(whole: Bundle, directory: Path, *, has_weights: bool) -> Bundle:
    """Write the bundle without unused forms of the model: the same answers, a fraction of the size."""
    runtime = whole.manifest.runtime
    others = {f"{DIRECTORY}/{name}" for precision, name in FILES.items() if precision != runtime}

    def fill(scratch: Path) -> dict[str, Any]:
        for name in whole.manifest.files:
            if name == CARD or (runtime and (name in others or (name.endswith(".safetensors") and not has_weights))):
                continue
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(whole.directory / name, scratch / name)
        return whole.manifest.model_dump(exclude={"format", "files", "sha256"}, exclude_unset=True)

    card = (whole.directory / CARD).read_text("utf-8")
    return bundle.write(directory, fill=fill, card=lambda _: card)


def _check_place(target: Path, place: Path, package: Package) -> None:
    """Raise SpecError unless the target is free, empty, or an earlier export of the same kind."""
    if target == place or place in target.parents:
        raise SpecError(f"{target} is in the bundle itself", hint="name another place with --output DIR")
    if not target.exists():
        return
    if target.is_dir():
        signed = target / package.signed
        is_ours = signed.is_file() and signed.read_text("utf-8", errors="replace").startswith(SIGNATURE)
        if is_ours or not any(target.iterdir()):
            return
    raise SpecError(f"{target} is there already, and is no such export", hint="name another place with --output DIR")


def _select_check_texts(whole: Bundle, measured: Sequence[Mapping[str, Any]]) -> "list[Text]":
    texts = [row["text"] if isinstance(row["text"], str) else tuple(row["text"]) for row in measured[:MOST_CHECKED]]
    return texts or [("a first text", "a second text") if whole.manifest.pair else "a text"]


def _check_answers(whole: Bundle, served: Bundle, texts: "Sequence[Text]") -> None:
    if Predictor.of(served).predict(texts) != Predictor.of(whole).predict(texts):
        raise BundleError(
            f"what was packed of {whole.directory} does not give its answers", hint="make the bundle again"
        )
