"""Whatever the files of a bundle or a run hold, the answer is an error that names the file, with exit code 4."""

import json
import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import SUPPORT

import tagline
from tagline.cli import run as run_command
from tagline.errors import TaglineError
from tagline.exports import export
from tagline.prediction.bundle import Bundle, Manifest
from tagline.prediction.predictor import Predictor
from tagline.runs.checkpoints import PROGRESS
from tagline.runs.formats import ATTEMPTS
from tagline.runs.run import Run
from tagline.storage import hashing

pytestmark = pytest.mark.trains

QUICK = (
    "model.family=linear",
    "model.characters=0",
    "model.max_features=60",
    "model.strength=4.0",
    "data.fraction=0.2",
    "training.baseline=false",
)
EXAMPLES = 15
TEXTS = ["Where is my parcel?", "", "x" * 300]

ODD_NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31, 2**63, -(2**64), 10**40, 0.5, -0.0, 1e308, math.nan, math.inf, -math.inf]
)
ODD_TEXTS = st.sampled_from(
    ["", "x", "single", "\0", "../../etc/passwd", "é\ud83d".encode("utf-8", "replace").decode()]
)
ODD = st.recursive(
    st.none() | st.booleans() | ODD_NUMBERS | ODD_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
    max_leaves=4,
)
ODD_BYTES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"\0" * 100, b"[" * 50_000, b'{"a":' * 50_000, b"9" * 5_000, b"\xff\xfe{}", b"NaN", b"null"]),
)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """A JSON value with one place in it replaced by something odd, or taken away."""
    copied = json.loads(json.dumps(value))
    if not isinstance(copied, dict | list) or not copied:
        return draw(ODD)
    place = copied
    while True:
        key = draw(st.sampled_from(sorted(place))) if isinstance(place, dict) else draw(st.integers(0, len(place) - 1))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and draw(st.booleans()):
            place = inner
            continue
        if draw(st.integers(0, 3)):
            place[key] = draw(ODD)
        else:
            del place[key]
        return copied


@st.composite
def hostile_json(draw: st.DrawFn, value: Any) -> bytes:
    if draw(st.integers(0, 4)) == 0:
        return draw(ODD_BYTES)
    return json.dumps(draw(changed(value))).encode()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run, whose bundle has its ONNX forms too."""
    made = tagline.train(SUPPORT / "messages.csv", *QUICK, runs=tmp_path_factory.mktemp("runs"))
    export.export(made.bundle, "onnx", measured=made.predictions())
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def seal(bundle: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest whose hashes are right, whatever else it holds."""
    names = {path.relative_to(bundle).as_posix(): hashing.hash_file(path) for path in hashing.files_below(bundle)}
    manifest = manifest | {"files": {name: found for name, found in names.items() if name != "tagline.json"}}
    with suppress(ValueError):  # not even a manifest
        manifest["sha256"] = Manifest.model_validate_json(json.dumps(manifest)).digest()
    (bundle / "tagline.json").write_text(json.dumps(manifest))


def error_of(action: Callable[[], object]) -> TaglineError | None:
    """The error that an action ends with, which must be one of ours."""
    try:
        action()
    except TaglineError as error:
        return error
    return None


def use(bundle: Path) -> None:
    """All that a bundle is for; errors must be of the bundle."""

    def answer() -> None:
        predictor = Predictor.of(Bundle.load(bundle))
        texts = [(text, text) for text in TEXTS] if predictor.pair else TEXTS
        predictor.predict(texts)
        predictor.explain(texts[0], predictor.decisions.labels[0])

    error = error_of(answer)
    assert error is None or error.exit_code == 4, error.message


@pytest.mark.parametrize("runtime", ["", "float32", "int8"])
@pytest.mark.parametrize("name", ["config.json", "vocabulary.json"])
def test_any_json_of_a_well_sealed_bundle(run: Run, place: Path, name: str, runtime: str) -> None:
    bundle = Path(shutil.copytree(run.bundle, place / f"{name}-{runtime}"))
    manifest = json.loads((bundle / "tagline.json").read_text()) | {"runtime": runtime}
    whole = json.loads((bundle / name).read_text())

    @settings(max_examples=EXAMPLES)
    @given(hostile_json(whole))
    def hold(content: bytes) -> None:
        (bundle / name).write_bytes(content)
        seal(bundle, manifest)
        use(bundle)

    hold()


def test_any_manifest(run: Run, place: Path) -> None:
    bundle = Path(shutil.copytree(run.bundle, place / "manifest"))
    whole = json.loads((bundle / "tagline.json").read_text())

    @settings(max_examples=6 * EXAMPLES)
    @given(changed(whole))
    def hold(manifest: Any) -> None:
        if isinstance(manifest, dict):
            seal(bundle, manifest)
            use(bundle)

    @settings(max_examples=EXAMPLES)
    @given(ODD_BYTES)
    def hold_bytes(content: bytes) -> None:
        (bundle / "tagline.json").write_bytes(content)
        use(bundle)

    hold()
    hold_bytes()


@pytest.mark.parametrize("part", ["decisions", "spec", "labels", "figures"])
def test_any_part_of_a_manifest(run: Run, place: Path, part: str) -> None:
    bundle = Path(shutil.copytree(run.bundle, place / f"manifest-{part}"))
    whole = json.loads((bundle / "tagline.json").read_text())

    @settings(max_examples=2 * EXAMPLES)
    @given(changed(whole[part]) | ODD)
    def hold(value: Any) -> None:
        seal(bundle, whole | {part: value})
        use(bundle)

    hold()


