"""gs:// wherever something is read, and for answers: against Cloud Storage as the rehearsal plays it."""

import csv
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage

import tagline
from tagline import gcp
from tagline.errors import DataError, PlaceError, SpecError
from tagline.gcp import cloud_storage
from tagline.storage import addresses, hashing
from tagline.training import language_models
from vertex_rehearsal.cloud_storage.application import serve_in_thread
from vertex_rehearsal.cloud_storage.store import Store

sys.path.insert(0, str(Path(__file__).parents[1]))
from serving import serving as serving_bundle

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
QUICK = ("model.family=linear", "model.max_features=800", "model.strength=4.0", "model.characters=0")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A bucket with a bundle, its data, and a place for answers; and a cache that nobody else uses."""
    store = Store(tmp_path_factory.mktemp("buckets"))
    patch = pytest.MonkeyPatch()
    with serve_in_thread(store) as address:
        patch.setenv("STORAGE_EMULATOR_HOST", address)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        gcp.storage_client.cache_clear()
        client = google_storage.Client(project="demo", credentials=AnonymousCredentials())
        found = client.create_bucket("tagline-demo")
        run = tagline.train(SUPPORT / "messages.csv", *QUICK, runs=tmp_path_factory.mktemp("runs"))
        for path in hashing.files_below(run.bundle):
            found.blob(f"models/support/{path.relative_to(run.bundle)}").upload_from_filename(path)
        for name in ("messages.csv", "new-messages.csv"):
            found.blob(f"data/{name}").upload_from_filename(SUPPORT / name)
        yield found
    patch.undo()
    gcp.storage_client.cache_clear()
    store.close()


def test_data_is_trained_on_and_measured_from_a_bucket(bucket: Any, tagline: Any) -> None:
    done = tagline("train", "gs://tagline-demo/data/messages.csv", *QUICK, "--json")
    assert done.json["report"]["splits"]["train"] == 617
    measured = tagline("evaluate", "gs://tagline-demo/models/support", "gs://tagline-demo/data/mess*.csv", "--json")
    assert measured.json["test"]["rows"] == 769


def test_answers_come_from_a_bucket_and_go_to_one(bucket: Any, tagline: Any, tmp_path: Path) -> None:
    model, source = "gs://tagline-demo/models/support", "gs://tagline-demo/data/new-messages.csv"
    here = tagline("predict", model, "--input", source, "--output", "here.csv", "--json").json
    there = tagline("predict", model, "--input", source, "--output", "gs://tagline-demo/out/there.csv", "--json").json
    assert there == here | {"output": "gs://tagline-demo/out/there.csv"}
    text = bucket.blob("out/there.csv").download_as_text()
    assert len(list(csv.DictReader(text.splitlines()))) == here["rows"]
    assert tagline("predict", model, "--input", source, "--output", source).code == 2, "the input stays"


def test_a_language_model_that_did_not_reach_its_bucket_is_sent_by_the_same_command(
    bucket: Any, tagline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ("model.embedding_size=8", "model.hidden_size=12", "model.lm_epochs=1", "training.learning_rate=0.01")
    texts, output, upload = str(SUPPORT / "new-messages.csv"), "gs://tagline-demo/lm/english", cloud_storage.upload
    command = ("lm", texts, *small, "--output", output)

    def broken(path: Path, address: str, **more: Any) -> Any:
        if path.name == "vocab.json":
            raise PlaceError(f"cannot write {address}: the connection was lost")
        return upload(path, address, **more)

    bucket.blob("lm/english/vocab.json").upload_from_string("somebody else's")
    with pytest.raises(SpecError, match="is already there"):
        list(language_models.train_language_model([texts], *small, output=output))
    bucket.delete_blob("lm/english/vocab.json")
    with monkeypatch.context() as patch:
        patch.setattr(cloud_storage, "upload", broken)
        with pytest.raises(PlaceError, match="connection was lost"):
            list(language_models.train_language_model([texts], *small, output=output))
    names = [blob.name for blob in bucket.list_blobs(prefix="lm/english/")]
    assert "lm/english/config.json" not in names, "the file that says that all are there comes last"
    again = tagline(*command)
    assert again.code == 0
    assert "going on from" in again.err
    assert "step" not in again.err, "nothing is learned again"
    assert {blob.name.rpartition("/")[2] for blob in bucket.list_blobs(prefix="lm/english/")} == {
        "config.json",
        "model.safetensors",
        "vocab.json",
        "words.json",
    }
    assert tagline(*command).code == 2, "what is there is not written over"
    used = ("model.family=ulmfit", "model.pretrained=gs://tagline-demo/lm/english", "model.lm_epochs=0")
    quick = ("training.epochs=1", "training.baseline=false", "training.export=false", "data.fraction=0.1")
    assert tagline("train", str(SUPPORT / "messages.csv"), *used, *quick, small[-1]).code == 0


def test_a_bundle_is_served_from_a_bucket(bucket: Any) -> None:
    with serving_bundle("", AIP_STORAGE_URI="gs://tagline-demo/models/support") as server:
        assert json.loads(server.get("/info")[1])["family"] == "linear"
        assert server.ask({"instances": ["where is my parcel"]})[1]["predictions"][0]["label"] == "delivery"


def test_a_served_bundle_that_is_replaced_in_its_bucket_is_loaded_anew(bucket: Any) -> None:
    for blob in list(bucket.list_blobs(prefix="models/support/")):
        bucket.copy_blob(blob, bucket, blob.name.replace("support", "changing"))
    with serving_bundle("gs://tagline-demo/models/changing", "--workers", "1") as server:
        bucket.blob("models/changing/tagline.json").upload_from_string("{}")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("reload failed")
        assert server.ask({"instances": ["where is my parcel"]})[0] == 200


def test_what_was_fetched_is_kept_until_it_changes(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    really = cloud_storage.download
    monkeypatch.setattr(
        cloud_storage, "download", lambda found, path: (fetched.append(found.name), really(found, path))
    )
    bucket.blob("kept/a.txt").upload_from_string("one")
    for _ in range(2):
        assert addresses.fetch_copy("gs://tagline-demo/kept/a.txt").read_text() == "one"
    assert fetched == ["kept/a.txt"]
    bucket.blob("kept/a.txt").upload_from_string("two")
    assert addresses.fetch_copy("gs://tagline-demo/kept/a.txt").read_text() == "two"
    assert [path.name for path in addresses.fetch_copy("gs://tagline-demo/kept").iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("address", "said"),
    [("gs://tagline-demo/nothing", "there is nothing at"), ("gs://no-such-bucket-here/a", "no"), ("gs://", "bucket")],
)
def test_what_is_not_there_is_said(bucket: Any, address: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        addresses.fetch_copy(address)


@pytest.mark.parametrize(
    "command", [("train", "gs://b/data.csv"), ("serve", "gs://b/model"), ("predict", "gs://b/m", "x")]
)
def test_without_credentials_or_network_the_next_step_is_said(
    command: tuple[str, ...], tagline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file.json")
    done = tagline(*command)
    assert done.code == 5
    assert "needs Google credentials" in done.err
    assert "gcloud auth application-default login" in done.err
