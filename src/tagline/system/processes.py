"""Child processes that end with their parent, and identifying a process by pid and start time."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Option of Linux's prctl: the signal that a process gets when its parent ends."""


def end_with_parent(parent: int) -> None:
    """Have this process get SIGTERM when its parent ends for any reason, where the system supports that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it had ended before the call above
        os._exit(0)


def is_worker(environment: Mapping[str, str]) -> bool:
    """Return whether torchrun or a similar launcher started this process as one of several workers.

    Vertex AI sets RANK on each machine, together with CLUSTER_SPEC: a process that has both, and no LOCAL_RANK from
    torchrun, has yet to start its workers.
    """
    return "RANK" in environment and ("LOCAL_RANK" in environment or not environment.get("CLUSTER_SPEC"))


def find_live_process(path: Path) -> int:
    """Return the live process that a JSON file names by its `pid` and when it `started`, or 0 if it has ended."""
    try:
        process = json.loads(path.read_text("utf-8"))
        pid, started = int(process["pid"]), str(process["started"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0
    return pid if started and read_start_time(pid) == started else 0


def read_start_time(pid: int) -> str:
    """Return a process's start time as the system formats it, "" if it has ended. Unlike pids, it is not reused."""
    if Path("/proc/self/stat").exists():
        try:
            # The second field, in parentheses, may hold anything, spaces and parentheses too.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in ("Z", "X") else fields[19]
    result = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return result.stdout.strip()
