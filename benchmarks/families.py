"""Every family on eight corpora in six languages: quality, training time, bundle size and prediction rate.

    python benchmarks/families.py [--sets NAME ...] [--families NAME ...] [--rows N] [--language-models DIR ...]
                                  [--unlabelled]

Each row of the table is one `tagline train` with a family's defaults, one after the other in the same process. Training
rows are limited to N (4,000) and test rows to half of that, drawn with a seed, so that the table is there within hours
on two cores; a call adds its rows to those that others have measured. The corpora are not part of this project:
TAGLINE_DATA names the directory that holds them. Language models for ulmfit on English texts are made by `tagline lm`:
one that reads forward and, if there are two, one that reads backward. With --unlabelled ulmfit also reads the training
texts that were not drawn, without their labels: what most people have more of.
"""

import argparse
import csv
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import earlier, write
from sklearn.model_selection import train_test_split

import tagline
from tagline.errors import Interrupted

DATA = Path(os.environ.get("TAGLINE_DATA", Path(__file__).parents[2] / "shared" / "data"))
FAMILIES = ("linear", "lstm", "ulmfit", "fewshot", "encoder")
PREDICTED = 500
Row = dict[str, str]


@dataclass(frozen=True)
class Corpus:
    """Rows to learn from and to measure on, and what the spec says about their columns."""

    language: str
    rows: Callable[[], tuple[list[Row], list[Row]]]
    settings: tuple[str, ...] = ("data.text=text", "data.labels=label")


def _table(name: str, **options: Any) -> list[Row]:
    with (DATA / name).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file, **options))


def _renamed(rows: list[Row], **columns: str) -> list[Row]:
    return [{new: row[old] for new, old in columns.items()} for row in rows]


def _halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    first, second = train_test_split(rows, test_size=0.2, random_state=0, stratify=[row["label"] for row in rows])
    return first, second


def _phrasebank() -> tuple[list[Row], list[Row]]:
    once: dict[str, str] = {}
    with (DATA / "financial_phrasebank" / "Sentences_50Agree.txt").open(encoding="latin-1") as file:
        for line in file:
            text, _, label = line.rstrip("\n").rpartition("@")
            once.setdefault(text, label)
    return _halves([{"text": text, "label": label} for text, label in once.items()])


def _jrte() -> tuple[list[Row], list[Row]]:
    rows = _table("jrte_ja/pn.csv")
    return [row for row in rows if row["usage"] != "test"], [row for row in rows if row["usage"] == "test"]


def _allocine(name: str) -> list[Row]:
    lines = (DATA / "allocine_tv_fr" / f"{name}.tsv").read_text("utf-8").splitlines()
    return [{"label": label, "text": text} for label, _, text in (line.partition("\t") for line in lines)]


def _goemotions() -> tuple[list[Row], list[Row]]:
    return tuple(  # type: ignore[return-value]
        [{key: value for key, value in row.items() if key != "comment_id"} for row in _table(f"goemotions/{name}.csv")]
        for name in ("train", "test")
    )


CORPORA = {
    "financial_phrasebank": Corpus("en", _phrasebank),
    "happydb": Corpus("en", lambda: (
        _renamed(_table("happydb/hm_train.csv"), text="cleaned_hm", label="predicted_category"),
        _renamed(_table("happydb/happydb_ground_truth.csv"), text="cleaned_hm", label="ground_truth_category"),
    )),
    "goemotions": Corpus("en", _goemotions, ("data.text=text",)),
    "mnli": Corpus("en", lambda: (
        _renamed(_table("mnli/dev_mismatched_author_label.csv"), text="premise", pair="hypothesis",
                 label="author_label"),
        _renamed(_table("mnli/dev_matched.csv"), text="premise", pair="hypothesis", label="gold_label"),
    ), ('data.text=["text", "pair"]', "data.labels=label")),
    "allocine_tv_fr": Corpus("fr", lambda: (_allocine("train") + _allocine("dev"), _allocine("test"))),
    "nsmc_ko": Corpus("ko", lambda: tuple(_renamed(  # type: ignore[arg-type, return-value]
        _table(f"nsmc_ko/{name}.txt", delimiter="\t", quoting=csv.QUOTE_NONE), text="document", label="label"
    ) for name in ("ratings_train_30k", "ratings_test"))),
    "jrte_ja": Corpus("ja", _jrte),
    "chnsenticorp_htl_zh": Corpus("zh", lambda: _halves(_renamed(
        _table("chnsenticorp_htl_zh/ChnSentiCorp_htl_all.csv"), text="review", label="label"
    ))),
}  # fmt: skip


