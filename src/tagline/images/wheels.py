"""Tagline as a wheel, made of the files that run here, and the versions of what it needs: for places that lack them."""

import gzip
import hashlib
import io
import shutil
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING

import tagline
from tagline import __version__
from tagline.errors import PlaceError
from tagline.storage import hashing

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

NAME = "tagline"
SERVING = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"}
"""Where bundles are served and jobs run: what is needed there may differ from what is needed on a laptop."""
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The date of every file in an archive: equal contents are equal bytes."""
LONG_AGO_S = 315_532_800
"""The same, in seconds since 1970."""
PACKED = (".onnx", ".safetensors", ".whl")
"""Files that compression makes no smaller."""


@dataclass(frozen=True)
class Wheel:
    """A wheel of this very code; its version names its contents, so that no other package can be taken for it."""

    version: str
    content: bytes

    @property
    def file(self) -> str:
        """Its name, which pip reads."""
        return f"{NAME}-{self.version}-py3-none-any.whl"


def build_wheel() -> Wheel:
    """The wheel of what is installed here, also where it is installed to be edited."""
    version, files = collect_contents()
    buffer = io.BytesIO()
    write_zip(files, buffer)
    return Wheel(version, buffer.getvalue())


def collect_contents(
    needs: Sequence[str] | None = None, *, more: Mapping[str, bytes] | None = None
) -> tuple[str, dict[str, bytes]]:
    """A wheel's version and files, not yet packed; `needs` instead of its own, and `more` files beside the package."""
    found = find_distribution()
    files = _read_sources(Path(tagline.__file__).parent) | dict(more or {})
    about = {name: found.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}
    if needs is not None:
        about["METADATA"] = _replace_requirements(about["METADATA"], needs)
    named = files | {name: text.encode() for name, text in about.items()}
    digested = hashing.combine_hashes({name: hashlib.sha256(content).hexdigest() for name, content in named.items()})
    version = f"{__version__}+{digested[:12]}"
    described = about["METADATA"].replace(f"\nVersion: {found.version}\n", f"\nVersion: {version}\n", 1)
    place = f"{NAME}-{version}.dist-info"
    files |= {
        f"{place}/METADATA": described.encode(),
        f"{place}/WHEEL": f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: true\nTag: py3-none-any\n".encode(),
        f"{place}/entry_points.txt": about["entry_points.txt"].encode(),
    }
    record = "".join(
        f"{name},sha256={_encode_digest(content)},{len(content)}\n" for name, content in sorted(files.items())
    )
    files[f"{place}/RECORD"] = f"{record}{place}/RECORD,,\n".encode()
    return version, files


def _read_sources(package: Path) -> dict[str, bytes]:
    """The package's files; hidden ones, such as an editor's or an .env, are nobody's business."""
    found = {path.relative_to(package): path for path in package.rglob("*") if path.is_file()}
    return {
        f"{NAME}/{name.as_posix()}": path.read_bytes()
        for name, path in found.items()
        if not any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    }


def choose_extras(*, family: str, trackers: Iterable[str] = ()) -> tuple[str, ...]:
    """The extras that a training in the cloud needs."""
    tracked = ("track",) if set(trackers) - {"vertex"} else ()
    return ("train", "vertex", *(("ulmfit",) if family == "ulmfit" else ()), *tracked)


def find_specifier(name: str) -> "SpecifierSet":
    """Which versions of a package Tagline itself asks for, in whatever extra."""
    from packaging.requirements import Requirement

    return next(need.specifier for need in map(Requirement, find_distribution().requires or ()) if need.name == name)


def list_pins(*extras: str, of: str = NAME) -> list[str]:
    """`name==version` of everything that Tagline with these extras, or another package, needs there, as it is here."""
    from packaging.utils import canonicalize_name

    find_distribution()
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(of, extra) for extra in ("", *extras)]
    while waiting:
        asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        name, extra = asked
        here = _find_package(name)
        if here is None:  # by a package that has it for that platform only: pip finds the version
            continue
        found[name] = here.version.public
        for need in here.needs:
            if need.marker is None or need.marker.evaluate({**SERVING, "extra": extra}):
                needed = canonicalize_name(need.name)
                _check_fit(need, by=name)
                waiting += [(needed, each) for each in ("", *need.extras)]
    return [f"{name}=={version}" for name, version in sorted(found.items()) if name != NAME]


@dataclass(frozen=True)
class _InstalledPackage:
    """A package as it is here."""

    version: "Version"
    needs: "tuple[Requirement, ...]"


@cache
def _find_package(name: str) -> _InstalledPackage | None:
    from packaging.requirements import Requirement
    from packaging.version import Version

    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return _InstalledPackage(Version(found.version), tuple(map(Requirement, found.requires or ())))


def _check_fit(need: "Requirement", *, by: str) -> None:
    """What does not fit together here would not be installed elsewhere."""
    here = _find_package(need.name)
    if here is None and by == NAME:
        hint = f'pip install "{need.name}{need.specifier}", or the extra of Tagline that brings it'
        raise PlaceError(f"{need.name} is needed there and not installed here: nobody knows which version", hint=hint)
    if here and need.name != NAME and not need.specifier.contains(here.version, prereleases=True):
        hint = f'pip install "{need.name}{need.specifier}"'
        raise PlaceError(f"{need.name} {here.version} is installed here, and {by} needs {need.specifier}", hint=hint)


def write_zip(files: Mapping[str, bytes | Path], target: IO[bytes]) -> None:
    """A zip of these files, in the order of their names: equal files are equal bytes."""
    with zipfile.ZipFile(target, "w") as zipped:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(PACKED) else zipfile.ZIP_DEFLATED
            if isinstance(content, bytes):
                zipped.writestr(entry, content)
            else:
                with content.open("rb") as source, zipped.open(entry, "w", force_zip64=True) as stream:
                    shutil.copyfileobj(source, stream)


def pack_tarball(files: Mapping[str, bytes]) -> bytes:
    """A tar.gz of these files, in the order of their names: equal files are equal bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, LONG_AGO_S
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def find_distribution() -> metadata.Distribution:
    """Tagline itself, as it is installed here."""
    try:
        return metadata.distribution(NAME)
    except metadata.PackageNotFoundError as error:
        hint = "install it with pip, if only to be edited: pip install --editable ."
        raise PlaceError(
            "Tagline runs here without being installed, so that nobody knows what it needs", hint=hint
        ) from error


def _replace_requirements(text: str, needs: Sequence[str]) -> str:
    """A package's description with other requirements than its own."""
    head, _, body = text.partition("\n\n")
    kept = [line for line in head.splitlines() if not line.startswith(("Requires-Dist:", "Provides-Extra:"))]
    return "\n".join([*kept, *(f"Requires-Dist: {need}" for need in needs)]) + f"\n\n{body}"


def _encode_digest(content: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
