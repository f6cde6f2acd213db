"""Every export that is a package: what stands in it, that it gives the bundle's answers, and what it refuses."""

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline import cli, registry
from tagline.errors import SpecError
from tagline.exports import export, pack
from tagline.images import wheels
from tagline.prediction.bundle import Bundle

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
PACKAGES = [
    name
    for name in registry.BUILT_IN["exports"]
    if pack.is_package(name) and not getattr(registry.find("exports", name), "needs_weights", False)
]
"""Those that carry the bundle; one made of its weights alone is in test_transformers_export.py."""
OPTIONS: dict[str, dict[str, Any]] = {"image": {"build": False}}
TRAINED = {"single": "messages.csv", "multi": "messages-multi.csv", "pair": "pairs.csv"}


class Context:
    """What our handler uses of what TorchServe hands over; the real one is in tests/flow/test_other_runtimes.py."""

    def __init__(self, model_dir: Path) -> None:
        self.system_properties = {"model_dir": str(model_dir)}
        self.statuses: dict[int, int] = {}
        self.types: dict[int, str] = {}

    def set_response_status(self, code: int, phrase: str, idx: int) -> None:
        self.statuses[idx] = code

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.types[idx] = value


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tagline.Run]:
    directory = tmp_path_factory.mktemp("runs")
    return {
        task: tagline.train(
            SUPPORT / data, "model.family=linear", "model.characters=0", "training.baseline=false", runs=directory
        )
        for task, data in TRAINED.items()
    }


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    """A run of a family that needs torch, unless it is exported."""
    settings = ("model.family=lstm", "model.hidden=8", "model.max_tokens=24", "data.fraction=0.1", "training.epochs=1")
    directory = tmp_path_factory.mktemp("runs")
    return tagline.train(SUPPORT / "messages.csv", *settings, "training.baseline=false", runs=directory)


def unpacked(archive: Path, directory: Path) -> tuple[Any, Context]:
    """A handler as TorchServe makes it: imported from the unpacked archive, the only class that the file defines."""
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(directory)
    manifest = json.loads((directory / "MAR-INF" / "MANIFEST.json").read_text())
    described = importlib.util.spec_from_file_location("tagline_handler", directory / manifest["model"]["handler"])
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    (handler,) = [
        each
        for each in vars(module).values()
        if getattr(each, "__module__", "") == "tagline_handler" and isinstance(each, type)
    ]
    context = Context(directory)
    made = handler()
    made.initialize(context)
    return made, context


def expected(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("label", "labels", "score", "scores", "abstained") if key in row}


@pytest.mark.parametrize("task", TRAINED)
def test_an_archive_for_torchserve_gives_the_answers_that_were_measured(
    runs: dict[str, tagline.Run], tmp_path: Path, task: str
) -> None:
    measured = runs[task].predictions()
    found = pack.pack(runs[task].bundle, "torchserve", output=tmp_path / "out", measured=measured)
    handler, context = unpacked(Path(found["archive"]), tmp_path / "unpacked")
    halves = [measured[:10], measured[10:]]
    bodies = [{"instances": [row["text"] for row in rows]} for rows in halves]
    # TorchServe reads a body whose type is JSON, and hands over others as they came.
    answers = handler.handle([{"body": bodies[0]}, {"body": json.dumps(bodies[1]).encode()}], context)
    for rows, answer in zip(halves, answers, strict=True):
        assert json.loads(answer)["predictions"] == [expected(row) for row in rows]
    assert (context.statuses, set(context.types.values())) == ({}, {"application/json"})


def test_a_request_that_is_refused_does_no_harm_to_its_batch(runs: dict[str, tagline.Run], tmp_path: Path) -> None:
    found = pack.pack(runs["single"].bundle, "torchserve", output=tmp_path / "out")
    handler, context = unpacked(Path(found["archive"]), tmp_path / "unpacked")
    text = "where is my parcel"
    encoded = {"b64": base64.b64encode(text.encode()).decode()}
    requests: list[Any] = [
        {"instances": [text]},
        b"{",
        {"instances": [3]},
        {"instances": [{"data": encoded}, encoded, {"text": text}]},
        {"instances": [{"b64": "!"}]},
        {"inputs": text},
        {"instances": [text], "parameters": {"sets": 0.9}},
        [text],
        {"instances": [text], "parameters": {"format": "automl"}},
        {"instances": []},
    ]
    answers = [json.loads(each) for each in handler.handle([{"body": each} for each in requests], context)]
    plain = tagline.load(runs["single"].bundle).predict(text)[0].to_dict()
    assert answers[0] == {"predictions": [plain]}
    assert answers[3] == {"predictions": [plain] * 3}
    assert answers[5][0][0] == {"label": plain["label"], "score": plain["score"]}
    assert plain["label"] in answers[6]["predictions"][0]["set"]
    assert answers[8]["predictions"][0]["displayNames"][0] == plain["label"]
    assert answers[9] == {"predictions": []}
    assert context.statuses == dict.fromkeys((1, 2, 4, 7), 400)
    assert all(set(answers[number]) == {"error"} for number in context.statuses)


