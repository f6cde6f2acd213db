"""Processes that are ended with everything they have started, whatever became of it."""

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
"""The environment variable that every process of a rehearsal inherits, wherever it moves itself."""
BRAND = getattr(resource, "RLIMIT_RTTIME", None)
"""Linux's limit of real-time processes: everything inherits it, nothing drops it, and 70,000 years bind nobody."""
PROC = Path("/proc")
LONGEST_LINE = 65536


def find_by_mark(mark: str) -> set[int]:
    """Every process that carries a mark, or one that begins with it; none where the system has no /proc."""
    line, brand_of = f"{MARK}={mark}".encode(), _encode_brand(mark)
    found = set()
    for place in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone already, or somebody else's
            if _has_brand(place, brand_of) or any(
                each.startswith(line) for each in (place / "environ").read_bytes().split(b"\0")
            ):
                found.add(int(place.name))
    return found


def brand_process(pid: int, mark: str) -> None:
    """Mark a process, and all that it will start, in a way that another environment does not wash off."""
    if BRAND is not None:
        with contextlib.suppress(OSError, ValueError):  # it has ended, or may not be given more than it has
            resource.prlimit(pid, BRAND, _encode_brand(mark))


def _encode_brand(mark: str) -> tuple[int, int]:
    """A mark `PLACE#HOLDER/PART/` as two limits, the higher one for place and holder, the lower one for the part."""
    place, _, rest = mark.rpartition("#")
    holder, _, part = rest.partition("/")
    number = (zlib.crc32(place.encode()) & 0x0FFFFFFF) << 32 | zlib.crc32(holder.encode())
    return 1 << 61 | zlib.crc32(part.encode()), 1 << 62 | number


NOTHING, _ = _encode_brand("")
"""The lower limit of a mark without a part."""


def _has_brand(place: Path, wanted: tuple[int, int]) -> bool:
    """Whether a process has a brand, or one that begins with it."""
    found = re.search(rb"^Max realtime timeout +(\d+) +(\d+)", (place / "limits").read_bytes(), re.M)
    if not found:
        return False
    part, whole = int(match[1]), int(match[2])
    if brand[1] & 0xFFFFFFFF == 0:  # a place without a holder
        return whole >> 32 == brand[1] >> 32
    return whole == brand[1] and brand[0] in (part, NO_PART)


def started(pid: int) -> str:
    """When a process began, in the system's words, or "" where there is none: pids are used again, this is not."""
    if (PROC / "self" / "stat").exists():
        try:
            # The second field, in parentheses, may hold anything, spaces and parentheses too.
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in ("Z", "X") else fields[19]
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def read_lines(pipe: IO[bytes]) -> Iterator[list[str]]:
    """What a process prints, until it ends: all that comes at once is given at once, so that nobody waits."""
    left = b""
    with pipe:
        while part := pipe.read1(LONGEST_LINE):  # type: ignore[attr-defined]
            *lines, left = (left + part).split(b"\n")
            if len(left) >= LONGEST_LINE:
                lines, left = [*lines, left], b""
            if lines:
                yield [line.decode("utf-8", "replace").rstrip("\r") for line in lines]
        if left:
            yield [left.decode("utf-8", "replace").rstrip("\r")]


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process and its group, if it has one of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def end_processes(pids: Collection[int], mark: str) -> None:
    """End processes, their groups, and all that carries the mark, at once; returns when none is left."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while left := find_by_mark(mark) - {os.getpid()}:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise TimeoutError(f"processes {sorted(left)} do not end")
        time.sleep(0.005)
