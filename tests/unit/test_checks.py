"""The checks: each finds what it looks for, shows the rows, and is silent about clean data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tagline import spec as specs
from tagline.data import checks, dataset
from tagline.data.checks import Finding

CLEAN = [(f"a clear message about matter number {row}", f"label {'abc'[row % 3]}") for row in range(60)]


@dataclass(frozen=True)
class Case:
    """Rows beside the clean ones, and what is to be found: severity, words of the message, lines shown."""

    rows: Sequence[tuple[str, ...]] = ()
    severity: str = "warning"
    says: str = ""
    lines: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    instead: bool = False
    header: str = "text,label"
    test: Sequence[tuple[str, ...]] = ()
    encoding: str = "utf-8"


Examine = Callable[[Case], dict[str, Finding]]


@pytest.fixture
def examine(tmp_path: Path) -> Examine:
    """The findings of a case, by code."""

    def quoted(rows: Sequence[tuple[str, ...]], header: str, encoding: str) -> bytes:
        lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
        return "\n".join([header, *lines, ""]).encode(encoding)

    def examine_one(case: Case) -> dict[str, Finding]:
        train = tmp_path / "train.csv"
        train.write_bytes(quoted(case.rows if case.instead else [*CLEAN, *case.rows], case.header, case.encoding))
        data: dict[str, Any] = {"train": str(train), "text": "text", "labels": "label", "header": True}
        if case.test:
            (tmp_path / "test.csv").write_bytes(quoted(case.test, case.header, case.encoding))
            data["test"] = str(tmp_path / "test.csv")
        found = checks.examine(dataset.load(specs.defaults(data | case.settings).data))
        by_code = {finding.code: finding for finding in found}
        assert len(by_code) == len(found)
        return by_code

    return examine_one


HOT = {"labels": ["a", "b"]}

CASES = {
    "empty-texts": Case([("", "label a"), (" \t", "label b")], says="2 rows with an empty text", lines=(62, 63)),
    "long-texts": Case([("word " * 2001, "label a")], says="more than 10,000 characters", lines=(62,)),
    "odd-characters": Case(
        [
            ("cafÃ©", "label a"),
            ("donâ€™t", "label b"),
            ("a\ufffd", "label c"),
            ("bell\x07", "label a"),
            ("café’s", "label a"),
        ],
        says="4 rows with characters",
        lines=(62, 63, 64, 65),
    ),
    "uncertain-encoding": Case(
        [("how naïve of us", "label a")],
        says='is read as latin-1 ("how naïve of us","label a"); it could be cp1250 ("how naďve of us","label a") or',
        encoding="latin-1",
    ),
    "one-text": Case(
        [("Same", "label a"), (" same", "label b")], "error", "all texts are the same", (2,), instead=True
    ),
    "duplicates": Case(
        [("Twice ", "label a"), ("twice", "label a"), ("TWICE", "label a")],
        "note",
        "2 rows with the text",
        (62, 63, 64),
    ),
    "contradictions": Case(
        [("so or so", "label a"), ("other", "label a"), ("so  OR so", "label b")],
        says="1 text with different labels, in 2 rows",
        lines=(62, 64),
    ),
    "leaks": Case(
        test=[("A CLEAR message about matter number 4", "label b"), ("new", "label a")],
        says="1 row with a text that a later split has too",
        lines=(6,),
    ),
    "one-label": Case([("a", "x"), ("b", "x")], "error", 'every row has the label "x"', (2,), instead=True),
    "no-label": Case(
        [("a", "0", "0"), ("b", "0", "0")], "error", "no row has a label", (2, 3), HOT, instead=True, header="text,a,b"
    ),
    "labels-look-like-text": Case(
        [(f"t{row}", f"id {row}") for row in range(80)],
        "error",
        "80 different labels in 80 rows",
        (2, 3, 4),
        instead=True,
    ),
    "unlabelled-rows": Case(
        [("a", "1", "0"), ("b", "0", "1"), ("c", "0", "0")],
        "note",
        "1 row without a label",
        (4,),
        HOT,
        instead=True,
        header="text,a,b",
    ),
    "labels-too-rare": Case([("rare", "z"), ("rare too", "z")], says="too few rows to stand in every split: z (2)"),
    "rare-labels": Case(
        [(f"rare {row}", "z") for row in range(5)], says="fewer than 10 rows, so that their figures say little: z (5)"
    ),
    "labels-not-in-train": Case(
        test=[("new", "unseen"), ("newer", "label a"), ("newest", "unseen")],
        says="labels without a training row: unseen; no answer to 2 rows of test (",
        lines=(2, 4),
    ),
    "no-known-label-in-test": Case(
        test=[("new", "unseen"), ("newer", "unheard")],
        severity="error",
        says="has a training row: they have unheard, unseen; training has label a, label b, label c",
        lines=(2, 3),
    ),
    "html-entities": Case(
        [("salt &amp; pepper", "label a"), ("don&#39;t", "label b"), ("AT&T; R&D, a &nosuch; b", "label c")],
        says="2 rows with HTML entities",
        lines=(62, 63),
    ),
    "escapes": Case(
        [("don\\u2019t", "label a"), ("caf\\xe9", "label b"), ("C:\\users", "label c")],
        says="2 rows with escapes",
        lines=(62, 63),
    ),
    "numbered-labels": Case(
        [(f"message {row}", str(row % 3)) for row in range(60)], "note", "labels are the numbers 0 to 2", instead=True
    ),
    "few-shots": Case(
        [(f"message {row}", "ab"[row % 2]) for row in range(20)],
        severity="note",
        instead=True,
        says="half of the labels have 8 training rows or fewer",
    ),
    "imbalance": Case(
        [(f"more {row}", "label a") for row in range(240)], "note", "label a has 260 rows, label b only 20: 13 to 1"
    ),
    "alike-labels": Case(
        [("x1", "Label A"), ("x2", "label_b"), ("x3", "label-b")],
        says="nearly the same: Label A / label a, label b / label-b / label_b",
    ),
    "formula-labels": Case(
        [("x1", "=cmd()"), ("x2", "@x"), ("x3", "-x"), ("x4", "+x")], says="for a formula: +x, -x, =cmd(), @x"
    ),
    "no-train": Case(
        [("a", "x", "test"), ("b", "y", "validation")],
        "error",
        "no row is left to train on",
        (),
        {"split": "use"},
        instead=True,
        header="text,label,use",
    ),
    "no-validation": Case(settings={"validation_share": 0}, says="the validation split is empty"),
    "no-test": Case(settings={"test_share": 0}, says="the test split is empty"),
    "near-duplicates": Case(
        test=[
            ("please tell me when the blue parcel of last Monday will be at my door, thank you", "label a"),
            ("a text about something else that nobody has written before", "label b"),
        ],
        rows=[("Please tell me when the blue parcel of last Monday will be at my door -- thank you!!", "label a")],
        says="1 row of validation and test nearly the same as a training text",
        lines=(2, 62),
    ),
    "bad-rows": Case([("no label", " ")], settings={"bad_rows": "skip"}, says="1 row skipped: "),
}


@pytest.mark.parametrize("code", CASES)
def test_what_is_wrong_is_found_with_its_rows(examine: Examine, code: str) -> None:
    case = CASES[code]
    finding = examine(case)[code]
    assert finding.severity == case.severity
    assert case.says in finding.message
    assert finding.advice
    assert tuple(row.line for row in finding.rows) == case.lines
    files = ("train.csv", "test.csv") if case.test else "train.csv"
    assert all(row.file.endswith(files) for row in finding.rows)


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(
            [("a", "1", "0"), ("b", "0", "1"), *((f"c{i}", "1", "1") for i in range(30))],
            settings=HOT,
            instead=True,
            header="text,a,b",
        ),
        Case(test=[(f"another text {row}", f"label {'abc'[row % 3]}") for row in range(12)]),
        Case([(f"text {row}", ("-1", "0", "+1", "1")[row % 4]) for row in range(80)], instead=True),
        Case([(f"text {row}", ("C", "C++", "C#")[row % 3]) for row in range(60)], instead=True),
        Case([(f"naïve café “{row}” – ok\tso\nß", f"label {'abc'[row % 3]}") for row in range(30)]),
    ],
    ids=["single", "multi", "given test", "numbers", "signs", "accents"],
)
def test_of_clean_data_no_more_is_said_than_how_little_it_is(examine: Examine, case: Case) -> None:
    assert set(examine(case)) == {"few-shots"}


def test_every_check_has_a_case(examine: Examine) -> None:
    found = {name for case in CASES.values() for name in examine(case)}
    assert found == set(CASES)
    assert len(checks.CHECKS) == len(set(checks.CHECKS))


def test_the_worst_comes_first_and_few_rows_are_shown(examine: Examine) -> None:
    findings = examine(Case([("", "only")] * 9, instead=True))
    severities = [finding.severity for finding in findings.values()]
    assert severities == sorted(severities, key=checks.SEVERITIES.index)
    assert severities[0] == "error"
    assert all(len(finding.rows) <= checks.SHOWN_ROWS for finding in findings.values())
    assert "9 rows with an empty text" in findings["empty-texts"].message


def test_either_text_of_a_pair_can_be_empty(examine: Examine) -> None:
    rows = [("x", "", "a"), ("", "y", "b"), ("x", "y", "a")]
    case = Case(rows, settings={"text": ["text", "b"]}, instead=True, header="text,b,label")
    assert [row.text for row in examine(case)["empty-texts"].rows] == [("x", ""), ("", "y")]


def test_where_the_test_file_is_the_training_file_that_is_said(examine: Examine) -> None:
    assert examine(Case(test=CLEAN))["no-train"].advice.startswith(
        "every training text is given for validation or test"
    )


def test_contradictions_of_task_multi_get_their_own_advice(examine: Examine) -> None:
    case = Case([("x", "1", "0"), ("X", "1", "1")], settings=HOT, instead=True, header="text,a,b")
    assert examine(case)["contradictions"].advice == "give the same text the same labels"


def test_labels_like_text_are_not_reported_as_rare_as_well(examine: Examine) -> None:
    assert not {"rare-labels", "labels-too-rare"} & examine(CASES["labels-look-like-text"]).keys()


def test_many_rare_labels_are_counted_not_all_listed(examine: Examine) -> None:
    findings = examine(Case([(f"rare {row}", f"z{row}") for row in range(8)]))
    assert findings["labels-too-rare"].message.endswith("z4 (1) and 3 more")
