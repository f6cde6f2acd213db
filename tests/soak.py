"""Run the suite so often in random order on busy cores, and name the tests that ever failed: `make soak`."""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOAD = "while True: pass"
OUTCOME = re.compile(r"^(?:FAILED|ERROR) (\S+)", flags=re.M)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal the files anew, and the tests of each: fixtures of a module are made once all the same."""
    chance = random.Random(os.environ["TAGLINE_SOAK_SEED"])
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    dealt = sorted(files)
    chance.shuffle(dealt)
    for name in dealt:
        chance.shuffle(files[name])
    items[:] = [item for name in dealt for item in files[name]]


def run_suite(seed: int) -> tuple[int, str]:
    """The exit code and the output of one run in the order of this seed."""
    command = [sys.executable, "-m", "pytest", "-p", "soak", "--numprocesses", "3", "--dist", "worksteal"]
    environment = os.environ | {"TAGLINE_SOAK_SEED": str(seed), "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def main() -> None:
    """Ends with 1 if a test has ever failed, or a run has ended without an outcome."""
    times, failed, broken = int(sys.argv[1]), Counter[str](), 0
    with ExitStack() as running:
        for _ in range(os.cpu_count() or 1):
            load = running.enter_context(subprocess.Popen(["nice", sys.executable, "-S", "-c", LOAD]))
            running.callback(load.kill)
        for seed in range(1, times + 1):
            code, output = run_suite(seed)
            names = set(OUTCOME.findall(output))
            failed.update(names)
            broken += code != 0 and not names
            print(f"run {seed} of {times}: {output.rstrip().splitlines()[-1]}", flush=True)
            if code:
                print(output, file=sys.stderr)
    for name, count in failed.most_common():
        print(f"failed in {count} of {times} runs: {name}")
    print(f"{len(failed)} tests ever failed, {broken} runs ended without an outcome")
    sys.exit(bool(failed or broken))


if __name__ == "__main__":
    main()
