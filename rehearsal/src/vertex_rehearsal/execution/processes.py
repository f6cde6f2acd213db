"""Finds and ends processes together with all of their descendants, even detached ones."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import time
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

MARK = "REHEARSAL_MARK"
"""The environment variable that marks every process of the emulator; detached descendants inherit it too."""
BRAND = getattr(resource, "RLIMIT_RTTIME", None)
"""A Linux resource limit that marks processes: inherited by all descendants, never reset, and without effect, since
its value is 70,000 years."""
PROC = Path("/proc")
LONGEST_LINE = 65536


def find_by_mark(mark: str) -> set[int]:
    """Return the ids of the processes whose mark begins with the given one; none on systems without /proc."""
    variable, brand = f"{MARK}={mark}".encode(), _encode_brand(mark)
    pids = set()
    for directory in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has exited or belongs to another user
            if _has_brand(directory, brand) or any(
                entry.startswith(variable) for entry in (directory / "environ").read_bytes().split(b"\0")
            ):
                pids.add(int(directory.name))
    return pids


def brand_process(pid: int, mark: str) -> None:
    """Mark a process and its descendants by a resource limit, which survives a change of the environment."""
    if BRAND is not None:
        with contextlib.suppress(OSError, ValueError):  # it has exited, or its hard limit is lower
            resource.prlimit(pid, BRAND, _encode_brand(mark))


def _encode_brand(mark: str) -> tuple[int, int]:
    """Encode a mark `PLACE#HOLDER/PART/` as two limits: the soft one for the part, the hard one for the rest."""
    place, _, rest = mark.rpartition("#")
    holder, _, part = rest.partition("/")
    number = (zlib.crc32(place.encode()) & 0x0FFFFFFF) << 32 | zlib.crc32(holder.encode())
    return 1 << 61 | zlib.crc32(part.encode()), 1 << 62 | number


NO_PART, _ = _encode_brand("")
"""The soft limit of a mark without a part."""


def _has_brand(directory: Path, brand: tuple[int, int]) -> bool:
    """Whether the limits of a process match a brand, or one that begins with it."""
    match = re.search(rb"^Max realtime timeout +(\d+) +(\d+)", (directory / "limits").read_bytes(), re.M)
    if not match:
        return False
    part, whole = int(match[1]), int(match[2])
    if brand[1] & 0xFFFFFFFF == 0:  # a place without a holder
        return whole >> 32 == brand[1] >> 32
    return whole == brand[1] and brand[0] in (part, NO_PART)


def started(pid: int) -> str:
    """Return the start time of a process as the system reports it, "" if there is none; it identifies a reused pid."""
    if (PROC / "self" / "stat").exists():
        try:
            # The second field, in parentheses, may hold anything, spaces and parentheses too.
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in ("Z", "X") else fields[19]
    completed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return completed.stdout.strip()


def read_lines(pipe: IO[bytes]) -> Iterator[list[str]]:
    """Yield a process's output in batches of lines, as soon as they arrive, until the pipe closes."""
    remaining = b""
    with pipe:
        while part := pipe.read1(LONGEST_LINE):  # type: ignore[attr-defined]
            *lines, remaining = (remaining + part).split(b"\n")
            if len(remaining) >= LONGEST_LINE:
                lines, remaining = [*lines, remaining], b""
            if lines:
                yield [line.decode("utf-8", "replace").rstrip("\r") for line in lines]
        if remaining:
            yield [remaining.decode("utf-8", "replace").rstrip("\r")]


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process, or to its group if it leads one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def end_processes(pids: Collection[int], mark: str) -> None:
    """Kill processes, their groups and all that carry the mark; return when none remains."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while remaining := find_by_mark(mark) - {os.getpid()}:
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise TimeoutError(f"processes {sorted(remaining)} do not end")
        time.sleep(0.005)
