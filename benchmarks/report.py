"""A report of 100,000 test rows: seconds, peak memory and size, beside the time that reading the same file takes.

python benchmarks/report.py [--rows N] [--labels N]
"""

import argparse
import csv
import random
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measure import write

from tagline import spec as specs
from tagline.data import checks, dataset
from tagline.prediction.decisions import tune
from tagline.prediction.predictor import Predictor
from tagline.reports import html, report
from tagline.spec import Gates


class Guess:
    """A classifier that is right four times in five, as fast as numpy: what is timed is the report."""

    def __init__(self, labels: int) -> None:
        self.labels = labels

    def scores(self, texts: Sequence[Any]) -> Any:
        seeds = np.array([hash(text) % 2**32 for text in texts], dtype=np.uint64)
        noise = np.stack(
            [(seeds * np.uint64(2654435761 + 40503 * label)) % 1000 for label in range(self.labels)], axis=1
        )
        found = noise / 1000 + 0.01
        truth = [int(last) if (last := text.rpartition(" ")[2]).isdigit() else 0 for text in texts]
        found[np.arange(len(texts)), truth] += 2 * (seeds % 5 > 0)
        return (found / found.sum(axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description="a report of many test rows")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=30)
    chosen = parser.parse_args()
    names = [f"label {number}" for number in range(chosen.labels)]
    words = [f"word{number}" for number in range(20_000)]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.csv"
        with path.open("w", newline="") as file:
            draw = random.Random(0)
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for number in range(int(chosen.rows * 1.25)):
                label = number % chosen.labels
                writer.writerow([" ".join(draw.choices(words, k=draw.randint(5, 40))) + f" {label}", names[label]])
        begun = time.perf_counter()
        raw = {"train": str(path), "text": "text", "labels": "label", "test_share": 0.8, "validation_share": 0.05}
        data = dataset.load(specs.defaults(raw).data)
        reading = time.perf_counter() - begun
        order = [int(name.split()[1]) for name in data.labels]
        model: Any = Guess(chosen.labels)
        begun = time.perf_counter()
        findings = checks.examine(data)
        checking = time.perf_counter() - begun
        validation, test = data.splits["validation"], data.splits["test"]
        held_out, found = (model.scores(list(split.texts))[:, order] for split in (validation, test))
        settings = specs.defaults(raw).decisions
        tuned = tune(settings, task="single", labels=data.labels, scores=held_out, truth=validation.targets)
        begun = time.perf_counter()
        predictor = Predictor(model, tuned.layer, pair=False)
        made = report.build_report(
            data,
            predictor,
            family="guess",
            findings=findings,
            wanted=Gates(),
            test=report.SplitPredictions(test, found, tuned.layer.answers(found)),
            validation=report.SplitPredictions(validation, held_out, tuned.answers),
        )
        page = html.render_report(made, name="benchmark")
        seconds = time.perf_counter() - begun
    size = len(page.encode()) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(test):,} test rows, {chosen.labels} labels: accuracy {made['test']['accuracy']:.3f}")
    print(f"reading {reading:.1f} s, checks {checking:.1f} s, report and page {seconds:.1f} s")
    print(f"page {size:.2f} MB, memory {peak:.0f} MB at most")
    write("report", {"rows": len(test), "seconds": seconds, "checks": checking, "reading": reading, "megabytes": size})


if __name__ == "__main__":
    main()
