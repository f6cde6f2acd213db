"""Processes that must not outlive the one that started them, and how one is known again."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process gets when its parent is gone."""


def end_with_parent(parent: int) -> None:
    """Have this process told to stop when its parent ends, however that ends; where the system can do so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)


def is_worker(environment: Mapping[str, str]) -> bool:
    """Whether torchrun or its like has started this process as one of several workers.

    Vertex AI gives a rank to each machine, beside CLUSTER_SPEC: what runs there has yet to start its workers, whose
    local rank torchrun sets.
    """
    return "RANK" in environment and ("LOCAL_RANK" in environment or not environment.get("CLUSTER_SPEC"))


def alive_in(path: Path) -> int:
    """The process that a JSON file names by its `pid` and when it `started`; 0 if it has ended, or there is no file."""
    try:
        named = json.loads(path.read_text("utf-8"))
        pid, begun = int(named["pid"]), str(named["started"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0
    return pid if begun and read_start_time(pid) == begun else 0


def read_start_time(pid: int) -> str:
    """When a process began, in the system's words, or "" where there is none: pids are used again, this is not."""
    if Path("/proc/self/stat").exists():
        try:
            # The second field, in parentheses, may hold anything, spaces and parentheses too.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in ("Z", "X") else fields[19]
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip()
