"""Family `linear` against scikit-learn's own TF-IDF and logistic regression on the same split: quality and time.

Financial PhraseBank, 50 % agreement, equal sentences once, 80/20 stratified with seed 0. The corpus is not part of this
project: TAGLINE_DATA names the directory that holds financial_phrasebank/.
"""

import csv
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import in_turns, show, write
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline, make_union

import tagline

DATA = Path(os.environ.get("TAGLINE_DATA", Path(__file__).parents[2] / "shared" / "data"))
CORPUS = DATA / "financial_phrasebank" / "Sentences_50Agree.txt"


def main() -> None:
    if not CORPUS.exists():
        sys.exit(f"{CORPUS} is missing; set TAGLINE_DATA")
    lines = [line.rstrip("\n").rpartition("@") for line in CORPUS.open(encoding="latin-1")]
    once: dict[str, str] = {}
    for text, _, label in lines:
        once.setdefault(text, label)
    train, test, y_train, y_test = train_test_split(
        list(once), list(once.values()), test_size=0.2, random_state=0, stratify=list(once.values())
    )
    quality: dict[str, list[float]] = {}

    def peer() -> float:
        begun = time.perf_counter()
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
        characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2)
        model = make_pipeline(make_union(words, characters), LogisticRegression(C=10, max_iter=1000))
        answers = model.fit(train, y_train).predict(test)
        quality["scikit-learn"] = [accuracy_score(y_test, answers), f1_score(y_test, answers, average="macro")]
        return time.perf_counter() - begun

    def ours() -> float:
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            for name, texts, labels in (("train", train, y_train), ("test", test, y_test)):
                with (place / f"{name}.csv").open("w", newline="") as file:
                    csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])
            begun = time.perf_counter()
            test_rows = f"data.test={place / 'test.csv'}"
            run = tagline.train(place / "train.csv", test_rows, "model.family=linear", runs=place / "runs")
            seconds = time.perf_counter() - begun
            report: Any = run.report()
            quality["tagline"] = [report["test"]["accuracy"], report["test"]["macro_f1"]]
            return seconds

    times = in_turns({"scikit-learn": peer, "tagline": ours}, rounds=3)
    summary = show("Financial PhraseBank, 50 % agreement", "seconds, everything", times, base="scikit-learn")
    print(f"\n{'':<28}{'accuracy':>10}{'macro-F1':>10}")
    for name, (accuracy, macro_f1) in quality.items():
        print(f"{name:<28}{accuracy:>10.3f}{macro_f1:>10.3f}")
    write("linear", {"time": summary, "quality": quality})


if __name__ == "__main__":
    main()
