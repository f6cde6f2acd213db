"""Guessing columns: what is guessed, why, and when it is better to ask."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tagline.data.column_profiles import parse_list
from tagline.data.columns import ResolvedSpec, resolve
from tagline.errors import DataError, SpecError

Write = Callable[..., str]

TEXTS = (
    "the parcel never came", "wrong size, please exchange", "how do I log in?", "charged twice this month",
    "thanks, all good now", "the app closes by itself", "I want my money back", "is there an invoice?",
)  # fmt: skip
TOPICS = ("delivery", "returns", "account", "billing")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a CSV of a header, or none, and cells that are made from the row's number."""

    def write_one(header: str | None, *columns: Callable[[int], object], rows: int = 40, name: str = "d.csv") -> str:
        lines = [header] if header else []
        lines += [",".join(f'"{column(row)}"' for column in columns) for row in range(rows)]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write_one


def text(row: int) -> str:
    return f"{TEXTS[row % len(TEXTS)]} {row}"


def topic(row: int) -> str:
    return TOPICS[row % len(TOPICS)]


def settings(resolved: ResolvedSpec, *names: str) -> dict[str, Any]:
    return {name: getattr(resolved.spec.data, name) for name in names}


@pytest.mark.parametrize(
    ("header", "columns", "expected"),
    [
        ("text,labels", (text, topic), ("text", "labels")),
        ("labels,text", (topic, text), ("text", "labels")),
        ("text_a,text_b,labels", (text, text, topic), (("text_a", "text_b"), "labels")),
        ("Premise,Hypothesis,Gold Label", (text, text, topic), (("Premise", "Hypothesis"), "Gold Label")),
        ("id,review,stars", (lambda row: row, text, lambda row: row % 5), ("review", "stars")),
        ("hm,predictedCategory", (text, topic), ("hm", "predictedCategory")),
        ("what,kind", (text, topic), ("what", "kind")),
        ("what,kind,n", (text, topic, lambda row: row % 3), ("what", "kind")),
        ("what,code", (text, lambda row: row % 2), ("what", "code")),
        ("text,label,verified,paid", (text, *3 * [lambda row: row % 2]), ("text", "label")),
        ("text,label", (text, lambda row: "always"), ("text", "label")),
        ("text,label", (text, lambda row: f"rare {row}"), ("text", "label")),
        ("text,joy,anger", (text, lambda row: row % 2, lambda row: row % 3 % 2), ("text", ("joy", "anger"))),
        ("text,tag_a,tag_b", (text, lambda row: row % 2, lambda row: row % 3 % 2), ("text", ("tag_a", "tag_b"))),
        ("text,joy,anger", (text, lambda row: "TRUE", lambda row: "false"), ("text", ("joy", "anger"))),
        ("text,score,joy,anger", (text, lambda row: row / 7, *2 * [lambda row: row % 2]), ("text", ("joy", "anger"))),
        (None, (text, topic), ("column_1", "column_2")),
        (None, (lambda row: row % 2, text), ("column_2", "column_1")),
        ("uuid,note,kind", (lambda row: f"{row:064x}", lambda row: f"so so {row}", topic), ("note", "kind")),
        ("log,kind", (lambda row: f"2026-01-02 10:00 worker {row} has stopped answering", topic), ("log", "kind")),
        ("what,yes_no", (text, lambda row: ("yes", "no")[row % 2]), ("what", "yes_no")),
        ("quote,author,kind", (text, lambda row: f"Ann {'abc'[row % 3]}", topic), ("quote", "kind")),
        ("url,note,kind", (lambda row: f"https://example.org/{row:060}", text, topic), ("note", "kind")),
    ],
)  # fmt: skip
def test_text_and_labels_are_guessed(write: Write, header: str | None, columns: Any, expected: Any) -> None:
    resolved = resolve(write(header, *columns))
    assert (resolved.spec.data.text, resolved.spec.data.labels) == expected
    assert len(resolved.guesses) == 2


