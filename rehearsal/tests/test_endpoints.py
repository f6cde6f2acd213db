"""Models, endpoints and predictions of the rehearsal, through Google's own clients."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rehearsing import PARENT, Rehearsal, rehearsing, until
from serving_models import IMAGE, MACHINE, SERVER, container, deploy, done, endpoint, upload
from vertex_rehearsal.execution import containers


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here", "--grace", "1") as found:
        assert found.http("POST", "/storage/v1/b?project=demo", {"name": "files"})[0] == 200
        (found.directory / "buckets" / "files" / "model").mkdir()
        (found.directory / "buckets" / "files" / "model" / "weights.txt").write_text("3")
        yield found


@pytest.fixture(scope="module")
def platform(rehearsal: Rehearsal) -> Any:
    """The high-level package over REST."""
    from google.cloud import aiplatform

    os.environ["STORAGE_EMULATOR_HOST"] = rehearsal.keyed_address
    aiplatform.init(
        project="demo",
        location="us-central1",
        api_endpoint=rehearsal.address,
        api_transport="rest",
        credentials=rehearsal.credentials,
        staging_bucket="gs://files",
    )
    yield aiplatform
    del os.environ["STORAGE_EMULATOR_HOST"]


def refused(rehearsal: Rehearsal, verb: str, path: str, body: Any = None) -> tuple[str, str]:
    """The code and the text of a refusal."""
    status, answer = rehearsal.http(verb, f"/v1/{path}", body)
    assert status >= 400, answer
    return answer["error"]["status"], answer["error"]["message"]


def test_the_package_uploads_deploys_predicts_and_cleans_up(rehearsal: Rehearsal, platform: Any) -> None:
    words = {"serving_container_command": ["python", "-S", "-c", SERVER], "artifact_uri": "gs://files/model"}
    routes = {"serving_container_predict_route": "/predict", "serving_container_health_route": "/health"}
    variables = {"serving_container_environment_variables": {"GREETING": "hello $(AIP_MODE)"}}
    model = platform.Model.upload(
        display_name="first",
        serving_container_image_uri=IMAGE,
        **words,
        **routes,
        **variables,
        serving_container_ports=[8080],
    )
    assert (model.version_id, model.version_aliases) == ("1", ["default"])
    second = platform.Model.upload(
        display_name="second",
        serving_container_image_uri=IMAGE,
        **words,
        **routes,
        parent_model=model.resource_name,
        is_default_version=False,
        version_aliases=["challenger"],
    )
    assert (second.resource_name, second.version_id) == (model.resource_name, "2")
    assert platform.Model(f"{model.resource_name}@challenger").version_id == "2"
    assert [found.resource_name for found in platform.Model.list(filter='display_name="first"')] == [
        model.resource_name
    ]
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
    client = storage.Client(project="demo", credentials=platform.initializer.global_config.credentials)
    assert client.bucket(bucket).blob(f"{prefix}/weights.txt").download_as_bytes() == b"3"
    assert rehearsal.processes(place.resource_name)
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
    assert not rehearsal.processes(place.resource_name)
    with pytest.raises(Exception, match="has no deployed models"):
        place.predict(instances=[{}])
    place.delete()
    model.versioning_registry.delete_version("challenger")
    model.delete()
    assert refused(rehearsal, "GET", model.resource_name)[0] == "NOT_FOUND"


@pytest.fixture(scope="module")
def served(rehearsal: Rehearsal) -> str:
    """An endpoint with one model."""
    place = endpoint(rehearsal, "served")
    assert "error" not in deploy(rehearsal, place, upload(rehearsal, name="served"))
    return place


def predicted(rehearsal: Rehearsal, place: str, *instances: Any) -> tuple[int, Any]:
    return rehearsal.http("POST", f"/v1/{place}:predict", {"instances": list(instances)})


def test_the_plain_clients_over_grpc(rehearsal: Rehearsal) -> None:
    from google.api import httpbody_pb2
    from google.api_core import exceptions
    from google.cloud import aiplatform_v1
    from google.protobuf import json_format, struct_pb2

    models, places = rehearsal.client("ModelServiceClient", "grpc"), rehearsal.client("EndpointServiceClient", "grpc")
    answers = rehearsal.client("PredictionServiceClient", "grpc")
    spec = aiplatform_v1.ModelContainerSpec(
        image_uri=IMAGE, command=["python", "-S", "-c", SERVER], predict_route="/predict", health_route="/health"
    )
    uploaded = models.upload_model(
        request={"parent": PARENT, "model": {"display_name": "g", "container_spec": spec}, "model_id": "by-grpc"}
    ).result()
    assert uploaded.model == f"{PARENT}/models/by-grpc"
    assert models.get_model(name=f"{uploaded.model}@default").version_id == "1"
    merged = models.merge_version_aliases(name=uploaded.model, version_aliases=["golden", "-nobody"])
    assert list(merged.version_aliases) == ["default", "golden"]
    changed = models.update_model(
        model={"name": uploaded.model, "display_name": "h", "labels": {"k": "v"}},
        update_mask={"paths": ["display_name", "labels"]},
    )
    assert (changed.display_name, dict(changed.labels)) == ("h", {"k": "v"})
    place = places.create_endpoint(parent=PARENT, endpoint={"display_name": "g"}, endpoint_id="grpc-place").result()
    with pytest.raises(exceptions.AlreadyExists):
        places.create_endpoint(parent=PARENT, endpoint={"display_name": "g"}, endpoint_id="grpc-place")
    resources = {"machine_spec": {"machine_type": "n1-standard-4"}, "min_replica_count": 1}
    model = {"model": f"{uploaded.model}@golden", "dedicated_resources": resources, "id": "42"}
    deployed = places.deploy_model(endpoint=place.name, deployed_model=model, traffic_split={"0": 100}).result()
    assert (deployed.deployed_model.id, deployed.deployed_model.model_version_id) == ("42", "1")
    instance = json_format.ParseDict({"text": "x"}, struct_pb2.Value())
    answer = answers.predict(endpoint=place.name, instances=[instance])
    assert (answer.deployed_model_id, answer.model_display_name) == ("42", "h")
    assert answer.predictions[0]["text"] == "x"
    raw = answers.raw_predict(
        endpoint=place.name, http_body=httpbody_pb2.HttpBody(data=b"abc", content_type="text/plain")
    )
    assert raw.data == b"cba"
    with pytest.raises(exceptions.NotFound):
        answers.predict(endpoint=f"{PARENT}/endpoints/1", instances=[instance])
    assert [one.name for one in places.list_endpoints(parent=PARENT) if one.display_name == "g"] == [place.name]
    places.undeploy_model(endpoint=place.name, deployed_model_id="42", traffic_split={}).result()
    assert not places.get_endpoint(name=place.name).deployed_models
    places.delete_endpoint(name=place.name).result()
    models.delete_model(name=uploaded.model).result()


def test_errors_of_a_server_are_passed_on(rehearsal: Rehearsal, served: str) -> None:
    for status, code, http in (
        (400, "FAILED_PRECONDITION", 400),
        (404, "NOT_FOUND", 404),
        (429, "RESOURCE_EXHAUSTED", 429),
        (500, "INTERNAL", 500),
        (503, "UNAVAILABLE", 503),
    ):
        found, answer = predicted(rehearsal, served, {"status": status, "text": "it says"})
        assert (found, answer["error"]["status"]) == (http, code)
        assert json.loads(answer["error"]["message"]) == {"error": "it says"}
    found, answer = predicted(rehearsal, served, {"nonsense": True})
    assert (found, "predictions" in answer["error"]["message"]) == (500, True)


def test_what_a_prediction_may_be(rehearsal: Rehearsal, served: str) -> None:
    assert predicted(rehearsal, served)[1]["error"]["details"][0]["fieldViolations"][0]["field"] == "instances"
    status, answer = predicted(rehearsal, served, "x" * 1_572_864)
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert "exceeds the limit: 1572864 bytes" in answer["error"]["message"]
    assert predicted(rehearsal, served, "x" * 1_500_000)[0] == 200
    assert predicted(rehearsal, f"{PARENT}/endpoints/nobody", {})[0] == 404
    assert predicted(rehearsal, f"{PARENT}/publishers/google/models/some", {})[0] == 501
    plain = {"Content-Type": "text/plain"}
    assert rehearsal.http("POST", f"/v1/{served}:rawPredict", b'"abc"', headers=plain) == (200, "cba")
    empty = endpoint(rehearsal)
    status, answer = predicted(rehearsal, empty, {})
    assert (status, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")


def test_slow_predictions_keep_nobody_else_waiting(rehearsal: Rehearsal, served: str, tmp_path: Path) -> None:
    over_grpc = rehearsal.client("PredictionServiceClient", "grpc")
    wish = [{"until": str(tmp_path / "answer")}]
    with ThreadPoolExecutor(140) as asking:
        asked = [asking.submit(predicted, rehearsal, served, *wish) for _ in range(70)]
        asked += [asking.submit(over_grpc.predict, endpoint=served, instances=wish) for _ in range(70)]
        try:
            assert rehearsal.http("GET", f"/v1/{served}")[0] == 200
            assert rehearsal.client("EndpointServiceClient", "grpc").get_endpoint(name=served).name == served
            assert not any(answer.done() for answer in asked)
        finally:
            (tmp_path / "answer").touch()
        assert {answer.result()[0] for answer in asked[:70]} == {200}
        assert {len(answer.result().predictions) for answer in asked[70:]} == {1}


def test_a_server_that_dies_is_started_again(rehearsal: Rehearsal, served: str) -> None:
    assert predicted(rehearsal, served, {"die": True})[0] == 503
    assert predicted(rehearsal, served, {"text": "again"})[1]["predictions"][0]["text"] == "again"
    kind = "aiplatform.googleapis.com/Endpoint"
    wanted = f'resource.type="{kind}" AND resource.labels.endpoint_id="{served.rpartition("/")[2]}"'
    body = {"resourceNames": ["projects/demo"], "filter": wanted}

    def lines() -> list[str]:
        entries = rehearsal.http("POST", "/v2/entries:list", body)[1]["entries"]
        assert entries[0]["resource"]["labels"]["location"] == "us-central1"
        return [entry["jsonPayload"]["message"] for entry in entries]

    said = until(lambda: (now := lines()).count("serving") == 2 and now, "what the second server printed")
    assert any("its server is a process of this Python" in line for line in said)
    assert any("exited with the status 3 and is restarted" in line for line in said)


@pytest.mark.parametrize(
    ("code", "said", "limits_s"),
    [
        (
            "import time; print('deaf', flush=True); time.sleep(600)",
            "Model server never became ready.",
            (1, 5, 25, 125),
        ),
        ("print('too short'); raise SystemExit(4)", "Model server exited unexpectedly with the status 4.", (600,)),
    ],
)
def test_a_server_that_never_becomes_ready(
    rehearsal: Rehearsal, code: str, said: str, limits_s: tuple[int, ...]
) -> None:
    for limit_s in limits_s:  # until it has the time to say something
        model = upload(rehearsal, container(code, deploymentTimeout=f"{limit_s}s"))
        place = endpoint(rehearsal)
        error = deploy(rehearsal, place, model)["error"]
        assert error["code"] == 9
        assert error["message"].startswith(said)
        log = Path(error["message"].partition("logs can be found at ")[2]).read_text()
        assert "deployedModels" not in rehearsal.http("GET", f"/v1/{place}")[1]
        assert rehearsal.http("DELETE", f"/v1/{place}")[0] == 200
        assert rehearsal.http("DELETE", f"/v1/{model}")[0] == 200
        assert not rehearsal.processes(place)
        if (word := code.split("'")[1]) in log:
            break
    assert word in log


def test_what_is_refused(rehearsal: Rehearsal, served: str) -> None:
    model = {"displayName": "m", "containerSpec": container()}
    for body, field in (
        ({"model": {"containerSpec": container()}}, "model.display_name"),
        ({"model": {"displayName": "m"}}, "model.container_spec"),
        ({"model": model | {"containerSpec": {"imageUri": "local-x"}}}, "model.container_spec.image_uri"),
        ({"model": model | {"containerSpec": container(predictRoute="predict")}}, "model.container_spec.predict_route"),
        ({"model": model | {"containerSpec": container(ports=[{"containerPort": 0}])}}, "model.container_spec.ports"),
        ({"model": model | {"artifactUri": "gs://files/nothing"}}, "model.artifact_uri"),
        ({"model": model | {"artifactUri": "/some/where"}}, "model.artifact_uri"),
        ({"model": model | {"versionAliases": ["Nope!"]}}, "model.version_aliases"),
        ({"model": model, "modelId": "No Id"}, "model_id"),
        ({"model": model, "parentModel": "nobody"}, "parent_model"),
    ):
        status, answer = rehearsal.http("POST", f"/v1/{PARENT}/models:upload", body)
        assert status == 400, answer
        assert answer["error"]["details"][0]["fieldViolations"][0]["field"] == field
    kept = upload(rehearsal)
    for body, field in (
        ({"trafficSplit": {"0": 99}}, "traffic_split"),
        ({"trafficSplit": {"0": 50, "7": 50}}, "traffic_split"),
        ({"deployedModel": {"model": kept}}, "deployed_model.dedicated_resources"),
        (
            {"deployedModel": {"model": kept, "dedicatedResources": {"machineSpec": MACHINE}}},
            "deployed_model.dedicated_resources.min_replica_count",
        ),
        (
            {"deployedModel": {"model": kept, "dedicatedResources": {"machineSpec": {"machineType": "big"}}}},
            "deployed_model.dedicated_resources.machine_spec.machine_type",
        ),
    ):
        resources = {"machineSpec": MACHINE, "minReplicaCount": 1}
        whole = {"deployedModel": {"model": kept, "dedicatedResources": resources}} | body
        status, answer = rehearsal.http("POST", f"/v1/{served}:deployModel", whole)
        assert status == 400, answer
        assert answer["error"]["details"][0]["fieldViolations"][0]["field"] == field
    only = refused(rehearsal, "DELETE", f"{kept}@1:deleteVersion")
    assert only[0] == "FAILED_PRECONDITION"
    assert refused(rehearsal, "POST", f"{served}:undeployModel", {"deployedModelId": "1"})[0] == "NOT_FOUND"
    assert refused(rehearsal, "PATCH", f"{served}?updateMask=etag", {"etag": "x"})[0] == "INVALID_ARGUMENT"
    split = {"trafficSplit": {"1": 100}}
    assert refused(rehearsal, "PATCH", f"{served}?updateMask=trafficSplit", split)[0] == "INVALID_ARGUMENT"


def test_an_image_that_cannot_run_here(rehearsal: Rehearsal) -> None:
    other = upload(rehearsal, {"imageUri": "us-docker.pkg.dev/demo/repository/other:1"})
    empty = upload(rehearsal, {"imageUri": IMAGE})
    place = endpoint(rehearsal)
    resources = {"machineSpec": MACHINE, "minReplicaCount": 1}
    body = {"deployedModel": {"model": empty, "dedicatedResources": resources}}
    assert "artifact_uri" in refused(rehearsal, "POST", f"{place}:deployModel", body)[1]
    if not containers.find_engine():
        body["deployedModel"]["model"] = other
        code, said = refused(rehearsal, "POST", f"{place}:deployModel", body)
        assert (code, "neither podman nor docker" in said) == ("FAILED_PRECONDITION", True)


@pytest.fixture
def image() -> Iterator[str]:
    """An image with Python in it, which podman has under a name of Artifact Registry's."""
    base = os.environ.get("TAGLINE_IMAGE_BASE", "")
    if not base or Path(containers.find_engine()).name != "podman":
        pytest.skip("TAGLINE_IMAGE_BASE names no image that podman has")
    name = f"us-docker.pkg.dev/demo/repository/server:{os.getpid()}"
    subprocess.run(["podman", "tag", base, name], check=True)
    yield name
    subprocess.run(["podman", "untag", base, name], check=True)


