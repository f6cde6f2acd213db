"""Files and names that mean harm, through whole commands: a clear error or correct handling, never a traceback."""

import gzip
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tagline import cli

SMALL = ("model.family=linear", "model.max_features=500", "model.strength=4.0", "model.characters=0")
ROWS = [("where is my parcel", "delivery"), ("you charged me twice", "billing")]
CSV = "text,label\n" + "".join(f"{text} number {i},{label}\n" for i in range(30) for text, label in ROWS)
JSONL = "".join(json.dumps({"text": f"{t} {i}", "label": name}) + "\n" for i in range(30) for t, name in ROWS)
ESCAPE = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e"
DEEP = '{"text": "x", "label": ' + "[" * 200_000 + "]" * 200_000 + "}\n"
BEYOND_UTF_8 = os.fsdecode(b"caf\xe9.csv")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command line here, in an empty directory; returns code, output and errors. Never a bug of ours."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.run(list(map(str, arguments)))
        out, err = capfd.readouterr()
        assert code != 70, err
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle trained on a few rows."""
    directory = tmp_path_factory.mktemp("trained")
    (directory / "data.csv").write_text(CSV)
    assert cli.run(["train", str(directory / "data.csv"), *SMALL, "--runs", str(directory / "runs")]) == 0
    return next((directory / "runs").iterdir())


def make(directory: Path, name: str, content: str | bytes) -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def raw_controls(text: str) -> set[str]:
    """Characters that would make a terminal do something."""
    return {c for c in text if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f" or c in "\u202a\u202e\u2066"}


NO_DATA: dict[str, tuple[str | bytes, str]] = {
    "empty.csv": ("", "is empty"),
    "blank.csv": ("\n\n \n\r\n", "is empty"),
    "mark.csv": (b"\xef\xbb\xbf", "is empty"),
    "zeros.csv": (b"\0" * 100_000, "not text"),
    "binary.csv": (bytes(range(256)) * 100, "not text"),
    "binary": (bytes(range(254, -1, -1)) * 100, "not text"),
    "book.xlsx": (b"PK\x03\x04", "zip or Excel"),
    "cut.csv.gz": (gzip.compress(CSV.encode())[:-30], "damaged gzip"),
    "fake.csv.gz": (b"\x1f\x8b" + b"no gzip at all", "damaged gzip"),
    "fake.parquet": (CSV, "not a readable Parquet"),
    "array.json": ("[" + JSONL.replace("\n", ",")[:-1] + "]", "JSON array"),
    "deep.json": (DEEP, "nested too deeply"),
}


@pytest.mark.parametrize("name", NO_DATA)
def test_a_file_that_holds_no_data_is_named_with_a_next_step(
    name: str, command: Command, bundle: Path, tmp_path: Path
) -> None:
    content, reason = NO_DATA[name]
    make(tmp_path, name, content)
    for arguments in (["check", name], ["train", name], ["predict", str(bundle), "--input", name]):
        code, out, err = command(*arguments)
        assert (code, out) == (3, "")
        assert f"error: {name}" in err
        assert reason in err
        assert "next: " in err
    assert [path.name for path in tmp_path.iterdir()] == [name], "nothing else was written"


BAD_ROWS: dict[str, tuple[str, int, str]] = {
    "deep.jsonl": (JSONL + DEEP, 61, "nested too deeply"),
    "number.jsonl": (JSONL + '{"text": "x", "label": ' + "9" * 5000 + "}\n", 61, "digits"),
    "cut.jsonl": (JSONL + '{"text": "x", "la', 61, "not JSON"),
    "ragged.csv": (CSV + '"two\nlines",billing\nx,y,z\n', 64, "3 fields where 2 are expected"),
    "open.csv": (CSV + '"x,billing\n' + "more,billing\n" * 3, 62, "never closed"),
    "escape.csv": (CSV + f"{ESCAPE}\n", 62, "1 field"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_named_by_file_and_line_and_may_be_skipped(
    name: str, command: Command, bundle: Path, tmp_path: Path
) -> None:
    content, line, reason = BAD_ROWS[name]
    make(tmp_path, name, content)
    for arguments in (["check", name], ["train", name], ["predict", str(bundle), "--input", name]):
        code, _, err = command(*arguments)
        assert code == 3
        assert f"  {name}:{line}: " in err
        assert reason in err
        assert not raw_controls(err)
    code, out, err = command("check", name, "data.bad_rows=skip")
    assert code == 0
    assert f"1 row skipped: {name}:{line}: " in err
    assert "ready to train" in out
    assert [path.name for path in tmp_path.iterdir()] == [name], "nothing else was written"
    code, _, err = command("predict", str(bundle), "--input", name, "--output", "o.csv")
    assert code == 0
    assert "1 row could not be read: o.csv.bad.jsonl says where and why" in err
    listed = json.loads((tmp_path / "o.csv.bad.jsonl").read_text())
    assert (listed["file"], listed["line"]) == (name, line)
    assert reason in listed["reason"]


FINE: dict[str, str | bytes] = {
    "long-line.csv": CSV + "x" * 10_000_000 + ",billing\n",
    "long-word.csv": CSV + "é" * 5_000_000 + ",billing\n",
    "zero-bytes.csv": CSV + "ze\0ro,billing\n\0,delivery\n",
    "escapes.csv": CSV + f'"{ESCAPE}",billing\n',
    "halves.jsonl": JSONL + '{"text": "half \\ud800", "label": "delivery", "\\udfff": "\\udc00"}\n' * 12,
    "twice.jsonl": JSONL + '{"text": "a", "text": "b", "label": "billing"}\n',
    "numbers.jsonl": JSONL + '{"text": NaN, "label": "billing"}\n{"text": ' + "9" * 400 + ', "label": "billing"}\n',
    "nested.jsonl": JSONL + '{"text": "x", "label": "billing", "meta": {"deep": [1, {"er": null}]}}\n',
    "columns.csv": f"text,label,{','.join(f'c{i}' for i in range(9_998))}\n"
    + "".join(f"{text} {i},{label}{',7' * 9_998}\n" for i in range(10) for text, label in ROWS),
    "keys.csv": CSV.replace("text,label", "data.train,model.family"),
    "nameless.csv": CSV.replace("text,label", ","),
    "with space.csv": CSV,
    'it\'s "quoted".csv': CSV,
    "[x].csv": CSV,
    "$(touch harm).csv": CSV,
    "ünï 名.csv": CSV,
    "zipped": gzip.compress(CSV.encode()),
}


@pytest.mark.parametrize("name", FINE)
def test_odd_but_readable_files_are_checked_and_answered(
    name: str, command: Command, bundle: Path, tmp_path: Path
) -> None:
    make(tmp_path, name, FINE[name])
    make(tmp_path, "x.csv", "nothing,like\nthe,other\n")  # what [x].csv would match as a pattern
    code, out, err = command("check", name)
    assert code == 0, err
    assert "ready to train" in out
    assert not raw_controls(out + err)
    text = "data.train" if name == "keys.csv" else "column_1" if name == "nameless.csv" else "text"
    code, _, err = command("predict", bundle, "--input", name, "--output", "out.jsonl", "--text", text)
    assert code == 0, err
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert {answer["label"] for answer in answers} == {"billing", "delivery"}
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", ["halves.jsonl", "zero-bytes.csv", "[x].csv", "keys.csv", 'it\'s "quoted".csv'])
def test_odd_but_readable_files_are_trained_on(name: str, command: Command, tmp_path: Path) -> None:
    make(tmp_path, name, FINE[name])
    code, _, err = command("train", name, *SMALL)
    assert code == 0, err
    run = next((tmp_path / "runs").iterdir())
    for document in ("report.json", "lock.json", "bundle/tagline.json"):
        json.loads((run / document).read_bytes())
    assert command("check", run / "spec.toml")[0] == 0, "the spec of the run can be used again"


LABELS = [
    "../../x", "/etc/passwd", "=cmd()", "two\nlines", "😀", "\u202eevil\u202c", ESCAPE, "a|b", "<script>x</script>",
    "__proto__", "x" * 3000, "null", "é" * 300,
]  # fmt: skip


def test_labels_that_mean_harm_are_only_names(command: Command, tmp_path: Path) -> None:
    inside = tmp_path / "deep" / "er"
    inside.mkdir(parents=True)
    rows = [
        {"text": f"text {i} about subject{kind}", "label": label} for i in range(8) for kind, label in enumerate(LABELS)
    ]
    make(inside, "data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = command("train", inside / "data.jsonl", *SMALL, "--runs", inside / "runs")
    assert code == 0, err
    run = next((inside / "runs").iterdir())
    assert sorted(json.loads((run / "report.json").read_bytes())["labels"]) == sorted(LABELS)
    for suffix in ("jsonl", "csv", "tsv", "parquet"):
        output = inside / f"out.{suffix}"
        assert command("predict", run, "--input", inside / "data.jsonl", "--output", output)[0] == 0
    answers = [json.loads(line) for line in (inside / "out.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert {answer["label"] for answer in answers} == set(LABELS)
    outside = {path for path in tmp_path.rglob("*") if inside not in path.parents}
    assert outside == {tmp_path / "deep", inside}, "no path outside the run"


NO_FILES = [
    ("folder.csv", 3, "is a directory"),
    ("loop.csv", 3, "symbolic links"),
    ("broken.csv", 3, "no file broken.csv"),
    ("missing.csv", 3, "no file missing.csv"),
    (os.devnull, 3, "is a device"),
    ("/dev/zero", 3, "is a device"),
    ("a" * 5000, 3, "too long"),
    (BEYOND_UTF_8, 3, "not UTF-8"),
    ("hf://glue/mnli", 5, "datasets"),
    ("gs://bucket/data.csv", 5, "needs Google credentials"),
    ("https://example.org/data.csv", 5, "not on this machine"),
]


@pytest.mark.parametrize(("path", "expected", "reason"), NO_FILES, ids=[reason for _, _, reason in NO_FILES])
def test_a_path_that_is_no_file_is_said_with_a_next_step(
    path: str,
    expected: int,
    reason: str,
    command: Command,
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "broken.csv").symlink_to("nowhere.csv")
    make(tmp_path, BEYOND_UTF_8, CSV)
    for arguments in (["check", path], ["train", path], ["predict", str(bundle), "--input", path], ["init", path]):
        code, out, err = command(*arguments)
        assert (code, out) == (expected, "")
        assert reason in err
        assert "next: " in err
    code, out, _ = command("check", path, "--json")
    error = json.loads(out)["error"]
    assert (code, error["exit_code"]) == (expected, expected)
    assert reason in error["message"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(command: Command, tmp_path: Path) -> None:
    make(tmp_path, "secret.csv", CSV).chmod(0)
    code, _, err = command("check", "secret.csv")
    assert (code, "Permission denied" in err) == (3, True)


def test_an_excel_file_is_told_from_text_whatever_its_name(command: Command, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.csv", "w") as book:
        book.writestr("xl/workbook.xml", "<workbook/>")
    code, _, err = command("check", "data.csv")
    assert (code, "export it as CSV" in err) == (3, True)


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ('data.separator="\\n"', 2),
        ("data.separator=ab", 2),
        ("data.encoding=hex", 2),
        ("data.encoding=utf-32", 3),
        ("data.encoding=utf-16-le", 3),
        ("data.format=parquet", 3),
        ("data.format=jsonl", 3),
        ("data.text=missing", 2),
    ],
)
def test_a_layout_that_does_not_fit_is_an_error(override: str, code: int, command: Command, tmp_path: Path) -> None:
    make(tmp_path, "data.csv", CSV)
    separated = [] if "data.separator" not in override else ["data.format=csv"]
    found, _, err = command("check", "data.csv", override, *separated, "data.labels=label")
    assert (found, "error: " in err) == (code, True), err


def test_a_file_that_grows_while_it_is_read_stops_the_run(command: Command, tmp_path: Path) -> None:
    path = make(tmp_path, "data.csv", CSV * 2000)
    stop = threading.Event()

    def grow() -> None:
        with path.open("a") as file:
            while not stop.is_set():
                file.write("late,billing\n")
                file.flush()

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        code, _, err = command("check", "data.csv")
    finally:
        stop.set()
        writer.join()
    assert code == 3
    assert "data.csv changed while it was being read" in err
    assert "next: try again" in err


def test_standard_input_is_checked_trained_on_and_answered(tagline: Callable[..., Any], tmp_path: Path) -> None:
    checked = tagline("check", "-", "--json", stdin=gzip.compress(CSV.encode()))
    assert (checked.code, checked.json["splits"]) == (0, {"train": 48, "validation": 6, "test": 6})
    trained = tagline("train", "-", *SMALL, "--json", stdin=JSONL)
    assert trained.code == 0, trained.err
    answered = tagline("predict", trained.json["run"], "--input", "-", "--json", stdin="id,text\n7,where is it\n")
    assert [(row["id"], row["text"]) for row in answered.json] == [("7", "where is it")]


@pytest.mark.parametrize("content", [b"", b"\n", b"\0" * 1000, b"\xff" * 100], ids=["none", "line", "zeros", "ff"])
def test_standard_input_with_nothing_in_it_is_an_error(content: bytes, tagline: Callable[..., Any]) -> None:
    result = tagline("check", "-", stdin=content)
    assert result.code in (2, 3)
    assert "next: " in result.err


def test_a_named_pipe_is_read_by_a_process(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "tagline", "check", pipe], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    pipe.write_text(CSV)
    out, _ = process.communicate(timeout=300)
    assert (process.returncode, "60 rows" in out) == (0, True)


def test_texts_that_mean_harm_are_answered(tagline: Callable[..., Any], bundle: Path) -> None:
    lines = [b"\xff\xfe odd bytes", b"zero\0byte", ESCAPE.encode(), b"x" * 1_000_000, b"\xed\xa0\x80 half"]
    result = tagline("predict", bundle, stdin=b"\n".join(lines))
    assert (result.code, len(result.out.split("\n"))) == (0, len(lines) + 1)
    assert not raw_controls(result.out)
