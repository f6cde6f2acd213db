"""What a lock holds of the machine and of what a model begins from."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from tagline import registry
from tagline import spec as specs
from tagline.cli import console
from tagline.runs import lock
from tagline.runs.events import ResumedEvent

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def spec_of(**model: Any) -> specs.Spec:
    raw = {"data": {"train": "a.csv", "text": "t", "labels": "l"}, "model": model, "training": {"precision": "float16"}}
    return specs.parse(raw, where="a test")


def write_weights(directory: Path) -> str:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"weights")
    return hashlib.sha256(b"weights").hexdigest()


def test_the_packaged_encoder_is_locked_by_its_hash() -> None:
    found = lock.pretrained_weights(spec_of(family="encoder").model)
    assert found == {
        "model.pretrained": {"name": "minilm", "sha256": registry.PACKAGED["minilm"][1]["model.safetensors"]}
    }


def test_an_encoder_in_a_directory_is_locked_by_the_hash_of_its_weights(tmp_path: Path) -> None:
    expected = write_weights(tmp_path / "own")
    model = spec_of(family="encoder", pretrained=str(tmp_path / "own")).model
    [found] = lock.pretrained_weights(model).values()
    assert found["sha256"] == expected
    (tmp_path / "own" / "model-2.safetensors").write_bytes(b"more")
    [changed] = lock.pretrained_weights(model).values()
    assert changed["sha256"] != expected


def test_an_encoder_of_the_hub_is_locked_by_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "models--somebody--bert"
    expected = write_weights(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    found = lock.pretrained_weights(spec_of(family="encoder", pretrained="somebody/bert").model)
    assert found == {"model.pretrained": {"name": "somebody/bert", "revision": COMMIT, "sha256": expected}}


def test_a_family_that_begins_from_nothing_locks_nothing() -> None:
    assert lock.pretrained_weights(spec_of(family="linear").model) == {}


def test_device_and_precision_are_told_where_torch_computes() -> None:
    assert lock.describe_device(spec_of(family="linear")) == {"device": "cpu"}
    found = lock.describe_device(spec_of(family="lstm"))
    assert found["precision"] == "float16"
    event = ResumedEvent.model_validate({"run": "runs/x", "checkpoint": "000012", **found})
    assert (
        console._format_event(event)
        == f"run runs/x: going on from step 12; device {found['device']}, precision float16"
    )
