"""One bundle, many doors: labels, scores, sets and abstentions are the same through each of them.

A new door (a server, an export) is one more line in DOORS.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline.exports import export
from tagline.exports.torchserve_handler import TaglineHandler

sys.path.insert(0, str(Path(__file__).parents[1]))
from serving import serving

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
Answers = list[dict[str, Any]]
Door = Callable[[Path, list[Any], float, Path], Answers]

TRAINED = {
    "single": ("messages.csv", "decisions.target_precision=0.9"),
    "multi": ("messages-multi.csv", "decisions.abstain_below=0.4"),
    "none": ("messages-multi.csv", "decisions.abstain_below=0.4", "data.none_label=nothing"),
    "pair": ("pairs.csv", "decisions.abstain_below=0.4"),
}


def python(bundle: Path, texts: list[Any], sets: float, _: Path) -> Answers:
    return [prediction.to_dict() for prediction in tagline.load(bundle).predict(texts, sets=sets)]


def one_by_one(bundle: Path, texts: list[Any], sets: float, _: Path) -> Answers:
    predictor = tagline.load(bundle)
    return [predictor.predict(text, sets=sets)[0].to_dict() for text in texts]


def command(*arguments: str, given: str | None = None) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tagline", arguments[0], "--json", *arguments[1:]],
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def arguments(bundle: Path, texts: list[Any], sets: float, _: Path) -> Answers:
    flat = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
    found: Answers = command("predict", str(bundle), "--sets", str(sets), "--", *flat)
    return found


def standard_input(bundle: Path, texts: list[Any], sets: float, _: Path) -> Answers:
    flat = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
    found: Answers = command("predict", str(bundle), "--sets", str(sets), given="\n".join(flat))
    return found


def file(bundle: Path, texts: list[Any], sets: float, scratch: Path) -> Answers:
    columns = json.loads((bundle / "tagline.json").read_text())["spec"]["data"]["text"]
    names = [columns] if isinstance(columns, str) else columns
    rows = [dict(zip(names, (text,) if isinstance(text, str) else text, strict=True)) for text in texts]
    (scratch / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command(
        "predict",
        str(bundle),
        "--input",
        str(scratch / "in.jsonl"),
        "--output",
        str(scratch / "out.jsonl"),
        "--sets",
        str(sets),
    )
    found = [json.loads(line) for line in (scratch / "out.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in names} for row in found]


def server(bundle: Path, texts: list[Any], sets: float, _: Path) -> Answers:
    with serving(bundle) as found:
        status, body = found.ask({"instances": texts, "parameters": {"sets": sets}})
    assert status == 200
    predictions: Answers = body["predictions"]
    return predictions


class TorchServeContext:
    """What TorchServe tells a handler about itself, and is told by it."""

    def __init__(self, model_dir: Path) -> None:
        self.system_properties = {"model_dir": str(model_dir)}

    def set_response_content_type(self, number: int, value: str) -> None:
        assert value == "application/json"

    def set_response_status(self, status: int, phrase: str, number: int) -> None:
        pytest.fail(f"{status}")


def torchserve(bundle: Path, texts: list[Any], sets: float, _: Path) -> Answers:
    handler, context = TaglineHandler(), TorchServeContext(bundle.parent)
    handler.initialize(context)
    asked = json.dumps({"instances": texts, "parameters": {"sets": sets}}).encode()
    [body] = handler.handle([{"body": asked}], context)
    found: Answers = json.loads(body)["predictions"]
    return found


DOORS: dict[str, Door] = {
    "python": python, "one by one": one_by_one, "arguments": arguments, "standard input": standard_input, "file": file,
    "server": server, "torchserve": torchserve,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tagline.Run]:
    directory = tmp_path_factory.mktemp("runs")
    return {
        name: tagline.train(SUPPORT / data, "model.family=linear", "model.characters=0", *settings, runs=directory)
        for name, (data, *settings) in TRAINED.items()
    }


@pytest.mark.parametrize("task", TRAINED)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_gives_the_answers_that_were_measured(
    runs: dict[str, tagline.Run], tmp_path: Path, task: str, door: str
) -> None:
    run = runs[task]
    measured = run.predictions()
    texts = [row["text"] if isinstance(row["text"], str) else tuple(row["text"]) for row in measured]
    plain = [number for number, text in enumerate(texts) if "\n" not in "".join(text) and "\r" not in "".join(text)]
    answers = DOORS[door](run.bundle, [texts[number] for number in plain], 0.9, tmp_path)
    assert any(answer.get("abstained") for answer in answers)
    for number, answer in zip(plain, answers, strict=True):
        label_set = answer.pop("set")
        expected = {key: measured[number][key] for key in answer}
        assert answer == expected
        assert measured[number].get("abstained", False) == answer.get("abstained", False)
        if task == "single":
            assert answer["label"] in label_set


@pytest.mark.parametrize("task", TRAINED)
def test_sets_are_the_same_through_every_door(runs: dict[str, tagline.Run], tmp_path: Path, task: str) -> None:
    measured = runs[task].predictions()[:15]
    texts = [row["text"] if isinstance(row["text"], str) else tuple(row["text"]) for row in measured]
    texts = [text for text in texts if "\n" not in "".join(text)]
    found = [[answer["set"] for answer in door(runs[task].bundle, texts, 0.95, tmp_path)] for door in DOORS.values()]
    assert all(sets == found[0] for sets in found)
    assert len({len(each) for each in found[0]}) > 1


@pytest.mark.parametrize("form", ["own", "onnx"])
def test_an_answer_says_that_no_label_is_there_and_never_beside_another(
    runs: dict[str, tagline.Run], tmp_path: Path, form: str
) -> None:
    """`nothing` is the name of a row with no label, in training and in answers, reports and thresholds alike."""
    run = runs["none"]
    bundle = Path(shutil.copytree(run.bundle, tmp_path / "bundle"))
    if form == "onnx":
        export.export(bundle, "onnx", measured=run.predictions())
    texts = [row["text"] for row in run.predictions()]
    answers = tagline.load(bundle).predict([*texts, "", "zzz"])
    given = [answer.labels for answer in answers]
    assert ("nothing",) in given
    assert all(labels and (len(labels) == 1 or "nothing" not in labels) for labels in given)
    report = run.report()
    assert report is not None
    counted = sum(row["labels"] == ["nothing"] for row in run.predictions())
    figures = report["test"]["per_label"]["nothing"]
    assert round(figures["recall"] * figures["support"]) == round(figures["precision"] * counted)
    assert "nothing" in report["labels"]
    assert "nothing" not in report["thresholds"]["labels"]
