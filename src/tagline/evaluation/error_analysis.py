"""Error analysis: the most confident mistakes, the most frequent confusions, and likely label errors."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagline.data.dataset import Dataset, Split
from tagline.evaluation import label_errors
from tagline.prediction.decisions import Answers, are_right

MOST_MISTAKES = 100
MOST_PAIRS = 20
EXAMPLES_A_PAIR = 3
MOST_SUSPECTS = 100
GRAVE_DOUBT, BELIEVED = 0.9, 0.5
"""The doubt, and the score of the suggested label, from which a label error is grave: a weak model, or one of many
labels, doubts many labels a little and is confident of none."""
MOST_CHARACTERS = 2000
"""The most characters of a text in a list."""

Shown = dict[str, Any]


def find_confident_errors(dataset: Dataset, split: Split, answers: Answers) -> list[Shown]:
    """Return wrong answers, the most confident first; of several wrong labels the most confident one counts.

    A missed label counts by how much less likely it was than on the rows that have it: a rare label is never likely.
    """
    wrong = np.flatnonzero(~are_right(answers.chosen, split.targets))
    if dataset.task == "single":
        confidence = answers.scores[wrong, answers.chosen[wrong]]
    else:
        chosen, scores = answers.chosen[wrong], answers.scores[wrong]
        shortfall = np.maximum(label_errors.mean_label_scores(answers.scores, split.targets) - scores, 0.0)
        label_confidence = np.where(chosen, scores, shortfall)
        confidence = np.where(chosen != split.targets[wrong], label_confidence, 0.0).max(axis=1, initial=0.0)
    ranking = np.argsort(-confidence, kind="stable")[:MOST_MISTAKES]
    return [
        describe_row(dataset, split, answers, int(wrong[i])) | {"sure": _round_share(confidence[i])} for i in ranking
    ]


def find_confused_pairs(dataset: Dataset, split: Split, answers: Answers) -> list[Shown]:
    """Return pairs of a missed label and the one answered in its place, the most frequent first, with examples."""
    truth, chosen = (_to_flags(labels, len(dataset.labels)) for labels in (split.targets, answers.chosen))
    missed, extra = truth & ~chosen, chosen & ~truth
    counts = missed.T.astype(np.float32) @ extra.astype(np.float32)
    pairs = []
    for flat in np.argsort(-counts, axis=None, kind="stable")[:MOST_PAIRS]:
        true, answered = np.unravel_index(flat, counts.shape)
        if not counts[true, answered]:
            break
        rows = np.flatnonzero(missed[:, true] & extra[:, answered])
        examples = rows[np.argsort(-answers.scores[rows, answered], kind="stable")][:EXAMPLES_A_PAIR]
        pairs.append(
            {
                "truth": dataset.labels[true],
                "answer": dataset.labels[answered],
                "rows": int(counts[true, answered]),
                "share": float(counts[true, answered] / truth[:, true].sum()),
                "examples": [describe_row(dataset, split, answers, int(row)) for row in examples],
            }
        )
    return pairs


def list_suspects(
    dataset: Dataset, held_out: dict[str, tuple[Split, Answers]], *, most: int = MOST_SUSPECTS
) -> list[Shown]:
    """Return held-out rows with likely label errors, the grave ones first, then by doubt."""
    suspects: list[tuple[bool, float, Shown]] = []
    for name, (split, answers) in held_out.items():
        split_suspects = label_errors.find_suspects(answers.scores, split.targets)
        split_suspects.sort(key=lambda suspect: not _is_grave(suspect, split, answers))
        for suspect in split_suspects[:most]:
            is_grave = _is_grave(suspect, split, answers)
            row = describe_row(dataset, split, answers, suspect.row)
            if dataset.task == "single":
                change = f"{_label_name(dataset, suspect.given)} → {_label_name(dataset, suspect.suggested)}"
            elif suspect.given is None:
                change = f"+ {_label_name(dataset, suspect.suggested)}"
            else:
                change = f"− {_label_name(dataset, suspect.given)}"
            row |= {"split": name, "change": change, "doubt": _round_share(suspect.doubt), "is_grave": is_grave}
            suspects.append((is_grave, suspect.doubt, row))
    return [row for _, _, row in sorted(suspects, key=lambda each: (not each[0], -each[1]))[:most]]


def count_grave_suspects(held_out: dict[str, tuple[Split, Answers]]) -> int:
    """Count the rows whose label the model is nearly sure is wrong, because it is confident of another one."""
    count = 0
    for split, answers in held_out.values():
        suspects = label_errors.find_suspects(answers.scores, split.targets)
        count += len({each.row for each in suspects if _is_grave(each, split, answers)})
    return count


def _is_grave(suspect: label_errors.Suspect, split: Split, answers: Answers) -> bool:
    """Return whether the model is nearly sure that a row's label is wrong, because it is confident of another one."""
    if suspect.doubt < GRAVE_DOUBT:
        return False
    return split.targets.ndim == 2 or bool(answers.scores[suspect.row, suspect.suggested] >= BELIEVED)


def describe_row(dataset: Dataset, split: Split, answers: Answers, row: int) -> Shown:
    """Return one row of a split: its text, truth and answer, and its file and line."""
    file, line = dataset.place(int(split.rows[row]))
    whole = split.texts[row]
    truth, chosen = (_to_flags(each[row : row + 1], len(dataset.labels))[0] for each in (split.targets, answers.chosen))
    return {
        "text": _clip_text(whole) if isinstance(whole, str) else [_clip_text(side) for side in whole],
        "truth": [dataset.labels[i] for i in np.flatnonzero(truth)],
        "answer": [dataset.labels[i] for i in np.flatnonzero(chosen)],
        "score": _round_share((answers.scores[row][chosen] if chosen.any() else answers.scores[row]).max()),
        "file": file,
        "line": line,
    }


def _clip_text(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"


def _to_flags(labels: NDArray[Any], count: int) -> NDArray[np.bool_]:
    return labels.astype(bool) if labels.ndim == 2 else np.eye(count, dtype=bool)[labels]


def _label_name(dataset: Dataset, number: int | None) -> str:
    return "" if number is None else dataset.labels[number]


def _round_share(value: Any) -> float:
    return round(float(value), 4)
