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
"""To a process that others have taken the place of: take no new connection, end those that are open, then yourself."""
BACKLOG = 2048
FAILED = 70
REPORTED = 71
"""The exit code of a process that has said in the log why it ended."""
BEAT_S = 0.5
"""Between two signs of life of a process that serves."""
FROZEN_S = 10.0
"""A process that gives no sign of life for so long is killed and replaced."""
STOPPED_S = 1.0
"""And one that is stopped (SIGSTOP) for so long."""
TICK_S, QUICK_TICK_S = 0.25, 0.02
"""Between two looks at the processes, and while some of them are starting."""
HELD_UP_S = 2.0
"""Whoever looks after the processes and has not for so long was stopped itself: silence meanwhile means nothing."""
WINDOW_S = 10.0
"""In which the deaths of a process and its replacements are counted."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 2.0
"""Before a process that has died again within the window is replaced: twice as long each time."""
MOST_FAILED_STARTS = 20
"""So many in a row that end before they can serve: the next will not either."""
RELOAD_S = 600.0
"""In which a new bundle must be loaded and its processes be ready."""
LAST_S = 5.0
"""In which a process ends that has been killed."""

Ready = Callable[[], None]
"""Says that a process is ready, and then every BEAT_S that it still is."""
Work = Callable[[socket.socket, int, Ready], None]
"""Serve on a socket as the process of this number, until SIGTERM or LEAVE; gives signs of life when it is ready."""
Say = Callable[..., None]


@dataclass(eq=False)
class _Process:
    pid: int
    number: int
    beats: int
    """The end of a pipe, with a byte for each sign of life."""
    heard: float
    """When the last one came."""
    is_ready: bool = False
    stopped: float = math.inf
    """Since when it has been stopped."""
    deadline: float = math.inf
    """When it is killed if it has not ended."""

    def listen(self, now: float) -> None:
        """Take note of its signs of life."""
        with suppress(BlockingIOError):
            if os.read(self.beats, 4096):
                self.heard, self.is_ready = now, True

    def is_lost(self, now: float) -> bool:
        """Whether nothing but killing it helps."""
        is_frozen = self.is_ready and now - self.heard > FROZEN_S
        return is_frozen or now - self.stopped > STOPPED_S or now > self.deadline


class WorkerPool:
    """So many processes that serve, and their parent, which only looks after them.

    `prepare` is called in the parent, again at each reload: what it loads is in every process's memory and only once in
    the machine's. A new crew takes over before the old one is told to stop; the sockets stay, so nobody is refused.
    A process has `grace_s` to end once it is told to.
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
        """When the process of a number is replaced."""
        self._deaths: defaultdict[int, deque[float]] = defaultdict(deque)
        self._failed_starts = 0
        self._has_started = False
        self._looked = time.monotonic()
        self._is_reload_due = False
        self._trial: list[_Process] = []
        """One that tries whether the bundle can be loaded: what crashes or hangs there does so alone."""
        self._fresh: tuple[Work, list[_Process]] | None = None
        """Who takes over once all are ready."""

    def run(self, *, started: Callable[[], None]) -> None:
        """Serve until told to stop: SIGTERM and Ctrl-C end it in order, SIGHUP loads anew.

        `started` is called once all processes are ready. Nothing but the end of this process may follow: being told
        once more to stop, as by who stops a whole group of processes, is passed over from then on.
        """
        self._work = self._prepare()
        with _block_signals():
            for each in self._sockets:
                each.listen(BACKLOG)
            try:
                self._processes = self._start_processes(self._work)
                while (told := self._next_signal()) not in ENDS:
                    self._is_reload_due |= told == signal.SIGHUP
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
        """Wait for a signal, or for the next time to look."""
        is_waiting = self._due or not all(process.is_ready for process in self._all_processes)
        signal.setitimer(signal.ITIMER_REAL, QUICK_TICK_S if is_waiting else TICK_S)
        return signal.sigwait(SIGNALS)

    def _supervise(self) -> None:
        """Replace processes that have ended, kill those that are lost, and take a reload one step further."""
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
        """Take note of signs of life, kill who is lost; those that have ended, with their exit codes."""
        everybody = {process.pid: process for process in self._all_processes}
        was_held_up, self._looked = now - self._looked > HELD_UP_S, now
        ended = []
        for pid, status in _reap_children():
            process = everybody.get(pid)
            if process is None:
                continue
            if os.WIFSTOPPED(status):
                process.stopped = now
            elif os.WIFCONTINUED(status):
                process.stopped, process.heard = math.inf, now
            else:
                os.close(process.beats)
                del everybody[pid]
                ended.append((process, os.waitstatus_to_exitcode(status)))
        for process in everybody.values():
            process.listen(now)
            if was_held_up:
                process.heard, process.stopped = now, max(process.stopped, now)
            if process.is_lost(now):
                os.kill(process.pid, signal.SIGKILL)
        return ended

    def _schedule_replacement(self, process: _Process, code: int, now: float) -> None:
        """Decide when a process that has ended by itself is replaced."""
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
        """Put another process in the place of each whose time has come."""
        for number in [number for number, due in self._due.items() if now >= due]:
            try:
                self._processes.append(self._fork_process(self._work, number))
                del self._due[number]
            except OSError as error:  # no memory, no file descriptors, too many processes: later perhaps
                self._say("a process cannot be started", process=number, problem=str(error), status=500)
                self._due[number] = now + LONGEST_DELAY_S

    def _start_processes(self, work: Work) -> list[_Process]:
        """A process for each socket."""
        started: list[_Process] = []
        try:
            started.extend(self._fork_process(work, number) for number in range(len(self._sockets)))
        except OSError as error:
            self._signal_end(started, signal.SIGTERM)
            raise PlaceError(f"a server process cannot be started: {error.strerror}") from error
        return started

    def _try_reload(self) -> None:
        """Have a process of its own try to load the bundle."""

        def load(*_: object) -> None:
            try:
                self._prepare()
            except BaseException as error:  # whatever it is, the log says it
                self._say("reload failed", problem=_describe_error(error), status=500)
                os._exit(REPORTED)

        try:
            self._trial = [self._fork_process(load, 0)]
        except OSError as error:
            self._give_up_reload(_describe_error(error))
        else:
            self._trial[0].deadline = time.monotonic() + RELOAD_S

    def _start_new_bundle(self, code: int) -> None:
        """Load what could be loaded by the process that tried, and start those that serve it."""
        if code:
            if code != REPORTED:
                self._give_up_reload(f"the process that loads the bundle ended with code {code}")
            return
        try:
            work = self._prepare()
            self._fresh = (work, self._start_processes(work))
        except BaseException as error:  # signals wait, so that this is none: the old processes go on whatever it is
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
        """Let the new processes serve and the old ones go."""
        self._signal_end(self._processes, LEAVE)
        self._work, self._processes, self._fresh = work, processes, None
        for process in processes:
            process.deadline = math.inf
        self._due.clear()
        self._say("reloaded")

    def _signal_end(self, processes: Sequence[_Process], told: signal.Signals) -> None:
        """Tell processes to end within their grace."""
        for process in processes:
            os.kill(process.pid, told)
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
        """The life of a process, from the fork to its end; nothing of the parent's runs in it afterwards."""

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
        except BaseException as error:  # whatever it is, it must not unwind into the parent's code
            self._say("a process failed", process=number, problem=_describe_error(error), status=500)
            with suppress(OSError):
                traceback.print_exc()
        finally:
            with suppress(OSError, AttributeError):  # there is none where it was closed
                sys.stderr.flush()
            os._exit(code)

    def _stop_processes(self) -> None:
        """Tell all processes to stop, and wait until they have; who does not within its grace is killed."""
        told, self._processes, self._fresh = self._all_processes, [], None
        self._trial, self._leaving = [], []
        self._due.clear()
        self._signal_end(told, signal.SIGTERM)
        ends = time.monotonic() + self._grace_s + LAST_S
        while self._leaving and time.monotonic() < ends:
            signal.setitimer(signal.ITIMER_REAL, QUICK_TICK_S)
            signal.sigwait(SIGNALS)
            for process, _ in self._poll_processes(time.monotonic()):
                self._leaving.remove(process)


def bind_sockets(host: str, port: int, *, count: int) -> list[socket.socket]:
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


def _reap_children() -> Iterator[tuple[int, int]]:
    """The processes that have ended, were stopped or went on, with their status; many may have sent a single signal."""
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
    """Signals wait until they are asked for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
