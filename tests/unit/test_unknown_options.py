"""An option that a command does not have, and the setting that was meant."""

import shlex

import pytest

from tagline import registry, spec
from tagline.cli import run
from tagline.cli.unknown_options import OTHER_TRAINERS_NAMES, find_settings


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--epochs 3", "training.epochs=3"),
        ("--epochs=3", "training.epochs=3"),
        ("--epochs", "training.epochs=VALUE"),
        ("--batch-size 8", "training.batch_size=8"),
        ("--lr 1e-4", "training.learning_rate=1e-4"),
        ("--wd 0.1", "training.weight_decay=0.1"),
        ("--num-train-epochs 4", "training.epochs=4"),
        ("--per-device-train-batch-size 8", "training.batch_size=8"),
        ("--learning-rat 0.1", "training.learning_rate=0.1"),
        ("--seed 1", "training.seed=1 or data.seed=1"),
        ("--family linear", "model.family=linear"),
        ("--max-length 128", "model.max_tokens=128"),
        ("--text 'my column'", "data.text='my column'"),
        ("--region europe-west4", "vertex.region=europe-west4"),
        ("--device cuda", "CUDA_VISIBLE_DEVICES"),
    ],
)
@pytest.mark.parametrize("command", ["train", "check", "init"])
def test_the_setting_that_does_it_is_named(
    command: str, given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "data.csv", *shlex.split(given)]) == 2
    said = capsys.readouterr().err
    assert f"error: there is no option {given.split()[0].partition('=')[0]}" in said
    assert meant in said.splitlines()[1]


@pytest.mark.parametrize(
    "given", ["train data.csv --nonsense 3", "train data.csv --worker 2", "predict last --epochs 3"]
)
def test_what_no_setting_is_meant_by_is_answered_as_before(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(given.split()) == 2
    assert "No such option" in capsys.readouterr().err


def test_every_setting_is_found_by_its_name_and_what_others_call_it_exists() -> None:
    sections = dict(spec.SECTIONS) | {family: spec.options_of(family) for family in registry.list_names("models")}
    for section, kind in sections.items():
        for key in kind.model_fields:
            assert f"{section if section in spec.SECTIONS else 'model'}.{key}" in find_settings(key)
    for setting in OTHER_TRAINERS_NAMES.values():
        assert setting in find_settings(setting.partition(".")[2])
