"""Side by side in one run: the peer and Tagline in turns, medians with their spread, a table and a JSON file."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def in_turns(contestants: dict[str, Callable[[], float]], *, rounds: int) -> dict[str, list[float]]:
    """What each contestant returned, round by round: A B A B ..., so that a noisy minute hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            found[name].append(run())
    return found


def seconds_of(command: Sequence[str]) -> float:
    """How long a process takes, from start to end."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def measured_process(code: str, *arguments: str) -> tuple[float, float]:
    """Seconds that a piece of Python took by its own account, and its peak memory in MiB; imports do not count."""
    wrapped = (
        f"{code}\nimport resource, sys, time\nbegun = time.perf_counter()\nresult = work(*sys.argv[1:])\n"
        "print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", wrapped, *arguments], check=True, capture_output=True, text=True)
    seconds, mebibytes = done.stdout.split()[-2:]
    return float(seconds), float(mebibytes)


def show(title: str, unit: str, found: dict[str, list[float]], *, base: str) -> dict[str, Any]:
    """Print medians, spread and the ratio to one of them; returns the same for the JSON file."""
    reference = statistics.median(found[base])
    print(f"\n{title}")
    print(f"{'':<28}{'median':>10}{'lowest':>10}{'highest':>10}{'ratio':>8}   ({unit})")
    summary = {}
    for name, values in found.items():
        middle = statistics.median(values)
        print(f"{name:<28}{middle:>10.3f}{min(values):>10.3f}{max(values):>10.3f}{middle / reference:>8.2f}")
        summary[name] = {"median": middle, "values": values, "ratio": middle / reference}
    return {"title": title, "unit": unit, "base": base, "results": summary}


def earlier(name: str) -> Any:
    """What an earlier call has written, for one that adds to it; none where there is nothing."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def write(name: str, value: Any) -> None:
    """Keep the figures of this run."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")
    print(f"\nwrote {RESULTS / name}.json")
