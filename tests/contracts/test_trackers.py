"""The contract of a tracker, over every tracker there is, with the real packages and what they read back."""

import json
import os
import shutil
import struct
import sys
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tagline import gcp, registry
from tagline.data.columns import complete_spec
from tagline.errors import Interrupted, PlaceError
from tagline.runs import trackers
from tagline.runs.events import Event, ResumedEvent, StartedEvent, parse_event
from tagline.runs.run import Run
from tagline.runs.trackers import Point, Tracker, format_parameter, list_parameters, track_events

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import Rehearsal, rehearsing
from reports import make_label_figures, make_report

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
LABELS = ("billing", "C++", "C#", "50% off?", "a/b", "/a", "a//b", "a/", ".", "..", "日本語", "x" * 300)
REPORT = make_report(
    test={
        "rows": 12,
        "accuracy": 0.75,
        "mcc": None,
        "per_label": {label: make_label_figures(number / 16) for number, label in enumerate(LABELS)},
    },
    validation={"rows": 8, "accuracy": 0.5, "per_label": {}},
)


@dataclass
class Record:
    """What a tool shows of a run."""

    parameters: dict[str, Any] = field(default_factory=dict)
    points: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    report: str = ""
    bundle: str = ""
    records: int = 0
    state: str = ""


def read_tensorboard(run: Run) -> Record:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG, parse_session_start_info_plugin_data

    shown_as_one = EventAccumulator(str(run.directory / "tensorboard")).Reload()

    def text(tag: str) -> str:
        if tag not in shown_as_one.Tags()["tensors"]:
            return ""
        lines = shown_as_one.Tensors(tag)[-1].tensor_proto.string_val[0].decode().splitlines()
        return "\n".join(line.removeprefix("    ") for line in lines)

    content = shown_as_one.SummaryMetadata(SESSION_START_INFO_TAG).plugin_data.content
    values = parse_session_start_info_plugin_data(content).hparams
    record = Record(report=text("report"), bundle=text("bundle"), state=text("state"), records=1)
    record.parameters = {key: getattr(value, value.WhichOneof("kind")) for key, value in values.items()}
    for tag in shown_as_one.Tags()["scalars"]:
        record.points[tag] = [(point.step, point.value) for point in shown_as_one.Scalars(tag)]
    return record


def read_wandb(run: Run) -> Record:
    """From the files of its offline runs, as `wandb sync` would send them: rows of one run, one a step."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record as Line

    wandb.teardown()  # what it does when the process ends: its files are whole after that
    record, runs = Record(), set()
    rows: dict[int, dict[str, float]] = defaultdict(dict)
    for file in sorted((run.directory / "wandb").glob("offline-run-*/*.wandb")):
        for data in wandb_lines(file.read_bytes()):
            line = Line.FromString(data)
            for update in (*line.run.config.update, *line.config.update):
                record.parameters[update.key] = json.loads(update.value_json)
            for update in line.summary.update:
                if (key := update.key or update.nested_key[0]) in ("bundle", "state"):
                    setattr(record, key, json.loads(update.value_json))
            row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in line.history.item}
            if row:
                rows[row["_step"]] |= {key: value for key, value in row.items() if not key.startswith("_")}
            runs |= {line.run.run_id} - {""}
            for saved in line.files.files:
                if saved.path == "report.json":
                    record.report = (file.parent / "files" / "report.json").read_text()
    for step, figures in sorted(rows.items()):
        for name, value in figures.items():
            record.points[name].append((step, value))
    record.records = len(runs)
    return record


def wandb_lines(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log after wandb's 7 bytes of header: blocks of 32 KiB, long records in pieces."""
    position, whole = 7, b""
    while position + 7 <= len(content):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        whole += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield whole
            whole = b""


def read_mlflow(run: Run) -> Record:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run.directory.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tagline")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id])
    data, info = found[0].data, found[0].info
    states = {"FINISHED": "succeeded", "KILLED": "cancelled", "FAILED": "failed"}
    record = Record(parameters=data.params, bundle=data.tags.get("tagline.bundle", ""), records=len(found))
    record.state = states.get(info.status, info.status)
    for name in data.metrics:
        record.points[name] = [(metric.step, metric.value) for metric in client.get_metric_history(info.run_id, name)]
    if client.list_artifacts(info.run_id):
        record.report = Path(info.artifact_uri, "report.json").read_text()
    return record


