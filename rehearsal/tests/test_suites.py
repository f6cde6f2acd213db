"""The script that runs public suites: what it makes of their reports, and of a directory without them."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

SUITES = Path(__file__).parents[1] / "suites"
REPORT = """
<testsuite>
  <testcase classname="tests.test_a" name="test_one"/>
  <testcase classname="tests.test_a" name="test_two">
    <failure message='501: {"message": "folders: the rehearsal does not play this"}'/>
  </testcase>
  <testcase classname="tests.test_a" name="test_three"><error message="boom">trace</error></testcase>
  <testcase classname="tests.test_b" name="test_four"><failure message="boom"/></testcase>
  <testcase classname="tests.test_b" name="test_five"><skipped message="not here"/></testcase>
</testsuite>
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(SUITES))
    import run

    return run


def test_every_failure_has_its_reason_or_is_a_defect(run: Any, tmp_path: Path) -> None:
    reasons = [
        {"test": "test_", "text": "bang", "reason": "x"},
        {"test": "test_b", "text": "boom", "reason": "asks the moon"},
    ]
    cases = ElementTree.fromstring(REPORT).iter("testcase")
    results = [run.parse_result(case, reasons) for case in cases]
    assert [(result.outcome, result.reason) for result in results] == [
        ("passed", ""),
        ("refused", "folders"),
        ("failed", run.DEFECT),
        ("failed", "asks the moon"),
        ("skipped", "not here"),
    ]
    page = run.write_section(run.SUITES[0], tmp_path, results)
    assert "| 1 | 1 | 2 | 1 |" in page
    assert "| `test_b::test_four` | failed | asks the moon |" in page
    assert "- 1: not here" in page


def test_reasons_are_of_suites_that_there_are(run: Any) -> None:
    known = tomllib.loads((SUITES / "reasons.toml").read_text())
    assert set(known) <= {suite.name for suite in run.SUITES}
    assert all(set(each) == {"test", "text", "reason"} for reasons in known.values() for each in reasons)


def test_a_directory_without_suites_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SUITES / "run.py", tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "none of these checkouts: python-storage" in done.stderr
