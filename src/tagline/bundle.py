"""Bundle: a directory that predicts by itself, every file of it checked."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tagline import registry, storage
from tagline.compiled import Compiled
from tagline.decisions import DecisionLayer
from tagline.errors import BundleError, PlaceError, SpecError, TaglineError, first_line
from tagline.models import Classifier, Scorer
from tagline.spec import Spec

FORMAT = 2
"""2: the decision layer calibrates in several ways, and makes sets."""
MANIFEST = "tagline.json"
CARD = "README.md"
OF_THE_MACHINE = ("MemoryError", "OutOfMemoryError", "AcceleratorError")
"""Errors of Python and torch, by their names, which say nothing about the files that were loaded."""


class Manifest(BaseModel):
    """What `tagline.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    tagline: str
    task: Literal["single", "multi"]
    pair: bool
    labels: tuple[str, ...]
    family: str
    spec: dict[str, Any]
    fingerprint: str
    decisions: dict[str, Any]
    figures: dict[str, Any]
    files: dict[str, str]
    exports: dict[str, dict[str, float]] = {}
    """Other forms of the model, each with how its answers compare with those that were measured."""
    runtime: Literal["", "float32", "int8"] = ""
    """The form that predicts; none: the model as its family saved it."""
    sha256: str = ""
    """Of the manifest itself, without this field."""

    def to_json(self) -> str:
        """As the file has it. What was not set is not written, so that a later version can bring new fields."""
        return self.model_dump_json(indent=2, exclude_unset=True) + "\n"

    def digest(self) -> str:
        """What `sha256` must be."""
        content = self.model_dump(mode="json", exclude={"sha256"}, exclude_unset=True)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Bundle:
    """A bundle on disk whose files are what its manifest says they are."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest

    @property
    def decisions(self) -> DecisionLayer:
        """What turns scores into answers."""
        try:
            return DecisionLayer.from_dict(
                self.manifest.decisions, task=self.manifest.task, labels=self.manifest.labels
            )
        except (KeyError, TypeError) as error:
            raise BundleError(f"{self.directory / MANIFEST} is damaged: decisions: {error!r}") from error

    @property
    def needs_torch(self) -> bool:
        """Whether it predicts with torch, for want of another form."""
        return not self.manifest.runtime and bool(registry.find("models", self.manifest.family).uses_device)

    def classifier(self, *, threads: int = 0) -> Scorer:
        """The model, ready to score, in the form that predicts; in ONNX with so many threads, 0: one a core."""
        if self.manifest.runtime:
            return Compiled(self.directory, self.manifest.family, self.manifest.runtime, threads=threads)
        return load_classifier(self.manifest.family, self.directory)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Open a bundle, checking every byte that will be read."""
        path = storage.fetched(directory)
        manifest = _read_manifest(path)
        if manifest.sha256 != manifest.digest():
            raise _changed(path, MANIFEST)
        for name, expected in manifest.files.items():
            _verify(path, name, expected)
        return cls(path, manifest)


def write(directory: Path, *, fill: Callable[[Path], dict[str, Any]], card: Callable[[Manifest], str]) -> Bundle:
    """Make a bundle: `fill` writes the model's files and returns the manifest's fields. All of it appears at once."""
    storage.remove_directory(directory)
    with storage.writing_directory(directory) as scratch:
        fields = fill(scratch)
        manifest = Manifest(format=FORMAT, files={}, **fields)
        (scratch / CARD).write_text(card(manifest), "utf-8")
        files = {path.relative_to(scratch).as_posix(): storage.sha256(path) for path in storage.files_below(scratch)}
        manifest = manifest.model_copy(update={"files": files})
        manifest = manifest.model_copy(update={"sha256": manifest.digest()})
        (scratch / MANIFEST).write_text(manifest.to_json(), "utf-8")
    return Bundle(directory, manifest)


def replace(directory: Path, *, fill: Callable[[Path], dict[str, Any]], card: Callable[[Manifest], str]) -> Bundle:
    """Make a bundle that takes the place of one that is there; until it is complete, that one stays."""
    fresh = directory.with_name(f"{directory.name}.new")
    made = write(fresh, fill=fill, card=card)
    storage.replace_directory(directory, by=fresh)
    return Bundle(directory, made.manifest)


def new_classifier(
    spec: Spec, options: BaseModel, *, task: Literal["single", "multi"], labels: Sequence[str], pair: bool
) -> Classifier:
    """A model of the family that these options are of, which has learned nothing yet."""
    family: str = options.family  # type: ignore[attr-defined]
    try:
        model: Classifier = registry.find("models", family).create(
            options, training=spec.training, task=task, labels=labels, pair=pair
        )
    except ImportError as error:
        problem = f"family {family} needs {error.name}, which is not installed"
        raise PlaceError(problem, hint=registry.remedy("models", family)) from error
    return model


def load_classifier(family: str, directory: Path) -> Classifier:
    """A family's model from the files it saved."""
    try:
        implementation = registry.find("models", family)
    except SpecError as error:
        hint = "install the package that brings this family, or a newer Tagline"
        raise BundleError(f"{directory}: {error.message}", hint=hint) from error
    try:
        classifier: Classifier = implementation.load(directory)
    except ImportError as error:
        problem = f"a bundle of family {family} needs {error.name}, which is not installed"
        raise PlaceError(problem, hint=registry.remedy("models", family)) from error
    except TaglineError:
        raise
    except Exception as error:  # what reads a damaged file raises anything; tokenizers a bare Exception
        if type(error).__name__ in OF_THE_MACHINE:
            hint = "free some memory of it; CUDA_VISIBLE_DEVICES= computes without a GPU"
            raise PlaceError(f"cannot load {directory} here: {first_line(error)}", hint=hint) from error
        hint = "make it again, or restore it"
        raise BundleError(f"{directory} is damaged: {type(error).__name__}: {first_line(error)}", hint=hint) from error
    return classifier


def _read_manifest(directory: Path) -> Manifest:
    path = directory / MANIFEST
    try:
        raw = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        hint = "a bundle is the directory bundle/ inside a run; tagline runs list shows runs"
        raise BundleError(f"{directory} is not a bundle: it has no {MANIFEST}", hint=hint) from error
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is damaged: {error}", hint="make the bundle again, or restore it") from error
    version = raw.get("format") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > FORMAT:
        hint = "pip install --upgrade tagline"
        raise BundleError(f"{directory} was made by a newer Tagline (bundle format {version}, not {FORMAT})", hint=hint)
    if isinstance(version, int) and version < FORMAT:
        hint = "train it again; its spec is in its manifest"
        raise BundleError(
            f"{directory} was made by an older Tagline (bundle format {version}, not {FORMAT})", hint=hint
        )
    try:
        return Manifest.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "all of it"
        hint = "make the bundle again, or restore it"
        raise BundleError(f"{path} is damaged: {where}: {problem['msg'].lower()}", hint=hint) from error


def _verify(directory: Path, name: str, expected: str) -> None:
    """Refuse a file that is missing, changed, or outside the bundle."""
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise BundleError(f"{directory / MANIFEST} names a file outside the bundle: {name}")
    path = directory / name
    if not path.is_file():
        raise BundleError(f"{directory} is damaged: {name} is missing", hint="make the bundle again, or restore it")
    if storage.sha256(path) != expected:
        raise _changed(directory, name)


def _changed(directory: Path, name: str) -> BundleError:
    hint = "it is not the file that was measured: make the bundle again, or restore it"
    return BundleError(f"{directory} is damaged: {name} has changed since it was written", hint=hint)
