"""What a person sees cannot be turned against them, and lines up."""

import json
import re
from pathlib import Path

import pytest

from tagline.cli import console, run
from tagline.errors import DataError, Interrupted
from tagline.runs.events import EvaluationEvent

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys; line feeds and tabs are harmless."""


def test_names_and_labels_from_a_file_cannot_reach_the_terminal_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "evil\x1b[31m.csv"
    rows = "".join(f"good thing {i},yes\x9b\nbad thing {i},no\u202e\n" for i in range(12))
    Path(name).write_text(f"te\x1bxt,label\n{rows}")
    for command in (
        ["check", name],
        ["train", name, "model.family=linear"],
        ["runs", "show"],
        ["predict", "last", "a good\x1b[2J thing"],
    ):
        assert run(command) == 0, command
        printed = capsys.readouterr()
        assert not OBEYED.search(printed.out + printed.err), command
    assert run(["predict", "last", "good", "--json"]) == 0
    printed = capsys.readouterr().out
    assert not OBEYED.search(printed)
    assert json.loads(printed)[0]["label"] == "yes\x9b"


def test_in_a_job_an_error_and_its_hint_stay_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_ML_JOB_ID", "17")
    console.say("going on")
    console.show_error(DataError("no row", hint="add one"), as_json=False, debug=False)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("going on\n", "error: no row\nnext: add one\n")


def test_an_error_is_what_and_where_then_the_next_thing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code = console.show_error(DataError("no row", hint="add one"), as_json=True, debug=False)
    printed = capsys.readouterr()
    assert printed.err == "error: no row\nnext: add one\n"
    assert json.loads(printed.out) == {
        "error": {"type": "DataError", "message": "no row", "hint": "add one", "exit_code": 3}
    }
    assert code == 3


def test_a_stop_is_not_called_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.show_error(Interrupted("told to stop", signal_number=15), as_json=False, debug=False) == 143
    assert console.show_error(KeyboardInterrupt(), as_json=False, debug=False) == 130
    assert capsys.readouterr().err == "stopped: told to stop\nstopped: interrupted\n"


def test_a_terminal_does_not_cut_words_and_elsewhere_a_sentence_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "get_terminal_width", lambda: 24)
    sentence = "Label more test rows: 日本語 are as wide as two, and evenalongwordstayswhole."
    console.out_sentence(sentence, lead="next   ")
    assert capsys.readouterr().out == f"next   {sentence}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    console.out_sentence(sentence, lead="next   ")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "next   Label more test",
        "       rows: 日本語 are",
        "       as wide as two,",
        "       and",
        "       evenalongwordstayswhole.",
    ]
    console.out_sentence("accuracy 0.9 (0.8-1.0)  macro_f1 0.7", between="  ")
    assert capsys.readouterr().out == "accuracy 0.9 (0.8-1.0)\nmacro_f1 0.7\n"


def test_tables_line_up_with_wide_characters(capsys: pytest.CaptureFixture[str]) -> None:
    console.out_table(("label", "rows"), [("日本", "1"), ("ab", "20")], right=(1,))
    assert capsys.readouterr().out == "label  rows\n日本      1\nab       20\n"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 10, "short"),
        ("a longer text", 8, "a longe…"),
        ("日本語です", 5, "日本…"),
        ("two\nlines", 20, "two⏎lines"),
    ],
)
def test_texts_are_shortened_to_columns(text: str, width: int, shown: str) -> None:
    assert console.shorten_text(text, width) == shown


@pytest.mark.parametrize(
    ("best", "gain", "said"),
    [(True, True, "  (kept)"), (True, False, "  (kept: as good within chance, and later)"), (False, False, "")],
)
def test_why_a_model_is_kept_is_said(best: bool, gain: bool, said: str) -> None:
    event = EvaluationEvent(monitor="macro_f1", value=0.4958, step=292, best=best, gain=gain)
    assert console._format_event(event) == f"validation macro_f1 0.4958 at step 292{said}"