def measured(
    corpus: Corpus, family: str, *, most: int, language_models: Sequence[str], unlabelled: bool
) -> dict[str, Any]:
    """One training with the family's defaults, and what it is worth."""
    settings = [*corpus.settings, f"model.family={family}", "data.bad_rows=skip"]
    if family == "ulmfit":
        settings.append(f"model.language={corpus.language}")
        if corpus.language == "en":
            keys = ("model.pretrained", "model.pretrained_backward")
            settings += [f"{key}={each}" for key, each in zip(keys, language_models, strict=False)]
            settings += ["model.direction=both"] * (len(language_models) == 2)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for name, rows, count in zip(("train", "test"), corpus.rows(), (most, most // 2), strict=True):
            drawn = random.Random(0).sample(rows, min(count, len(rows)))
            _write(place / f"{name}.csv", drawn)
            if name == "train" and family == "ulmfit" and unlabelled:
                settings.append(f'model.unlabelled=["{_write_others(place, rows, drawn)}"]')
        begun = time.perf_counter()
        run = tagline.train(place / "train.csv", f"data.test={place / 'test.csv'}", *settings, runs=place / "runs")
        seconds = time.perf_counter() - begun
        report: Any = run.report()
        predictor = tagline.load(run.bundle)
        texts = list(_texts(place / "test.csv"))[:PREDICTED]
        predictor.predict(texts[:8])
        begun = time.perf_counter()
        predictor.predict(texts)
        rate = len(texts) / (time.perf_counter() - begun)
        size = sum(path.stat().st_size for path in run.bundle.rglob("*") if path.is_file()) / 2**20
    figures = {key: report["test"].get(key) for key in ("accuracy", "macro_f1", "micro_f1")}
    return figures | {"seconds": seconds, "mebibytes": size, "texts_a_second": rate}


def _write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _write_others(place: Path, rows: Sequence[Row], drawn: Sequence[Row]) -> Path:
    """The texts that were not drawn, one on each line."""
    path, taken = place / "others.txt", {id(row) for row in drawn}
    others = (" ".join(row["text"].split()) for row in rows if id(row) not in taken)
    path.write_text("".join(f"{text}\n" for text in others), "utf-8")
    return path


def _texts(path: Path) -> Iterator[Any]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield (row["text"], row["pair"]) if "pair" in row else row["text"]


def main() -> None:
    parser = argparse.ArgumentParser(description="every family on eight corpora")
    parser.add_argument("--sets", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--language-models", nargs="+", default=[], help="for English: forward, backward")
    parser.add_argument("--unlabelled", action="store_true", help="for ulmfit: the texts that were not drawn")
    chosen = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"{DATA} is missing; set TAGLINE_DATA")
    found: dict[str, Any] = earlier("families") or {}
    print(f"{'set':<22}{'family':<10}{'accuracy':>10}{'macro-F1':>10}{'training':>10}{'bundle':>10}{'texts/s':>10}")
    try:
        for name in chosen.sets:
            for family in chosen.families:
                more = " unlabelled" * (family == "ulmfit" and chosen.unlabelled)
                found[f"{name} {family} {chosen.rows}{more}"] = _measured_and_told(name, family, chosen)
    finally:  # what was measured before somebody lost patience
        write("families", found)


def _measured_and_told(name: str, family: str, chosen: argparse.Namespace) -> dict[str, Any] | str:
    """A row of the table, or why there is none."""
    try:
        row = measured(
            CORPORA[name],
            family,
            most=chosen.rows,
            language_models=chosen.language_models,
            unlabelled=chosen.unlabelled,
        )
    except Interrupted:
        raise
    except tagline.TaglineError as error:
        print(f"{name:<22}{family:<10}{error}", flush=True)
        return str(error)
    accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.3f}"
    print(
        f"{name:<22}{family:<10}{accuracy:>10}{row['macro_f1']:>10.3f}{row['seconds']:>8.0f} s"
        f"{row['mebibytes']:>7.1f} MB{row['texts_a_second']:>10.0f}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