def test_an_archive_is_the_same_bytes_each_time_and_holds_what_it_needs(
    runs: dict[str, tagline.Run], tmp_path: Path
) -> None:
    archives = [
        Path(pack.pack(runs["single"].bundle, "torchserve", output=tmp_path / name)["archive"])
        for name in ("one", "two")
    ]
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with zipfile.ZipFile(archives[0]) as zipped:
        names = zipped.namelist()
        needs = zipped.read("requirements.txt").decode().splitlines()
    wheel = wheels.build_wheel()
    assert {wheel.file, "tagline_handler.py", "model-config.yaml", "bundle/tagline.json"} <= set(names)
    assert needs[:2] == ["--find-links .", f"tagline=={wheel.version}"]
    assert any(line.startswith("onnxruntime==") for line in needs)
    assert not any(line.startswith(("torch", "scikit-learn", "pyarrow", "transformers")) for line in needs)
    settings = (tmp_path / "one" / "config.properties").read_text()
    assert "inference_address=http://127.0.0.1:8080\n" in settings
    assert "0.0.0.0" not in settings


def test_the_wheel_is_one_that_pip_installs(tmp_path: Path) -> None:
    wheel = wheels.build_wheel()
    (tmp_path / wheel.file).write_bytes(wheel.content)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*install, "--target", str(tmp_path / "there"), str(tmp_path / wheel.file)], check=True)
    code = "import importlib.metadata as m, tagline; print(m.version('tagline'), tagline.__file__)"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "there")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    version, file = done.stdout.split()
    assert version == wheel.version
    assert Path(file).is_relative_to(tmp_path / "there")
    assert (tmp_path / "there" / "bin" / "tagline").exists()
    assert (tmp_path / "there" / "tagline" / "py.typed").exists()


@pytest.mark.parametrize("to", PACKAGES)
def test_a_network_is_packed_in_the_form_that_predicts_and_in_no_other(
    network: tagline.Run, tmp_path: Path, to: str
) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(network.bundle, copy)
    if not Bundle.load(copy).manifest.runtime:
        with pytest.raises(SpecError, match="needs torch to predict") as caught:
            pack.pack(copy, to, **OPTIONS.get(to, {}))
        assert "--to onnx" in caught.value.hint
        assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
        export.export(copy, "onnx", measured=network.predictions())
    pack.pack(copy, to, measured=network.predictions(), **OPTIONS.get(to, {}))
    place = tmp_path / f"bundle-{to}"
    if to == "torchserve":
        unpacked(place / "tagline.mar", place / "unpacked")
        place /= "unpacked"
    graphs = [path.name for path in (place / "bundle" / "onnx").glob("*.onnx")]
    runtime = Bundle.load(copy).manifest.runtime
    assert graphs == ["model.int8.onnx" if runtime == "int8" else "model.onnx"]
    assert not list((place / "bundle").rglob("*.safetensors"))
    texts = [row["text"] for row in network.predictions()]
    assert tagline.load(place / "bundle").predict(texts) == tagline.load(copy).predict(texts)


@pytest.mark.parametrize("to", PACKAGES)
def test_only_an_earlier_export_is_replaced(runs: dict[str, tagline.Run], tmp_path: Path, to: str) -> None:
    bundle, options = runs["single"].bundle, OPTIONS.get(to, {})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name in ("mine", "file"):
        with pytest.raises(SpecError, match="is there already"):
            pack.pack(bundle, to, output=tmp_path / name, **options)
    for inside in (bundle, bundle / "onnx"):
        with pytest.raises(SpecError, match="in the bundle itself"):
            pack.pack(bundle, to, output=inside, **options)
    (tmp_path / "empty").mkdir()
    first = pack.pack(bundle, to, output=tmp_path / "empty", **options)
    assert pack.pack(bundle, to, output=tmp_path / "empty", **options) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "mine"]
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_the_command_says_what_was_done_and_refuses_what_does_not_go_together(
    runs: dict[str, tagline.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = str(runs["single"].bundle)
    assert cli.run(["export", bundle, "--to", "torchserve", "--output", str(tmp_path / "there")]) == 0
    assert "torchserve --start" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["config.properties", "tagline.mar"]
    for arguments, complaint in (
        (("--to", "torchserve", "--base", "x"), "--base and --build go with --to image"),
        (("--to", "onnx", "--output", "there"), "--output goes with torchserve, image and transformers"),
        (("--to", "image", "--base", "a b"), "names no image"),
        (("--to", "torchserv"), "did you mean torchserve"),
    ):
        assert cli.run(["export", bundle, *arguments]) == 2
        printed = capsys.readouterr()
        assert (printed.out, complaint in printed.err) == ("", True)