@pytest.mark.parametrize(
    ("header", "columns", "guesses"),
    [
        (
            "text,topic",
            (text, topic),
            ('text = "text": its name', 'labels = "topic": its name; 4 labels in 40 rows'),
        ),
        (
            "text_a,text_b,kind",
            (text, text, topic),
            ('text = ["text_a", "text_b"]: a pair, by their names; for one text: data.text=text_a',
             'labels = "kind": few and short values; 4 labels in 40 rows'),
        ),
        (
            "what,a,b,c,d,e",
            (lambda row: f"all of it {row}", *5 * [lambda row: row % 2]),
            ('text = "what": the most language, 3 words in a value',
             'labels = ["a", "b", ..., "e"]: 5 columns of 0 and 1: task multi'),
        ),
        (
            "text,label",
            (text, lambda row: "x"),
            ('text = "text": its name', 'labels = "label": its name; 1 label in 40 rows'),
        ),
    ],
)  # fmt: skip
def test_every_guess_comes_with_its_reason(write: Write, header: str, columns: Any, guesses: tuple[str, ...]) -> None:
    assert resolve(write(header, *columns)).guesses == guesses


@pytest.mark.parametrize("separator", ["|", ";", "/"])
def test_several_labels_in_a_cell_are_told_by_their_separator(write: Write, separator: str) -> None:
    def tags(row: int) -> str:
        return separator.join(name for number, name in enumerate(TOPICS) if (row + 1) >> number & 1)

    resolved = resolve(write("text,tags", text, tags))
    assert settings(resolved, "labels", "label_separator") == {"labels": "tags", "label_separator": separator}
    assert resolved.guesses[2] == f'label_separator = "{separator}": several labels in one cell: task multi'
    told = resolve(write("text,tags", text, tags), [f"data.label_separator={separator}"])
    assert told.guesses[1] == resolved.guesses[1] == f'labels = "tags": its name; {len(TOPICS)} labels in 40 rows'


@pytest.mark.parametrize(
    "labels",
    [
        lambda row: f"{TOPICS[row % 4]}/{('new', 'old')[row // 4 % 2]}/{('a', 'b', 'c')[row // 8 % 3]}",
        lambda row: ("refund, partial", "refund, full", "none")[row % 3],
        lambda row: ("yes/no", "yes", "no", "n/a")[row % 4],
    ],
)
def test_labels_that_hold_a_separator_are_left_whole(write: Write, labels: Callable[[int], str]) -> None:
    assert resolve(write("text,label", text, labels)).spec.data.label_separator == ""


def test_a_list_of_labels_needs_no_separator(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    rows = [{"text": text(row), "labels": [t for t in TOPICS if (row + len(t)) % 3]} for row in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    resolved = resolve(str(path))
    assert settings(resolved, "text", "labels", "label_separator") == {
        "text": "text",
        "labels": "labels",
        "label_separator": "",
    }
    assert "4 labels in 40 rows" in resolved.guesses[1]


@pytest.mark.parametrize("join", ["', '", "','", "' '"])
def test_lists_that_are_written_out_are_told(write: Write, join: str) -> None:
    def tags(row: int) -> str:
        names = [name for number, name in enumerate(TOPICS) if row >> number & 1]
        return f"['{join.join(names)}']" if names else "[]"

    resolved = resolve(write("text,tags", text, tags))
    assert settings(resolved, "labels", "label_separator") == {"labels": "tags", "label_separator": "list"}
    assert resolved.guesses[1] == f'labels = "tags": its name; {len(TOPICS)} labels in 40 rows'
    assert resolved.guesses[2] == 'label_separator = "list": a list in each cell: task multi'


def test_one_cell_that_is_broken_does_not_hide_the_lists(write: Write) -> None:
    def tags(row: int) -> str:
        return "['billing'" if row == 20 else str([name for number, name in enumerate(TOPICS) if row >> number & 1])

    assert resolve(write("text,tags", text, tags)).spec.data.label_separator == "list"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("[]", ()),
        (" [ 'a' , \"b c\" ] ", ("a", "b c")),
        ('["it\'s", "x, y"]', ("it's", "x, y")),
        ("['a' 'b'\n 'c']", ("a", "b", "c")),
        ("[3, 27]", ("3", "27")),
        ("['a',]", ("a",)),
        (r"""['it\'s', "caf\u00e9", "\ud83d\ude00", "a\/b"]""", ("it's", "café", "😀", "a/b")),
        ("['a'", None),
        ("a, b", None),
        ("['a'b']", None),
        ("[1.5]", None),
        ("[['a']]", None),
        ("[{'a': 1}]", None),
        ("[None]", None),
        (r"['\x']", None),
        (r"['\ud83d']", None),
        ("[" + "'a'," * 5_000 + "]", None),
        ("[" + " " * 9_000, None),
        ("[__import__('os')]", None),
    ],
)
def test_a_list_is_read_as_python_json_and_numpy_write_it(cell: str, expected: tuple[str, ...] | None) -> None:
    assert parse_list(cell) == expected


