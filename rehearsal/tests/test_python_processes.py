"""A forked process is what a started one is, to whoever started it and to itself."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from python_processes import ForkedProcess, run_python, start_python

FACTS = """
import json, os, sys
facts = [sys.argv, sys.stdin.read(), os.getcwd(), os.environ.get("FACT"), os.getppid(), sys.warnoptions, __name__]
print(json.dumps(facts))
print("said", file=sys.stderr)
sys.exit(7)
"""


def test_a_forked_process_sees_what_a_started_one_sees(tmp_path: Path) -> None:
    found = []
    for is_forked in (True, False):
        words = ("-W", "error", "-c", FACTS, "one", "two")
        options = {"cwd": tmp_path, "env": os.environ | {"FACT": "é"}, "text": True, "is_forked": is_forked}
        done = run_python(*words, given="a line\n", **options)
        found.append((done.returncode, json.loads(done.stdout), done.stderr))
    assert found[0] == found[1]
    assert found[0] == (
        7,
        [["-c", "one", "two"], "a line\n", str(tmp_path), "é", os.getpid(), ["error"], "__main__"],
        "said\n",
    )


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_forked_process_at_any_moment(sent: signal.Signals) -> None:
    with start_python("-c", "import time; time.sleep(600)", stderr=subprocess.DEVNULL) as process:
        assert isinstance(process, ForkedProcess)
        process.send_signal(sent)
    assert process.returncode == -sent


def test_what_is_read_when_packages_are_imported_starts_a_process_anew() -> None:
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    with start_python("-c", "pass", env=environment) as process:
        assert not isinstance(process, ForkedProcess)
