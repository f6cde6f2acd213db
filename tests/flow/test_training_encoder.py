"""Family encoder through whole commands, where something is wrong or odd: a clear error, or the right behaviour."""

import json
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tagline as library
from tagline import cli
from tagline.models.nn import devices
from tagline.reports import report
from tagline.runs.lookup import list_runs
from tagline.runs.run import Run
from tagline.storage.hashing import files_below

ROWS = [("where is my parcel", "delivery"), ("you charged me twice", "billing")]
CSV = "text,label\n" + "".join(f"{text} number {i},{label}\n" for i in range(30) for text, label in ROWS)
Train = Callable[..., tuple[int, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory but for the data, and the one that commands run in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(CSV)
    return tmp_path


@pytest.fixture
def command(place: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line; returns code, output and errors. Never a bug of ours, and nothing is left half-written."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = cli.run(list(map(str, arguments)))
        out, err = capfd.readouterr()
        assert code != 70, err
        assert "Traceback" not in err
        assert list(place.rglob(".tagline-*")) == []
        return code, out, err

    return run


@pytest.fixture
def train(command: Callable[..., tuple[int, str, str]], checkpoint: Callable[[str], Path]) -> Train:
    """Train the small BERT on data.csv; returns the code and what was said."""
    small = (f"model.pretrained={checkpoint('bert')}", "model.max_tokens=32", "model.freeze=none", "model.pooling=mean")
    quick = ("training.learning_rate=0.003", "training.epochs=2")

    def run(*settings: str | Path, data: str | Path = "data.csv") -> tuple[int, str]:
        code, _, err = command("train", data, *small, *quick, *settings)
        return code, err

    return run


def the_run(place: Path) -> Run:
    [run] = list_runs(place / "runs")
    return run


def report_of(run: Run) -> dict[str, Any]:
    report = run.report()
    assert report is not None
    return report


def failed(run: Run) -> str:
    """Why a run failed; it has no bundle and no report, not even a part of one."""
    assert run.state().name == "failed"
    assert not run.bundle.exists()
    assert not (run.directory / "report.json").exists()
    return run.state().reason


def test_from_data_to_answers(train: Train, command: Any, place: Path) -> None:
    code, err = train("training.epochs=4")
    assert code == 0, err
    run = the_run(place)
    assert run.state().name == "succeeded"
    assert report_of(run)["test"]["accuracy"] == 1
    code, out, _ = command("predict", "last", "you charged me twice today", "--json")
    assert (code, json.loads(out)[0]["label"]) == (0, "billing")
    code, out, _ = command("evaluate", "last", "data.csv", "--json")
    assert (code, json.loads(out)["test"]["accuracy"]) == (0, 1)


@pytest.mark.parametrize("runs", ["data.csv", "data.csv/runs", "/proc/runs", "/dev/null/runs"])
def test_a_run_directory_that_cannot_be_written_is_named(train: Train, place: Path, runs: str) -> None:
    code, err = train("--runs", runs)
    assert code == 5, err
    assert f"cannot write {runs}" in err
    assert sorted(path.name for path in place.iterdir()) == ["data.csv"]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100_000, 200_000])
def test_on_a_full_disk_the_run_has_failed_and_can_go_on(train: Train, command: Any, place: Path, size: int) -> None:
    with files_of_at_most(size):
        code, err = train()
    assert code == 5, err
    assert "cannot write" in err
    run = the_run(place)
    assert "cannot write" in failed(run)
    assert not (run.directory / "checkpoints").exists() or list((run.directory / "checkpoints").iterdir()) == []
    code, _, err = command("train", "--resume", run.name)
    assert code == 0, err
    assert run.state().name == "succeeded"


@pytest.fixture
def small_disk(place: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of so many kB, where one can be mounted."""
    directory = place / "disk"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}k", "tmpfs", str(directory)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.parametrize("small_disk", [4, 16, 64, 200, 400, 500, 600, 650, 700], indirect=True)
def test_a_disk_that_fills_up_at_any_moment_is_said_and_leaves_nothing_half_written(
    train: Train, small_disk: Path
) -> None:
    code, err = train("--runs", small_disk, "training.epochs=1")
    assert code == 5, err
    assert "No space left on device" in err
    for run in list_runs(small_disk):
        assert run.state().name != "succeeded"
        if run.bundle.exists():
            assert library.load(run.bundle).predict(["hello"])


def test_a_label_seen_only_in_test_is_warned_of_and_measured(train: Train, place: Path) -> None:
    (place / "test.csv").write_text("text,label\nthank you so much,praise\nwhere is my parcel now,delivery\n")
    code, err = train("data.test=test.csv")
    assert code == 0, err
    run = the_run(place)
    report = report_of(run)
    assert report["labels"] == ["billing", "delivery", "praise"]
    assert report["test"]["per_label"]["praise"]["recall"] == 0
    assert any("praise" in event.get("message", "") for event in run.events())


@pytest.mark.parametrize("split", ["validation", "test"])
def test_without_a_split_it_is_said_and_the_run_succeeds(train: Train, place: Path, split: str) -> None:
    code, err = train(f"data.{split}_share=0.0")
    assert code == 0, err
    run = the_run(place)
    assert run.bundle.exists()
    assert any(f"the {split} split is empty" in event.get("message", "") for event in run.events())


def test_one_class_only_makes_no_run(train: Train, place: Path) -> None:
    (place / "data.csv").write_text("text,label\n" + "".join(f"thing {i},a\n" for i in range(20)))
    code, err = train()
    assert code == 3
    assert 'every row has the label "a"' in err
    assert not (place / "runs").exists()


@pytest.mark.parametrize("long_texts", ["start", "ends", "windows"])
def test_a_text_of_200000_characters_is_learned_from_and_answered(
    train: Train, command: Any, place: Path, long_texts: str
) -> None:
    long = "my parcel is late " * 11_200
    assert len(long) > 200_000
    (place / "data.csv").write_text(CSV + f"{long},delivery\n")
    (place / "new.csv").write_text(f"text\n{long}\nhello\n")
    code, err = train(f"model.long_texts={long_texts}", "data.test_share=0.0", "training.epochs=1")
    assert code == 0, err
    assert the_run(place).state().name == "succeeded"
    code, _, err = command("predict", "last", "--input", "new.csv", "--output", "out.jsonl")
    assert code == 0, err
    assert len((place / "out.jsonl").read_text().splitlines()) == 2


def test_a_batch_larger_than_the_data_is_one_step_an_epoch(train: Train, place: Path) -> None:
    code, err = train("training.batch_size=100000", "training.epochs=3")
    assert code == 0, err
    steps = [event for event in the_run(place).events() if event["event"] == "step"]
    assert [(step["step"], step["total"]) for step in steps] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("batch_size", [8, 1000], ids=["small-batches", "one-batch"])
def test_a_loss_that_is_no_number_stops_the_run_with_a_reason(
    train: Train, place: Path, precision: str, batch_size: int
) -> None:
    """One batch an epoch: the model is measured before a loss could show what has happened to it."""
    code, err = train(
        "training.learning_rate=1e30",
        f"training.batch_size={batch_size}",
        f"training.precision={precision}",
        "training.warmup_share=0.0",
    )
    assert code == 4, err
    assert "lower training.learning_rate" in err
    assert failed(the_run(place))


def test_three_rows_are_enough_to_try(train: Train, place: Path) -> None:
    (place / "data.csv").write_text("text,label\nyes please,yes\nno thanks,no\nyes,yes\n")
    code, err = train()
    assert code == 0, err
    assert the_run(place).bundle.exists()


def test_more_tokens_than_the_encoder_reads_makes_no_run(train: Train, place: Path) -> None:
    code, err = train("model.max_tokens=65")
    assert code == 2
    assert "reads 64 tokens at most" in err
    assert "set model.max_tokens=64" in err
    assert not (place / "runs").exists()


def test_a_run_predicts_and_goes_on_without_the_directory_of_its_encoder(
    train: Train, command: Any, place: Path, checkpoint: Callable[[str], Path]
) -> None:
    copy = shutil.copytree(checkpoint("bert"), place / "encoder")
    code, err = train("model.pretrained=encoder")
    assert code == 0, err
    shutil.rmtree(copy)
    assert command("predict", "last", "hello")[0] == 0


def test_a_bundle_whose_weights_were_changed_is_refused(train: Train, command: Any, place: Path) -> None:
    assert train("training.epochs=1")[0] == 0
    path = the_run(place).bundle / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    code, _, err = command("predict", "last", "hello")
    assert code == 4
    assert "model.safetensors" in err


def test_the_same_command_gives_the_same_bundle_to_the_byte(train: Train, place: Path) -> None:
    for _ in range(2):
        assert train("model.dropout=0.1")[0] == 0
    first, second = (
        {path.relative_to(run.bundle): path.read_bytes() for path in files_below(run.bundle)}
        for run in list_runs(place / "runs")
    )
    assert first == second


@pytest.mark.parametrize(
    ("values", "kept"),
    [((0.9, 0.5, 0.85), [True, False, True]), ((0.9, 0.5, 0.6), [True, False, False]), ((0.5, 0.6, 0.9), [True] * 3)],
)
def test_of_evaluations_that_cannot_be_told_apart_the_later_one_is_kept(
    train: Train, place: Path, monkeypatch: pytest.MonkeyPatch, values: tuple[float, ...], kept: list[bool]
) -> None:
    """Of six validation rows one standard error is 0.12."""
    scripted, measured = iter(values), report.measure_split

    def told(*arguments: Any) -> dict[str, Any]:
        figures = measured(*arguments)
        return figures | {"macro_f1": next(scripted, figures["macro_f1"])}

    monkeypatch.setattr(report, "measure_split", told)
    code, err = train("training.epochs=3")
    assert code == 0, err
    run = the_run(place)
    evaluations = [event for event in run.events() if event["event"] == "evaluation"]
    assert [event["best"] for event in evaluations] == kept
    progress = run.progress()
    assert int(progress.best) == max(event["step"] for event in evaluations if event["best"])
    assert progress.best_value == max(values)
    assert progress.evaluations_without_gain == len(values) - 1 - values.index(max(values))


def test_the_lock_says_what_it_learned_on(place: Path, train: Train) -> None:
    assert train("training.epochs=1")[0] == 0
    device = devices.choose_device(devices.find_devices())
    assert the_run(place).lock()["device"] == f"{device.kind}: {device.name}"
