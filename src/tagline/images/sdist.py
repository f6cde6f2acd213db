"""Tagline as a Python package for Google's images: an sdist of what runs here, and whether it installs there."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from tagline import registry
from tagline.errors import PlaceError, SpecError
from tagline.images import wheels

MODULE = wheels.NAME
"""What a job runs: `python3 -m` this."""
BACKEND = '''"""Makes the wheel whose files lie beside this one; needs Python and nothing else."""
import os
import shutil
import zipfile

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wheel")
WHEEL = "{wheel}"
ABOUT = "{about}"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(wheel_directory, WHEEL), "w", zipfile.ZIP_DEFLATED) as packed:
        for directory, _, names in sorted(os.walk(HERE)):
            for name in sorted(names):
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    packed.writestr(os.path.relpath(path, HERE).replace(os.sep, "/"), file.read())
    return WHEEL


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    shutil.copytree(os.path.join(HERE, ABOUT), os.path.join(metadata_directory, ABOUT))
    return ABOUT
'''
"""In words that every Python 3 knows, so that one that is too old is told so by pip."""
PROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
"""Nothing has to be fetched to build it, in an isolated environment or not."""
SECRETS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|\"private_key\"\s*:|\"refresh_token\"\s*:")
SECRET_NAMES = re.compile(r"(^|/)(\.env(\..*)?|\.netrc|\.pypirc|id_[a-z0-9]+|[^/]*\.(pem|key|p12))$")
PLATFORMS = tuple(
    f"{name}_x86_64"
    for name in (
        *(f"manylinux_2_{minor}" for minor in range(28, 16, -1)), "manylinux2014", "manylinux_2_12", "manylinux2010",
        "manylinux_2_5", "manylinux1",
    )
)  # fmt: skip
"""What the wheels of Vertex AI's machines may be made for; pip takes each by name."""
PATIENCE_S = 120.0
NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ConnectionError|ProxyError|SSLError|"
    r"Could not fetch URL|Temporary failure in name resolution|Network is unreachable|Connection refused"
)


@dataclass(frozen=True)
class SourcePackage:
    """A source distribution; its name changes when anything in it does."""

    file: str
    content: bytes
    requirements: tuple[str, ...]
    """What pip installs beside it."""


@dataclass(frozen=True)
class ResolvedPackages:
    """Versions that install together; or why nobody knows."""

    pins: tuple[str, ...]
    warning: str = ""


@dataclass(frozen=True)
class ExtraPackages:
    """What a job installs beside Tagline, because `vertex.packages` names it."""

    requirements: tuple[str, ...] = ()
    wheels: tuple[tuple[str, bytes], ...] = ()
    """Files of this machine, each with its name."""

    @classmethod
    def read(cls, names: Sequence[str]) -> "ExtraPackages":
        """As the spec names them; a wheel that is not there is an error."""
        found = []
        for name in names:
            if name.endswith(".whl"):
                path = Path(name).expanduser()
                try:
                    found.append((path.name, path.read_bytes()))
                except OSError as error:
                    hint = f"relative paths start at {Path.cwd()}; python -m build --wheel makes one"
                    raise SpecError(f"vertex.packages: cannot read {name}: {error.strerror}", hint=hint) from error
        return cls(tuple(name for name in names if not name.endswith(".whl")), tuple(found))


def build_sdist(
    extras: Iterable[str], *, project_files: Mapping[str, bytes | Path] | None = None, requirements: Sequence[str] = ()
) -> SourcePackage:
    """The package of what runs here; it needs what the base install and these extras need, in the versions of here.

    torch is the image's own, if that is not too old. `project_files` are put beside the package, where they can be
    imported: modules of a project by name, and never a directory as a whole. `requirements` are installed with it.
    """
    kept = [pin for pin in wheels.list_pins(*extras) if not pin.startswith("torch==")]
    needs = (
        *kept,
        *([f"torch{wheels.find_specifier('torch')}"] if "train" in extras or "ulmfit" in extras else []),
        *requirements,
    )
    version, files = wheels.collect_contents(needs, more=_check_files(project_files or {}))
    place = f"{wheels.NAME}-{version}"
    about = f"{place}.dist-info"
    backend = BACKEND.format(wheel=f"{place}-py3-none-any.whl", about=about)
    sources = {f"{place}/wheel/{name}": content for name, content in files.items()} | {
        f"{place}/PKG-INFO": files[f"{about}/METADATA"],
        f"{place}/pyproject.toml": PROJECT.encode(),
        f"{place}/backend.py": backend.encode(),
    }
    return SourcePackage(f"{place}.tar.gz", wheels.pack_tarball(sources), needs)


