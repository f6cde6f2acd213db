"""How long `tagline --help` takes against `python -c pass`. Goal: at most 8 times."""

import sys
from pathlib import Path

from measure import in_turns, seconds_of, show, write

TAGLINE = str(Path(sys.executable).with_name("tagline"))


def main() -> None:
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "tagline --help": [TAGLINE, "--help"],
        "tagline train --help": [TAGLINE, "train", "--help"],
    }
    found = in_turns({name: lambda c=command: seconds_of(c) for name, command in commands.items()}, rounds=25)
    write("start", show("Start of the command line", "seconds", found, base="python -c pass"))


if __name__ == "__main__":
    main()