def read_vertex(run: Run) -> Record:
    """With Google's own SDK."""
    from google.cloud import aiplatform
    from google.oauth2.credentials import Credentials

    aiplatform.init(
        project=gcp.REHEARSED_PROJECT,
        location="us-central1",
        credentials=Credentials(os.environ[gcp.TOKEN]),
        api_endpoint=os.environ[gcp.REHEARSAL],
        api_transport="rest",
    )
    found = aiplatform.ExperimentRun.list(experiment=os.environ["TAGLINE_EXPERIMENT"])
    states = {"COMPLETE": "succeeded", "CANCELLED": "cancelled", "FAILED": "failed"}
    artifacts = {
        artifact.name.removeprefix(f"{found[0].resource_id}-"): artifact for artifact in found[0].get_artifacts()
    }
    record = Record(parameters=found[0].get_params(), records=len(found))
    record.state = states.get(found[0].get_state(), found[0].get_state())
    of_board = aiplatform.TensorboardRun(artifacts["tb-run"].metadata["resourceName"])
    for name, data in of_board.read_time_series_data().items():
        record.points[name] = [(point.step, point.scalar.value) for point in data.values]
    if "report" in artifacts:
        record.report = path_of(artifacts["report"].uri).read_text()
        record.bundle = str(path_of(artifacts["bundle"].uri))
    return record


def path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


READERS: dict[str, Callable[[Run], Record]] = {
    "tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow, "vertex": read_vertex,
}  # fmt: skip


