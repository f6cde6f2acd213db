"""Family ulmfit: its stages, its two directions, what it starts from, and stopping anywhere."""

import csv
import gzip
import json
import shutil
import signal
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from samples import SUPPORT, bundle, contents, go_on

from tagline.cli.lm import _is_setting
from tagline.data import dataset
from tagline.data.dataset import Dataset
from tagline.errors import DataError, Interrupted, RunError, SpecError, TaglineError
from tagline.models.ulmfit import Ulmfit, UlmfitOptions
from tagline.models.ulmfit.awd_lstm import Shape
from tagline.models.ulmfit.stages import MOST_RATE, NextTokenObjective, plan_stages
from tagline.models.ulmfit.tokenizer import SentencePieceTokenizer, SpacyTokenizer, choose_tokenizer
from tagline.spec import Data, Training
from tagline.training import language_models

pytestmark = pytest.mark.trains

SMALL = {"embedding_size": 12, "hidden_size": 16, "layers": 2, "lm_epochs": 1, "drop_mult": 0.3}
Fixture = Callable[[str], Path]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dataset.load(Data(train=str(SUPPORT / "messages.csv"), text="message", labels="topic", fraction=0.1))


def new(data: Dataset, *, training: dict[str, Any] | None = None, **options: Any) -> Ulmfit:
    settings = Training(**{"epochs": 1, "learning_rate": 0.01, **(training or {})})
    chosen = UlmfitOptions(**{**SMALL, **options})
    return Ulmfit.create(chosen, training=settings, task=data.task, labels=data.labels, pair=data.pair)


def test_what_is_pretrained_learns_from_its_last_group_to_all() -> None:
    plan = plan_stages("forward", pretrained=True, groups=5, lm_epochs=4, first_epochs=1, epochs=3, search=True)
    assert [(stage.part, stage.learning, stage.epochs) for stage in plan] == [
        ("language model", 1, 0),
        ("language model", 1, 1),
        ("language model", 4, 4),
        ("classifier", 1, 0),
        ("classifier", 1, 1),
        ("classifier", 2, 1),
        ("classifier", 3, 1),
        ("classifier", 5, 3),
    ]


def test_what_starts_from_nothing_learns_all_at_once() -> None:
    plan = plan_stages("backward", pretrained=False, groups=5, lm_epochs=2, first_epochs=1, epochs=3, search=False)
    assert [(stage.part, stage.learning, stage.epochs) for stage in plan] == [
        ("language model", 4, 2),
        ("classifier", 5, 3),
    ]


@pytest.fixture(scope="module")
def whole(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], list[Any]]:
    """A training of both directions with range tests, never stopped: its files and its steps."""
    model = new(data, direction="both", training={"learning_rate": "auto"})
    steps = list(model.fit(data.splits["train"], data.splits["validation"], seed=42))
    return contents(bundle(model, tmp_path_factory.mktemp("whole") / "model")), steps


def test_every_stage_is_there_and_only_the_last_classifier_is_measured(whole: Any) -> None:
    steps = whole[1]
    assert list(dict.fromkeys(step.stage for step in steps)) == [
        f"{direction} {what}"
        for direction in ("forward", "backward")
        for what in ("language model: learning rate", "language model", "classifier: learning rate", "classifier")
    ]
    assert {step.stage for step in steps if step.evaluate} == {"backward classifier"}
    assert steps[-1].number == steps[-1].total


def test_a_whole_classifier_does_not_learn_faster_than_it_can(whole: Any) -> None:
    rates = [step.settings["learning_rate"] for step in whole[1] if step.stage.endswith("classifier")]
    assert max(rates) <= MOST_RATE


@pytest.mark.parametrize("share", [0.1, 0.26, 0.4, 0.6, 0.97])
def test_stopped_in_any_stage_it_ends_with_the_same_bits(
    data: Dataset, whole: Any, tmp_path: Path, share: float
) -> None:
    expected, steps = whole
    stop = steps[int(share * (len(steps) - 1))].number
    stopped = go_on(new(data, direction="both", training={"learning_rate": "auto"}), data, steps=stop)
    resumed = Ulmfit.load(bundle(stopped, tmp_path / "stopped", resumable=True))
    rest = list(resumed.fit(data.splits["train"], data.splits["validation"], seed=42))
    assert rest == [step for step in steps if step.number > stop]
    assert contents(bundle(resumed, tmp_path / "resumed")) == expected


