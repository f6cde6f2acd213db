"""The server's log: JSON lines on standard error, written without blocking or failing a request."""

import fcntl
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

LINE_BYTES = 4096
"""Limit of a line: a write of up to so many bytes into a pipe is atomic (PIPE_BUF)."""
LONGEST_VALUE = 300
"""Characters kept of each value in a line that would be longer."""
QUEUE_BYTES = 2**18
"""Capacity of the queue, where the system allows a pipe of that size."""
PAUSE_S = 0.01
"""Delay between writes, so that many lines are written at once."""
FLUSH_S = 1.0
"""Time-out for writing the queued lines at shutdown."""
FULL, FAILED = DROP_REASONS = ("queue_full", "write_failed")

CountDropped = Callable[[str], None]
"""Called for each line that is dropped, with one of DROP_REASONS."""


class ServerLog:
    """A pipe as a bounded queue: any process adds lines without blocking, and a thread of the first one writes them.

    Until it is closed it stands in the place of standard error, so that what native code prints there cannot block
    either. The processes that are forked meanwhile share the pipe and need no thread of their own; a line waits in the
    kernel, so that it outlives the process that wrote it.
    """

    def __init__(self) -> None:
        self.count_dropped: CountDropped = lambda _: None
        self._target = _copy_stderr()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        with suppress(AttributeError, OSError):  # Linux alone can, and only up to a limit of the system
            fcntl.fcntl(self._writing, fcntl.F_SETPIPE_SZ, QUEUE_BYTES)
        if sys.stderr is not None:
            os.dup2(self._writing, 2)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._write_waiting, name="log", daemon=True)
        # A signal must reach the main thread, which waits for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def write(self, event: str, **facts: Any) -> None:
        """Queue a line in Cloud Logging's format; when the queue is full it is dropped and counted."""
        try:
            os.write(self._writing, _format_line(event, facts))
        except OSError:
            self.count_dropped(FULL)

    def detach(self) -> None:
        """Close, in a forked process, what only the first process needs."""
        os.close(self._reading)
        os.close(self._target)

    def close(self) -> None:
        """Restore standard error after the queued lines are written, or after FLUSH_S."""
        if sys.stderr is not None:
            os.dup2(self._target, 2)
        os.close(self._writing)
        self._is_closing.set()
        self._thread.join(FLUSH_S)

    def _write_waiting(self) -> None:
        """Write queued lines until all write ends of the pipe are closed."""
        while waiting := os.read(self._reading, QUEUE_BYTES):
            while waiting:
                try:
                    waiting = waiting[os.write(self._target, waiting) :]
                except BlockingIOError:  # another process has made standard error non-blocking
                    select.select([], [self._target], [])
                except OSError:
                    for _ in range(waiting.count(b"\n")):
                        self.count_dropped(FAILED)
                    break
            self._is_closing.wait(PAUSE_S)


def _copy_stderr() -> int:
    """Duplicate standard error, or open the null device where it is closed."""
    with suppress(OSError):
        if sys.stderr is not None:
            return os.dup(2)
    return os.open(os.devnull, os.O_WRONLY)


def _format_line(event: str, facts: dict[str, Any]) -> bytes:
    now = time.time()
    stamp = f"{_format_second(int(now))}.{int(now % 1 * 1000):03d}Z"
    severity = "ERROR" if facts.get("status", 0) >= 500 else "INFO"
    values = {"time": stamp, "severity": severity, "event": event, **facts}
    line = json.dumps(values).encode() + b"\n"
    if len(line) > LINE_BYTES:
        short = {key: value[:LONGEST_VALUE] if isinstance(value, str) else value for key, value in values.items()}
        line = json.dumps(short).encode() + b"\n"
    return line


@lru_cache(maxsize=1)
def _format_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
