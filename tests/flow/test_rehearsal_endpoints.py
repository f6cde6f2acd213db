"""Models, endpoints and predictions of the rehearsal, through Google's own clients."""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1")

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import PARENT, Rehearsal, rehearsing, until
from serving_models import IMAGE, SERVER


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here", "--grace", "1", "--ready", "20") as found:
        assert found.http("POST", "/storage/v1/b?project=demo", {"name": "files"})[0] == 200
        (found.directory / "buckets" / "files" / "model").mkdir()
        (found.directory / "buckets" / "files" / "model" / "weights.txt").write_text("3")
        yield found


@pytest.fixture(scope="module")
def platform(rehearsal: Rehearsal) -> Any:
    """The high-level package over REST."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    os.environ["STORAGE_EMULATOR_HOST"] = rehearsal.address
    aiplatform.init(
        project="demo", location="us-central1", api_endpoint=rehearsal.address, api_transport="rest",
        credentials=AnonymousCredentials(), staging_bucket="gs://files",
    )  # fmt: skip
    yield aiplatform
    del os.environ["STORAGE_EMULATOR_HOST"]


def refused(rehearsal: Rehearsal, verb: str, path: str, body: Any = None) -> tuple[str, str]:
    """The code and the text of a refusal."""
    status, answer = rehearsal.http(verb, f"/v1/{path}", body)
    assert status >= 400, answer
    return answer["error"]["status"], answer["error"]["message"]


def operation(rehearsal: Rehearsal, begun: dict[str, Any]) -> dict[str, Any]:
    """An operation once it is done."""
    return until(lambda: (op := rehearsal.http("GET", f"/v1/{begun['name']}")[1]).get("done") and op, "an operation")


def test_the_package_uploads_deploys_predicts_and_cleans_up(rehearsal: Rehearsal, platform: Any) -> None:
    words = {"serving_container_command": ["python", "-S", "-c", SERVER], "artifact_uri": "gs://files/model"}
    routes = {"serving_container_predict_route": "/predict", "serving_container_health_route": "/health"}
    variables = {"serving_container_environment_variables": {"GREETING": "hello $(AIP_MODE)"}}
    model = platform.Model.upload(
        display_name="first", serving_container_image_uri=IMAGE, **words, **routes, **variables,
        serving_container_ports=[8080],
    )  # fmt: skip
    assert (model.version_id, model.version_aliases) == ("1", ["default"])
    second = platform.Model.upload(
        display_name="second", serving_container_image_uri=IMAGE, **words, **routes, parent_model=model.resource_name,
        is_default_version=False, version_aliases=["challenger"],
    )  # fmt: skip
    assert (second.resource_name, second.version_id) == (model.resource_name, "2")
    assert platform.Model(f"{model.resource_name}@challenger").version_id == "2"
    assert [found.resource_name for found in platform.Model.list(filter='display_name="first"')] == [model.resource_name]
    assert {info.version_id for info in model.versioning_registry.list_versions()} == {"1", "2"}

    place = platform.Endpoint.create(display_name="place")
    model.deploy(endpoint=place, machine_type="n1-standard-2", min_replica_count=2)
    answer = place.predict(instances=[{"text": "a"}, {"text": "b"}], parameters={"scale": 2.0})
    assert [one["text"] for one in answer.predictions] == ["a", "b"]
    assert (answer.model_resource_name, answer.model_version_id) == (model.resource_name, "1")
    given = answer.predictions[0]["environment"]
    assert answer.deployed_model_id == given["AIP_DEPLOYED_MODEL_ID"]
    assert given["GREETING"] == "hello PREDICTION"
    assert given["AIP_ENDPOINT_ID"] == given["AIP_MODEL_NAME"] == place.name
    assert (given["AIP_PREDICT_ROUTE"], given["AIP_HEALTH_ROUTE"]) == ("/predict", "/health")
    assert answer.predictions[0]["parameters"] == {"scale": 2.0}
    from google.cloud import storage

    bucket, _, prefix = given["AIP_STORAGE_URI"].removeprefix("gs://").partition("/")
    blob = storage.Client(project="demo", credentials=None if False else platform.initializer.global_config.credentials)
    assert blob.bucket(bucket).blob(f"{prefix}/weights.txt").download_as_bytes() == b"3"
    replicas = {place.predict(instances=[{}]).predictions[0]["port"] for _ in range(4)}
    assert len(replicas) == 2, "two replicas take turns"

    deployed = {one.id: one for one in place.list_models()}
    second.deploy(endpoint=place, machine_type="n1-standard-2", traffic_percentage=50)
    ids = {one.model_version_id: one.id for one in place.list_models()}
    assert set(ids) == {"1", "2"}
    assert place.traffic_split == dict.fromkeys(ids.values(), 50)
    shares = Counter(place.predict(instances=[{}]).model_version_id for _ in range(60))
    assert min(shares["1"], shares["2"]) > 5, "half of the traffic each"
    place.update(traffic_split={ids["1"]: 0, ids["2"]: 100})
    assert {place.predict(instances=[{}]).model_version_id for _ in range(10)} == {"2"}
    code, said = refused(rehearsal, "DELETE", place.resource_name)
    assert (code, "undeploy all models" in said) == ("FAILED_PRECONDITION", True)
    assert refused(rehearsal, "DELETE", model.resource_name)[0] == "FAILED_PRECONDITION"
    assert refused(rehearsal, "DELETE", f"{model.resource_name}@2:deleteVersion")[0] == "FAILED_PRECONDITION"
    assert len(platform.Model(model.resource_name).gca_resource.deployed_models) == 1
    place.undeploy(deployed_model_id=next(iter(deployed)))
    assert place.traffic_split == {ids["2"]: 100}
    place.undeploy_all()
    assert rehearsal.processes() == set()
    with pytest.raises(Exception, match="has no deployed models"):
        place.predict(instances=[{}])
    place.delete()
    model.versioning_registry.delete_version("challenger")
    model.delete()
    assert refused(rehearsal, "GET", model.resource_name)[0] == "NOT_FOUND"