@pytest.mark.parametrize("name", ["split", "usage", "Set"])
def test_a_split_column_is_guessed_by_name_and_values(write: Write, name: str) -> None:
    resolved = resolve(write(f"text,label,{name}", text, topic, lambda row: ("train", "dev", "test")[row % 3]))
    assert resolved.spec.data.split == name
    assert resolved.guesses[1] == f'split = "{name}": its values are dev, test, train'


def test_a_split_column_is_guessed_where_only_the_labels_are_named(write: Write) -> None:
    path = write("text,label,usage", text, topic, lambda row: ("train", "test")[row % 2])
    assert resolve(path, ["data.labels=label"]).spec.data.split == "usage"
    assert resolve(path, ["data.labels=label", "data.text=text"]).spec.data.split == ""


def test_a_column_called_split_with_other_values_gives_no_splits(write: Write) -> None:
    path = write("text,label,split", text, topic, lambda row: ("left", "right")[row % 2])
    resolved = resolve(path)
    assert resolved.spec.data.split == ""
    assert resolved.guesses[-1].startswith('split = "": the column "split" says left, right; data.split and data.split')
    meant = ["data.split_values.left=train", "data.split_values.right=test"]
    assert resolve(path, meant).spec.data.split == "split"


def test_a_split_column_with_one_word_that_nobody_knows_is_not_passed_over(write: Write) -> None:
    path = write("text,label,split", text, topic, lambda row: ("train", "dev", "holdout")[row % 3])
    assert resolve(path).spec.data.split == "split"


def test_the_columns_of_automl_files_are_known(write: Write, tmp_path: Path) -> None:
    path = write(None, lambda row: ("TRAIN", "TEST")[row % 2], text, topic)
    assert settings(resolve(path), "text", "labels", "split") == {"text": "text", "labels": "labels", "split": ""}
    json_path = tmp_path / "d.jsonl"
    json_path.write_text(
        "\n".join(
            json.dumps({"textContent": text(row), "classificationAnnotation": {"displayName": topic(row)}})
            for row in range(40)
        )
    )
    assert settings(resolve(str(json_path)), "text", "labels") == {"text": "text", "labels": "labels"}


@pytest.mark.parametrize(
    ("header", "column"),
    [
        ("id", lambda row: f"T-{row}"),
        ("customer_id", lambda row: row % 5),
        ("ticketId", lambda row: f"T-{row % 5}"),
        ("date", lambda row: f"2026-01-{row % 9 + 1:02}"),
        ("sent", lambda row: f"2026-01-{row % 9 + 1:02}"),
        ("sent", lambda row: f"{row % 9 + 1}.1.2026"),
        ("sent", lambda row: f"2026-01-0{row % 9 + 1}T10:00:00Z"),
        ("sent", lambda row: f"{row % 9 + 1}:30"),
        ("last_judgment", lambda row: f"10/2{row % 9}/15 23:24"),
        ("rating", lambda row: f"{row % 9 + 1}-May-12"),
        ("topic_created", lambda row: row % 5),
        ("note", lambda row: f"another text {row}"),
        ("constant", lambda row: "the same"),
    ],
)
def test_an_id_a_date_or_a_measure_is_never_guessed_as_the_label(
    write: Write, header: str, column: Callable[[int], object]
) -> None:
    with pytest.raises(SpecError, match=r"cannot tell which column of .* holds the labels") as caught:
        resolve(write(f"text,{header}", text, column))
    assert f"it has: text, {header}" in caught.value.message
    assert caught.value.hint == "say which: data.labels=COLUMN"
    path = write(f"text,{header},kind", text, column, topic)
    assert resolve(path).spec.data.labels == "kind"


def test_two_columns_that_would_do_are_not_chosen_between(write: Write) -> None:
    path = write("text,channel,product", text, topic, lambda row: "abc"[row % 3])
    with pytest.raises(SpecError, match="it could be channel or product") as caught:
        resolve(path)
    assert caught.value.hint == "say which: data.labels=channel"
    assert resolve(path, ["data.labels=product"]).spec.data.labels == "product"


def test_what_is_known_about_a_row_is_named_beside_the_guess(write: Write) -> None:
    resolved = resolve(write("text,channel,country", text, topic, lambda row: "abc"[row % 3]))
    assert resolved.spec.data.labels == "channel"
    assert resolved.guesses[1].endswith("; it could be country as well (data.labels=COLUMN)")


