"""Build an sdist of the running Tagline for Google's images, and check that its dependencies are compatible."""

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
"""The module that a job runs by `python3 -m`."""
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
"""Compatible with every Python 3, so that pip can report one that is too old."""
PROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
"""Building it needs no download, with build isolation or without."""
SECRETS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|\"private_key\"\s*:|\"refresh_token\"\s*:")
SECRET_NAMES = re.compile(r"(^|/)(\.env(\..*)?|\.netrc|\.pypirc|id_[a-z0-9]+|[^/]*\.(pem|key|p12))$")
PLATFORMS = tuple(
    f"{name}_x86_64"
    for name in (
        *(f"manylinux_2_{minor}" for minor in range(28, 16, -1)), "manylinux2014", "manylinux_2_12", "manylinux2010",
        "manylinux_2_5", "manylinux1",
    )
)  # fmt: skip
"""Platform tags of wheels that run on Vertex AI's machines; pip needs each by name."""
PATIENCE_S = 120.0
NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ConnectionError|ProxyError|SSLError|"
    r"Could not fetch URL|Temporary failure in name resolution|Network is unreachable|Connection refused"
)


@dataclass(frozen=True)
class SourcePackage:
    """A source distribution; its name contains a hash of the contents."""

    file: str
    content: bytes
    requirements: tuple[str, ...]
    """Its dependencies, as pip installs them."""


@dataclass(frozen=True)
class ResolvedPackages:
    """Versions that install together, or a warning why they are unknown."""

    pins: tuple[str, ...]
    warning: str = ""


@dataclass(frozen=True)
class ExtraPackages:
    """The packages in `vertex.packages`, which a job installs beside Tagline."""

    requirements: tuple[str, ...] = ()
    wheels: tuple[tuple[str, bytes], ...] = ()
    """The names and contents of local wheels."""

    @classmethod
    def read(cls, names: Sequence[str]) -> "ExtraPackages":
        """Read the packages that a spec names; raise SpecError if a wheel cannot be read."""
        contents = []
        for name in names:
            if name.endswith(".whl"):
                path = Path(name).expanduser()
                try:
                    contents.append((path.name, path.read_bytes()))
                except OSError as error:
                    hint = f"relative paths start at {Path.cwd()}; python -m build --wheel makes one"
                    raise SpecError(f"vertex.packages: cannot read {name}: {error.strerror}", hint=hint) from error
        return cls(tuple(name for name in names if not name.endswith(".whl")), tuple(contents))


def build_sdist(
    extras: Iterable[str], *, project_files: Mapping[str, bytes | Path] | None = None, requirements: Sequence[str] = ()
) -> SourcePackage:
    """Build the sdist of the running Tagline, which pins the installed versions of its and these extras' dependencies.

    torch is the image's own, if that is not too old. `project_files` are put beside the package, where they can be
    imported: modules of a project by name, never a whole directory. `requirements` are installed with it.
    """
    pins = [pin for pin in wheels.list_pins(*extras) if not pin.startswith("torch==")]
    needs = (
        *pins,
        *([f"torch{wheels.find_specifier('torch')}"] if "train" in extras or "ulmfit" in extras else []),
        *requirements,
    )
    version, files = wheels.collect_contents(needs, more=_check_files(project_files or {}))
    place = f"{wheels.NAME}-{version}"
    dist_info = f"{place}.dist-info"
    backend = BACKEND.format(wheel=f"{place}-py3-none-any.whl", about=dist_info)
    sources = {f"{place}/wheel/{name}": content for name, content in files.items()} | {
        f"{place}/PKG-INFO": files[f"{dist_info}/METADATA"],
        f"{place}/pyproject.toml": PROJECT.encode(),
        f"{place}/backend.py": backend.encode(),
    }
    return SourcePackage(f"{place}.tar.gz", wheels.pack_tarball(sources), needs)