def test_backward_really_turns_the_texts_round(data: Dataset) -> None:
    model = new(data, direction="backward")
    sequences = model._read_texts(lambda: iter(data.splits["train"].texts))
    network: Any = model._create_language_model()
    ahead, back = (NextTokenObjective(network, sequences, backwards=turned, rows=1, seed=0) for turned in (False, True))
    for work in (ahead, back):
        work.loss(0)
    length = int(ahead._ends[0])
    assert back._read_stream(0, length).tolist() == ahead._read_stream(0, length).tolist()[::-1]
    assert ahead._read_stream(0, 1) == [2]  # xxbos comes first, and last when read backwards
    assert back._read_stream(length - 1, length) == [2]


def test_of_both_directions_the_mean_counts(data: Dataset) -> None:
    model = go_on(new(data, direction="both"), data)
    texts = list(data.splits["test"].texts)
    scores = model.scores(texts)
    parts = []
    for direction in ("forward", "backward"):
        model.directions = [direction]  # type: ignore[list-item]
        classifiers = model.classifiers
        model.classifiers = {direction: classifiers[direction]}  # type: ignore[index, dict-item]
        parts.append(model.scores(texts))
        model.classifiers = classifiers
    assert not np.allclose(parts[0], parts[1], atol=1e-3)
    assert np.allclose(scores, (parts[0] + parts[1]) / 2, atol=1e-6)


@pytest.mark.parametrize(("direction", "key"), [("forward", "pretrained"), ("backward", "pretrained_backward")])
def test_it_starts_from_what_fastai_wrote(fastai: Fixture, data: Dataset, direction: str, key: str) -> None:
    directory = fastai(f"en_{direction}")
    model = go_on(new(data, direction=direction, **{key: str(directory)}), data)
    assert model.lexicon is not None
    assert model.lexicon.vocabulary[:3104] == json_vocabulary(directory)
    assert "refund" in model.lexicon.vocabulary  # of the texts, and not known before
    assert model._choose_shape().emb_sz == 48


def json_vocabulary(directory: Path) -> list[str]:
    from tagline.models.ulmfit.checkpoints import read

    return read(str(directory)).lexicon.vocabulary


