"""Reading and splitting a CSV of 1,000,000 rows against pyarrow's bare `read_csv`: time and peak memory.

The peer only reads. Tagline also detects the encoding, checks every row, remembers its line, numbers the labels,
finds equal texts, deals three splits and takes a fingerprint.
"""

import csv
import random
import tempfile
from pathlib import Path

from measure import in_turns, measured_process, show, write

ROWS = 1_000_000
PEER = (
    "from pyarrow import csv\n"
    "def work(path):\n    return csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True))"
)
PYTHON = "import csv\ndef work(path):\n    return sum(1 for _ in csv.reader(open(path, newline='')))"
OURS = (
    "from tagline.data import dataset\nfrom tagline.spec import Data\n"
    "def work(path):\n    return dataset.load(Data(train=path, text='text', labels='label'))"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = str(write_rows(Path(directory) / "rows.csv"))
        print(f"{ROWS:,} rows, {Path(path).stat().st_size / 2**20:.0f} MiB")
        memory: dict[str, list[float]] = {}

        def run(name: str, code: str) -> float:
            seconds, mebibytes = measured_process(code, path)
            memory.setdefault(name, []).append(mebibytes)
            return seconds

        contestants = {
            "pyarrow read_csv": lambda: run("pyarrow read_csv", PEER),
            "csv.reader, counting only": lambda: run("csv.reader, counting only", PYTHON),
            "tagline read and split": lambda: run("tagline read and split", OURS),
        }
        times = in_turns(contestants, rounds=5)
    write(
        "reading",
        [
            show("Reading 1,000,000 rows", "seconds", times, base="pyarrow read_csv"),
            show("Peak memory", "MiB", memory, base="pyarrow read_csv"),
        ],
    )


def write_rows(path: Path) -> Path:
    """Sentences of three to thirty words, one in ten with a line break inside quotes, in six labels."""
    chance = random.Random(1)
    words = [f"{a}{b}{c}" for a in ("st", "tr", "l", "m", "b") for b in "aeiou" for c in ("", "nd", "rt", "sk", "ll")]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        for number in range(ROWS):
            text = " ".join(chance.choices(words, k=chance.randint(3, 30)))
            if number % 10 == 0:
                text = text.replace(" ", "\n", 1)
            writer.writerow([number, text, chance.choice("abcdef")])
    return path


if __name__ == "__main__":
    main()
