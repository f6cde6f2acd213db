"""Processes that share one port and one loaded model: started, replaced and stopped without losing a request."""

import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from tagline.errors import PlaceError, TaglineError
from tagline.processes import end_with_parent

ENDS = (signal.SIGTERM, signal.SIGINT)
SIGNALS = (*ENDS, signal.SIGHUP, signal.SIGCHLD)
LEAVE = signal.SIGUSR1
"""To a process that others have taken the place of: take no new connection, end those that are open, then yourself."""
BACKLOG = 2048
FAILED = 70
SOON_S = 1.0
"""A process that ends that soon after it began to serve will not do better the next time."""

Ready = Callable[[], None]
Work = Callable[[socket.socket, int, Ready], None]
"""Serve on a socket as the process of this number, until SIGTERM or LEAVE; says when it is ready."""
Say = Callable[..., None]


@dataclass(frozen=True)
class _Process:
    pid: int
    number: int
    told_ready: int
    """The end of a pipe: a byte when it is ready, and nothing more when it ended before."""
    since: float


class Crew:
    """So many processes that serve, and their parent, which only looks after them.

    `prepare` is called in the parent, again at each reload: what it loads is in every process's memory and only once in
    the machine's. A new crew takes over before the old one is told to stop; the sockets stay, so nobody is refused.
    """

    def __init__(self, sockets: Sequence[socket.socket], prepare: Callable[[], Work], *, say: Say) -> None:
        self._sockets = sockets
        self._prepare = prepare
        self._say = say
        self._processes: list[_Process] = []
        self._leaving: set[int] = set()

    def run(self, *, started: Callable[[], None]) -> None:
        """Serve until told to stop: SIGTERM and Ctrl-C end it in order, SIGHUP loads anew.

        `started` is called once all processes are ready. Nothing but the end of this process may follow: being told
        once more to stop, as by who stops a whole group of processes, is passed over from then on.
        """
        work = self._prepare()
        with _blocked():
            for each in self._sockets:
                each.listen(BACKLOG)
            try:
                self._processes = self._start(work)
                started()
                while (told := signal.sigwait(SIGNALS)) in (signal.SIGHUP, signal.SIGCHLD):
                    if told == signal.SIGHUP:
                        work = self._reloaded(work)
                    self._look_after(work)
            finally:
                self._stop([*(process.pid for process in self._processes), *self._leaving])
                for number in ENDS:
                    signal.signal(number, signal.SIG_IGN)

    def _start(self, work: Work) -> list[_Process]:
        """A process for each socket, all of them ready."""
        started = [self._fork(work, number) for number in range(len(self._sockets))]
        are_ready = [_is_ready(process) for process in started]
        if not all(are_ready):
            self._stop([process.pid for process in started])
            raise PlaceError("a server process ended before it could serve", hint="the log above says why")
        return started

    def _reloaded(self, work: Work) -> Work:
        """What the new processes do, or the old ones go on with if there can be none."""
        try:
            fresh = self._prepare()
            started = self._start(fresh)
        except TaglineError as error:
            self._say("reload failed", problem=error.message, status=500)
            return work
        for process in self._processes:
            self._leaving.add(process.pid)
            os.kill(process.pid, LEAVE)
        self._processes = started
        self._say("reloaded")
        return fresh

    def _look_after(self, work: Work) -> None:
        """Put another process in the place of one that has ended by itself."""
        for pid, status in _ended():
            self._leaving.discard(pid)
            for process in [each for each in self._processes if each.pid == pid]:
                self._processes.remove(process)
                code = os.waitstatus_to_exitcode(status)
                self._say("a process ended", process=process.number, code=code, status=500)
                if time.monotonic() - process.since < SOON_S:
                    raise PlaceError(f"server processes end as soon as they start (code {code})", hint="see the log")
                fresh = self._fork(work, process.number)
                self._processes.append(fresh)
                _is_ready(fresh)  # if it is not, its end is told of next

    def _fork(self, work: Work, number: int) -> _Process:
        told_ready, tell_ready = os.pipe()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(told_ready)
            _be(work, self._sockets[number], number, tell_ready, parent=parent)
        os.close(tell_ready)
        return _Process(pid, number, told_ready, time.monotonic())

    def _stop(self, pids: Sequence[int]) -> None:
        """Tell processes to stop, and wait until they have."""
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        for pid in pids:
            os.waitpid(pid, 0)


def bound(host: str, port: int, *, count: int) -> list[socket.socket]:
    """So many sockets of one address, among which the system deals the connections; nobody is let in yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found: list[socket.socket] = []
    try:
        with socket.socket(family) as only:  # sockets that may share an address would share it with a stranger's
            only.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            only.bind((host, port))
            only.listen(1)
            port = only.getsockname()[1]
        for _ in range(count):
            found.append(socket.socket(family))
            found[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found[-1].bind((host, port))
    except OSError as error:
        for each in found:
            each.close()
        hint = "is something else listening there? --port takes another"
        raise PlaceError(f"cannot serve on {host}:{port}: {error.strerror or error}", hint=hint) from error
    return found


def _be(work: Work, on: socket.socket, number: int, tell_ready: int, *, parent: int) -> NoReturn:
    """The life of a process, from the fork to its end; nothing of the parent's runs in it afterwards."""
    code = FAILED
    try:
        end_with_parent(parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        work(on, number, lambda: os.close(tell_ready) if os.write(tell_ready, b".") else None)
        code = 0
    except TaglineError as error:
        sys.stderr.write(f"{error.message}\n")
        code = error.exit_code
    except BaseException:  # whatever it is, it must not unwind into the parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _is_ready(process: _Process) -> bool:
    """Whether a process has become ready; waits for it, unless there is a signal to look at."""
    while not select.select([process.told_ready], [], [], 0.1)[0]:
        if signal.sigpending() & set(ENDS):
            break
    else:
        is_ready = os.read(process.told_ready, 1) == b"."
        os.close(process.told_ready)
        return is_ready
    os.close(process.told_ready)
    return True  # it is about to be stopped anyway


def _ended() -> Iterator[tuple[int, int]]:
    """The processes that have ended, with their status; many may have sent a single signal."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


@contextmanager
def _blocked() -> Iterator[None]:
    """Signals wait until they are asked for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
