"""Planted label errors found again: precision of the first n suggestions, beside cleanlab on the same scores.

    python benchmarks/label_errors.py [--sets banking77 sst2 sst5] [--family NAME] [--rows N] [--setting KEY=VALUE ...]

5 % of the labels are replaced by another one at random; five models of the family and five of family linear then score
the fifth of the rows that they have not learned from, as `tagline check --label-errors` does. What the family finds by
itself is told too. cleanlab is installed into its own environment, or found in the one that TAGLINE_CLEANLAB names. A
call adds its figures to those that others have measured. The corpora are not part of this project: TAGLINE_DATA names
the directory that holds them.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import venv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from families import DATA, _renamed, _table, _write
from measure import earlier, write

from tagline.data import dataset
from tagline.data.columns import resolve
from tagline.evaluation import label_errors
from tagline.training import cross_validation

SETS = {
    "banking77": lambda: _renamed(_table("banking77/train.csv"), text="text", label="category"),
    "sst2": lambda: _renamed(_table("sst/sst2_train.csv"), text="text", label="label"),
    "sst5": lambda: _renamed(_table("sst/sst5_train.csv"), text="text", label="label"),
}
SHARE = 0.05
PEER = """
import json, sys
import numpy as np
from cleanlab.filter import find_label_issues
given = np.load(sys.argv[1])
scores = given["scores"] / given["scores"].sum(axis=1, keepdims=True)
ways = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
found = {way: find_label_issues(given["labels"], scores, return_indices_ranked_by=way).tolist() for way in ways}
print(json.dumps(found))
"""


def cleanlab() -> Path:
    """A Python that has cleanlab."""
    place = Path(os.environ.get("TAGLINE_CLEANLAB", Path(tempfile.gettempdir()) / "tagline-cleanlab"))
    if not (place / "bin" / "python").exists():
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", "cleanlab"], check=True)
    return place / "bin" / "python"


def measured(name: str, family: str, *, most: int, settings: list[str]) -> dict[str, Any]:
    """Precision of the first n suggestions, n being the number of labels that are wrong."""
    rows = list({row["text"].lower(): row for row in SETS[name]()}.values())
    random.Random(0).shuffle(rows)
    rows = rows[:most]
    labels = sorted({row["label"] for row in rows})
    draw = np.random.default_rng(0)
    planted = set(draw.choice(len(rows), round(SHARE * len(rows)), replace=False).tolist())
    for number in planted:
        rows[number] = rows[number] | {"label": draw.choice([one for one in labels if one != rows[number]["label"]])}
    with tempfile.TemporaryDirectory() as directory:
        _write(Path(directory) / "rows.csv", rows)
        found = resolve(
            str(Path(directory) / "rows.csv"),
            ["data.text=text", "data.labels=label", f"model.family={family}", "training.baseline=false", *settings],
        )
        data = dataset.load(found.spec.data)
        parts = list(cross_validation.score_folds(found.spec, data))
        return figures(data, parts, planted)


def figures(data: Any, parts: list[cross_validation.HeldOutPart], planted: set[int]) -> dict[str, Any]:
    """Of both orders of the rows, Tagline's and cleanlab's: how many of the first n are wrong."""
    rows, scores = cross_validation.combine_scores(data, parts)
    given = data.targets[rows]
    alone = cross_validation.combine_scores(
        data, [replace(part, opinions=part.opinions[:1], learned=part.rows[:0], said=part.said[:0]) for part in parts]
    )[1]
    ranked = {
        who: [suspect.row for suspect in label_errors.find_suspects(each, given)]
        for who, each in {"tagline": scores, "the family alone": alone}.items()
    } | {f"cleanlab, {way}": order for way, order in by_cleanlab(scores, given).items()}
    is_wrong = np.array([int(row) in planted for row in rows])  # rows stand in the file as they were written
    count = int(is_wrong.sum())
    return {
        "rows": len(rows),
        "planted": count,
        "agrees": float((scores.argmax(axis=1) == given).mean()),
        "precision": {who: float(is_wrong[order[:count]].sum() / count) for who, order in ranked.items()},
    }


def by_cleanlab(scores: Any, given: Any) -> dict[str, list[int]]:
    """What cleanlab suspects, given the same scores, in each of its orders."""
    with tempfile.TemporaryDirectory() as directory:
        np.savez(Path(directory) / "scores.npz", scores=scores.astype(np.float64), labels=given)
        done = subprocess.run(
            [cleanlab(), "-c", PEER, Path(directory) / "scores.npz"], check=True, capture_output=True, text=True
        )
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="planted label errors found again")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--family", default="encoder")
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--setting", nargs="*", default=[])
    chosen = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"{DATA} is missing; set TAGLINE_DATA")
    result = f"label-errors-{chosen.family}"
    for name in chosen.sets:
        found = measured(name, chosen.family, most=chosen.rows, settings=chosen.setting)
        said = "  ".join(f"{who} {value:.3f}" for who, value in found["precision"].items())
        print(f"{name}, {chosen.family}, {found['planted']} of {found['rows']:,} wrong: {said}", flush=True)
        write(result, (earlier(result) or {}) | {f"{name} {chosen.rows}": found})


if __name__ == "__main__":
    main()
