"""What of this machine a job in a bucket's reach needs: the files its spec names, each at an address of its own."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tagline import gcp, storage, wheels
from tagline.errors import DataError, SpecError
from tagline.spec import Spec

FILES = ("unlabelled", "vectors")
"""Keys of a family's options that name files."""
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


def staged(spec: Spec, bucket: str) -> tuple[Spec, tuple[Upload, ...]]:
    """The spec with addresses in a bucket for everything that is on this machine, and what has to be taken there.

    An address holds the content's hash, so that the same content is taken there once.
    """
    at = folder(bucket)
    uploads: dict[str, Upload] = {}

    def placed(source: str, folder: str) -> str:
        if "://" in source:
            return source
        if source not in uploads:
            path = Path(source).expanduser()
            uploads[source] = Upload(str(path), f"{at}/{folder}/{_digest(path)[:16]}/{path.name or folder}")
        return uploads[source].address

    data: dict[str, str | tuple[str, ...]] = {}
    for split in ("train", "validation", "test"):
        addresses = spec.data.addresses(split)
        if storage.STANDARD_INPUT in addresses:
            raise SpecError("what is piped in cannot be taken to another machine", hint="write it to a file first")
        local = [each for each in addresses if "://" not in each]
        found = [placed(each, "data") for each in storage.expand(local)] + [each for each in addresses if "://" in each]
        if found:
            data[split] = found[0] if len(found) == 1 else tuple(found)
    model: dict[str, str | tuple[str, ...]] = {}
    for key in FILES:
        given = getattr(spec.model, key, "")
        if isinstance(given, str):
            model |= {key: placed(given, "data")} if given else {}
        elif given:
            model[key] = tuple(placed(each, "data") for each in storage.expand(given))
    for key in DIRECTORIES:
        given = str(getattr(spec.model, key, ""))
        if given and "://" not in given and Path(given).expanduser().is_dir():
            model[key] = placed(given, "pretrained")
        elif is_of_the_hub(spec, given):
            model[key] = f"{at}/pretrained/hub/{given}"
            uploads[given] = Upload(f"{HUB}{given}", model[key])  # type: ignore[arg-type]
    changed = spec.model_copy(update={
        "data": spec.data.model_copy(update=data), "model": spec.model.model_copy(update=model),
    })  # fmt: skip
    return changed, tuple(uploads.values())


def folder(bucket: str) -> str:
    """Where everything of Tagline's is in a bucket."""
    return f"{gcp.SCHEME}{bucket.removeprefix(gcp.SCHEME).strip('/')}/{FOLDER}"


def is_of_the_hub(spec: Spec, name: str) -> bool:
    """Whether an encoder's name is one of the Hugging Face hub."""
    if not name or "://" in name or name.startswith((".", "/", "~")) or name.count("/") > 1:
        return False
    if spec.model.family not in ("encoder", "fewshot"):  # type: ignore[attr-defined]
        return False
    from tagline.models.pretrained import PACKAGED

    return name not in PACKAGED


def deliver(upload: Upload) -> bool:
    """Take something to its address, unless it is there; returns whether anything was sent."""
    if gcp.objects(upload.address):
        return False
    if upload.source.startswith(HUB):
        from tagline.models.pretrained import find

        storage.copy_up(find(upload.source.removeprefix(HUB)), upload.address)
    elif Path(upload.source).is_dir():
        storage.copy_up(Path(upload.source), upload.address)
    else:
        gcp.upload(Path(upload.source), upload.address)
    return True


def _digest(path: Path) -> str:
    """Of a file's content, or of all files in a directory."""
    if not path.exists():
        raise DataError(f"there is no file {path}", hint=f"relative paths start at {Path.cwd()}")
    if path.is_dir():
        return wheels.digest({
            each.relative_to(path).as_posix(): storage.sha256(each) for each in storage.files_below(path)
        })  # fmt: skip
    return hashlib.sha256(storage.sha256(path).encode()).hexdigest()
