"""A fresh Python environment for a job's packages, filled as Vertex AI's executor fills it."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

SHARED = "machine-packages.pth"


@dataclass(frozen=True)
class Environment:
    """A directory with a Python of its own."""

    directory: Path
    strict: bool

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.directory / "bin" / "python"

    @property
    def _packages(self) -> Path:
        base = {"base": str(self.directory), "platbase": str(self.directory)}
        return Path(sysconfig.get_path("purelib", "venv", base))

    def create(self) -> None:
        """Make it; unless it is strict, it sees the packages of this machine's Python behind its own."""
        venv.EnvBuilder(symlinks=True, with_pip=self.strict, clear=True).create(self.directory)
        if not self.strict:
            shared = dict.fromkeys(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
            # `addsitedir` also obeys the .pth files in those directories, by which editable installs are found.
            lines = [f"import site; site.addsitedir({path!r})\n" for path in shared]
            (self._packages / SHARED).write_text("".join(lines))

    def list_packages(self) -> set[str]:
        """The names of the packages that were installed into it."""
        return {found.metadata["Name"] for found in distributions(path=[str(self._packages)])}

    def install(
        self,
        package: Path,
        *,
        variables: Mapping[str, str],
        say: Callable[[str], None],
        begun: Callable[["subprocess.Popen[str]"], None],
    ) -> int:
        """Install a package as the real executor does: by itself, then what it needs. Returns pip's exit code."""
        before = self.list_packages()
        alone = ["--upgrade", "--force-reinstall", "--no-deps", str(package)]
        if code := self._run_pip(alone, variables=variables, say=say, begun=begun):
            return code
        return self._run_pip(sorted(self.list_packages() - before), variables=variables, say=say, begun=begun)

    def _run_pip(
        self,
        words: Sequence[str],
        *,
        variables: Mapping[str, str],
        say: Callable[[str], None],
        begun: Callable[["subprocess.Popen[str]"], None],
    ) -> int:
        if not words:
            return 0
        say("Running command: " + " ".join(["pip3", "install", *words]))
        # Building with what is here fetches nothing, and the conflicts of this machine's packages are not the job's.
        here = [] if self.strict else ["--no-warn-conflicts", *(["--no-build-isolation"] if _can_build() else [])]
        process = subprocess.Popen(
            [str(self.python), "-m", "pip", "install", "--no-input", *here, *words],
            env={**variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        begun(process)
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                say(line.rstrip("\n"))
        return process.wait()


def _can_build() -> bool:
    """Whether this machine's own setuptools makes wheels, so that nothing has to be fetched to build a package."""
    try:
        return tuple(map(int, version("setuptools").split(".")[:2])) >= (70, 1)
    except (PackageNotFoundError, ValueError):
        return False


def inherit_variables() -> dict[str, str]:
    """Of this process's environment, what a job may see: where programs are, which language, how pip finds packages."""
    kept = (
        "PATH",
        "LANG",
        "LC_ALL",
        "TZ",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "SSL_CERT_FILE",
        "CUDA_VISIBLE_DEVICES",
    )
    found = {name: value for name, value in os.environ.items() if name in kept or name.startswith("PIP_")}
    found["PATH"] = f"{Path(sys.executable).parent}:{found.get('PATH', os.defpath)}"
    return {"LANG": "C.UTF-8", **found}
