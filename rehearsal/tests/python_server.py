"""Python with its heavy imports done: forks a process for whoever asks on its standard input (`python_processes`)."""

import atexit
import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
import threading
import traceback
import types
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MAX_REQUEST = 1 << 20


def serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a process for each request: returns the request in that process, and None here once nobody asks any more."""
    # A terminal's is not for this process; what a new process gets before it is ready waits until it is.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    while True:
        with socket.socket(fileno=os.dup(connection.fileno())) as asked:
            message, descriptors, flags, _ = socket.recv_fds(asked, MAX_REQUEST, 3)
        if not message:
            return None
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise RuntimeError("a request was cut off: raise MAX_REQUEST")
        threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
        if len(threads) > 1:
            raise RuntimeError(f"a process with threads cannot be forked, and an import has started some: {threads}")
        request = json.loads(message)
        pid = fork_orphan()
        if pid is None:
            return request, descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())


def fork_orphan() -> int | None:
    """The pid of a new process, whose parent is not this one but the next process above that takes orphans.

    In the new process None, once that is so.
    """
    told, tell = os.pipe()
    waiting, go = os.pipe()
    between = os.fork()
    if between:
        os.close(tell)
        os.close(waiting)
        pid = os.read(told, 20)
        os.waitpid(between, 0)
        os.close(told)
        os.close(go)
        return int(pid)
    pid = os.fork()
    if pid:
        os.write(tell, str(pid).encode())
        os._exit(0)
    for descriptor in (told, tell, go):
        os.close(descriptor)
    os.read(waiting, 1)
    os.close(waiting)
    return None


def become(request: dict[str, Any], descriptors: list[int], connection: socket.socket, plain: list[Any]) -> None:
    """Make of this process what an interpreter is before it runs its first line."""
    connection.close()
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, max(descriptors) + 1)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    options = [*filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")), *request["warnings"]]
    set_warnings(options, plain)
    open_streams()
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = request["argv"]
    sys.orig_argv = [sys.executable, *request["words"]]
    sys.path[0] = str(Path.cwd()) if request["module"] else ""


def set_warnings(options: list[str], plain: list[Any]) -> None:
    """The filters of `-W`: before those that Python begins with, after those that imported packages have added."""
    added = warnings.filters[: len(warnings.filters) - len(plain)]
    warnings.resetwarnings()
    warnings.filters.extend(plain)
    sys.warnoptions[:] = options
    warnings._processoptions(options)  # type: ignore[attr-defined]
    warnings.filters[:0] = added
    warnings._filters_mutated()  # type: ignore[attr-defined]


def open_streams() -> None:
    """Standard input, output and error anew, buffered as an interpreter does it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = "backslashreplace" if number == 2 else "strict"
        file = io.FileIO(number, "w" if number else "r", closefd=False)
        buffer = io.BufferedWriter(file) if number else io.BufferedReader(file)
        stream = io.TextIOWrapper(
            buffer, "utf-8", errors, line_buffering=number == 2 or (number == 1 and file.isatty())
        )
        stream.mode = "w" if number else "r"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(request: dict[str, Any]) -> int:
    """The exit code of a module or of code, as the interpreter has it."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if request["module"]:
            runpy._run_module_as_main(request["module"])  # type: ignore[attr-defined]
        else:
            exec(compile(request["code"], "<string>", "exec"), sys.modules["__main__"].__dict__)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException as error:
        traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def end(code: int) -> None:
    """End this process as the interpreter does, except that modules are not taken apart, which takes half a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            code = code or 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main() -> None:
    """What `python -m MODULE ...` or `python -c CODE ...` does, once somebody has asked for it."""
    plain = list(warnings.filters)
    connection = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    for name in sys.argv[1:]:
        if find_spec(name.partition(".")[0]):  # an emulator alone has no torch
            __import__(name)

    gc.collect()
    gc.freeze()
    if asked := serve(connection):
        request, descriptors = asked
        become(request, descriptors, connection, plain)
        end(run(request))


if __name__ == "__main__":
    main()
