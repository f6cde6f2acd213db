"""A fresh Python environment for a job's packages, filled as Vertex AI's executor fills it."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SHARED = "machine-packages.pth"


def create(directory: Path, *, strict: bool) -> Path:
    """A new environment's Python; unless it is strict, it sees the packages of this machine's Python behind its own."""
    venv.EnvBuilder(symlinks=True, with_pip=strict, clear=True).create(directory)
    if not strict:
        paths = dict.fromkeys(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
        inside = sysconfig.get_path("purelib", "venv", {"base": str(directory), "platbase": str(directory)})
        Path(inside, SHARED).write_text("".join(f"{line}\n" for line in _lines(list(paths))))
    return directory / "bin" / "python"


def _lines(paths: Sequence[str]) -> list[str]:
    """`addsitedir` also obeys the .pth files inside those directories, by which editable installs are found."""
    return [f"import site; site.addsitedir({path!r})" for path in paths]


def install(
    python: Path, packages: Sequence[Path], *, strict: bool, environment: Mapping[str, str], say: Callable[[str], None],
    begun: Callable[["subprocess.Popen[str]"], None],
) -> int:  # fmt: skip
    """Install packages, each as the real executor does; what pip prints is said. Returns pip's exit code."""
    offline = () if strict else ("--no-build-isolation",)
    for package in packages:
        for options in (("--upgrade", "--force-reinstall", "--no-deps"), ()):
            command = [str(python), "-m", "pip", "install", "--no-input", *offline, *options, str(package)]
            say("Running command: " + " ".join(["pip3", "install", *options, package.name]))
            process = subprocess.Popen(
                command, env={**environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
            begun(process)
            assert process.stdout is not None
            for line in process.stdout:
                say(line.rstrip("\n"))
            if code := process.wait():
                return code
    return 0


def inherited() -> dict[str, str]:
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