def find_missing_plugins(*, family: str, trackers: Iterable[str] = (), packages: Sequence[str] = ()) -> list[str]:
    """Return a sentence for each third-party plug-in of a run that is neither in Tagline nor in `packages`."""
    provided = {_package_name(package) for package in packages}
    used = [("models", family), *(("trackers", name) for name in trackers)]
    missing = [
        (kind, name)
        for kind, name in used
        if name in registry.list_implementations(kind)
        and name not in registry.BUILT_IN[kind]
        and not provided & _find_distributions(str(registry.list_implementations(kind)[name]))
    ]
    return [
        f"{registry.SINGULAR[kind]} {name} is not Tagline's own ({registry.list_implementations(kind)[name]}) "
        "and not taken along; "
        "name its package in vertex.packages, or set vertex.image to an image that has it"
        for kind, name in missing
    ]


def _package_name(package: str) -> str:
    """Return the canonical package name of a requirement or a wheel."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name, parse_wheel_filename

    if package.endswith(".whl"):
        return str(parse_wheel_filename(Path(package).name)[0])
    return str(canonicalize_name(Requirement(package).name))


def _find_distributions(implementation: str) -> set[str]:
    """Return the packages that provide a plug-in, which is given as `module:name`."""
    from packaging.utils import canonicalize_name

    module = implementation.partition(":")[0].partition(".")[0]
    return {str(canonicalize_name(name)) for name in metadata.packages_distributions().get(module, ())}


def refuse_packages(packages: Sequence[str], image: str) -> None:
    """Raise SpecError if there are packages: none are installed into an image of the user's own."""
    if packages:
        hint = 'put them into the image, or let Tagline build one: vertex.image=""'
        raise SpecError(f"vertex.packages: nothing is installed into {image}, which is your own", hint=hint)


def find_missing_packages(packages: Sequence[str]) -> list[str]:
    """Return the names of those packages that are not installed on this machine."""
    missing = []
    for name in map(_package_name, packages):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    return missing


def resolve_versions(
    requirements: Sequence[str], *, python: str = "3.11", patience_s: float = PATIENCE_S
) -> ResolvedPackages:
    """Resolve requirements with pip for Vertex AI's machines, without installing anything.

    A conflict raises PlaceError, which names the packages; if pip or its index cannot be reached, there is a warning.
    """
    with tempfile.TemporaryDirectory() as target:
        report = Path(target) / "report.json"
        command = [
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
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=patience_s, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return ResolvedPackages(
                (), f"whether the packages install together was not known after {patience_s:g} seconds"
            )
        if result.returncode == 0:
            installs = json.loads(report.read_text("utf-8"))["install"]
            versions = [(each["metadata"]["name"], each["metadata"]["version"]) for each in installs]
            return ResolvedPackages(tuple(f"{name}=={version}" for name, version in sorted(versions)))
    if NO_NETWORK.search(result.stderr) or "No module named pip" in result.stderr:
        why = "pip is not there" if "No module named pip" in result.stderr else "pip's index cannot be reached"
        return ResolvedPackages((), f"whether the packages install together is not known: {why}")
    raise PlaceError(
        f"the packages do not install together on Python {python}:{_extract_conflict(result.stdout + result.stderr)}",
        hint="change the versions that are installed here, then run the same command again",
    )


def _check_files(files: Mapping[str, bytes | Path]) -> dict[str, bytes]:
    """Return files by name; raise SpecError for a secret, or a path outside the project."""
    checked: dict[str, bytes] = {}
    for name, file in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.parts[:1] in ((), (wheels.NAME,)):
            raise SpecError(
                f"{name!r} cannot be put beside the package", hint="name a module or a package of the project"
            )
        content = file if isinstance(file, bytes) else file.read_bytes()
        if SECRET_NAMES.search(name) or SECRETS.search(content):
            hint = "secrets go by Secret Manager or the environment"
            raise SpecError(f"{name} looks like a secret, and is not put into a package", hint=hint)
        checked[str(path)] = content
    return checked


def _extract_conflict(output: str) -> str:
    """Return the lines of pip's output that describe a conflict."""
    markers = ("depends on", "requires", "The user requested", "Cannot install", "No matching", "not find a version")
    lines = [line.removeprefix("ERROR: ").strip() for line in output.splitlines() if not line.startswith("WARNING")]
    conflicts = dict.fromkeys(line for line in lines if any(word in line for word in markers))
    return "".join(f"\n  {line}" for line in [*conflicts][:12])