@st.composite
def hostile_tensors(draw: st.DrawFn, tensors: dict[str, Any]) -> bytes:
    """Tensors of other shapes and types, with numbers that are none, or of bytes that are no tensors."""
    from safetensors.numpy import save

    if draw(st.integers(0, 3)) == 0:
        whole = bytearray(save(tensors))
        for _ in range(draw(st.integers(1, 8))):
            whole[draw(st.integers(0, min(len(whole) - 1, 200)))] = draw(st.integers(0, 255))
        return bytes(whole)
    made = dict(tensors)
    name = draw(st.sampled_from(sorted(made)))
    shape = draw(st.sampled_from([(), (0,), (1,), (3, 2), (61, 6), (60,), (2, 2, 2), made[name].shape]))
    kind = draw(st.sampled_from([np.float32, np.float64, np.int8, np.bool_]))
    value = draw(st.sampled_from([0.0, math.nan, math.inf, 1e30]))
    with np.errstate(all="ignore"):
        made[name] = np.full(shape, value).astype(kind)
    if draw(st.booleans()):
        made.pop(draw(st.sampled_from(sorted(made))))
    return bytes(save(made))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
def test_any_tensors_of_a_well_sealed_bundle(run: Run, place: Path) -> None:
    from safetensors.numpy import load_file

    bundle = Path(shutil.copytree(run.bundle, place / "tensors"))
    manifest = json.loads((bundle / "tagline.json").read_text()) | {"runtime": ""}

    @settings(max_examples=2 * EXAMPLES)
    @given(hostile_tensors(load_file(bundle / "model.safetensors")))
    def hold(content: bytes) -> None:
        (bundle / "model.safetensors").write_bytes(content)
        seal(bundle, manifest)
        use(bundle)

    hold()


def test_any_graph_of_a_well_sealed_bundle(run: Run, place: Path) -> None:
    bundle = Path(shutil.copytree(run.bundle, place / "graph"))
    manifest = json.loads((bundle / "tagline.json").read_text()) | {"runtime": "float32"}
    path = bundle / "onnx" / "model.onnx"
    whole = path.read_bytes()

    @settings(max_examples=EXAMPLES)
    @given(ODD_BYTES | st.integers(0, len(whole)).map(lambda size: whole[:size]))
    def hold(content: bytes) -> None:
        path.write_bytes(content)
        seal(bundle, manifest)
        use(bundle)

    hold()


@st.composite
def hostile_lines(draw: st.DrawFn, lines: list[str]) -> bytes:
    """A file of JSON lines with one of them changed."""
    some = [line.encode() for line in lines]
    number = draw(st.integers(0, len(some) - 1))
    some[number] = draw(hostile_json(json.loads(some[number])))
    return b"\n".join(some) + b"\n"


def hostile_text(whole: str) -> st.SearchStrategy[bytes]:
    """A text file cut off, or with a piece of it replaced."""
    pieces = st.tuples(
        st.integers(0, len(whole)), st.integers(0, 12), st.sampled_from(["", "[", '"', "=", "\0", "9" * 50])
    )
    replaced = pieces.map(lambda each: (whole[: each[0]] + each[2] + whole[each[0] + each[1] :]).encode())
    return ODD_BYTES | replaced


def contents_for(run: Run, name: str) -> st.SearchStrategy[bytes]:
    text = (run.directory / name).read_text()
    if name.endswith(".toml"):
        return hostile_text(text)
    if name.endswith(".jsonl"):
        return hostile_lines(text.splitlines())
    return hostile_json(json.loads(text))


Read = Callable[[Run], object]
READERS: dict[str, list[Read]] = {
    "spec.toml": [Run.spec, Run.spec_text],
    "lock.json": [Run.lock],
    "events.jsonl": [Run.events, lambda run: run.rewind_events(3), Run.event_count],
    "state.json": [Run.state],
    PROGRESS: [Run.progress, Run.intact_progress],
    "report.json": [Run.report],
    "predictions.jsonl": [Run.predictions],
    ATTEMPTS: [Run.attempts, Run.restarts],
}


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("name", READERS)
def test_any_file_of_a_run(run: Run, place: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = place / f"runs-{name.replace('/', '-')}"
    damaged = Run(Path(shutil.copytree(run.directory, runs / "20260101-000000-damaged")))
    shutil.copytree(run.directory, runs / "20260101-000001-sound")

    @settings(max_examples=2 * EXAMPLES)
    @given(contents_for(run, name))
    def hold(content: bytes) -> None:
        for read in READERS[name]:
            (damaged.directory / name).write_bytes(content)
            error = error_of(lambda read=read: read(damaged))  # type: ignore[misc]
            assert error is None or error.exit_code == 4
            assert error is None or name in error.message or "checkpoints/" in error.message

    @settings(max_examples=4)
    @given(contents_for(run, name))
    def hold_commands(content: bytes) -> None:
        (damaged.directory / name).write_bytes(content)
        where = ("--runs", str(runs))
        assert run_command(["runs", "list", *where]) == 0
        assert "20260101-000001-sound" in capsys.readouterr().out
        for words in (
            ["runs", "show", damaged.name],
            ["runs", "report", damaged.name, "--output", str(place / "out.html")],
            ["compare", damaged.name, "20260101-000001-sound"] if name.startswith(("report", "predictions")) else [],
        ):
            code = run_command([*words, *where]) if words else 0
            said = capsys.readouterr().err
            assert code in (0, 4), said
            assert code == 0 or name in said or "different" in said or "no test row" in said, said

    hold()
    hold_commands()
