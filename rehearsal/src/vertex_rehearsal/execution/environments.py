"""Virtual environments for a job's packages, installed in the same steps as by Vertex AI's executor."""

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
    """A virtual environment in a directory."""

    directory: Path
    strict: bool

    @property
    def python(self) -> Path:
        """The path of the interpreter."""
        return self.directory / "bin" / "python"

    @property
    def _packages(self) -> Path:
        base = {"base": str(self.directory), "platbase": str(self.directory)}
        return Path(sysconfig.get_path("purelib", "venv", base))

    def create(self) -> None:
        """Create the environment; unless strict, the packages of the host's Python are visible after its own."""
        venv.EnvBuilder(symlinks=True, with_pip=self.strict, clear=True).create(self.directory)
        if not self.strict:
            shared = dict.fromkeys(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
            # `addsitedir` also reads the .pth files in those directories, through which editable installs are found.
            lines = [f"import site; site.addsitedir({path!r})\n" for path in shared]
            (self._packages / SHARED).write_text("".join(lines))

    def list_packages(self) -> set[str]:
        """Return the names of the packages installed in the environment."""
        return {distribution.metadata["Name"] for distribution in distributions(path=[str(self._packages)])}

    def install(
        self,
        package: Path,
        *,
        variables: Mapping[str, str],
        say: Callable[[str], None],
        on_start: Callable[["subprocess.Popen[str]"], None],
    ) -> int:
        """Install a package as the real executor does: first alone, then its dependencies; return pip's exit code."""
        before = self.list_packages()
        alone = ["--upgrade", "--force-reinstall", "--no-deps", str(package)]
        if code := self._run_pip(alone, variables=variables, say=say, on_start=on_start):
            return code
        return self._run_pip(sorted(self.list_packages() - before), variables=variables, say=say, on_start=on_start)

    def _run_pip(
        self,
        arguments: Sequence[str],
        *,
        variables: Mapping[str, str],
        say: Callable[[str], None],
        on_start: Callable[["subprocess.Popen[str]"], None],
    ) -> int:
        if not arguments:
            return 0
        say("Running command: " + " ".join(["pip3", "install", *arguments]))
        # Building without isolation needs no download; conflicts among the host's packages do not concern the job.
        options = [] if self.strict else ["--no-warn-conflicts", *(["--no-build-isolation"] if _can_build() else [])]
        process = subprocess.Popen(
            [str(self.python), "-m", "pip", "install", "--no-input", *options, *arguments],
            env={**variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        on_start(process)
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                say(line.rstrip("\n"))
        return process.wait()


def _can_build() -> bool:
    """Whether the installed setuptools builds wheels itself, so that no build requirement has to be downloaded."""
    try:
        return tuple(map(int, version("setuptools").split(".")[:2])) >= (70, 1)
    except (PackageNotFoundError, ValueError):
        return False


def inherit_variables() -> dict[str, str]:
    """Return the variables of this process that a job inherits: PATH, locale, libraries and pip's settings."""
    inherited = (
        "PATH",
        "LANG",
        "LC_ALL",
        "TZ",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "SSL_CERT_FILE",
        "CUDA_VISIBLE_DEVICES",
    )
    variables = {name: value for name, value in os.environ.items() if name in inherited or name.startswith("PIP_")}
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables.get('PATH', os.defpath)}"
    return {"LANG": "C.UTF-8", **variables}
