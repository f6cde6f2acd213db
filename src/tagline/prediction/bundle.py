"""Bundle: a self-contained directory to predict from, with a hash of every file."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from tagline import registry
from tagline.errors import BundleError, PlaceError, SpecError, first_line
from tagline.models import Classifier, Scorer, model_files
from tagline.prediction.decisions import DecisionLayer
from tagline.prediction.onnx_runtime import OnnxScorer
from tagline.spec import ModelOptions, Spec
from tagline.storage import addresses, atomic, hashing

FORMAT = 2
"""Format 2: the decision layer has several calibration methods, and prediction sets."""
MANIFEST = "tagline.json"
CARD = "README.md"
SIGNATURE = f"{MANIFEST}.sig"
"""A detached signature of the manifest, made by `signatures`."""
UNLISTED = frozenset({MANIFEST, SIGNATURE, CARD})
"""Files that need not be listed in the manifest: itself, its signature, and the model card, which is for people."""
MOST_MANIFEST_BYTES = 64_000_000
RESTORE = "make the bundle again, or restore it"


class Manifest(BaseModel):
    """The contents of `tagline.json`."""

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
    """Other forms of the model, each with how its answers compare with the measured ones."""
    runtime: Literal["", "float32", "int8"] = ""
    """The form used for prediction; empty: the model as its family saved it."""
    sha256: str = ""
    """SHA-256 of the manifest itself, without this field."""

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        if not labels or len(set(labels)) < len(labels):
            raise ValueError("there is no label" if not labels else "a label stands there twice")
        return labels

    @field_validator("spec")
    @classmethod
    def _check_spec(cls, spec: dict[str, Any]) -> dict[str, Any]:
        data = spec.get("data")
        columns = data.get("text") if isinstance(data, dict) else None
        names = [columns] if isinstance(columns, str) else columns
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("data.text names no column")
        return spec

    def to_json(self) -> str:
        """Return the content of the file; unset fields are left out, so that a later version can add new ones."""
        return self.model_dump_json(indent=2, exclude_unset=True) + "\n"

    def digest(self) -> str:
        """Return the value that `sha256` must have."""
        content = self.model_dump(mode="json", exclude={"sha256"}, exclude_unset=True)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Bundle:
    """A bundle on disk whose files match its manifest."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest

    @property
    def decisions(self) -> DecisionLayer:
        """The decision layer, which turns scores into answers."""
        try:
            return DecisionLayer.from_dict(
                self.manifest.decisions, task=self.manifest.task, labels=self.manifest.labels
            )
        except ValueError as error:
            problem = f"{self.directory / MANIFEST} is damaged: decisions: {first_line(error)}"
            raise BundleError(problem, hint=RESTORE) from error

    @property
    def needs_torch(self) -> bool:
        """Whether prediction needs torch, because the bundle has no other form."""
        return not self.manifest.runtime and bool(find_family(self.manifest.family, self.directory).uses_device)

    def classifier(self, *, threads: int = 0) -> Scorer:
        """Load the model in the form used for prediction; ONNX runs on `threads` threads, 0: one per core."""
        family = self.manifest.family
        if not self.manifest.runtime:
            return load_classifier(family, self.directory)
        find_family(family, self.directory)
        with reading_errors(self.directory, family):
            return OnnxScorer(self.directory, family, self.manifest.runtime, threads=threads)

    @classmethod
    def load(cls, directory: str | Path, *, check: Callable[[Path, bytes], None] | None = None) -> Self:
        """Open a bundle and verify every file that will be read.

        `check` is called with the directory and the manifest's bytes before they are parsed.
        """
        path = addresses.fetch_copy(directory)
        content = _read_manifest(path)
        if check:
            check(path, content)
        manifest = _parse_manifest(path, content)
        if manifest.sha256 != manifest.digest():
            raise _make_changed_error(path, MANIFEST)
        _check_file_list(path, manifest)
        for name, expected in manifest.files.items():
            _verify_file(path, name, expected)
        opened = cls(path, manifest)
        _ = opened.decisions  # a damaged decision layer is an error here, not at the first prediction
        return opened


def write(directory: Path, *, fill: Callable[[Path], dict[str, Any]], card: Callable[[Manifest], str]) -> Bundle:
    """Write a bundle atomically: `fill` writes the model's files and returns the manifest's fields."""
    atomic.remove_directory(directory)
    with atomic.writing_directory(directory) as scratch:
        fields = fill(scratch)
        fields["spec"] = {name: part for name, part in fields["spec"].items() if name != "vertex"}  # the job's settings
        manifest = Manifest(format=FORMAT, files={}, **fields)
        (scratch / CARD).write_text(card(manifest), "utf-8")
        manifest = manifest.model_copy(update={"files": hashing.hash_files(scratch)})
        manifest = manifest.model_copy(update={"sha256": manifest.digest()})
        (scratch / MANIFEST).write_text(manifest.to_json(), "utf-8")
    return Bundle(directory, manifest)


