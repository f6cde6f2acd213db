"""Every row scored by models that did not learn from it, and planted label errors found so."""

import csv
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagline.data import dataset
from tagline.data.columns import resolve
from tagline.data.dataset import Dataset
from tagline.spec import Spec
from tagline.training import cross_validation

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"
PLANTED = 30
Planted = tuple[Path, set[str]]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: Any) -> Planted:
    """The sample data with some labels exchanged, and the texts of these rows."""
    with SUPPORT.open(newline="", encoding="utf-8") as file:
        rows = list({row["message"]: row for row in csv.DictReader(file)}.values())
    topics = sorted({row["topic"] for row in rows})
    draw = random.Random(0)
    wrong = draw.sample(rows, PLANTED)
    for row in wrong:
        row["topic"] = draw.choice([topic for topic in topics if topic != row["topic"]])
    path = tmp_path_factory.mktemp("planted") / "messages.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path, {row["message"] for row in wrong}


def loaded(path: Path, *settings: str) -> tuple[Spec, Dataset]:
    spec = resolve(str(path), ["data.text=message", "data.labels=topic", "data.bad_rows=skip", *settings]).spec
    return spec, dataset.load(spec.data)


def found_again(planted: Planted, data: Dataset, parts: list[cross_validation.HeldOutPart]) -> float:
    first = cross_validation.find_label_errors(data, parts)[:PLANTED]
    return sum(row["text"] in planted[1] for row in first) / PLANTED


@pytest.fixture(scope="module")
def by_linear(planted: Planted) -> tuple[Dataset, list[cross_validation.HeldOutPart]]:
    spec, data = loaded(planted[0], "model.family=linear")
    return data, list(cross_validation.score_folds(spec, data))


def test_every_row_is_in_one_part_and_equal_texts_in_the_same(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    texts = [f"word{number % 40} and more" for number in range(120)]
    path.write_text("message,topic\n" + "".join(f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(texts)))
    spec, data = loaded(path, "model.family=linear")
    parts = list(cross_validation.score_folds(spec, data))
    assert len(parts) == cross_validation.FOLDS
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(120))
    assert all(len(part.opinions) == 1 and len(part.opinions[0]) == len(part.rows) for part in parts)
    where = [{texts[row] for row in part.rows} for part in parts]
    assert sum(map(len, where)) == len(set(texts))


def test_texts_that_are_nearly_the_same_are_in_one_part(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    said = "my parcel with the order {} has not arrived yet and nobody answers the telephone{}"
    texts = [
        said.format(f"a{number} b{number} c{number} d{number}", end) for number in range(40) for end in (".", " !!")
    ]
    path.write_text("message,topic\n" + "".join(f'"{text}",{"ab"[i % 2]}\n' for i, text in enumerate(texts)))
    spec, data = loaded(path, "model.family=linear")
    for part in cross_validation.score_folds(spec, data):
        assert {row // 2 for row in part.rows if row % 2} == {row // 2 for row in part.rows if not row % 2}


def test_planted_errors_come_first(
    planted: Planted, by_linear: tuple[Dataset, list[cross_validation.HeldOutPart]]
) -> None:
    assert found_again(planted, *by_linear) > 0.6


def test_the_companion_makes_up_for_a_family_that_knows_less(
    planted: Planted, by_linear: tuple[Dataset, list[cross_validation.HeldOutPart]], checkpoint: Callable[[str], Path]
) -> None:
    """The encoder has random weights and sees the rows once: by itself it finds hardly any."""
    spec, data = loaded(
        planted[0], f"model.pretrained={checkpoint('bert')}", "model.max_tokens=24", "training.epochs=1"
    )
    parts = list(cross_validation.score_folds(spec, data))
    alone = [replace(part, opinions=part.opinions[:1]) for part in parts]
    assert all(len(part.opinions) == 2 for part in parts)
    assert found_again(planted, data, alone) < 0.3
    assert found_again(planted, data, parts) > found_again(planted, *by_linear) - 0.1


def test_the_parts_keep_to_the_minutes_of_a_training(planted: Planted, checkpoint: Callable[[str], Path]) -> None:
    spec, data = loaded(
        planted[0],
        f"model.pretrained={checkpoint('bert')}",
        "model.max_tokens=8",
        "training.epochs=1000",
        "training.max_minutes=0.01",
    )
    assert len(list(cross_validation.score_folds(spec, data))) == cross_validation.FOLDS


def test_rows_doubted_while_they_were_learned_are_doubted_and_the_leaning_of_all_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("message,topic\n" + "".join(f"text {number},{'ab'[number % 2]}\n" for number in range(200)))
    _, data = loaded(path)
    noise = np.random.default_rng(0).normal(0, 1, 200)

    def of_given(log_odds: Any) -> Any:
        """Scores of rows whose given label has these log-odds."""
        share = 1 / (1 + np.exp(-log_odds))
        return np.where(np.eye(2)[data.targets] == 1, share[:, None], 1 - share[:, None]).astype(np.float32)

    unseen, doubted = of_given(1 + noise), np.arange(10)
    learned = 6 + noise  # by heart, as it were
    learned[doubted] -= 4
    rows = np.arange(200)
    said = np.log(of_given(learned))
    quiet = cross_validation.HeldOutPart(rows, (unseen,), rows[:0], said[:0])
    (_, without), (_, found) = (
        cross_validation.combine_scores(data, [part]) for part in (quiet, replace(quiet, learned=rows, said=said))
    )
    believed, believed_without = (scores[rows, data.targets] for scores in (found, without))
    assert believed[doubted].mean() < believed_without[doubted].mean() - 0.1
    assert believed.mean() == pytest.approx(believed_without.mean(), abs=0.03)


def test_a_family_that_learns_from_rows_tells_what_it_said_of_each(
    planted: Planted, checkpoint: Callable[[str], Path]
) -> None:
    spec, data = loaded(planted[0], f"model.pretrained={checkpoint('bert')}", "model.max_tokens=8", "training.epochs=1")
    part = next(cross_validation.score_folds(spec, data))
    assert sorted([*part.rows, *part.learned]) == list(range(len(data.targets)))
    assert np.allclose(np.exp(part.said).sum(axis=1), 1, atol=1e-3)


def test_several_labels_a_text_are_looked_at_one_by_one(checkpoint: Callable[[str], Path]) -> None:
    path = SUPPORT.with_name("messages-multi.csv")
    settings = (f"model.pretrained={checkpoint('bert')}", "model.max_tokens=8", "training.epochs=1")
    spec = resolve(str(path), settings).spec
    data = dataset.load(spec.data)
    parts = list(cross_validation.score_folds(spec, data))
    rows, scores = cross_validation.combine_scores(data, parts)
    assert scores.shape == (len(data.targets), len(data.labels))
    assert sorted(rows) == list(range(len(data.targets)))
    changes = {row["change"][0] for row in cross_validation.find_label_errors(data, parts)}
    assert changes <= {"+", "−"}