@pytest.fixture(params=registry.list_names("trackers"))
def name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database with all its tables: making them takes seconds."""
    registry.find("trackers", "mlflow")
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(trackers, "END_TIMEOUT_S", 900.0)  # however long the packages take on a busy machine
    monkeypatch.setattr(trackers, "SILENT_S", 900.0)
    raw = {
        "data": {"train": str(SUPPORT / "messages.csv")},
        "model": {"family": "linear"},
        "vertex": {"image": "i" * 7000},
    }
    return Run.create(tmp_path / "the runs", complete_spec(raw, where="a test").spec, {})


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here") as found:
        yield found


@pytest.fixture
def prepared(name: str, run: Run, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    if name == "mlflow":
        shutil.copy(request.getfixturevalue("empty_store"), run.directory.parent / "mlflow.db")
    if name != "vertex":
        yield run
        return
    for variable in ("TAGLINE_TENSORBOARD", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TAGLINE_EXPERIMENT", f"experiment-{uuid.uuid4().hex[:8]}")
    rehearsal = request.getfixturevalue("rehearsal")
    with gcp.use_rehearsal(rehearsal.address, rehearsal.token):
        yield run


def attempt(run: Run, *, after: int = 0, stop_at: int = 0) -> Generator[Event, None, None]:
    """What training does to a run, without learning anything: six steps, an evaluation at every second one."""
    run.set_state("running")
    try:
        yield ResumedEvent(checkpoint=f"{after:06d}") if after else StartedEvent()
        for step in range(after + 1, 7):
            yield happened(run, "step", step=step, total=6, loss=1 / step, settings={"learning_rate": step / 100})
            if step % 2 == 0:
                figures = {"macro_f1": step / 10, "accuracy": step / 20}
                yield happened(run, "evaluation", step=step, figures=figures)
            if step == stop_at:
                raise Interrupted("told to stop", signal_number=15)
    except (Interrupted, GeneratorExit):
        run.set_state("cancelled")
        raise
    run.write_json("report.json", REPORT)
    run.set_state("succeeded")
    yield happened(run, "finished")


def happened(run: Run, kind: str, **details: Any) -> Event:
    event = parse_event({"event": kind, "time": datetime.now(UTC).isoformat(), **details})
    run.append_event(event)
    return event


def follow(run: Run, chosen: dict[str, Tracker], **how: int) -> list[Event]:
    """All events of an attempt, stopped or not."""
    seen = []
    try:
        for event in track_events(attempt(run, **how), run=run, trackers=chosen):
            seen.append(event)  # noqa: PERF402 - those before an exception count
    except Interrupted:
        assert how["stop_at"]
    return seen


def warnings(events: Sequence[Event]) -> list[str]:
    return [event["message"] for event in events if event["event"] == "warning"]


def test_what_was_measured_can_be_read_back_at_its_steps(name: str, prepared: Run) -> None:
    assert warnings(follow(prepared, trackers.create_trackers([name]))) == []
    points = READERS[name](prepared).points
    assert points["train/loss"] == [(step, pytest.approx(1 / step)) for step in range(1, 7)]
    assert points["train/learning_rate"] == [(step, pytest.approx(step / 100)) for step in range(1, 7)]
    assert points["validation/macro_f1"] == [(step, pytest.approx(step / 10)) for step in (2, 4, 6)]
    assert points["report/test/accuracy"] == [(6, 0.75)]
    assert points["report/validation/accuracy"] == [(6, 0.5)]
    assert "report/test/mcc" not in points


def test_the_report_the_bundles_address_and_the_state_are_there(name: str, prepared: Run) -> None:
    follow(prepared, trackers.create_trackers([name]))
    record = READERS[name](prepared)
    assert json.loads(record.report) == REPORT
    assert record.bundle == str(prepared.bundle)
    assert record.state == "succeeded"


def test_every_key_of_the_spec_is_a_parameter(name: str, prepared: Run) -> None:
    follow(prepared, trackers.create_trackers([name]))
    recorded = READERS[name](prepared).parameters
    for key, value in list_parameters(prepared.spec()).items():
        assert recorded[key] == value or format_parameter(recorded[key])[:6000] == format_parameter(value)[:6000], key


def test_each_label_has_its_figure_whatever_its_name(name: str, prepared: Run) -> None:
    follow(prepared, trackers.create_trackers([name]))
    points = READERS[name](prepared).points
    of_labels = {key: value for key, value in points.items() if key.startswith("report/test/f1/")}
    assert sorted(of_labels.values()) == [[(6, number / 16)] for number in range(len(LABELS))]
    assert of_labels["report/test/f1/billing"] == [(6, 0.0)]
    assert of_labels["report/test/f1/日本語"] == [(6, LABELS.index("日本語") / 16)]


def test_a_resumed_run_goes_on_with_its_record(name: str, prepared: Run) -> None:
    follow(prepared, trackers.create_trackers([name]), stop_at=5)
    assert READERS[name](prepared).state == "cancelled"
    assert warnings(follow(prepared, trackers.create_trackers([name]), after=2)) == []
    record = READERS[name](prepared)
    assert record.records == 1
    assert record.state == "succeeded"
    assert record.points["train/loss"] == [(step, pytest.approx(1 / step)) for step in range(1, 7)]
    assert record.points["validation/macro_f1"] == [(step, pytest.approx(step / 10)) for step in (2, 4, 6)]


def test_nothing_is_printed(name: str, prepared: Run, capfd: pytest.CaptureFixture[str]) -> None:
    follow(prepared, trackers.create_trackers([name]))
    assert capfd.readouterr() == ("", "")


class Witness:
    """Keeps what it is told; fails in one method, if asked to."""

    def __init__(self, *, fails_in: str = "", error: BaseException | None = None) -> None:
        self.calls: list[str] = []
        self.points: list[Point] = []
        self.state = ""
        self._fails_in, self._error = fails_in, error or OSError("the disk\nis full")

    def begin(self, run: Run, *, resumed_at: int) -> None:
        self._called("begin")

    def record(self, points: Sequence[Point]) -> None:
        self._called("record")
        self.points += points

    def end(self, run: Run) -> None:
        self._called("end")
        self.state = run.state().name

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if method == self._fails_in:
            raise self._error


@pytest.mark.parametrize("error", [OSError("the disk\nis full"), SystemExit("the disk is full")])
@pytest.mark.parametrize("method", ["begin", "record", "end"])
def test_a_tracker_that_fails_is_left_out_with_one_warning(method: str, error: BaseException, run: Run) -> None:
    broken, sound = Witness(fails_in=method, error=error), Witness()
    events = follow(run, {"broken": broken, "sound": sound})
    what = f"{type(error).__name__}: the disk is full"
    assert warnings(events) == [f"tracker broken failed, the run goes on without it: {what}"]
    assert broken.calls.count(method) == 1
    assert broken.calls[-1] == method
    assert run.state().name == "succeeded"
    assert [event for event in events if event["event"] not in ("started", "warning")] == run.events()
    assert [point.step for point in sound.points] == [1, 2, 2, 3, 4, 4, 5, 6, 6]
    assert sound.state == "succeeded"


def test_an_error_of_ours_says_what_to_do(run: Run) -> None:
    broken = Witness(fails_in="begin", error=PlaceError("no project is named", hint="set vertex.project"))
    what = "no project is named; set vertex.project"
    assert warnings(follow(run, {"broken": broken})) == [f"tracker broken failed, the run goes on without it: {what}"]


def test_the_first_event_stays_the_first(run: Run) -> None:
    assert follow(run, {"broken": Witness(fails_in="begin")})[0]["event"] == "started"


def test_a_tracker_that_hangs_is_left_behind(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "SILENT_S", 0.01)
    monkeypatch.setattr(trackers, "END_TIMEOUT_S", 0.02)
    released = threading.Event()

    class Hanging(Witness):
        def begin(self, run: Run, *, resumed_at: int) -> None:
            released.wait()

    events = follow(run, {"hanging": Hanging()})
    released.set()
    assert [event["event"] for event in events[-3:]] == ["finished", "phase", "warning"]
    assert "tracker hanging failed, the run goes on without it: it did not end within" in events[-1]["message"]


def test_a_run_that_nobody_follows_any_more_is_cancelled_before_its_record_is_closed(run: Run) -> None:
    witness = Witness()
    events = track_events(attempt(run), run=run, trackers={"witness": witness})
    next(events)
    events.close()
    assert witness.state == "cancelled"


def test_a_run_that_cannot_begin_is_not_touched(run: Run) -> None:
    def in_use() -> Generator[Event, None, None]:
        raise RuntimeError("in use by another process")
        yield {}

    witness = Witness()
    with pytest.raises(RuntimeError, match="in use"):
        list(track_events(in_use(), run=run, trackers={"witness": witness}))
    assert witness.calls == []