def test_a_container_serves(rehearsal: Rehearsal, image: str) -> None:
    spec = container(imageUri=image, command=["python3", "-S", "-c", SERVER], ports=[{"containerPort": 8091}])
    place, model = endpoint(rehearsal), upload(rehearsal, spec, artifactUri="gs://files/model")
    found = deploy(rehearsal, place, model)
    assert "error" not in found, found
    deployed = found["deployedModel"]
    status, answer = predicted(rehearsal, place, {"text": "in a container"})
    assert status == 200, answer
    assert answer["predictions"][0]["text"] == "in a container"
    assert answer["predictions"][0]["environment"]["AIP_DEPLOYED_MODEL_ID"] == deployed["id"]
    name = f"rehearsal-{place.rpartition('/')[2]}-{deployed['id']}-0"
    there = ["podman", "container", "exists", name]
    assert subprocess.run(there, check=False).returncode == 0
    body = {"deployedModelId": deployed["id"]}
    assert "error" not in done(rehearsal, rehearsal.http("POST", f"/v1/{place}:undeployModel", body))
    assert subprocess.run(there, check=False).returncode == 1


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_what_was_read_before_somebody_else_changed_it_is_not_written(rehearsal: Rehearsal, transport: str) -> None:
    """Of ten who count in a label at the same time, none loses what another has counted."""
    from google.api_core.exceptions import Conflict
    from google.cloud.aiplatform_v1 import Endpoint

    endpoints, models = (rehearsal.client(f"{kind}ServiceClient", transport) for kind in ("Endpoint", "Model"))
    wish = Endpoint(display_name="counted", labels={"count": "0"}, etag="of mine")
    made = endpoints.create_endpoint(parent=PARENT, endpoint=wish).result(timeout=60)
    assert made.etag == endpoints.get_endpoint(name=made.name).etag != "of mine"

    def count(_: int) -> None:
        while True:
            read = endpoints.get_endpoint(name=made.name)
            read.labels["count"] = str(int(read.labels["count"]) + 1)
            with suppress(Conflict):  # as REST's client names ABORTED; gRPC's has a subclass
                endpoints.update_endpoint(endpoint=read, update_mask={"paths": ["labels"]})
                return

    with ThreadPoolExecutor(5) as several:
        list(several.map(count, range(10)))
    counted = endpoints.get_endpoint(name=made.name)
    assert counted.labels["count"] == "10"
    assert counted.etag != made.etag
    blind = Endpoint(name=made.name, display_name="renamed")
    assert endpoints.update_endpoint(endpoint=blind, update_mask={"paths": ["display_name"]}).etag != counted.etag
    endpoints.delete_endpoint(name=made.name).result(timeout=60)

    name = upload(rehearsal, name="edited")
    first = models.get_model(name=name)
    assert first.etag
    assert next(one.etag for one in models.list_models(parent=PARENT) if one.name == name) == first.etag
    first.description = "changed"
    second = models.update_model(model=first, update_mask={"paths": ["description"]})
    assert second.etag not in ("", first.etag)
    with pytest.raises(Conflict, match=f"Specified Model `etag`: `{first.etag}` does not match"):
        models.update_model(model=first, update_mask={"paths": ["description"]})
    stale = rehearsal.http("PATCH", f"/v1/{name}?updateMask=description", {"etag": first.etag})[1]["error"]
    assert (stale["status"], stale["code"]) == ("ABORTED", 409)
    aliased = models.merge_version_aliases(name=name, version_aliases=["mine"])
    assert aliased.etag not in ("", second.etag)
    models.delete_model(name=name).result(timeout=60)


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_a_model_is_copied_with_its_files(rehearsal: Rehearsal, transport: str, tmp_path: Path) -> None:
    models = rehearsal.client("ModelServiceClient", transport)
    files = rehearsal.directory / "buckets" / "files" / tmp_path.name
    files.mkdir()
    (files / "weights.txt").write_text("7")
    source = upload(rehearsal, name="source", artifactUri=f"gs://files/{tmp_path.name}", versionAliases=["best"])
    (files / "weights.txt").unlink()
    elsewhere = PARENT.replace("us-central1", "europe-west4")
    target = f"copied-{transport}"
    key = "projects/demo/locations/europe-west4/keyRings/r/cryptoKeys/k"
    asked = {"parent": elsewhere, "source_model": f"{source}@best", "model_id": target}
    begun = models.copy_model(request=asked | {"encryption_spec": {"kms_key_name": key}})
    assert begun.operation.name.startswith(f"{elsewhere}/models/{target}/operations/")
    assert rehearsal.http("GET", f"/v1/{begun.operation.name}")[0] == 200
    done = begun.result(timeout=60)
    assert (done.model, done.model_version_id) == (f"{elsewhere}/models/{target}", "1")
    copied = models.get_model(name=done.model)
    assert copied.display_name == "source"
    assert copied.version_aliases == ["default"]
    assert copied.artifact_uri == f"gs://files/{tmp_path.name}"
    assert copied.original_model_info.model == source
    assert copied.model_source_info.copy
    assert copied.encryption_spec.kms_key_name == key
    weights = list((rehearsal.directory / "buckets").glob(f"rehearsal-models-*/{target}/1/weights.txt"))
    assert [path.read_text() for path in weights] == ["7"]
    again = models.copy_model(request={"parent": elsewhere, "source_model": source, "parent_model": done.model}).result(
        timeout=60
    )
    assert (again.model, again.model_version_id) == (done.model, "2")
    for wrong, words in (
        (asked, "already exists"),
        (asked | {"source_model": f"{PARENT}/models/nobody"}, "was not found"),
        (asked | {"source_model": ""}, "source_model"),
        (asked | {"model_id": "A"}, "no model id"),
        (asked | {"parent": "projects/other/locations/us-central1"}, "another project"),
    ):
        with pytest.raises(Exception, match=words):
            models.copy_model(request=wrong)
    for name in (source, done.model):
        models.delete_model(name=name).result(timeout=60)


