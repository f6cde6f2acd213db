"""Processes of Python that start in a tenth of the time: real ones, forked from one that has imported what is heavy."""

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

HEAVY = (
    "google.cloud.storage",
    "hypertune",
    "numpy.testing",
    "onnx",
    "optuna",
    "peft",
    "pyarrow.csv",
    "pyarrow.parquet",
    "rich.progress",
    "scipy.optimize",
    "sklearn.feature_extraction.text",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.model_selection",
    "torch.distributed",
    "transformers.models.bert.modeling_bert",
    "tagline.cli",
    "tagline.models.encoder",
    "tagline.models.nn.loop",
    "tagline.models.nn.networks",
    "tagline.models.nn.pretrained",
    "tagline.serving.app",
    "tagline.training",
    "vertex_rehearsal.app",
    "vertex_rehearsal.cli",
)
"""Modules that start no thread when they are imported: onnxruntime does."""
THREADLESS = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
"""What the server is told besides, so that pyarrow and numpy start none either."""
READ_ON_IMPORT = ("PYTHON", "LD_", "OMP_", "OPENBLAS_", "MKL_", "GRPC_", "HF_", "TRANSFORMERS_", "TORCH_", "CUDA_")
"""How variables begin that are read once: a process that has others than this one is started as any program is."""
OBEYED = frozenset({"PYTHONWARNINGS", "PYTHONDONTWRITEBYTECODE"})
"""Those that a forked process heeds nevertheless."""
SUBREAPER = 36
"""Of Linux's prctl: orphans below this process become its children."""
SERVER = Path(__file__).with_name("python_server.py")
_environment = dict(os.environ)
_lock = threading.Lock()


def start_python(
    *words: object, env: Mapping[str, str] | None = None, is_forked: bool = True, **options: Any
) -> "subprocess.Popen[Any]":
    """`subprocess.Popen` of Python with these words: `-m MODULE ...` or `-c CODE ...`, and `-W` before them.

    Where it can be forked it is; with `is_forked=False`, or with options that only a program's start heeds, it is not.
    """
    variables = dict(os.environ if env is None else env)
    texts = [str(word) for word in words]
    if is_forked and sys.platform == "linux" and options.keys() <= FORKED_OPTIONS and _split_words(texts):
        if _read_on_import(variables) == _read_on_import(_environment):
            return ForkedProcess(texts, env=variables, **options)
    return subprocess.Popen([sys.executable, *texts], env=variables, **options)


FORKED_OPTIONS = frozenset({"cwd", "stdin", "stdout", "stderr", "text", "start_new_session"})


def run_python(
    *words: object, given: str | bytes | None = None, timeout: float = 600.0, check: bool = False, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` of Python with these words and given this input, its output captured."""
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_python(*words, **streams | options) as process:
        try:
            out, err = process.communicate(given, timeout)
        finally:
            process.kill()  # what has ended is not touched
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class ForkedProcess(subprocess.Popen):  # type: ignore[type-arg]
    """A `Popen` that differs in how its process comes to be, and in nothing that is done with it afterwards."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, *rest: Any,
    ) -> None:  # fmt: skip
        own = [mine if mine != -1 else number for number, mine in enumerate((p2cread, c2pwrite, errwrite))]
        warnings, module, code, argv = _split_words(args) or ([], "", "", [])
        request = {
            "words": args, "warnings": warnings, "module": module, "code": code, "argv": argv, "environment": env,
            "cwd": str(Path.cwd() / (cwd or "")), "umask": _umask(), "session": rest[-2],
        }  # fmt: skip
        self.pid = _find_server().fork(request, own)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


class ForkServer:
    """The process that others are forked from; a child of this one, as they are."""

    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, str(SERVER), *HEAVY]
        self.process = subprocess.Popen(command, stdin=theirs, env=_environment | THREADLESS)
        theirs.close()
        atexit.register(self.close)

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        """The pid of a new child of this process."""
        libc = ctypes.CDLL(None)
        with _lock:
            libc.prctl(SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self.connection, [json.dumps(request).encode()], descriptors)
                answer = self.connection.recv(20)
            finally:
                libc.prctl(SUBREAPER, 0, 0, 0, 0)
        if not answer:
            raise RuntimeError(f"the process that others are forked from has ended: {self.process.wait()}")
        return int(answer)

    def close(self) -> None:
        """End it; what was forked from it goes on."""
        self.connection.close()
        self.process.wait()


@cache
def _find_server() -> ForkServer:
    return ForkServer()


def _split_words(words: Sequence[str]) -> tuple[list[str], str, str, list[str]] | None:
    """The options of `-W`, the module, the code and sys.argv; None if there is more before them."""
    warnings = []
    while words[:1] == ["-W"]:
        warnings.append(words[1])
        words = words[2:]
    if len(words) < 2 or words[0] not in ("-m", "-c"):
        return None
    kind, what, *rest = words
    return (warnings, what, "", ["-m", *rest]) if kind == "-m" else (warnings, "", what, ["-c", *rest])


def _read_on_import(variables: Mapping[str, str]) -> dict[str, str]:
    """What is read once, and the encoding of texts if it is not the usual one."""
    read = {name: value for name, value in variables.items() if name.startswith(READ_ON_IMPORT) and name not in OBEYED}
    named = next((found for name in ("LC_ALL", "LC_CTYPE", "LANG") if (found := variables.get(name))), "C")
    is_usual = named in ("C", "POSIX") or named.lower().endswith(("utf-8", "utf8"))
    return read if is_usual else read | {"": named}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
