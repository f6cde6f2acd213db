"""This version against another commit, each as a base install in an environment of its own: size, start, requests.

    python benchmarks/versions.py COMMIT [--rounds 15] [--seconds 5] [--bundle DIR]

For a change that must cost nothing. Both serve the same bundle, a MiniLM that learned for an epoch; requests a second
are by wrk (Debian's package), at 16 connections.
"""

import argparse
import subprocess
import tempfile
import venv
from pathlib import Path
from typing import Any

from measure import in_turns, seconds_of, show, write

from serving import Server, disk_mb, ours, running, sample_texts, served_bundle, write_bodies, wrk
from tagline.images import wheels

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", help="the version to compare with")
    parser.add_argument("--rounds", type=int, default=15, help="of starting; a third of them of serving")
    parser.add_argument("--seconds", type=int, default=5, help="of load in each round of serving")
    parser.add_argument("--bundle", type=Path, help="to serve this one instead of training one")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        pythons = {chosen.commit: install(chosen.commit, scratch), "this version": install("", scratch)}
        bundle, bodies = served_bundle(scratch, chosen), scratch / "bodies.jsonl"
        servers = {name: ours(bundle, python) for name, python in pythons.items()}
        write_bodies(servers["this version"], sample_texts(), bodies)
        tables = [
            show(
                "the base install",
                "MB",
                {name: [disk_mb(Path(python).parents[1])] for name, python in pythons.items()},
                base=chosen.commit,
            ),
            compare_starts(pythons, base=chosen.commit, rounds=chosen.rounds),
            compare_rates(
                servers, bodies, base=chosen.commit, rounds=max(3, chosen.rounds // 3), seconds=chosen.seconds
            ),
        ]
        write("versions", tables)


def install(commit: str, scratch: Path) -> str:
    """The Python of a fresh environment that has a commit's base install; of the working tree where none is named."""
    source, place = ROOT, scratch / f"env-{commit or 'this'}"
    if commit:
        source = scratch / commit
        source.mkdir()
        with subprocess.Popen(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", str(source)], stdin=archive.stdout, check=True)
    venv.create(place, with_pip=True)
    python, pins = str(place / "bin" / "python"), scratch / "pins.txt"
    pins.write_text("\n".join(wheels.list_pins()))
    command = [python, "-m", "pip", "install", "--quiet", "--constraint", str(pins), str(source)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return python


def compare_starts(pythons: dict[str, str], *, base: str, rounds: int) -> Any:
    """Seconds that `tagline --help` takes."""
    commands = {name: [str(Path(python).with_name("tagline")), "--help"] for name, python in pythons.items()}
    found = in_turns({name: lambda c=command: seconds_of(c) for name, command in commands.items()}, rounds=rounds)
    return show("tagline --help", "seconds", found, base=base)


def compare_rates(servers: dict[str, Server], bodies: Path, *, base: str, rounds: int, seconds: int) -> Any:
    """Requests a second, one text each."""

    def load(server: Server) -> float:
        with running(server) as (port, _):
            address = f"http://127.0.0.1:{port}{server.path}"
            wrk(address, bodies, connections=16, seconds=1)
            return float(wrk(address, bodies, connections=16, seconds=seconds)["rate"])

    found = in_turns({name: lambda s=server: load(s) for name, server in servers.items()}, rounds=rounds)
    return show("requests a second at 16 connections", "1/s", found, base=base)


if __name__ == "__main__":
    main()