def test_three_texts_of_one_name_are_no_pair(write: Write) -> None:
    path = write("choice1,choice2,choice3,label", text, lambda row: text(row + 1), lambda row: text(row + 2), topic)
    with pytest.raises(SpecError, match="it could be choice1 or choice2 or choice3"):
        resolve(path)


def test_the_plainest_names_come_first(write: Write) -> None:
    path = write("text,description,category,label", text, lambda row: f"{text(row)} {text(row + 1)}", topic, topic)
    assert settings(resolve(path), "text", "labels") == {"text": "text", "labels": "label"}


def test_numbers_with_decimals_are_said_to_be_no_classes(write: Write) -> None:
    with pytest.raises(SpecError, match="score holds numbers with decimals, which are no classes"):
        resolve(write("text,score", text, lambda row: f"{row % 5}.5"))
    assert resolve(write("text,score", text, lambda row: f"{row % 5}.0")).spec.data.labels == "score"


@pytest.mark.parametrize("name", ["weight", "score", "toxicity"])
@pytest.mark.parametrize("value", [lambda row: f"{row % 5}.5", lambda row: f"0.{row + 101}"])
def test_beside_a_text_numbers_with_decimals_are_to_be_made_classes(
    write: Write, name: str, value: Callable[[int], str]
) -> None:
    with pytest.raises(SpecError, match=rf"d\.csv: {name} holds numbers with decimals, which are no classes") as caught:
        resolve(write(f"text,{name}", text, value))
    assert caught.value.hint.startswith("make a column of classes from them first")
    if name != "score":  # which is as likely the label, by its name
        assert resolve(write(f"text,{name},kind", text, value, topic)).spec.data.labels == "kind"


def test_a_label_with_decimals_is_named_beside_the_guess(write: Write) -> None:
    resolved = resolve(write("text,sentiment_score,target", text, lambda row: f"0.{row + 101}", topic))
    assert resolved.guesses[1].endswith("it could be sentiment_score as well (data.labels=COLUMN)")


def test_a_column_of_dates_or_one_value_is_no_rival_of_labels(write: Write) -> None:
    columns = (lambda row: f"2026-01-0{row % 9 + 1}", lambda row: "always", topic)
    assert resolve(write("text,label,category,kind", text, *columns)).spec.data.labels == "kind"


def test_a_name_does_not_speak_for_a_column_of_nearly_one_value(write: Write) -> None:
    def almost(row: int) -> str:
        return "approved" if row % 100 else "open"

    with pytest.raises(SpecError, match="it could be last_rating or kind"):
        resolve(write("text,last_rating,kind", text, almost, topic, rows=200))


@pytest.mark.parametrize("beside", ["gender:confidence", "gender_confidence"])
def test_a_column_with_its_confidence_beside_it_is_the_label(write: Write, beside: str) -> None:
    columns = (lambda row: ("male", "female")[row % 2], lambda row: ("1", "0.66")[row % 2], topic)
    resolved = resolve(write(f"text,gender,{beside},channel", text, *columns))
    assert resolved.guesses[1].startswith('labels = "gender": its confidence stands beside it; 2 labels in 40 rows')


def test_a_gold_column_that_is_filled_is_not_passed_over(write: Write) -> None:
    path = write("text,kind,kind_gold", text, topic, lambda row: TOPICS[row % 3])
    with pytest.raises(SpecError, match="it could be kind_gold or kind"):
        resolve(path)


def test_several_flags_are_asked_about(write: Write) -> None:
    flags = (lambda row: "tf"[row % 2], lambda row: row, lambda row: "tf"[row % 3 % 2])
    with pytest.raises(SpecError, match="it could be isOpen or hasLogo"):
        resolve(write("text,isOpen,n,hasLogo", text, *flags))


def test_tags_and_objects_are_said_to_be_no_names(write: Write) -> None:
    def objects(row: int) -> str:
        return f"[{{'id': {row % 4}, 'name': '{topic(row)}'}}]"

    with pytest.raises(SpecError, match="genres holds tags or objects in each cell, which are no names of labels"):
        resolve(write("text,genres", text, objects))
    with pytest.raises(SpecError, match="labels holds tags or objects"):
        resolve(write("id,text,labels", lambda row: row, text, lambda row: f"<{topic(row)}><{topic(row + 1)}>"))


def test_two_texts_without_names_are_asked_for_as_a_pair(write: Write) -> None:
    path = write(None, text, lambda row: text(row + 3), lambda row: row % 2)
    with pytest.raises(SpecError, match="it could be column_1 or column_2") as caught:
        resolve(path)
    assert caught.value.hint.endswith('or both as a pair: data.text=["column_1","column_2"]')
    assert resolve(path, ['data.text=["column_1","column_2"]']).spec.data.labels == "column_3"


