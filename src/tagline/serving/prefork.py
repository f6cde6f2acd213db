"""Processes that share one port and one loaded model: started, replaced and stopped without losing a request."""

import math
import os
import signal
import socket
import sys
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from tagline.errors import PlaceError, TaglineError
from tagline.system.processes import end_with_parent

ENDS = (signal.SIGTERM, signal.SIGINT)
SIGNALS = (*ENDS, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM)
LEAVE = signal.SIGUSR1
"""Sent to a process that has been replaced: accept no new connection, finish the open ones, then exit."""
BACKLOG = 2048
FAILED = 70
REPORTED = 71
"""Exit code of a process that has logged why it failed."""
BEAT_S = 0.5
"""Heartbeat interval of a worker process."""
FROZEN_S = 10.0
"""A process without a heartbeat for so long is killed and replaced."""
STOPPED_S = 1.0
"""So is one that has been stopped (SIGSTOP) for so long."""
TICK_S, QUICK_TICK_S = 0.25, 0.02
"""Polling interval of the parent, normally and while processes are starting."""
HELD_UP_S = 2.0
"""A parent that has not polled for so long was stopped itself: heartbeats missed meanwhile do not count."""
WINDOW_S = 10.0
"""Window in which crashes of a process and its replacements are counted."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 2.0
"""Exponential back-off before a process that crashed again within the window is replaced."""
MOST_FAILED_STARTS = 20
"""Consecutive failures to start after which the server gives up."""
RELOAD_S = 600.0
"""Time-out of a reload: loading the new bundle, and its processes becoming ready."""
LAST_S = 5.0
"""How long to wait for a process that was killed."""

Ready = Callable[[], None]
"""Reports that a process is ready; called again every BEAT_S as its heartbeat."""
Work = Callable[[socket.socket, int, Ready], None]
"""Serves on a socket as the process of this number until SIGTERM or LEAVE, with heartbeats once it is ready."""
Say = Callable[..., None]


@dataclass(eq=False)
class _Process:
    pid: int
    number: int
    beats: int
    """The read end of a pipe that gets a byte for each heartbeat."""
    last_beat: float
    """When the last heartbeat came."""
    is_ready: bool = False
    stopped: float = math.inf
    """When it was stopped (SIGSTOP)."""
    deadline: float = math.inf
    """When it is killed unless it has exited."""

    def read_heartbeats(self, now: float) -> None:
        """Record the heartbeats that have come."""
        with suppress(BlockingIOError):
            if os.read(self.beats, 4096):
                self.last_beat, self.is_ready = now, True

    def is_lost(self, now: float) -> bool:
        """Whether it must be killed: frozen, stopped, or past its deadline."""
        is_frozen = self.is_ready and now - self.last_beat > FROZEN_S
        return is_frozen or now - self.stopped > STOPPED_S or now > self.deadline


class WorkerPool:
    """Worker processes that serve, and the parent that supervises them.

    `prepare` is called in the parent, and again at each reload: what it loads is shared by all, copy-on-write. At a
    reload the new processes take over before the old ones are told to stop; the sockets stay open, so no
    connection is refused. A process has `grace_s` to exit once it is told to.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], prepare: Callable[[], Work], *, say: Say, grace_s: float
    ) -> None:
        self._sockets = sockets
        self._prepare = prepare
        self._say = say
        self._grace_s = grace_s
        self._processes: list[_Process] = []
        self._leaving: list[_Process] = []
        self._due: dict[int, float] = {}
        """When the process of each number is to be replaced."""
        self._deaths: defaultdict[int, deque[float]] = defaultdict(deque)
        self._failed_starts = 0
        self._has_started = False
        self._last_poll = time.monotonic()
        self._is_reload_due = False
        self._trial: list[_Process] = []
        """A process that loads the new bundle on trial, so that a crash or a hang stays there."""
        self._fresh: tuple[Work, list[_Process]] | None = None
        """The processes of a reload, which take over once all are ready."""

    def run(self, *, started: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT, which shut down gracefully; SIGHUP reloads the bundle.

        `started` is called once all processes are ready. This process must exit afterwards: further signals to stop, as
        sent to a whole process group, are ignored from then on.
        """
        self._work = self._prepare()
        with _block_signals():
            for each in self._sockets:
                each.listen(BACKLOG)
            try:
                self._processes = self._start_processes(self._work)
                while (received := self._next_signal()) not in ENDS:
                    self._is_reload_due |= received == signal.SIGHUP
                    self._supervise()
                    if not self._has_started and all(process.is_ready for process in self._processes):
                        self._has_started = True
                        started()
            finally:
                self._stop_processes()
                signal.setitimer(signal.ITIMER_REAL, 0)
                for number in (*ENDS, signal.SIGHUP, signal.SIGALRM):
                    signal.signal(number, signal.SIG_IGN)

    @property
    def _all_processes(self) -> list[_Process]:
        return [*self._processes, *(self._fresh[1] if self._fresh else ()), *self._trial, *self._leaving]

    def _next_signal(self) -> int:
        """Wait for a signal, or until the next poll."""
        is_waiting = self._due or not all(process.is_ready for process in self._all_processes)
        signal.setitimer(signal.ITIMER_REAL, QUICK_TICK_S if is_waiting else TICK_S)
        return signal.sigwait(SIGNALS)

    def _supervise(self) -> None:
        """Replace processes that have exited, kill those that hang, and advance a reload by one step."""
        now = time.monotonic()
        for process, code in self._poll_processes(now):
            if process in self._processes:
                self._processes.remove(process)
                self._schedule_replacement(process, code, now)
            elif process in self._trial:
                self._trial = []
                self._start_new_bundle(code)
            elif self._fresh and process in self._fresh[1]:
                self._fresh[1].remove(process)
                self._give_up_reload("a server process ended before it could serve")
            else:
                self._leaving.remove(process)
        if self._fresh and all(process.is_ready for process in self._fresh[1]):
            self._take_over(*self._fresh)
        elif self._is_reload_due and self._has_started and not self._trial and not self._fresh:
            self._is_reload_due = False
            self._try_reload()
        self._replace_processes(now)

    def _poll_processes(self, now: float) -> list[tuple[_Process, int]]:
        """Record heartbeats, kill processes that hang, and return those that have exited with their exit codes."""
        by_pid = {process.pid: process for process in self._all_processes}
        was_held_up, self._last_poll = now - self._last_poll > HELD_UP_S, now
        ended = []
        for pid, status in _reap_children():
            process = by_pid.get(pid)
            if process is None:
                continue
            if os.WIFSTOPPED(status):
                process.stopped = now
            elif os.WIFCONTINUED(status):
                process.stopped, process.last_beat = math.inf, now
            else:
                os.close(process.beats)
                del by_pid[pid]
                ended.append((process, os.waitstatus_to_exitcode(status)))
        for process in by_pid.values():
            process.read_heartbeats(now)
            if was_held_up:
                process.last_beat, process.stopped = now, max(process.stopped, now)
            if process.is_lost(now):
                os.kill(process.pid, signal.SIGKILL)
        return ended

    def _schedule_replacement(self, process: _Process, code: int, now: float) -> None:
        """Decide when a process that has exited by itself is replaced."""
        if not self._has_started:
            raise PlaceError("a server process ended before it could serve", hint="the log above says why")
        self._failed_starts = 0 if process.is_ready else self._failed_starts + 1
        if self._failed_starts > MOST_FAILED_STARTS:
            raise PlaceError(f"server processes end before they can serve (code {code})", hint="the log above says why")
        deaths = self._deaths[process.number]
        deaths.append(now)
        while now - deaths[0] > WINDOW_S:
            deaths.popleft()
        delay_s = min(FIRST_DELAY_S * 2 ** (len(deaths) - 2), LONGEST_DELAY_S) if len(deaths) > 1 else 0.0
        self._due[process.number] = now + delay_s
        self._say("a process ended", process=process.number, code=code, replaced_in_s=delay_s, status=500)

    def _replace_processes(self, now: float) -> None:
        """Start the replacements that are due."""
        for number in [number for number, due in self._due.items() if now >= due]:
            try:
                self._processes.append(self._fork_process(self._work, number))
                del self._due[number]
            except OSError as error:  # no memory, no file descriptors, too many processes: try again later
                self._say("a process cannot be started", process=number, problem=str(error), status=500)
                self._due[number] = now + LONGEST_DELAY_S

    def _start_processes(self, work: Work) -> list[_Process]:
        """Start a process for each socket."""
        processes: list[_Process] = []
        try:
            processes.extend(self._fork_process(work, number) for number in range(len(self._sockets)))
        except OSError as error:
            self._signal_end(processes, signal.SIGTERM)
            raise PlaceError(f"a server process cannot be started: {error.strerror}") from error
        return processes

    def _try_reload(self) -> None:
        """Load the new bundle in a process of its own first."""

        def load(*_: object) -> None:
            try:
                self._prepare()
            except BaseException as error:  # of any kind: it is logged
                self._say("reload failed", problem=_describe_error(error), status=500)
                os._exit(REPORTED)

        try:
            self._trial = [self._fork_process(load, 0)]
        except OSError as error:
            self._give_up_reload(_describe_error(error))
        else:
            self._trial[0].deadline = time.monotonic() + RELOAD_S

    def _start_new_bundle(self, code: int) -> None:
        """Load the new bundle, once the trial process could, and start the processes that serve it."""
        if code:
            if code != REPORTED:
                self._give_up_reload(f"the process that loads the bundle ended with code {code}")
            return
        try:
            work = self._prepare()
            self._fresh = (work, self._start_processes(work))
        except BaseException as error:  # signals are blocked, so it is none of those: the old processes go on
            self._give_up_reload(_describe_error(error))
        else:
            for process in self._fresh[1]:
                process.deadline = time.monotonic() + RELOAD_S

    def _give_up_reload(self, problem: str) -> None:
        self._say("reload failed", problem=problem, status=500)
        if self._fresh:
            self._signal_end(self._fresh[1], signal.SIGTERM)
            self._fresh = None

    def _take_over(self, work: Work, processes: list[_Process]) -> None:
        """Hand over from the old processes to the new ones."""
        self._signal_end(self._processes, LEAVE)
        self._work, self._processes, self._fresh = work, processes, None
        for process in processes:
            process.deadline = math.inf
        self._due.clear()
        self._say("reloaded")

    def _signal_end(self, processes: Sequence[_Process], number: signal.Signals) -> None:
        """Send processes a signal to exit within the grace period."""
        for process in processes:
            os.kill(process.pid, number)
            process.deadline = min(process.deadline, time.monotonic() + self._grace_s)
        self._leaving += processes

    def _fork_process(self, work: Work, number: int) -> _Process:
        beats, beat = os.pipe()
        os.set_blocking(beats, False)
        os.set_blocking(beat, False)
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(beats)
            raise
        finally:
            if os.getpid() == parent:
                os.close(beat)
        if pid == 0:
            os.close(beats)
            self._run_process(work, number, beat, parent=parent)
        return _Process(pid, number, beats, time.monotonic())

    def _run_process(self, work: Work, number: int, beat: int, *, parent: int) -> NoReturn:
        """Run a forked process to its exit; it never returns into the parent's code."""

        def ready() -> None:
            with suppress(OSError):
                os.write(beat, b".")

        code = FAILED
        try:
            end_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            work(self._sockets[number], number, ready)
            code = 0
        except TaglineError as error:
            self._say("a process failed", process=number, problem=error.message, status=500)
            code = error.exit_code
        except BaseException as error:  # of any kind: it must not unwind into the parent's code
            self._say("a process failed", process=number, problem=_describe_error(error), status=500)
            with suppress(OSError):
                traceback.print_exc()
        finally:
            with suppress(OSError, AttributeError):  # there is none where it was closed
                sys.stderr.flush()
            os._exit(code)

    def _stop_processes(self) -> None:
        """Stop all processes; those still running after the grace period are killed."""
        stopping, self._processes, self._fresh = self._all_processes, [], None
        self._trial, self._leaving = [], []
        self._due.clear()
        self._signal_end(stopping, signal.SIGTERM)
        ends = time.monotonic() + self._grace_s + LAST_S
        while self._leaving and time.monotonic() < ends:
            signal.setitimer(signal.ITIMER_REAL, QUICK_TICK_S)
            signal.sigwait(SIGNALS)
            for process, _ in self._poll_processes(time.monotonic()):
                self._leaving.remove(process)


def bind_sockets(host: str, port: int, *, count: int) -> list[socket.socket]:
    """Bind sockets to one address, among which the kernel distributes connections; none listens yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets: list[socket.socket] = []
    try:
        with socket.socket(family) as only:  # SO_REUSEPORT alone would share the port with another program's
            only.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            only.bind((host, port))
            only.listen(1)
            port = only.getsockname()[1]
        for _ in range(count):
            sockets.append(socket.socket(family))
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sockets[-1].bind((host, port))
    except OSError as error:
        for each in sockets:
            each.close()
        hint = "is something else listening there? --port takes another"
        raise PlaceError(f"cannot serve on {host}:{port}: {error.strerror or error}", hint=hint) from error
    return sockets


def _reap_children() -> Iterator[tuple[int, int]]:
    """Yield the children that have exited, stopped or continued, with their status: one SIGCHLD may stand for many."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def _describe_error(error: BaseException) -> str:
    return error.message if isinstance(error, TaglineError) else f"{type(error).__name__}: {error}"


@contextmanager
def _block_signals() -> Iterator[None]:
    """Block signals, which `sigwait` then takes one by one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
