"""The commands as a person or a program calls them."""

import csv
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from python_processes import run_python, start_python
from tagline import registry
from tagline.prediction import files
from tagline.runs.lookup import list_runs
from tagline.runs.run import Run

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
QUICK = ("model.family=linear", "model.max_features=800", "model.strength=4.0", "model.characters=0")
Command = Callable[..., Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a single-label, a multi-label and a pair run in it."""
    directory = tmp_path_factory.mktemp("place")
    for name in ("messages.csv", "messages-multi.csv", "pairs.csv"):
        run_python("-m", "tagline", "train", SUPPORT / name, *QUICK, "--runs", name, cwd=directory, check=True)
    return directory


def test_train_says_what_it_guessed_what_it_reached_and_what_to_do_next(tagline: Command) -> None:
    done = tagline("train", SUPPORT / "messages.csv", *QUICK)
    assert done.code == 0
    assert 'guessed text = "message": its name' in done.err
    assert 'guessed labels = "topic"' in done.err
    assert "validation macro_f1" in done.err
    assert "accuracy" in done.out
    assert "praise" in done.out
    assert "try it   tagline predict runs/" in done.out


def test_with_json_standard_output_is_one_document(tagline: Command) -> None:
    document = tagline("train", SUPPORT / "pairs.csv", *QUICK, "--json").json
    report = document["report"]
    assert report["task"] == "single"
    assert report["splits"].keys() == {"train", "validation", "test"}
    assert {"accuracy", "macro_f1", "micro_f1", "weighted_f1", "per_label"} <= report["test"].keys()
    assert {"precision", "recall", "f1", "support", "accuracy"} <= report["test"]["per_label"]["misses"].keys()
    assert Path(document["bundle"]).name == "bundle"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["trian"], 2, "No such command 'trian'"),
        (["train"], 2, "one of them"),
        (["train", "nowhere.csv"], 3, "there is no file nowhere.csv"),
        (["train", "nowhere.toml"], 2, "there is no spec nowhere.toml"),
        (["train", SUPPORT / "pairs.csv", "epochs=3"], 2, 'cannot understand "epochs=3"'),
        (["train", SUPPORT / "pairs.csv", "training.epochs=0"], 2, "training.epochs: must be at least 1 or"),
        (["train", SUPPORT / "pairs.csv", "model.family=oracle"], 2, 'no family "oracle"; there are: encoder'),
        (["train", "--resume", "nothing"], 4, "there is no run nothing"),
        (["predict", "nothing", "text"], 4, "there is no run or bundle nothing"),
        (["evaluate", "nothing", "data.csv"], 4, "there is no run or bundle nothing"),
        (["predict", "lasst", "text"], 4, "there is no run or bundle lasst; did you mean last?"),
        (["runs", "show", "last"], 4, "there is no run in runs"),
        (["train", "gs://bucket/data.csv"], 5, "needs Google credentials"),
        (["check", "hf://glue/mnli"], 5, "the package datasets"),
        (["predict"], 2, "Missing argument"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_code_a_sentence_and_a_next_step(
    tagline: Command, arguments: list[str], code: int, said: str
) -> None:
    plain, as_json = tagline(*arguments), tagline(*arguments, "--json")
    assert plain.code == as_json.code == code
    assert said in plain.err
    assert plain.out == ""
    error = as_json.json["error"]
    assert said in error["message"]
    assert error["exit_code"] == code
    assert "next: " in plain.err or " has 1 problem:" in plain.err


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = run_python("-m", "tagline", "train", "nowhere.csv", "--debug", cwd=tmp_path, text=True)
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert "error: there is no file nowhere.csv" in done.stderr


def test_a_bug_of_ours_is_called_one(tmp_path: Path) -> None:
    code = (
        "import sys, tagline.data.columns; tagline.data.columns.resolve = lambda *_: 1 / 0;"
        "from tagline.cli import run; sys.exit(run(['train', 'x.csv']))"
    )
    done = run_python("-c", code, cwd=tmp_path, text=True, is_forked=False)  # nothing may have imported it before
    assert done.returncode == 70
    assert "this is a bug in Tagline: ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr


def test_predict_answers_arguments_lines_and_files_alike(place: Path, tagline: Command, tmp_path: Path) -> None:
    texts = ["Where is my parcel?", "I was charged twice this month"]
    single = ["predict", "last", "--runs", "messages.csv"]
    from_arguments = tagline(*single, *texts, "--json", cwd=place).json
    from_lines = tagline(*single, "--json", stdin="\n".join(texts) + "\n", cwd=place).json
    (tmp_path / "in.csv").write_text('id,message\n1,"Where is my parcel?"\n2,I was charged twice this month\n')
    done = tagline(*single, "--input", tmp_path / "in.csv", "--output", tmp_path / "out.jsonl", cwd=place)
    assert done.code == 0, done.err
    from_file = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert from_arguments == from_lines
    assert [{k: v for k, v in row.items() if k not in ("id", "message")} for row in from_file] == from_arguments
    assert [row["id"] for row in from_file] == ["1", "2"]
    assert from_arguments[0].keys() == {"label", "score", "scores"}
    assert from_arguments[0]["label"] == "delivery"


def test_predict_with_several_labels(place: Path, tagline: Command) -> None:
    text = "You charged me twice and the parcel is still missing"
    answer = tagline("predict", "last", "--runs", "messages-multi.csv", text, "--json", cwd=place).json[0]
    assert answer.keys() == {"labels", "scores"}
    assert set(answer["labels"]) <= set(answer["scores"])


def test_predict_pairs_two_by_two(place: Path, tagline: Command) -> None:
    pairs = ["predict", "last", "--runs", "pairs.csv"]
    assert len(tagline(*pairs, "Is it blue?", "Yes.", "Why?", "It rains.", "--json", cwd=place).json) == 2
    for texts in (["Is it blue?"], ["Is it blue?", "Yes.", "Why?"]):
        odd = tagline(*pairs, *texts, cwd=place)
        assert odd.code == 2
        assert "the last text has no second" in odd.err
        assert not odd.out, "it is known before anything is answered"


def test_predict_gives_a_text_a_line_whatever_its_label_holds(tagline: Command, tmp_path: Path) -> None:
    rows = "".join(f'word0 number {n},"two\nlines"\nword1 number {n},plain\n' for n in range(20))
    (tmp_path / "in.csv").write_text(f"text,label\n{rows}")
    assert tagline("train", "in.csv", *QUICK, cwd=tmp_path).code == 0
    printed = tagline("predict", "last", "word0", "word1", cwd=tmp_path).out.splitlines()
    assert [line.split("  ")[0] for line in printed] == ["two⏎lines", "plain"]


def test_predict_a_text_that_looks_like_an_option(place: Path, tagline: Command) -> None:
    done = tagline("predict", "last", "--runs", "messages.csv", "--json", "--", "--json is broken", cwd=place)
    assert len(done.json) == 1


def test_predict_reads_no_terminal(place: Path) -> None:
    """Without texts on a terminal it says what to do instead of waiting for ever."""
    _, terminal = pty.openpty()
    command = ("-m", "tagline", "predict", "last", "--runs", "messages.csv")
    done = run_python(*command, cwd=place, stdin=terminal, text=True)
    os.close(terminal)
    assert done.returncode == 2
    assert "no text to answer" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(place: Path) -> None:
    command = f"yes 'Where is my parcel?' | head -50000 | {sys.executable} -m tagline predict last --runs messages.csv"
    done = subprocess.run(f"{command} | head -1", cwd=place, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("delivery")
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error_of_the_place(tmp_path: Path) -> None:
    done = {
        where: subprocess.run(
            f"{sys.executable} -m tagline info {where}",
            shell=True,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        for where in ("> /dev/full", ">&-")
    }
    assert done["> /dev/full"].returncode == 5
    assert "cannot write the output: No space left on device" in done["> /dev/full"].stderr
    assert (done[">&-"].returncode, done[">&-"].stderr) == (0, "")


def test_evaluate_measures_other_data(place: Path, tagline: Command, tmp_path: Path) -> None:
    done = tagline("evaluate", "last", SUPPORT / "messages.csv", "--runs", "messages.csv", "--json", cwd=place)
    report = done.json
    assert report["splits"] == {"test": 769}
    assert report["test"]["accuracy"] > 0.8
    (tmp_path / "other.jsonl").write_text('{"body": "Where is my parcel?", "what": "delivery"}\n')
    renamed = ["data.text=body", "data.labels=what"]
    other = ["evaluate", "last", tmp_path / "other.jsonl", "--runs", "messages.csv"]
    again = tagline(*other, *renamed, "--json", cwd=place)
    assert again.json["test"]["accuracy"] == 1.0
    lacking = tagline(*other, cwd=place)
    assert lacking.code == 2
    assert 'has no column "message"; it has: body, what' in lacking.err


def test_evaluate_measures_every_row_whatever_splits_the_file_names(
    place: Path, tagline: Command, tmp_path: Path
) -> None:
    (tmp_path / "items.csv").write_text("TEST,Where is my parcel?,delivery\nTEST,I was charged twice,billing\n")
    columns = ["data.text=text", "data.labels=labels"]
    done = tagline("evaluate", "last", tmp_path / "items.csv", *columns, "--runs", "messages.csv", "--json", cwd=place)
    assert done.json["splits"] == {"test": 2}
    assert done.json["test"]["accuracy"] == 1.0


def test_evaluate_says_when_it_is_given_the_training_data(place: Path, tagline: Command) -> None:
    done = tagline("evaluate", "last", SUPPORT / "messages.csv", "--runs", "messages.csv", cwd=place)
    assert "this is the data that the bundle was trained on" in done.err


def test_a_directory_that_is_no_run_is_not_deleted(tagline: Command, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "state.json").write_text("{}")
    assert tagline("runs", "delete", "project", "--yes").code == 4
    assert (tmp_path / "project" / "state.json").exists()


def test_a_damaged_run_is_listed_beside_the_others(tagline: Command, tmp_path: Path) -> None:
    for _ in range(2):
        tagline("train", SUPPORT / "pairs.csv", *QUICK)
    first = sorted((tmp_path / "runs").iterdir())[0]
    (first / "state.json").write_text("{")
    listed = tagline("runs", "list", "--json")
    assert [entry["state"] for entry in listed.json] == ["failed", "succeeded"]
    assert "is damaged" in listed.json[0]["reason"]


def test_answers_come_as_texts_come(place: Path) -> None:
    command = [sys.executable, "-u", "-m", "tagline", "predict", "last", "--runs", "messages.csv"]
    with subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("Where is my parcel?", "Where is it?"):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            if text == "Where is my parcel?":
                assert process.stdout.readline().startswith("delivery")


def test_evaluate_names_labels_that_the_bundle_does_not_have(place: Path, tagline: Command, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("message,topic\nhello,praise\nhi,weather\n")
    done = tagline("evaluate", "last", tmp_path / "odd.csv", "--runs", "messages.csv", cwd=place)
    assert done.code == 0
    assert 'the bundle has no label "weather": no answer to 1 row (' in done.err
    assert "odd.csv:3) can be right" in done.err
    (tmp_path / "odd.csv").write_text("message,topic\nhello,sun\nhi,weather\n")
    done = tagline("evaluate", "last", tmp_path / "odd.csv", "--runs", "messages.csv", cwd=place)
    assert done.code == 3
    assert "odd.csv is one of the bundle: it has sun, weather; the bundle has" in done.err


def test_runs_are_listed_shown_and_deleted(tagline: Command) -> None:
    assert "no run in runs" in tagline("runs", "list").out
    assert tagline("runs", "list", "--json").json == []
    tagline("train", SUPPORT / "pairs.csv", *QUICK)
    [entry] = tagline("runs", "list", "--json").json
    assert entry["state"] == "succeeded"
    assert entry["family"] == "linear"
    assert entry["name"] in tagline("runs", "list").out
    assert "macro_f1" in tagline("runs", "show").out
    assert tagline("runs", "show", "last", "--json").json["lock"]["seed"] == 42
    refused = tagline("runs", "delete", entry["name"])
    assert refused.code == 2
    assert "add --yes" in refused.err
    assert tagline("runs", "delete", entry["name"], "--yes").code == 0
    assert tagline("runs", "list", "--json").json == []


def test_last_is_the_newest_run_with_a_bundle_and_it_is_said(tagline: Command, tmp_path: Path) -> None:
    tagline("train", SUPPORT / "messages.csv", *QUICK)
    [trained] = list_runs(tmp_path / "runs")
    quiet = tagline("predict", "last", "Where is my parcel?")
    assert (quiet.code, quiet.err) == (0, "")
    failed = Run.create(tmp_path / "runs", trained.spec(), trained.lock())
    failed.set_state("failed", reason="the disk is full")
    answered = tagline("predict", "last", "Where is my parcel?")
    assert (answered.code, answered.out) == (0, quiet.out)
    assert answered.err == (
        f"last is {trained.name}, the newest run with a bundle; newer ones have none: {failed.name} (failed)\n"
    )
    assert failed.name in tagline("runs", "show", "last").out


def test_info_is_for_a_bug_report(tagline: Command) -> None:
    facts = tagline("info", "--json").json
    assert facts["families"] == registry.list_names("models")
    assert facts["versions"]["torch"].startswith("2.13.0")
    assert "tagline" in tagline("info").out


@pytest.mark.parametrize("command", ["init", "check", "train", "evaluate", "predict", "info", "runs list", "runs show"])
def test_every_command_takes_json_and_debug(tagline: Command, command: str) -> None:
    help_text = tagline(*command.split(), "--help").out
    assert "--json" in help_text
    assert "--debug" in help_text


def test_on_a_terminal_there_is_a_bar_and_elsewhere_plain_lines(tmp_path: Path) -> None:
    command = ("-m", "tagline", "train", SUPPORT / "pairs.csv", *QUICK)
    ours, theirs = pty.openpty()
    process = start_python(*command, cwd=tmp_path, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the other end was closed: the process has ended
            break
    os.close(ours)
    assert process.wait() == 0
    assert b"\x1b[" in shown
    plain = run_python(*command, cwd=tmp_path, check=True)
    assert b"\x1b[" not in plain.stderr + plain.stdout
    assert b"step 8/8" in plain.stderr


KILLED = """
import os, signal, sys
from tagline.cli import console
from tagline.cli import run
show, parts = console.RowProgress.show, 0
def show_and_die(progress, event):
    global parts
    show(progress, event)
    parts += event["event"] == "part"
    if parts == 2:
        os.kill(os.getpid(), signal.SIGKILL)
console.RowProgress.show = show_and_die
sys.exit(run(sys.argv[1:]))
"""
"""Runs a command that is killed when two parts of a file are answered."""


def test_predict_killed_goes_on_without_losing_or_repeating_a_row(
    tagline: Command, place: Path, tmp_path: Path
) -> None:
    rows = 12 * files.ROWS_A_PART
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("id,message\n" + "".join(f"{n},where is parcel {n % 1000}\n" for n in range(rows)))
    bundle = next((place / "messages.csv").glob("*/bundle"))
    words = ["predict", bundle, "--input", source, "--output", output]
    killed = subprocess.run([sys.executable, "-c", KILLED, *words, "--workers", "2"], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    parts = tmp_path / "out.csv.parts"
    assert not output.exists(), "it was stopped half-way"
    done = tagline(*words)
    assert "going on with what was answered before" in done.err
    with output.open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == [str(n) for n in range(rows)]
    assert not parts.exists()
