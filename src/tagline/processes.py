"""Processes that must not outlive the one that started them."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process gets when its parent is gone."""


def end_with_parent(parent: int) -> None:
    """Have this process told to stop when its parent ends, however that ends; where the system can do so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)