def test_the_labels_of_a_large_sorted_file_are_seen(write: Write) -> None:
    def long_text(row: int) -> str:
        return f"{text(row)}, and then some more of it; it goes on\nand ends here at last"

    path = write("what,outcome", long_text, lambda row: TOPICS[row // 5_000], rows=20_000)
    assert Path(path).stat().st_size > 1 << 20
    assert resolve(path).guesses[1].startswith('labels = "outcome": few and short values; 4 labels in ')


def test_a_file_without_any_text_says_so(write: Write) -> None:
    with pytest.raises(SpecError, match="holds the text") as caught:
        resolve(write("a,b", lambda row: row, lambda row: row % 2))
    assert caught.value.hint == "say which: data.text=COLUMN"


def test_a_file_without_rows_says_so(write: Write) -> None:
    with pytest.raises(DataError, match="has a header and no rows"):
        resolve(write("text,label", rows=0))


def test_a_file_of_bad_rows_names_them(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("text,label\nonly one\nand another\n")
    with pytest.raises(DataError, match="2 bad rows") as caught:
        resolve(str(path))
    assert f"{path}:2: 1 field where 2 are expected" in caught.value.message


def test_lines_without_labels_say_so(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text("".join(f"{text(row)}\n" for row in range(30)))
    with pytest.raises(SpecError, match="holds the labels; it has: text"):
        resolve(str(path))


def test_what_is_named_is_not_guessed(write: Write) -> None:
    path = write("id,text,label", lambda row: row, text, topic)
    assert resolve(path, ["data.text=label", "data.labels=id"]).guesses == ()
    assert resolve(path, ["data.labels=label"]).guesses == ('text = "text": its name',)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_a_tiny_file_with_the_usual_names_is_enough(write: Write, rows: int) -> None:
    assert resolve(write("text,label", text, topic, rows=rows)).spec.data.labels == "label"


def test_a_wrong_setting_and_a_missing_column_are_listed_together(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write("review,sentiment,date", text, topic, lambda row: row, name="reviews.csv")
    Path("tagline.toml").write_text(
        '[data]\ntrain = "reviews.csv"\ntext = "review"\nlabels = "sentimant"\n[training]\nlearning_rat = 1e-4\n'
    )
    with pytest.raises(SpecError) as caught:
        resolve("tagline.toml")
    assert caught.value.message == (
        "tagline.toml has 2 problems:\n"
        "  training.learning_rat: no such setting; did you mean learning_rate?\n"
        '  data.labels: reviews.csv has no column "sentimant"; it has: review, sentiment, date'
    )


def test_columns_are_looked_for_in_every_file(write: Write) -> None:
    first = write("text,label,part", text, topic, lambda row: "train", name="a.csv")
    second = write("text,lable", text, topic, name="b.csv")
    with pytest.raises(SpecError) as caught:
        resolve(first, ["data.text=text", "data.labels=label", "data.split=prt", f"data.test={second}"])
    assert caught.value.problems == (
        f'data.split: {first} has no column "prt"; it has: text, label, part',
        f'data.labels: {second} has no column "label"; it has: text, lable',
    )


def test_a_missing_file_is_named_among_the_other_problems(tmp_path: Path) -> None:
    missing = tmp_path / "no.csv"
    with pytest.raises(DataError, match="there is no file"):
        resolve(str(missing))
    with pytest.raises(SpecError) as caught:
        resolve(str(missing), ["training.epochs=0"])
    assert caught.value.problems == (
        'training.epochs: must be at least 1 or "auto", not 0',
        f"data: there is no file {missing}",
    )


def test_an_encoding_in_doubt_is_said_with_the_guesses(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(("text,label\n" + "plain words,a\nhow naïve,b\n").encode("latin-1"))
    doubt = resolve(str(path)).guesses[0]
    assert "is read as latin-1 (how naïve,b); it could be cp1250 (how naďve,b) or " in doubt
    assert doubt.endswith(": data.encoding=cp1250")
    assert len(resolve(str(path), ["data.encoding=latin-1"]).guesses) == 2


def test_a_data_file_and_its_overrides_make_a_spec(write: Write) -> None:
    path = write("text,label", text, topic)
    assert resolve(path, ["training.seed=7"]).spec.training.seed == 7
    with pytest.raises(SpecError, match=r"the spec for .*d\.csv has 1 problem"):
        resolve(path, ["training.sede=7"])
