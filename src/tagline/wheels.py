"""Tagline as a wheel, made of the files that run here, and the versions of what it needs: for places that lack them."""

import hashlib
import io
import shutil
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO

from tagline import __version__
from tagline.errors import PlaceError

NAME = "tagline"
SERVING = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"}
"""Where bundles are served: what is needed there may differ from what is needed on a laptop."""
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The date of every file in an archive: equal contents are equal bytes."""
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


def wheel() -> Wheel:
    """The wheel of what is installed here, also where it is installed to be edited."""
    found = _distribution()
    package = Path(__file__).parent
    files: dict[str, bytes] = {
        f"{NAME}/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }  # fmt: skip
    about = {name: found.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}
    contents = files | {name: text.encode() for name, text in about.items()}
    named = digest({name: hashlib.sha256(content).hexdigest() for name, content in contents.items()})
    version = f"{__version__}+{named[:12]}"
    described = about["METADATA"].replace(f"\nVersion: {found.version}\n", f"\nVersion: {version}\n", 1)
    place = f"{NAME}-{version}.dist-info"
    files |= {
        f"{place}/METADATA": described.encode(),
        f"{place}/WHEEL": f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: true\nTag: py3-none-any\n".encode(),
        f"{place}/entry_points.txt": about["entry_points.txt"].encode(),
    }
    record = "".join(f"{name},sha256={_recorded(content)},{len(content)}\n" for name, content in sorted(files.items()))
    files[f"{place}/RECORD"] = f"{record}{place}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    archive(files, buffer)
    return Wheel(version, buffer.getvalue())


def pins() -> list[str]:
    """`name==version` of everything that the base install needs on the serving side, as it is installed here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    _distribution()
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(NAME, "")]
    while waiting:
        asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        name, extra = asked
        try:
            found[name] = str(Version(metadata.version(name)).public)
        except metadata.PackageNotFoundError:  # needed there and not here: pip finds the version
            continue
        for line in metadata.requires(name) or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({**SERVING, "extra": extra}):
                needed = canonicalize_name(need.name)
                waiting += [(needed, each) for each in ("", *need.extras)]
    return [f"{name}=={version}" for name, version in sorted(found.items()) if name != NAME]


def archive(files: Mapping[str, bytes | Path], target: IO[bytes]) -> None:
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


def digest(hashes: Mapping[str, str]) -> str:
    """One SHA-256 of many files, from their names and each one's own."""
    lines = "".join(f"{name}\0{each}\n" for name, each in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _distribution() -> metadata.Distribution:
    try:
        return metadata.distribution(NAME)
    except metadata.PackageNotFoundError as error:
        hint = "install it with pip, if only to be edited: pip install --editable ."
        raise PlaceError(
            "Tagline runs here without being installed, so that nobody knows what it needs", hint=hint
        ) from error


def _recorded(content: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
