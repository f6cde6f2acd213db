"""Build a wheel of the running Tagline, and pin the installed versions of its dependencies."""

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
TARGET_MARKERS = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"}
"""Environment markers of the machines that serve bundles and run jobs, which may differ from this one."""
ARCHIVE_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every file in an archive, for reproducible builds."""
ARCHIVE_DATE_S = 315_532_800
"""The same, in seconds since 1970."""
COMPRESSED = (".onnx", ".safetensors", ".whl")
"""Suffixes of files that are compressed already, and stored as they are."""


@dataclass(frozen=True)
class Wheel:
    """A wheel of the running code; its version contains a hash of the contents, so that it is unique."""

    version: str
    content: bytes

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return f"{NAME}-{self.version}-py3-none-any.whl"


def build_wheel() -> Wheel:
    """Build the wheel of the installed Tagline, which may be an editable install."""
    version, files = collect_contents()
    buffer = io.BytesIO()
    write_zip(files, buffer)
    return Wheel(version, buffer.getvalue())


def collect_contents(
    needs: Sequence[str] | None = None, *, more: Mapping[str, bytes] | None = None
) -> tuple[str, dict[str, bytes]]:
    """Return a wheel's version and files; `needs` replace its requirements, and `more` files are added to it."""
    distribution = find_distribution()
    files = _read_sources(Path(tagline.__file__).parent) | dict(more or {})
    metadata_files = {name: distribution.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}
    if needs is not None:
        metadata_files["METADATA"] = _replace_requirements(metadata_files["METADATA"], needs)
    named = files | {name: text.encode() for name, text in metadata_files.items()}
    digested = hashing.combine_hashes({name: hashlib.sha256(content).hexdigest() for name, content in named.items()})
    version = f"{__version__}+{digested[:12]}"
    versioned = metadata_files["METADATA"].replace(f"\nVersion: {distribution.version}\n", f"\nVersion: {version}\n", 1)
    place = f"{NAME}-{version}.dist-info"
    files |= {
        f"{place}/METADATA": versioned.encode(),
        f"{place}/WHEEL": f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: true\nTag: py3-none-any\n".encode(),
        f"{place}/entry_points.txt": metadata_files["entry_points.txt"].encode(),
    }
    record = "".join(
        f"{name},sha256={_encode_digest(content)},{len(content)}\n" for name, content in sorted(files.items())
    )
    files[f"{place}/RECORD"] = f"{record}{place}/RECORD,,\n".encode()
    return version, files


def _read_sources(package: Path) -> dict[str, bytes]:
    """Read the package's files, without hidden ones, such as an editor's or an .env."""
    paths = {path.relative_to(package): path for path in package.rglob("*") if path.is_file()}
    return {
        f"{NAME}/{name.as_posix()}": path.read_bytes()
        for name, path in paths.items()
        if not any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    }


def choose_extras(*, family: str, trackers: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the extras that a training in the cloud needs."""
    tracked = ("track",) if set(trackers) - {"vertex"} else ()
    return ("train", "vertex", *(("ulmfit",) if family == "ulmfit" else ()), *tracked)


def find_specifier(name: str) -> "SpecifierSet":
    """Return Tagline's version specifier of a dependency, from any extra."""
    from packaging.requirements import Requirement

    return next(need.specifier for need in map(Requirement, find_distribution().requires or ()) if need.name == name)


def list_pins(*extras: str, of: str = NAME) -> list[str]:
    """Return `name==version` of all dependencies of Tagline with these extras, or of another package, as installed."""
    from packaging.utils import canonicalize_name

    find_distribution()
    versions: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    queue = [(of, extra) for extra in ("", *extras)]
    while queue:
        wanted = queue.pop()
        if wanted in seen:
            continue
        seen.add(wanted)
        name, extra = wanted
        installed = _find_package(name)
        if installed is None:  # a dependency on that platform only: pip chooses the version
            continue
        versions[name] = installed.version.public
        for need in installed.needs:
            if need.marker is None or need.marker.evaluate({**TARGET_MARKERS, "extra": extra}):
                dependency = canonicalize_name(need.name)
                _check_fit(need, by=name)
                queue += [(dependency, each) for each in ("", *need.extras)]
    return [f"{name}=={version}" for name, version in sorted(versions.items()) if name != NAME]


@dataclass(frozen=True)
class _InstalledPackage:
    """The version and requirements of an installed package."""

    version: "Version"
    needs: "tuple[Requirement, ...]"


@cache
def _find_package(name: str) -> _InstalledPackage | None:
    from packaging.requirements import Requirement
    from packaging.version import Version

    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return _InstalledPackage(Version(distribution.version), tuple(map(Requirement, distribution.requires or ())))


def _check_fit(need: "Requirement", *, by: str) -> None:
    """Raise PlaceError if a requirement is not met by the installed version: it could not be installed elsewhere."""
    installed = _find_package(need.name)
    if installed is None and by == NAME:
        hint = f'pip install "{need.name}{need.specifier}", or the extra of Tagline that brings it'
        raise PlaceError(f"{need.name} is needed there and not installed here: nobody knows which version", hint=hint)
    if installed and need.name != NAME and not need.specifier.contains(installed.version, prereleases=True):
        hint = f'pip install "{need.name}{need.specifier}"'
        raise PlaceError(
            f"{need.name} {installed.version} is installed here, and {by} needs {need.specifier}", hint=hint
        )


def write_zip(files: Mapping[str, bytes | Path], target: IO[bytes]) -> None:
    """A zip of these files, in the order of their names: equal files are equal bytes."""
    with zipfile.ZipFile(target, "w") as zipped:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, ARCHIVE_DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(COMPRESSED) else zipfile.ZIP_DEFLATED
            if isinstance(content, bytes):
                zipped.writestr(entry, content)
            else:
                with content.open("rb") as source, zipped.open(entry, "w", force_zip64=True) as stream:
                    shutil.copyfileobj(source, stream)


def pack_tarball(files: Mapping[str, bytes]) -> bytes:
    """Return a reproducible tar.gz of files, in the order of their names."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, ARCHIVE_DATE_S
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def find_distribution() -> metadata.Distribution:
    """Return the installed distribution of Tagline."""
    try:
        return metadata.distribution(NAME)
    except metadata.PackageNotFoundError as error:
        hint = "install it with pip, if only to be edited: pip install --editable ."
        raise PlaceError(
            "Tagline runs here without being installed, so that nobody knows what it needs", hint=hint
        ) from error


def _replace_requirements(text: str, needs: Sequence[str]) -> str:
    """Return a METADATA file with other requirements."""
    head, _, body = text.partition("\n\n")
    kept = [line for line in head.splitlines() if not line.startswith(("Requires-Dist:", "Provides-Extra:"))]
    return "\n".join([*kept, *(f"Requires-Dist: {need}" for need in needs)]) + f"\n\n{body}"


def _encode_digest(content: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
