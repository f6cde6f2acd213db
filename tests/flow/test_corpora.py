"""Real corpora as they were published, read by spec alone, with the numbers of rows and labels that are known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagline.data import checks, dataset
from tagline.data.columns import resolve
from tagline.data.dataset import SPLITS, Dataset, normalise_text

pytestmark = pytest.mark.corpora

Corpus = Callable[[str], Path]


def load(path: Path, *overrides: str) -> Dataset:
    """The dataset of a bare file, everything else guessed unless it is given."""
    return dataset.load(resolve(str(path), overrides).spec.data)


def counts(data: Dataset, rows: Any = slice(None)) -> dict[str, int]:
    """How many rows each label has."""
    targets = data.targets[rows]
    numbers = targets.sum(axis=0) if targets.ndim == 2 else np.bincount(targets, minlength=len(data.labels))
    return dict(zip(data.labels, map(int, numbers), strict=True))


def sizes(data: Dataset) -> list[int]:
    return [len(data.splits[name]) for name in SPLITS]


def assert_no_text_in_two_splits(data: Dataset) -> None:
    seen = [{data.groups[row] for row in data.splits[name].rows} for name in SPLITS]
    assert sum(map(len, seen)) == len(set.union(*seen))


@pytest.mark.parametrize(
    ("file", "text", "published"),
    [
        (
            "happydb/hm_train.csv", "cleaned_hm",
            {"affection": 20880, "achievement": 20274, "bonding": 6561, "enjoy_the_moment": 6508, "leisure": 4242,
             "nature": 1127, "exercise": 729},
        ),
        (
            "happydb/happydb_ground_truth.csv", "cleaned_hm",
            {"affection": 4810, "achievement": 4276, "bonding": 1750, "enjoy_the_moment": 1514, "leisure": 1306,
             "nature": 252, "exercise": 217},
        ),
        ("financial_phrasebank/Sentences_50Agree.txt", "text", {"neutral": 2879, "positive": 1363, "negative": 604}),
        ("financial_phrasebank/Sentences_66Agree.txt", "text", {"neutral": 2535, "positive": 1168, "negative": 514}),
        ("financial_phrasebank/Sentences_75Agree.txt", "text", {"neutral": 2146, "positive": 887, "negative": 420}),
        ("financial_phrasebank/Sentences_AllAgree.txt", "text", {"neutral": 1391, "positive": 570, "negative": 303}),
        ("chnsenticorp_htl_zh/ChnSentiCorp_htl_all.csv", "review", {"1": 5322, "0": 2444}),
        ("sms_spam/SMSSpamCollection.tsv", "column_2", {"ham": 4827, "spam": 747}),
        ("allocine_tv_fr/train.tsv", "column_2", {"1": 1465, "0": 1274}),
        ("nsmc_ko/ratings_test.txt", "document", {"1": 25173, "0": 24827}),
        (
            "mnli/dev_matched.csv", ("premise", "hypothesis"),
            {"entailment": 3479, "contradiction": 3213, "neutral": 3123},
        ),
        (
            "mnli/dev_mismatched_author_label.csv", ("premise", "hypothesis"),
            {"entailment": 3492, "contradiction": 3265, "neutral": 3075},
        ),
        ("rte/train.csv", ("premise", "hypothesis"), {"entailment": 1249, "not_entailment": 1241}),
        ("sst/sst2_train.csv", "text", {"positive": 3610, "negative": 3310}),
        (
            "sst/sst5_train.csv", "text",
            {"positive": 2322, "negative": 2218, "neutral": 1624, "very positive": 1288, "very negative": 1092},
        ),
    ],
)  # fmt: skip
def test_a_bare_file_has_the_published_labels(
    corpus: Corpus, file: str, text: str | tuple[str, str], published: dict[str, int]
) -> None:
    settings = resolve(str(corpus(file))).spec.data
    assert settings.text == text
    data = dataset.load(settings)
    assert (data.task, data.pair) == ("single", isinstance(text, tuple))
    assert counts(data) == published
    assert sum(sizes(data)) == len(data) == sum(published.values())
    assert_no_text_in_two_splits(data)
    first_rows = np.unique(data.groups, return_index=True)[1]
    texts = counts(data, first_rows)
    for name in ("validation", "test"):
        of_split = counts(data, np.intersect1d(first_rows, data.splits[name].rows))
        assert of_split == {label: round(0.1 * count) for label, count in texts.items()}


def test_happydb_keeps_line_breaks_and_finds_duplicates(corpus: Corpus) -> None:
    data = load(corpus("happydb/hm_train.csv"))
    assert len(data) == 60_321
    texts = list(data.texts(np.arange(len(data))))
    assert sum("\n" in str(text) for text in texts) == 911
    assert len(texts) - len(set(texts)) == 1_867
    findings = {finding.code: finding for finding in checks.examine(data)}
    assert findings["duplicates"].severity == "note"
    row = findings["contradictions"].rows[0]
    assert row.text in Path(row.file).read_text("utf-8").splitlines()[row.line - 1]


def test_financial_phrasebank_is_latin_1_lines_split_at_a_sign(corpus: Corpus) -> None:
    data = load(corpus("financial_phrasebank/Sentences_50Agree.txt"))
    assert (data.sources[0].format, data.sources[0].separator) == ("lines", "@")
    assert data.sources[0].encoding.name == "latin-1"
    texts = list(data.texts(np.arange(len(data))))
    assert len(texts) == 4_846
    assert any("ä" in str(text) for text in texts)
    assert not any("\ufffd" in str(text) for text in texts)


def test_goemotions_keeps_its_published_splits_but_for_leaks(corpus: Corpus) -> None:
    validation, test = corpus("goemotions/dev.csv"), corpus("goemotions/test.csv")
    data = load(corpus("goemotions/train.csv"), f"data.validation={validation}", f"data.test={test}")
    assert data.task == "multi"
    assert list(data.labels) == corpus("goemotions/labels.txt").read_text().split()
    assert len(data) == 43_410 + 5_426 + 5_427
    assert len(data.splits["test"]) == 5_427
    ends = np.searchsorted(data.leaked, [43_410, 43_410 + 5_426])
    assert sizes(data) == [43_410 - ends[0], 5_426 - (ends[1] - ends[0]), 5_427]
    assert 0 < len(data.leaked) == ends[1] < 700
    assert_no_text_in_two_splits(data)
    later = {normalise_text(str(text)) for name in ("validation", "test") for text in data.splits[name].texts}
    assert all(normalise_text(str(data.example(int(row)).text)) in later for row in data.leaked)
    published = {"admiration": 4130, "neutral": 14219, "grief": 77, "surprise": 1060}
    found = counts(data, slice(43_410))
    assert {name: found[name] for name in published} == published
    assert (data.targets[:43_410].sum(axis=1) > 1).mean() == pytest.approx(0.164, abs=0.001)


def test_goemotions_is_stratified_where_splits_are_made(corpus: Corpus) -> None:
    data = load(corpus("goemotions/train.csv"))
    whole = counts(data)
    for name in ("validation", "test"):
        for label, count in counts(data, data.splits[name].rows).items():
            assert count == pytest.approx(0.1 * whole[label], rel=0.05, abs=2), (name, label)


def test_banking77_has_77_labels_and_a_test_file(corpus: Corpus) -> None:
    data = load(corpus("banking77/train.csv"), f"data.test={corpus('banking77/test.csv')}")
    assert len(data.labels) == 77
    assert len(data) == 10_003 + 3_080
    assert set(counts(data, data.splits["test"].rows).values()) == {40}
    assert all(counts(data, data.splits["validation"].rows).values())
    assert all(counts(data, data.splits["train"].rows).values())


def test_allocine_has_no_header(corpus: Corpus) -> None:
    files = {name: corpus(f"allocine_tv_fr/{name}.tsv") for name in ("train", "dev", "test")}
    data = load(files["train"], f"data.validation={files['dev']}", f"data.test={files['test']}")
    assert len(data) == 2_739 + 391 + 782
    assert len(data.splits["test"]) == 782
    assert data.labels == ("0", "1")
    assert data.example(0).line == 1


def test_nsmc_is_read_in_full(corpus: Corpus) -> None:
    data = load(corpus("nsmc_ko/ratings_train_30k.txt"), f"data.test={corpus('nsmc_ko/ratings_test.txt')}")
    assert len(data) == 30_000 + 50_000
    assert len(data.splits["test"]) == 50_000
    assert data.bad_rows == ()


@pytest.mark.parametrize(
    ("file", "labels", "splits"),
    [
        ("pn", {"1": 3406, "0": 1329, "-1": 818}, {"train": 3888, "validation": 1112, "test": 553}),
        ("rhr", {"1": 3484, "0": 2069}, {"train": 3878, "validation": 1122, "test": 553}),
    ],
)
def test_jrte_brings_its_splits_in_the_usage_column(
    corpus: Corpus, file: str, labels: dict[str, int], splits: dict[str, int]
) -> None:
    path = corpus(f"jrte_ja/{file}.csv")
    assert resolve(str(path)).spec.data.split == "usage"
    data = load(path)
    assert counts(data) == labels
    assert not len(data.leaked)
    assert dict(zip(SPLITS, sizes(data), strict=True)) == splits
    assert not [finding for finding in checks.examine(data) if finding.code == "alike-labels"]


def test_the_empty_review_of_chnsenticorp_is_found(corpus: Corpus) -> None:
    data = load(corpus("chnsenticorp_htl_zh/ChnSentiCorp_htl_all.csv"))
    assert len(data) == 7_766
    (finding,) = [finding for finding in checks.examine(data) if finding.code == "empty-texts"]
    assert finding.message == "1 row with an empty text"
    assert finding.rows[0].text == ""


def test_sst_has_the_published_splits(corpus: Corpus) -> None:
    for kind, rows in (("sst2", [6_920, 872, 1_821]), ("sst5", [8_544, 1_101, 2_210])):
        files = {name: corpus(f"sst/{kind}_{name}.csv") for name in ("train", "dev", "test")}
        data = load(files["train"], f"data.validation={files['dev']}", f"data.test={files['test']}")
        assert len(data) == sum(rows)
        assert sum(sizes(data)) == sum(rows) - len(data.leaked)
        assert len(data.splits["test"]) == rows[2]


def test_sms_spam_trains_from_the_bare_file(corpus: Corpus, tagline: Any) -> None:
    quick = ("model.family=linear", "data.learning_fraction=0.2", "model.strength=4.0", "model.characters=0")
    result = tagline("train", corpus("sms_spam/SMSSpamCollection.tsv"), *quick, "--json")
    assert result.json["report"]["test"]["accuracy"] > 0.95
