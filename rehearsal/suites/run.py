"""Runs public test suites against the emulator and reports what passed, was refused, failed and why.

`python run.py DIRECTORY` reads checkouts in a directory and downloads nothing; see `make suites`.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from vertex_rehearsal.cloud_storage.access_controls import ACCOUNT
from vertex_rehearsal.cloud_storage.records import get_project_number

HERE = Path(__file__).parent
REFUSED = re.compile(r"([\w ./{}*%-]{1,80}): the rehearsal does not play")
DEFECT = "no reason known: a defect"
OUTCOMES = ("passed", "refused", "failed", "skipped")
PREFACE = """# Public test suites

What test suites that others wrote say about the emulator. They run unmodified but for addresses and credentials, by
`make suites SUITES=DIRECTORY`, where the directory has a checkout of each; this page is written by it.
*Refused* is what the emulator says by its name that it does not play; every other failure has its reason.
"""


@dataclass(frozen=True)
class Suite:
    """A public test suite and its settings."""

    name: str
    checkouts: Sequence[str]
    """Possible paths of its root in the directory."""
    arguments: Sequence[str]
    packages: Sequence[str]
    """Packages that it imports, besides the tested one."""


SUITES = (
    Suite(
        "google-cloud-storage",
        ("python-storage", "google-cloud-python/packages/google-cloud-storage"),
        ("-p", "suite_credentials", "tests/system"),
        ("google-cloud-testutils", "google-cloud-kms", "google-cloud-pubsub", "google-cloud-iam", "pytest-asyncio"),
    ),
    Suite(
        "gcsfs",
        ("gcsfs",),
        ("gcsfs/tests", "--ignore", "gcsfs/tests/perf"),
        ("pytest-asyncio", "pytest-subtests", "fusepy", "pyyaml", "prettytable", "psutil"),
    ),
)


@dataclass(frozen=True)
class TestResult:
    """The outcome of one test, and the reason if it did not pass."""

    id: str
    outcome: str
    reason: str = ""


def main() -> None:
    """Run the suites that are checked out and write the page; exit 1 if a failure has no known reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="with a checkout of each suite")
    parser.add_argument("--output", type=Path, help="the page that is written")
    parser.add_argument("--python", default=sys.executable, help="whose packages the suites import")
    parser.add_argument("--note", default="", help="what the page says of the checkouts")
    options = parser.parse_args()
    roots = {suite: root for suite in SUITES if (root := _find_checkout(suite, options.directory))}
    if not roots:
        names = ", ".join(checkout for suite in SUITES for checkout in suite.checkouts)
        parser.error(f"{options.directory} has none of these checkouts: {names}")
    sections, defects = [], 0
    for suite, root in roots.items():
        results = run_suite(suite, root, options.python)
        defects += sum(result.reason == DEFECT for result in results)
        sections.append(write_section(suite, root, results))
        sys.stderr.write(sections[-1])
    if options.output:
        options.output.write_text("\n".join([PREFACE, *([f"{options.note}\n"] if options.note else []), *sections]))
    sys.exit(1 if defects else 0)


def run_suite(suite: Suite, root: Path, python: str) -> list[TestResult]:
    """Return the results of a suite, run against an emulator of its own."""
    reasons = tomllib.loads((HERE / "reasons.toml").read_text()).get(suite.name, [])
    with tempfile.TemporaryDirectory() as directory, start_emulator(Path(directory) / "rehearsal") as facts:
        report = Path(directory) / "report.xml"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *suite.arguments]
        log = (Path(directory) / "log").open("w")
        with log:
            environment = build_environment(facts)
            code = subprocess.run(command, cwd=root, env=environment, stdout=log, stderr=log, check=False).returncode
        if code not in (0, 1) or not report.exists():
            packages = ", ".join(suite.packages)
            tail = (Path(directory) / "log").read_text()[-3000:]
            sys.exit(f"{tail}\n{suite.name} did not run (pytest ended with {code}); it imports {packages}")
        return [parse_result(case, reasons) for case in ElementTree.parse(report).iter("testcase")]  # noqa: S314


@contextmanager
def start_emulator(directory: Path) -> Iterator[Mapping[str, str]]:
    """Yield the addresses and the token of an emulator that runs while the block does."""
    words = ["--directory", str(directory), "--port", "0", "--grpc-port", "0", "--json"]
    command = [sys.executable, "-m", "vertex_rehearsal", "start", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


def build_environment(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a suite: addresses and credentials only."""
    return os.environ | {
        "STORAGE_EMULATOR_HOST": f"{facts['address']}/-/key/{facts['token']}",
        "PUBSUB_EMULATOR_HOST": facts["grpc"],
        "GOOGLE_CLOUD_PROJECT": "demo",
        "GOOGLE_CLOUD_TESTS_USER_PROJECT": "demo",
        "GCSFS_DEFAULT_PROJECT": "demo",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "NO_GCE_CHECK": "true",
        "SUITE_ACCOUNT": ACCOUNT.format(number=get_project_number("demo")),
        "SUITE_TOKEN": facts["token"],
        "PYTHONPATH": str(HERE),
    }


def parse_result(case: ElementTree.Element, reasons: Sequence[Mapping[str, str]]) -> TestResult:
    """Return a test's result from pytest's JUnit report."""
    name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
    if (skipped := case.find("skipped")) is not None:
        return TestResult(name, "skipped", skipped.get("message", ""))
    element = next((child for kind in ("failure", "error") if (child := case.find(kind)) is not None), None)
    if element is None:
        return TestResult(name, "passed")
    output = f"{element.get('message')} {element.text}"
    if refusal := REFUSED.search(output):
        return TestResult(name, "refused", refusal[1].strip())
    matching = (entry for entry in reasons if re.search(entry["test"], name) and re.search(entry["text"], output))
    return TestResult(name, "failed", next(matching, {"reason": DEFECT})["reason"])


def write_section(suite: Suite, root: Path, results: Sequence[TestResult]) -> str:
    """Return a suite's section of the page."""
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%h of %cs"], cwd=root, capture_output=True, text=True, check=False
    ).stdout.strip()
    counts = Counter(result.outcome for result in results)
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [f"## {suite.name}", "", f"Run on {today}, at {commit or 'an unknown commit'}.", ""]
    lines += ["| " + " | ".join(OUTCOMES) + " |", "|---" * len(OUTCOMES) + "|"]
    lines += ["| " + " | ".join(str(counts[outcome]) for outcome in OUTCOMES) + " |", ""]
    lines += ["| test | | why |", "|---|---|---|"]
    remaining = [result for result in results if result.outcome in ("refused", "failed")]
    lines += [f"| `{result.id}` | {result.outcome} | {result.reason} |" for result in remaining]
    skips = Counter(result.reason.splitlines()[0] for result in results if result.outcome == "skipped")
    lines += ["", "Skipped by the suite itself:", ""]
    lines += [f"- {count}: {reason}" for reason, count in skips.most_common()]
    return "\n".join([*lines, ""])


def _find_checkout(suite: Suite, directory: Path) -> Path | None:
    return next((root for name in suite.checkouts if (root := directory / name).is_dir()), None)


if __name__ == "__main__":
    main()
