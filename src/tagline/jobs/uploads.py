"""What of this machine a job in a bucket's reach needs: the files its spec names, each at an address of its own."""

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
"""Keys that name a directory, or something else that the job finds by itself."""
HUB = "hub:"
FOLDER = "tagline"
"""In the bucket."""


@dataclass(frozen=True)
class Upload:
    """A file or directory that a job needs, or an encoder of the Hugging Face hub, and where the job will find it."""

    source: str
    address: str


def stage_uploads(spec: Spec, bucket: str) -> tuple[Spec, tuple[Upload, ...]]:
    """The spec with addresses in a bucket for everything that is on this machine, and what has to be taken there.

    An address holds the content's hash, so that the same content is taken there once.
    """
    moving = _UploadPlanner(bucket_folder(bucket))
    found = {
        split: moving.add_files(spec.data.list_addresses(split)) for split in SPLITS if spec.data.list_addresses(split)
    }
    data = {str(split): each[0] if len(each) == 1 else each for split, each in found.items()}
    model: dict[str, str | tuple[str, ...]] = {}
    if more := getattr(spec.model, "unlabelled", ()):
        model["unlabelled"] = moving.add_files(more)
    if given := str(getattr(spec.model, "vectors", "")):
        model["vectors"] = moving.add_file(
            given, beside=[word_vectors.words_of(given)] if word_vectors.is_array(given) else ()
        )
    for key in DIRECTORIES:
        given = str(getattr(spec.model, key, ""))
        if is_hub_model(spec, given):
            model[key] = moving.add_encoder(given)
        elif given and "://" not in given and Path(given).expanduser().is_dir():
            model[key] = moving.add_file(given, "pretrained")
    changed = spec.model_copy(
        update={
            "data": spec.data.model_copy(update=data),
            "model": spec.model.model_copy(update=model),
        }
    )
    return changed, tuple(moving.uploads.values())


class _UploadPlanner:
    """Finds an address in the bucket for each thing of this machine."""

    def __init__(self, folder: str) -> None:
        self.uploads: dict[str, Upload] = {}
        self._folder = folder

    def add_file(self, source: str, kind: str = "data", *, beside: Sequence[str] = ()) -> str:
        """Of a file or directory; other files that it needs stand beside it there too."""
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
        """Of files, and of those that patterns match; patterns in buckets are left as they are."""
        if inputs.STANDARD_INPUT in sources:
            raise SpecError("what is piped in cannot be taken to another machine", hint="write it to a file first")
        return tuple(
            self.add_file(each)
            for source in sources
            for each in ([source] if "://" in source else inputs.expand_globs([source]))
        )

    def add_encoder(self, name: str) -> str:
        """Of one on the Hugging Face hub, which is fetched once instead of by every worker."""
        address = f"{self._folder}/pretrained/hub/{name}"
        self.uploads[name] = Upload(f"{HUB}{name}", address)
        return address


def bucket_folder(bucket: str) -> str:
    """Where everything of Tagline's is in a bucket."""
    return f"{gcp.SCHEME}{bucket.removeprefix(gcp.SCHEME).strip('/')}/{FOLDER}"


def is_hub_model(spec: Spec, name: str) -> bool:
    """Whether an encoder's name is one of the Hugging Face hub."""
    if not name or "://" in name or name.startswith((".", "/", "~")) or name.count("/") > 1 or Path(name).is_dir():
        return False
    return spec.model.family in ("encoder", "fewshot") and name not in registry.PACKAGED


def upload_if_missing(upload: Upload) -> bool:
    """Take something to its address, unless it is there; returns whether anything was sent."""
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
    """Of a file's content, or of all files in a directory."""
    if not path.exists():
        raise DataError(f"there is no file {path}", hint=f"relative paths start at {Path.cwd()}")
    if path.is_dir():
        return hashing.combine_hashes(
            {each.relative_to(path).as_posix(): hashing.hash_file(each) for each in hashing.files_below(path)}
        )
    return hashlib.sha256(hashing.hash_file(path).encode()).hexdigest()