def test_an_upload_hangs_below_the_model_that_it_makes(rehearsal: Rehearsal) -> None:
    status, begun = rehearsal.http(
        "POST", f"/v1/{PARENT}/models:upload", {"model": {"displayName": "named", "containerSpec": container()}}
    )
    assert status == 200
    name, _, _ = begun["name"].partition("/operations/")
    assert done(rehearsal, (status, begun))["model"] == name
    assert rehearsal.http("DELETE", f"/v1/{name}")[0] == 200


def test_evaluations_belong_to_a_version(rehearsal: Rehearsal, platform: Any) -> None:
    service = rehearsal.client("ModelServiceClient", "grpc")
    name = upload(rehearsal, name="measured")
    body = {"parentModel": name, "model": {"displayName": "measured", "containerSpec": container()}}
    second = done(rehearsal, rehearsal.http("POST", f"/v1/{PARENT}/models:upload", body))
    assert second["modelVersionId"] == "2"
    metrics = {"displayName": "of the first", "metrics": {"auPrc": 0.9}, "metricsSchemaUri": "gs://schemas/text.yaml"}
    status, first = rehearsal.http("POST", f"/v1/{name}/evaluations:import", {"modelEvaluation": metrics})
    assert status == 200, first
    assert first["metrics"] == {"auPrc": 0.9}
    assert first["createTime"]
    later = service.import_model_evaluation(parent=f"{name}@2", model_evaluation={"metrics": {"auPrc": 0.95}})
    assert service.get_model_evaluation(name=first["name"]).display_name == "of the first"
    for version, expected in (("", first["name"]), ("@1", first["name"]), ("@2", later.name)):
        assert [one.name for one in service.list_model_evaluations(parent=name + version)] == [expected]
    model = platform.Model(f"{name}@2")
    assert [one.resource_name for one in model.list_model_evaluations()] == [later.name]
    assert model.get_model_evaluation().metrics["auPrc"] == 0.95
    named = {"parent": name, "filter": 'display_name="of the first"', "read_mask": {"paths": ["name"]}}
    assert [one.name for one in service.list_model_evaluations(request=named)] == [first["name"]]
    number = later.name.rpartition("/")[2]
    for wrong in (f"{name}@1/evaluations/{number}", f"{name}/evaluations/1", f"{PARENT}/models/nobody/evaluations/1"):
        assert rehearsal.http("GET", f"/v1/{wrong}")[0] == 404, wrong
    assert rehearsal.http("POST", f"/v1/{name}/evaluations:import", {"modelEvaluation": {}})[0] == 400
    service.delete_model(name=name).result(timeout=60)
    assert rehearsal.http("GET", f"/v1/{later.name}")[0] == 404