def find_missing_plugins(*, family: str, trackers: Iterable[str] = (), packages: Sequence[str] = ()) -> list[str]:
    """Plug-ins of other packages that a run uses and no package or image of ours has in it, each in a sentence; those
    that come with `packages` are there."""
    brought = {_package_name(package) for package in packages}
    used = [("models", family), *(("trackers", name) for name in trackers)]
    strange = [
        (kind, name)
        for kind, name in used
        if name in registry.list_implementations(kind)
        and name not in registry.BUILT_IN[kind]
        and not brought & _find_distributions(str(registry.list_implementations(kind)[name]))
    ]
    return [
        f"{registry.SINGULAR[kind]} {name} is not Tagline's own ({registry.list_implementations(kind)[name]}) "
        "and not taken along; "
        "name its package in vertex.packages, or set vertex.image to an image that has it"
        for kind, name in strange
    ]


def _package_name(package: str) -> str:
    """The name of a requirement, or of a wheel."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name, parse_wheel_filename

    if package.endswith(".whl"):
        return str(parse_wheel_filename(Path(package).name)[0])
    return str(canonicalize_name(Requirement(package).name))


def _find_distributions(implementation: str) -> set[str]:
    """The packages that bring a plug-in, which is named as `module:name`."""
    from packaging.utils import canonicalize_name

    module = implementation.partition(":")[0].partition(".")[0]
    return {str(canonicalize_name(name)) for name in metadata.packages_distributions().get(module, ())}


def refuse_packages(packages: Sequence[str], image: str) -> None:
    """Nothing is installed into an image of the user's own when a job starts."""
    if packages:
        hint = 'put them into the image, or let Tagline build one: vertex.image=""'
        raise SpecError(f"vertex.packages: nothing is installed into {image}, which is your own", hint=hint)


def find_missing_packages(packages: Sequence[str]) -> list[str]:
    """Those packages that are not installed on this machine, by name."""
    found = []
    for name in map(_package_name, packages):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            found.append(name)
    return found


def resolve_versions(
    requirements: Sequence[str], *, python: str = "3.11", patience_s: float = PATIENCE_S
) -> ResolvedPackages:
    """The versions that pip would install of these on Vertex AI's machines; nothing is installed here.

    A conflict is an error that names the packages. Where pip or its index cannot be reached, that is a warning.
    """
    with tempfile.TemporaryDirectory() as target:
        report = Path(target) / "report.json"
        asked = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--no-input",
            "--disable-pip-version-check",
            "--report",
            str(report),
            "--target",
            target,
            "--python-version",
            python,
            "--only-binary=:all:",
            *(word for each in PLATFORMS for word in ("--platform", each)),
            "--retries",
            "1",
            "--timeout",
            "15",
            *requirements,
        ]
        try:
            done = subprocess.run(
                asked, capture_output=True, text=True, timeout=patience_s, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return ResolvedPackages(
                (), f"whether the packages install together was not known after {patience_s:g} seconds"
            )
        if done.returncode == 0:
            found = json.loads(report.read_text("utf-8"))["install"]
            versions = [(each["metadata"]["name"], each["metadata"]["version"]) for each in found]
            return ResolvedPackages(tuple(f"{name}=={version}" for name, version in sorted(versions)))
    if NO_NETWORK.search(done.stderr) or "No module named pip" in done.stderr:
        why = "pip is not there" if "No module named pip" in done.stderr else "pip's index cannot be reached"
        return ResolvedPackages((), f"whether the packages install together is not known: {why}")
    raise PlaceError(
        f"the packages do not install together on Python {python}:{_extract_conflict(done.stdout + done.stderr)}",
        hint="change the versions that are installed here, then run the same command again",
    )


def _check_files(files: Mapping[str, bytes | Path]) -> dict[str, bytes]:
    """Files by name, none of them a secret or out of place."""
    found: dict[str, bytes] = {}
    for name, given in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] in ((), (wheels.NAME,)):
            raise SpecError(
                f"{name!r} cannot be put beside the package", hint="name a module or a package of the project"
            )
        content = given if isinstance(given, bytes) else given.read_bytes()
        if SECRET_NAMES.search(name) or SECRETS.search(content):
            hint = "secrets go by Secret Manager or the environment"
            raise SpecError(f"{name} looks like a secret, and is not put into a package", hint=hint)
        found[str(path)] = content
    return found


def _extract_conflict(said: str) -> str:
    """What pip found, without what it did before and what it advises."""
    telling = ("depends on", "requires", "The user requested", "Cannot install", "No matching", "not find a version")
    lines = [line.removeprefix("ERROR: ").strip() for line in said.splitlines() if not line.startswith("WARNING")]
    found = dict.fromkeys(line for line in lines if any(word in line for word in telling))
    return "".join(f"\n  {line}" for line in [*found][:12])