def replace(directory: Path, *, fill: Callable[[Path], dict[str, Any]], card: Callable[[Manifest], str]) -> Bundle:
    """Write a bundle in the place of an existing one, which stays until the new one is complete."""
    replacement = directory.with_name(f"{directory.name}.new")
    written = write(replacement, fill=fill, card=card)
    atomic.replace_directory(directory, by=replacement)
    return Bundle(directory, written.manifest)


def create_classifier(
    spec: Spec, options: ModelOptions, *, task: Literal["single", "multi"], labels: Sequence[str], pair: bool
) -> Classifier:
    """Create an untrained model of the family that the options belong to."""
    family = options.family
    try:
        model: Classifier = registry.find("models", family).create(
            options, training=spec.training, task=task, labels=labels, pair=pair
        )
    except ImportError as error:
        problem = f"family {family} needs {error.name}, which is not installed"
        raise PlaceError(problem, hint=registry.suggest_fix("models", family, error)) from error
    return model


def load_classifier(family: str, directory: Path) -> Classifier:
    """Load a family's model from the files it saved."""
    implementation = find_family(family, directory)
    with reading_errors(directory, family):
        classifier: Classifier = implementation.load(directory)
    return classifier


def find_family(family: str, directory: Path) -> Any:
    """Return the implementation of the family that a bundle or a checkpoint names."""
    try:
        return registry.find("models", family)
    except SpecError as error:
        hint = "install the package that brings this family, or a newer Tagline"
        raise BundleError(f"{directory}: {error.message}", hint=hint) from error


@contextmanager
def reading_errors(directory: Path, family: str) -> Iterator[None]:
    """Translate the errors that a family raises while it reads its files."""
    try:
        with model_files.translate_errors(directory):
            yield
    except ImportError as error:
        problem = f"a bundle of family {family} needs {error.name}, which is not installed"
        raise PlaceError(problem, hint=registry.suggest_fix("models", family, error)) from error


def _read_manifest(directory: Path) -> bytes:
    path = directory / MANIFEST
    try:
        if path.stat().st_size > MOST_MANIFEST_BYTES:
            raise BundleError(f"{path} is damaged: it is larger than any manifest", hint=RESTORE)
        return path.read_bytes()
    except FileNotFoundError as error:
        hint = "a bundle is the directory bundle/ inside a run; tagline runs list shows runs"
        raise BundleError(f"{directory} is not a bundle: it has no {MANIFEST}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise BundleError(f"cannot read {path}: {getattr(error, 'strerror', '') or error}") from error


def _parse_manifest(directory: Path, content: bytes) -> Manifest:
    path = directory / MANIFEST
    try:
        raw = json.loads(content.decode("utf-8"))
        normalised = json.dumps(raw)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is damaged: {error}", hint=RESTORE) from error
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
        return Manifest.model_validate_json(normalised)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"])) or "all of it"
        raise BundleError(f"{path} is damaged: {where}: {problem['msg'].lower()}", hint=RESTORE) from error


def _check_file_list(directory: Path, manifest: Manifest) -> None:
    """Raise BundleError for links and for files that the manifest does not list: only hashed files are read.

    Hidden files are ignored: file managers and version control leave some, and no family reads them.
    """
    for place, directories, files in os.walk(directory):
        for each in (*directories, *files):
            path = Path(place, each)
            name = path.relative_to(directory).as_posix()
            if path.is_symlink():
                hint = f"copy the bundle with what the link leads to: cp -RL {directory} COPY"
                raise BundleError(f"{directory} holds a link, which a bundle may not: {name}", hint=hint)
            if each.startswith(".") or each in directories:
                continue
            if name not in manifest.files and name not in UNLISTED:
                hint = "it was not there when the bundle was made: remove it, or restore the bundle"
                raise BundleError(f"{directory} holds a file that its manifest does not list: {name}", hint=hint)
        directories[:] = [each for each in directories if not each.startswith(".")]


def _verify_file(directory: Path, name: str, expected: str) -> None:
    """Raise BundleError if a file is missing, changed, or outside the bundle."""
    parts = PurePosixPath(name)
    if "\0" in name or parts.is_absolute() or ".." in parts.parts:
        raise BundleError(f"{directory / MANIFEST} names a file outside the bundle: {name!r}")
    path = directory / name
    try:
        if not path.is_file():
            raise BundleError(f"{directory} is damaged: {name} is missing", hint=RESTORE)
        actual = hashing.hash_file(path)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    if actual != expected:
        raise _make_changed_error(directory, name)


def _make_changed_error(directory: Path, name: str) -> BundleError:
    hint = "it is not the file that was measured: make the bundle again, or restore it"
    return BundleError(f"{directory} is damaged: {name} has changed since it was written", hint=hint)