@pytest.mark.corpora
def test_a_model_of_the_other_direction_is_refused(fastai: Fixture, corpus: Fixture, tmp_path: Path) -> None:
    with corpus("happydb/hm_train.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["cleaned_hm"], row["predicted_category"]) for row in islice(csv.DictReader(file), 400)]
    with (tmp_path / "happy.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    happy = dataset.load(Data(train=str(tmp_path / "happy.csv"), text="text", labels="label"))
    model = new(happy, pretrained=str(fastai("en_backward")))
    with pytest.raises(SpecError, match="the model there reads backward") as error:
        go_on(model, happy, steps=1)
    assert "model.pretrained_backward" in error.value.hint
    go_on(new(happy, pretrained=str(fastai("en_forward"))), happy, steps=1)


def lm(tmp_path: Path, *overrides: str, name: str = "model") -> Path:
    settings = [f"model.{key}={value}" for key, value in SMALL.items()]
    files = [str(SUPPORT / "new-messages.csv")]
    for _ in language_models.train_language_model(
        files, *settings, "training.learning_rate=0.01", *overrides, output=tmp_path / name
    ):
        pass
    return tmp_path / name


def test_a_language_model_is_made_shared_and_used(data: Dataset, tmp_path: Path) -> None:
    directory = lm(tmp_path)
    assert sorted(path.name for path in directory.iterdir()) == [
        "config.json",
        "model.safetensors",
        "vocab.json",
        "words.json",
    ]
    assert not (tmp_path / "model.partial").exists()
    # As fastai writes them: whoever uses the model scales its dropouts with a drop_mult of their own.
    assert json.loads((directory / "config.json").read_text())["weight_p"] == Shape().weight_p
    model = go_on(new(data, pretrained=str(directory)), data)
    assert model.scores(["where is it"]).shape == (1, len(data.labels))
    with pytest.raises(SpecError, match="already there"):
        lm(tmp_path)


def test_one_that_says_it_reads_backward_is_refused_as_a_forward_one(data: Dataset, tmp_path: Path) -> None:
    directory = lm(tmp_path, "model.direction=backward")
    assert json.loads((directory / "config.json").read_text())["backwards"] is True
    with pytest.raises(SpecError, match="reads backward") as error:
        new(data, pretrained=str(directory))
    assert "pretrained_backward" in error.value.hint
    new(data, direction="backward", pretrained_backward=str(directory))
    with pytest.raises(SpecError, match="is not used: the model reads forward"):
        new(data, pretrained_backward=str(directory))


def test_a_language_model_that_was_begun_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = contents(lm(tmp_path, "training.batch_size=4", name="whole"))
    monkeypatch.setattr(language_models, "KEPT_EVERY_S", 0.0)
    settings = [f"model.{key}={value}" for key, value in SMALL.items()]
    files, output = [str(SUPPORT / "new-messages.csv")], tmp_path / "stopped"
    overrides = [*settings, "training.learning_rate=0.01", "training.batch_size=4"]
    for number, _ in enumerate(language_models.train_language_model(files, *overrides, output=output)):
        if number == 1:
            break
    assert (tmp_path / "stopped.partial").exists()
    with pytest.raises(RunError, match="other settings"):
        list(language_models.train_language_model(files, *overrides[:-1], output=output))
    (tmp_path / "stopped.partial").rename(tmp_path / "stopped.partial.new")  # killed while the next took its place
    again = language_models.train_language_model(files, *overrides, output=output)
    assert next(again)["message"] == f"going on from {tmp_path / 'stopped.partial'}"
    assert len(list(again)) > 0
    assert contents(output) == expected
    assert [path.name for path in tmp_path.glob("stopped*")] == ["stopped"]


def test_more_texts_make_a_larger_vocabulary_and_must_not_change(data: Dataset, tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("a zeppelin flew over the harbour\n" * 4, "utf-8")
    model = go_on(new(data, unlabelled=(str(more),)), data, steps=2)
    assert model.lexicon is not None
    assert "zeppelin" in model.lexicon.vocabulary
    resumed = Ulmfit.load(bundle(model, tmp_path / "stopped", resumable=True))
    more.write_text("a zeppelin flew over the mountain\n" * 4, "utf-8")
    with pytest.raises(RunError, match="have changed"):
        go_on(resumed, data)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [(["Where is my parcel?"] * 9, SpacyTokenizer),
     (["荷物はどこですか？今日は届きません。"] * 9, SentencePieceTokenizer),
     (["Où est mon colis ? Très déçu, réponse à côté, été gâché."] * 9, SentencePieceTokenizer)],
)  # fmt: skip
def test_words_or_pieces_by_the_letters_of_the_texts(texts: list[str], kind: type) -> None:
    assert isinstance(choose_tokenizer(lambda: texts, language="auto"), kind)


@pytest.mark.parametrize("language", ["english", "EN", "日本語", "e", "en_US"])
def test_what_is_no_code_of_a_language_is_refused(language: str) -> None:
    with pytest.raises(ValidationError, match="a code such as en"):
        UlmfitOptions(language=language)
    assert UlmfitOptions(language="zh-Hans-CN").language == "zh-Hans-CN"


def test_a_language_that_is_named_is_not_guessed() -> None:
    texts = ["a plain english text, with some letters to spare", "and quite another one"] * 9
    assert isinstance(choose_tokenizer(lambda: texts, language="fr"), SentencePieceTokenizer)
    assert isinstance(choose_tokenizer(lambda: ["Très déçu"] * 9, language="en-US"), SpacyTokenizer)


@pytest.mark.parametrize("task", ["single", "multi"])
def test_several_labels_begin_from_how_rare_each_is(task: str, tmp_path: Path) -> None:
    labels = "topic" if task == "single" else ("billing", "delivery", "technical")
    file = SUPPORT / ("messages.csv" if task == "single" else "messages-multi.csv")
    data = dataset.load(Data(train=str(file), text="message", labels=labels, fraction=0.1))
    model = go_on(new(data, lm_epochs=0), data, steps=1)
    usual = model.classifiers["forward"].usual.numpy()
    counts = data.splits["train"].targets.sum(axis=0)
    odds = (counts + 0.5) / (len(data.splits["train"]) - counts + 0.5)
    assert usual == pytest.approx(np.log(odds) if task == "multi" else np.zeros(len(data.labels)), abs=1e-5)
    again = Ulmfit.load(bundle(model, tmp_path / "model"))
    assert again.classifiers["forward"].usual.numpy() == pytest.approx(usual)


def test_too_few_rows_are_named(data: Dataset) -> None:
    with pytest.raises(SpecError, match=r"training\.batch_size"):
        new(data, training={"batch_size": 1})
    one = dataset.Split(data.splits["train"].texts[:1], data.splits["train"].targets[:1], data.splits["train"].rows[:1])
    with pytest.raises(DataError, match="two training rows"):
        list(new(data).fit(one, data.select(), seed=1))


def test_a_row_that_is_left_over_joins_a_batch(data: Dataset) -> None:
    rows = len(data.splits["train"])
    model = new(data, training={"batch_size": rows - 1})
    assert [step.rows for step in model.fit(data.splits["train"], data.select(), seed=1)][-1] == rows


def test_without_a_classifier_there_are_no_scores(data: Dataset) -> None:
    model = go_on(new(data), data, steps=1)
    with pytest.raises(RunError, match="no classifier yet"):
        model.scores(["a text"])


def test_without_a_classifier_there_is_no_bundle(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no classifier yet"):
        bundle(go_on(new(data), data, steps=1), tmp_path / "bundle")


def test_files_of_more_texts_are_refused_at_once_and_may_be_a_pattern(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*more\.txt"):
        new(data, unlabelled=(str(tmp_path / "more.txt"),))
    with pytest.raises(DataError, match="no file matches"):
        new(data, unlabelled=(str(tmp_path / "*.txt"),))
    (tmp_path / "one.txt").write_text("a zeppelin flew\n" * 4, "utf-8")
    with gzip.open(tmp_path / "two.txt.gz", "wt", encoding="utf-8") as file:
        file.write("a gondola, too\n" * 4)
    model = go_on(new(data, unlabelled=(str(tmp_path / "*.txt*"),)), data, steps=1)
    assert model.lexicon is not None
    assert {"zeppelin", "gondola", "too"} <= set(model.lexicon.vocabulary)


@pytest.mark.parametrize(
    ("text", "setting", "complaint"),
    [
        ("<br />\n", "model.layers=1", "too short for a language model"),
        ("a b c d\n" * 20, "model.lm_epochs=0", r"model\.lm_epochs"),
        ("a b c d\n" * 20, "training.learning_rate=1e38", "the loss is"),
    ],
)
def test_a_language_model_of_nothing_is_none(tmp_path: Path, text: str, setting: str, complaint: str) -> None:
    (tmp_path / "texts.txt").write_text(text, "utf-8")
    settings = [*(f"model.{key}={value}" for key, value in (SMALL | {"lm_epochs": 8}).items()), setting]
    with pytest.raises(TaglineError, match=complaint):
        list(language_models.train_language_model([str(tmp_path / "texts.txt")], *settings, output=tmp_path / "lm"))
    assert not (tmp_path / "lm").exists()


@pytest.mark.parametrize("content", ["荷物はどこですか。\n" * 30, "a parcel for the café\n" * 30])
def test_lines_with_bytes_that_do_not_fit_are_named_before_anything_is_learned(tmp_path: Path, content: str) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes(content.encode() + "落".encode()[:2] + b" \n" + content.encode())
    with pytest.raises(DataError, match=r"1 bad row:\n.*texts\.txt:31: byte 0xe8 is not utf-8") as error:
        next(language_models.train_language_model([str(path)], output=tmp_path / "lm"))
    assert "take them out" in error.value.hint


def test_what_is_kept_stays_until_the_next_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever interrupts a writing loses nothing that was written before."""
    expected = contents(lm(tmp_path, "training.batch_size=4", name="whole"))
    monkeypatch.setattr(language_models, "KEPT_EVERY_S", 0.0)
    save, saved = Ulmfit.save, []

    def interrupted(model: Ulmfit, directory: Path, *, resumable: bool = False) -> None:
        saved.append(directory)
        save(model, directory, resumable=resumable)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ulmfit, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lm(tmp_path, "training.batch_size=4", name="stopped")
    assert [path.name for path in tmp_path.glob("stopped*")] == ["stopped.partial"]
    assert json.loads((tmp_path / "stopped.partial" / "ulmfit.json").read_text())["course"]["done"] == 1
    assert contents(lm(tmp_path, "training.batch_size=4", name="stopped")) == expected


@pytest.mark.parametrize(
    ("sent", "said"), [(signal.SIGINT, "interrupted after saving"), (signal.SIGTERM, "told to stop")]
)
def test_told_to_stop_a_language_model_is_kept_at_the_end_of_its_step(tmp_path: Path, sent: int, said: str) -> None:
    expected = contents(lm(tmp_path, "training.batch_size=4", name="whole"))
    settings = [*(f"model.{key}={value}" for key, value in SMALL.items()), "training.learning_rate=0.01"]
    texts, before = str(SUPPORT / "new-messages.csv"), signal.getsignal(sent)
    steps = language_models.train_language_model(
        [texts], *settings, "training.batch_size=4", output=tmp_path / "stopped"
    )
    assert next(steps)["step"] == 1
    signal.raise_signal(sent)  # nothing is lost: it waits until the model can be kept
    with pytest.raises(Interrupted, match=said) as stopped:
        next(steps)
    assert stopped.value.exit_code == 128 + sent
    assert "the same command" in stopped.value.hint
    assert signal.getsignal(sent) == before
    assert json.loads((tmp_path / "stopped.partial" / "ulmfit.json").read_text())["course"]["done"] == 1
    assert contents(lm(tmp_path, "training.batch_size=4", name="stopped")) == expected


@pytest.mark.parametrize("content", [None, "{}", "[1]", "nonsense"])
def test_what_is_nothing_to_go_on_from_is_named(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "model.partial").mkdir()
    if content is not None:
        (tmp_path / "model.partial" / "ulmfit.json").write_text(content)
    with pytest.raises(RunError, match=r"model\.partial/ulmfit\.json is damaged") as error:
        lm(tmp_path)
    assert "remove it" in error.value.hint


def test_a_finished_run_needs_its_language_model_no_more(data: Dataset, tmp_path: Path) -> None:
    model = go_on(new(data, pretrained=str(lm(tmp_path))), data)
    directory = bundle(model, tmp_path / "kept", resumable=True)
    shutil.rmtree(tmp_path / "model")
    again = Ulmfit.load(directory)
    assert again.scores(["where is it"]) == pytest.approx(model.scores(["where is it"]))
    with pytest.raises(SpecError, match="there is no directory"):
        go_on(again, data)


def test_a_few_letters_tell_the_language_of_very_long_texts() -> None:
    long = "a plain english text " * 100
    assert isinstance(choose_tokenizer(lambda: [long + "é" * 5000] * 3, language="auto"), SpacyTokenizer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("model.lm_epochs=2", True), ("lr=3", True), ("texts.txt", False), ("gs://bucket/date=2024/texts.txt", False),
     ("dir/date=*/texts.txt", False), ("day=1.txt", False)],
)  # fmt: skip
def test_a_setting_is_told_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "day=1.txt").touch()
    assert _is_setting(text) is expected


def test_settings_that_a_language_model_does_not_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a b c d\n" * 20, "utf-8")
    settings = [*(f"model.{key}={value}" for key, value in SMALL.items()), "training.learning_rate=0.01"]
    said = list(
        language_models.train_language_model(
            [str(tmp_path / "texts.txt")],
            *settings,
            "training.epochs=3",
            "training.max_minutes=1",
            output=tmp_path / "lm",
        )
    )
    assert [event["message"] for event in said if event["event"] == "warning"] == [
        "training.epochs has no effect on a language model",
        "training.max_minutes has no effect on a language model",
    ]
