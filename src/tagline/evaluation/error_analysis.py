"""Errors worth reading: the most confident mistakes, labels that are often confused, labels that are probably wrong."""

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
"""A model that knows little, or many labels, doubts many labels a little, and believes in none."""
MOST_CHARACTERS = 2000
"""Of a text, more than a person reads in a list."""

Shown = dict[str, Any]


def find_confident_errors(dataset: Dataset, split: Split, answers: Answers) -> list[Shown]:
    """Wrong answers, the surest first; of several labels the one that is wrong with most confidence counts.

    Of one that was missed, by how much less likely it was than it is elsewhere: a rare label is never likely.
    """
    wrong = np.flatnonzero(~are_right(answers.chosen, split.targets))
    if dataset.task == "single":
        sure = answers.scores[wrong, answers.chosen[wrong]]
    else:
        chosen, scores = answers.chosen[wrong], answers.scores[wrong]
        less = np.maximum(label_errors.mean_label_scores(answers.scores, split.targets) - scores, 0.0)
        misled = np.where(chosen, scores, less)
        sure = np.where(chosen != split.targets[wrong], misled, 0.0).max(axis=1, initial=0.0)
    surest = np.argsort(-sure, kind="stable")[:MOST_MISTAKES]
    return [describe_row(dataset, split, answers, int(wrong[i])) | {"sure": _round_share(sure[i])} for i in surest]


def find_confused_pairs(dataset: Dataset, split: Split, answers: Answers) -> list[Shown]:
    """Pairs of labels, one missed and the other answered in its place, the most frequent first, with examples."""
    truth, chosen = (_to_flags(labels, len(dataset.labels)) for labels in (split.targets, answers.chosen))
    missed, extra = truth & ~chosen, chosen & ~truth
    counts = missed.T.astype(np.float32) @ extra.astype(np.float32)
    found = []
    for flat in np.argsort(-counts, axis=None, kind="stable")[:MOST_PAIRS]:
        given, said = np.unravel_index(flat, counts.shape)
        if not counts[given, said]:
            break
        rows = np.flatnonzero(missed[:, given] & extra[:, said])
        surest = rows[np.argsort(-answers.scores[rows, said], kind="stable")][:EXAMPLES_A_PAIR]
        found.append(
            {
                "truth": dataset.labels[given],
                "answer": dataset.labels[said],
                "rows": int(counts[given, said]),
                "share": float(counts[given, said] / truth[:, given].sum()),
                "examples": [describe_row(dataset, split, answers, int(row)) for row in surest],
            }
        )
    return found


def list_suspects(
    dataset: Dataset, held_out: dict[str, tuple[Split, Answers]], *, most: int = MOST_SUSPECTS
) -> list[Shown]:
    """Rows of splits that the model did not learn from whose label it doubts: the gravely doubted ones first, then the
    most doubtful."""
    found: list[tuple[bool, float, Shown]] = []
    for name, (split, answers) in held_out.items():
        doubted = label_errors.find_suspects(answers.scores, split.targets)
        doubted.sort(key=lambda suspect: not _is_grave(suspect, split, answers))
        for suspect in doubted[:most]:
            is_grave = _is_grave(suspect, split, answers)
            row = describe_row(dataset, split, answers, suspect.row)
            if dataset.task == "single":
                change = f"{_label_name(dataset, suspect.given)} → {_label_name(dataset, suspect.suggested)}"
            elif suspect.given is None:
                change = f"+ {_label_name(dataset, suspect.suggested)}"
            else:
                change = f"− {_label_name(dataset, suspect.given)}"
            row |= {"split": name, "change": change, "doubt": _round_share(suspect.doubt), "is_grave": is_grave}
            found.append((is_grave, suspect.doubt, row))
    return [row for _, _, row in sorted(found, key=lambda each: (not each[0], -each[1]))[:most]]


def count_grave_suspects(held_out: dict[str, tuple[Split, Answers]]) -> int:
    """Rows whose label the model is nearly sure is not theirs, because it believes another one."""
    found = 0
    for split, answers in held_out.values():
        doubted = label_errors.find_suspects(answers.scores, split.targets)
        found += len({each.row for each in doubted if _is_grave(each, split, answers)})
    return found


def _is_grave(suspect: label_errors.Suspect, split: Split, answers: Answers) -> bool:
    """Whether the model is nearly sure that a row's label is not its own, because it believes another one."""
    if suspect.doubt < GRAVE_DOUBT:
        return False
    return split.targets.ndim == 2 or bool(answers.scores[suspect.row, suspect.suggested] >= BELIEVED)


def describe_row(dataset: Dataset, split: Split, answers: Answers, row: int) -> Shown:
    """One row of a split: its text, truth and answer, and where it stands."""
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
