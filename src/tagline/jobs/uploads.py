"""Uploads: the local files that a spec names, each copied to a content-addressed place in the bucket."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tagline import gcp, registry
from tagline.data.dataset import SPLITS
from tagline.errors import DataError, SpecError
from tagline.gcp import cloud_storage
from tagline.models.nn import word_vectors
from tagline.spec import Spec
from tagline.storage import addresses, hashing, inputs

DIRECTORIES = ("pretrained", "pretrained_backward")
"""Keys that name a directory, or a model that the job downloads itself."""
HUB = "hub:"
FOLDER = "tagline"
"""Tagline's folder in a bucket."""


@dataclass(frozen=True)
class Upload:
    """A file, a directory or an encoder of the Hugging Face hub, and the address to which it is copied."""

    source: str
    address: str


def stage_uploads(spec: Spec, bucket: str) -> tuple[Spec, tuple[Upload, ...]]:
    """Return the spec with bucket addresses in place of local paths, and the uploads that this takes.

    An address contains the hash of the content, so that the same content is uploaded once.
    """
    planner = _UploadPlanner(bucket_folder(bucket))
    splits = {
        split: planner.add_files(spec.data.list_addresses(split)) for split in SPLITS if spec.data.list_addresses(split)
    }
    data = {str(split): each[0] if len(each) == 1 else each for split, each in splits.items()}
    model: dict[str, str | tuple[str, ...]] = {}
    if unlabelled := getattr(spec.model, "unlabelled", ()):
        model["unlabelled"] = planner.add_files(unlabelled)
    if source := str(getattr(spec.model, "vectors", "")):
        model["vectors"] = planner.add_file(
            source, beside=[word_vectors.words_of(source)] if word_vectors.is_array(source) else ()
        )
    for key in DIRECTORIES:
        source = str(getattr(spec.model, key, ""))
        if is_hub_model(spec, source):
            model[key] = planner.add_encoder(source)
        elif source and "://" not in source and Path(source).expanduser().is_dir():
            model[key] = planner.add_file(source, "pretrained")
    changed = spec.model_copy(
        update={
            "data": spec.data.model_copy(update=data),
            "model": spec.model.model_copy(update=model),
        }
    )
    return changed, tuple(planner.uploads.values())


class _UploadPlanner:
    """Assigns an address in the bucket to each local file."""

    def __init__(self, folder: str) -> None:
        self.uploads: dict[str, Upload] = {}
        self._folder = folder

    def add_file(self, source: str, kind: str = "data", *, beside: Sequence[str] = ()) -> str:
        """Return the address of a file or directory; the files `beside` it get the same folder."""
        if "://" in source:
            return source
        if source not in self.uploads:
            paths = {each: Path(each).expanduser() for each in (source, *beside)}
            digests = {path.name: _hash_content(path) for path in paths.values()}
            digest = hashing.combine_hashes(digests) if beside else next(iter(digests.values()))
            for each, path in paths.items():
                address = f"{self._folder}/{kind}/{digest[:16]}/{path.name or kind}"
                self.uploads[each] = Upload(str(path), address)
        return self.uploads[source].address

    def add_files(self, sources: Sequence[str]) -> tuple[str, ...]:
        """Return the addresses of files, expanding local patterns; those in buckets are left as they are."""
        if inputs.STANDARD_INPUT in sources:
            raise SpecError("what is piped in cannot be taken to another machine", hint="write it to a file first")
        return tuple(
            self.add_file(each)
            for source in sources
            for each in ([source] if "://" in source else inputs.expand_globs([source]))
        )

    def add_encoder(self, name: str) -> str:
        """Return the address of an encoder of the Hugging Face hub, downloaded once and not by every worker."""
        address = f"{self._folder}/pretrained/hub/{name}"
        self.uploads[name] = Upload(f"{HUB}{name}", address)
        return address


def bucket_folder(bucket: str) -> str:
    """Return the address of Tagline's folder in a bucket."""
    return f"{gcp.SCHEME}{bucket.removeprefix(gcp.SCHEME).strip('/')}/{FOLDER}"


def is_hub_model(spec: Spec, name: str) -> bool:
    """Return whether an encoder's name is one of the Hugging Face hub."""
    if not name or "://" in name or name.startswith((".", "/", "~")) or name.count("/") > 1 or Path(name).is_dir():
        return False
    return spec.model.family in ("encoder", "fewshot") and name not in registry.PACKAGED


def upload_if_missing(upload: Upload) -> bool:
    """Upload to an address unless it exists; return whether anything was sent."""
    if cloud_storage.list_objects(upload.address):
        return False
    if upload.source.startswith(HUB):
        from tagline.models.nn.pretrained import find_encoder

        addresses.copy_up(find_encoder(upload.source.removeprefix(HUB)), upload.address)
    elif Path(upload.source).is_dir():
        addresses.copy_up(Path(upload.source), upload.address)
    else:
        cloud_storage.upload(Path(upload.source), upload.address)
    return True


def _hash_content(path: Path) -> str:
    """Return the hash of a file, or of all files in a directory."""
    if not path.exists():
        raise DataError(f"there is no file {path}", hint=f"relative paths start at {Path.cwd()}")
    if path.is_dir():
        return hashing.combine_hashes(
            {each.relative_to(path).as_posix(): hashing.hash_file(each) for each in hashing.files_below(path)}
        )
    return hashlib.sha256(hashing.hash_file(path).encode()).hexdigest()
