"""The neighbours of Vertex AI, asked by Google's own clients where there are any for them, and by plain HTTP."""

import base64
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from google.api_core.exceptions import AlreadyExists, Conflict, Forbidden, GoogleAPICallError, NotFound

from rehearsing import PARENT, Rehearsal, custom_job, python, rehearsing, until
from vertex_rehearsal.execution import containers
from vertex_rehearsal.other_services.routes import SERVICE_CLASSES, methods

DEMO = "projects/demo/locations/us-central1"
T4 = "aiplatform.googleapis.com/custom_model_training_nvidia_t4_gpus"
SLEEP_S = 600 + os.getpid() / 1e7
"""Longer than anybody waits, and no other test's."""
PROJECT = {
    "disabled_services": ["compute.googleapis.com"],
    "denied_permissions": ["iam.serviceAccounts.actAs", "cloudbuild.builds.list"],
    "quotas": {"custom_model_training_nvidia_t4_gpus": {"us-central1": 0, "us-east1": 4}},
    "secrets": {"wandb": "s3cret", "of-a-file": {"file": "secret.bin"}},
    "images": ["us-central1-docker.pkg.dev/demo/given/deep/local-train:abc"],
    "missing_accounts": ["gone@demo.iam.gserviceaccount.com"],
}


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    directory = tmp_path_factory.mktemp("neighbours") / "here"
    directory.mkdir()
    (directory / "secret.bin").write_bytes(bytes(range(256)))
    (directory / "project.json").write_text(json.dumps(PROJECT))
    with rehearsing(directory) as found:
        yield found
        assert found.processes() == set()


@pytest.fixture(scope="module")
def client(rehearsal: Rehearsal) -> Iterator[Callable[..., Any]]:
    """Google's own clients, unmodified."""
    with ExitStack() as closing:

        def made(module: str, name: str, service: str) -> Any:
            kind = getattr(import_module(module), name)
            at = {"api_endpoint": f"{rehearsal.address}/-/{service}"}
            return closing.enter_context(kind(credentials=rehearsal.credentials, transport="rest", client_options=at))

        yield made


def test_services_are_enabled_or_not(client: Callable[..., Any]) -> None:
    usage = client("google.cloud.service_usage_v1", "ServiceUsageClient", "serviceusage")
    names = [f"projects/demo/services/{name}.googleapis.com" for name in ("aiplatform", "compute")]
    assert usage.get_service(request={"name": names[0]}).state.name == "ENABLED"
    found = usage.batch_get_services(request={"parent": "projects/demo", "names": names}).services
    assert [(one.config.name, one.state.name) for one in found] == [
        ("aiplatform.googleapis.com", "ENABLED"),
        ("compute.googleapis.com", "DISABLED"),
    ]
    with pytest.raises(Forbidden, match="Not found or permission denied"):
        usage.get_service(request={"name": "projects/demo/services/nonsense.googleapis.com"})


def test_quotas_by_region(rehearsal: Rehearsal) -> None:
    path = "/-/serviceusage/v1beta1/projects/demo/services/aiplatform.googleapis.com/consumerQuotaMetrics"

    def limits(view: str) -> dict[str, str | None]:
        status, page = rehearsal.http("GET", f"{path}?view={view}")
        assert status == 200
        metric = next(one for one in page["metrics"] if one["metric"] == T4)
        (limit,) = metric["consumerQuotaLimits"]
        assert limit["unit"] == "1/{project}/{region}"
        buckets = limit["quotaBuckets"]
        return {one.get("dimensions", {}).get("region", ""): one.get("effectiveLimit") for one in buckets}

    assert limits("BASIC") == {"": "1000", "us-central1": None, "us-east1": "4"}, "as Google's JSON leaves out a 0"
    full = limits("FULL")
    assert (full["us-central1"], full["us-east1"], full["europe-west4"]) == (None, "4", "1000")
    assert rehearsal.http("GET", f"{path}?view=ALL")[0] == 400
    assert rehearsal.http("GET", f"{path}/{T4.replace('/', '%2F')}")[1]["metric"] == T4
    assert rehearsal.http("GET", f"{path}/nothing%2Fsuch")[0] == 404
    first = rehearsal.http("GET", f"{path}?pageSize=2")[1]
    assert len(first["metrics"]) == 2
    second = rehearsal.http("GET", f"{path}?pageSize=2&pageToken={first['nextPageToken']}")[1]
    assert second["metrics"][0] != first["metrics"][1]
    other = path.replace("aiplatform", "storage")
    assert rehearsal.http("GET", other) == (200, {})


def test_a_project_and_what_one_may_do_in_it(rehearsal: Rehearsal, client: Callable[..., Any]) -> None:
    _, project = rehearsal.http("GET", "/-/cloudresourcemanager/v1/projects/demo")
    assert project["projectId"] == "demo"
    assert project["projectNumber"].isdigit()
    assert rehearsal.http("GET", f"/-/cloudresourcemanager/v1/projects/{project['projectNumber']}")[1] == project
    asked = {"permissions": ["aiplatform.customJobs.create", "iam.serviceAccounts.actAs"]}
    path = "/-/cloudresourcemanager/v1/projects/demo:testIamPermissions"
    assert rehearsal.http("POST", path, asked) == (200, {"permissions": ["aiplatform.customJobs.create"]})
    assert rehearsal.http("POST", path, {"permissions": ["iam.serviceAccounts.actAs"]}) == (200, {})
    assert rehearsal.http("POST", path, {"permissions": ["storage.*"]})[0] == 400
    assert rehearsal.http("POST", path, b"{")[0] == 400
    manager = client("google.cloud.resourcemanager_v3", "ProjectsClient", "cloudresourcemanager")
    assert manager.get_project(name="projects/demo").name == f"projects/{project['projectNumber']}"
    assert list(manager.test_iam_permissions(resource="projects/demo", **asked).permissions) == asked["permissions"][:1]


def test_service_accounts(rehearsal: Rehearsal) -> None:
    """Google has a client for them in a package of its own, which few have: its reference is followed by plain HTTP."""
    there, gone = "trainer@demo.iam.gserviceaccount.com", "gone@demo.iam.gserviceaccount.com"
    accounts = "/-/iam/v1/projects/demo/serviceAccounts"
    status, found = rehearsal.http("GET", f"{accounts}/{there}")
    assert (status, found["email"], found["projectId"]) == (200, there, "demo")
    assert rehearsal.http("GET", f"{accounts}/{gone}")[0] == 404
    assert rehearsal.http("GET", f"/-/iam/v1/projects/-/serviceAccounts/{gone}")[0] == 403
    asked = {"permissions": ["iam.serviceAccounts.actAs", "iam.serviceAccounts.get"]}
    held = {"permissions": ["iam.serviceAccounts.get"]}
    assert rehearsal.http("POST", f"{accounts}/{there}:testIamPermissions", asked) == (200, held)
    assert rehearsal.http("POST", f"{accounts}/{gone}:testIamPermissions", asked) == (200, {})
    assert rehearsal.http("POST", f"{accounts}/{there}:testIamPermissions", {"permissions": ["iam.*"]})[0] == 400
    for account in (there, gone):
        job = custom_job(python("pass"))
        job["jobSpec"]["serviceAccount"] = account
        status, answer = rehearsal.http("POST", f"/v1/{PARENT}/customJobs", job)
        assert status == 400
        assert f"You do not have permission to act as service_account: {account}." in answer["error"]["message"]


def test_secrets(rehearsal: Rehearsal, client: Callable[..., Any]) -> None:
    manager = client("google.cloud.secretmanager_v1", "SecretManagerServiceClient", "secretmanager")
    found = manager.access_secret_version(name="projects/demo/secrets/of-a-file/versions/latest")
    assert found.payload.data == bytes(range(256))
    assert found.payload.data_crc32c == google_crc32c.value(bytes(range(256)))
    assert found.name.endswith("/versions/1")
    _, answer = rehearsal.http("GET", "/-/secretmanager/v1/projects/demo/secrets/wandb/versions/1:access")
    assert base64.b64decode(answer["payload"]["data"]) == b"s3cret"
    for name in ("nothing/versions/latest", "wandb/versions/2"):
        with pytest.raises(NotFound):
            manager.access_secret_version(name=f"projects/demo/secrets/{name}")


def test_repositories_and_the_images_in_them(rehearsal: Rehearsal, client: Callable[..., Any]) -> None:
    registry = client("google.cloud.artifactregistry_v1", "ArtifactRegistryClient", "artifactregistry")
    with pytest.raises(NotFound):
        registry.get_repository(name=f"{DEMO}/repositories/made")
    made = registry.create_repository(parent=DEMO, repository_id="made", repository={"format_": "DOCKER"}).result(120)
    assert made.name == f"{DEMO}/repositories/made"
    assert registry.get_repository(name=made.name).format_.name == "DOCKER"
    with pytest.raises((AlreadyExists, Conflict)):
        registry.create_repository(parent=DEMO, repository_id="made", repository={"format_": "DOCKER"})
    assert {one.name for one in registry.list_repositories(parent=DEMO)} >= {made.name, f"{DEMO}/repositories/given"}
    path = f"/-/artifactregistry/v1/{DEMO}/repositories"
    assert rehearsal.http("POST", f"{path}?repositoryId=Bad_Name", {"format": "DOCKER"})[0] == 400
    assert rehearsal.http("POST", f"{path}?repositoryId=good", {"format": "MAVEN"})[0] == 400
    (image,) = registry.list_docker_images(parent=f"{DEMO}/repositories/given")
    assert list(image.tags) == ["abc"]
    assert registry.get_docker_image(name=image.name) == image
    tags = f"{DEMO}/repositories/given/packages/deep%2Flocal-train/tags"
    assert registry.get_tag(request={"name": f"{tags}/abc"}).version.rpartition("/")[2].startswith("sha256:")
    assert rehearsal.http("GET", f"/-/artifactregistry/v1/{tags}/abc")[0] == 200, "whoever escapes the slash once"
    version = registry.get_tag(request={"name": f"{tags}/abc"}).version
    assert registry.get_version(request={"name": version}).name == version
    assert len(list(registry.list_tags(request={"parent": tags.removesuffix("/tags")}))) == 1
    with pytest.raises(NotFound):
        registry.get_tag(request={"name": f"{tags}/other"})


def archive(files: dict[str, str]) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as writing:
        for name, text in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(text)
            writing.addfile(about, io.BytesIO(text.encode()))
    return found.getvalue()


def with_bucket(rehearsal: Rehearsal, name: str, files: dict[str, str]) -> dict[str, Any]:
    """A bucket with a source in it, and the part of a build that names it."""
    assert rehearsal.http("POST", "/storage/v1/b?project=demo", {"name": name})[0] == 200
    target = f"/upload/storage/v1/b/{name}/o?uploadType=media&name=source.tar.gz"
    assert rehearsal.http("POST", target, archive(files))[0] == 200
    return {"source": {"storageSource": {"bucket": name, "object": "source.tar.gz"}}, "logsBucket": f"gs://{name}/logs"}


def step(*arguments: str, **more: Any) -> dict[str, Any]:
    return {"name": "gcr.io/cloud-builders/docker", "args": list(arguments), **more}


def ended(rehearsal: Rehearsal, body: dict[str, Any]) -> dict[str, Any]:
    """A build that has ended."""
    status, operation = rehearsal.http("POST", f"/-/cloudbuild/v1/{DEMO}/builds", body)
    assert status == 200, operation
    at = f"/-/cloudbuild/v1/{operation['name']}"
    until(lambda: rehearsal.http("GET", at)[1].get("done"), "the build to end")
    return dict(rehearsal.http("GET", f"/-/cloudbuild/v1/{operation['metadata']['build']['name']}")[1])


@pytest.mark.skipif(not containers.find_builder(), reason="neither podman, docker nor buildah works here")
def test_a_build_is_performed(rehearsal: Rehearsal) -> None:
    path = f"/-/artifactregistry/v1/{DEMO}/repositories"
    assert rehearsal.http("POST", f"{path}?repositoryId=built", {"format": "DOCKER"})[0] == 200
    image = f"us-central1-docker.pkg.dev/demo/built/local-try-{rehearsal.process.pid}:1"
    files = {"inside/Dockerfile": "FROM scratch\nCOPY hello /hello\n", "inside/hello": "hi"}
    source = with_bucket(rehearsal, "built-source", files)
    build = ended(
        rehearsal,
        source
        | {
            "steps": [
                step("build", "--cache-from", "x:1", "-t", "$_IMAGE", ".", dir="inside"),
                step("push", "$_IMAGE"),
            ],
            "images": ["$_IMAGE"],
            "substitutions": {"_IMAGE": image},
        },
    )
    try:
        assert build["status"] == "SUCCESS", build
        assert [one["name"] for one in build["results"]["images"]] == [image]
        log = rehearsal.directory / "buckets" / "built-source" / "logs" / f"log-{build['id']}.txt"
        assert "COPY hello" in log.read_text()
        found = rehearsal.http("GET", f"/storage/v1/b/built-source/o/logs%2Flog-{build['id']}.txt")
        assert found[0] == 200
        tag = f"{path}/built/packages/{image.rpartition('/')[2].partition(':')[0]}/tags/1"
        status, answer = rehearsal.http("GET", tag)
        assert status == 200
        assert answer["version"].endswith(build["results"]["images"][0]["digest"])
        assert list((rehearsal.directory / "builds").iterdir()) == []
    finally:
        subprocess.run([containers.find_builder(), "rmi", image], check=False, capture_output=True)


@pytest.mark.skipif(not containers.find_builder(), reason="neither podman, docker nor buildah works here")
def test_builds_that_fail_say_why(rehearsal: Rehearsal) -> None:
    source = with_bucket(rehearsal, "broken-source", {"Dockerfile": "FROM scratch\nCOPY nothing /\n"})
    build = ended(rehearsal, source | {"steps": [step("build", ".")]})
    assert build["status"] == "FAILURE"
    assert build["failureInfo"]["type"] == "USER_BUILD_STEP"
    assert build["steps"][0]["exitCode"] != 0
    missing = {"storageSource": {"bucket": "broken-source", "object": "missing.tar.gz"}}
    build = ended(rehearsal, source | {"source": missing, "steps": [step("build", ".")]})
    assert build["failureInfo"]["type"] == "FETCH_SOURCE_FAILED"
    build = ended(rehearsal, source | {"steps": [step("push", "us-central1-docker.pkg.dev/demo/built/never:1")]})
    assert build["failureInfo"]["type"] == "PUSH_IMAGE_NOT_FOUND"
    log = rehearsal.http("GET", f"/storage/v1/b/broken-source/o?prefix=logs/log-{build['id']}")[1]
    assert len(log["items"]) == 1
    entries = {"resourceNames": ["projects/demo"], "filter": f'resource.labels.build_id="{build["id"]}"'}
    assert any(
        "never:1" in one["textPayload"] for one in rehearsal.http("POST", "/v2/entries:list", entries)[1]["entries"]
    )


@pytest.mark.skipif(
    not os.environ.get("TAGLINE_IMAGE_BASE") or not containers.find_builder(),
    reason="TAGLINE_IMAGE_BASE names no image, or nothing builds here",
)
def test_builds_that_are_ended(rehearsal: Rehearsal) -> None:
    docker = f"FROM {os.environ['TAGLINE_IMAGE_BASE']}\nRUN sleep {SLEEP_S}\n"
    source = with_bucket(rehearsal, "slow-source", {"Dockerfile": docker}) | {"steps": [step("build", ".")]}
    assert ended(rehearsal, source | {"timeout": "1.5s"})["status"] == "TIMEOUT"
    _, operation = rehearsal.http("POST", f"/-/cloudbuild/v1/{DEMO}/builds", source)
    at = f"/-/cloudbuild/v1/{operation['metadata']['build']['name']}"
    until(asleep, "the build to begin")
    _, waiting = rehearsal.http("POST", f"/-/cloudbuild/v1/{DEMO}/builds", source)
    behind = f"/-/cloudbuild/v1/{waiting['metadata']['build']['name']}"
    for path in (behind, at):
        assert rehearsal.http("POST", f"{path}:cancel", {})[1]["status"] == "CANCELLED"
    until(lambda: not list((rehearsal.directory / "builds").iterdir()), "the build to be gone")
    assert [rehearsal.http("GET", path)[1]["status"] for path in (at, behind)] == ["CANCELLED", "CANCELLED"]
    assert not asleep()


def asleep() -> list[Path]:
    """The processes in the container of a build."""
    wanted = f"sleep\0{SLEEP_S}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # gone already
            found += [path] if path.read_bytes() == wanted else []
    return found


def test_a_build_where_nothing_builds(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "here", PATH=str(tmp_path)) as rehearsal:
        build = ended(rehearsal, {"steps": [step("build", ".")]})
        assert build["status"] == "FAILURE"
        assert "neither podman, docker nor buildah works" in build["statusDetail"]
        _, page = rehearsal.http("GET", "/storage/v1/b?project=demo")
        (bucket,) = [one["name"] for one in page["items"]]
        assert build["logsBucket"] == f"gs://{bucket}"
        log = rehearsal.directory / "buckets" / bucket / f"log-{build['id']}.txt"
        assert "neither podman" in log.read_text()


def test_builds_that_are_refused(rehearsal: Rehearsal) -> None:
    path = f"/-/cloudbuild/v1/{DEMO}/builds"
    assert rehearsal.http("POST", path, {"steps": [step("build", ".")], "logsBucket": "gs://not-there"})[0] == 400
    assert rehearsal.http("POST", path, {"steps": [{"name": "ubuntu", "args": ["ls"]}]})[0] == 501
    assert rehearsal.http("GET", f"{path}/1")[0] == 404
    status, answer = rehearsal.http("GET", path)
    assert status == 403
    assert answer["error"]["details"][0]["reason"] == "IAM_PERMISSION_DENIED"
    assert "cloudbuild.builds.list" in answer["error"]["message"]


@pytest.mark.skipif(not containers.find_builder(), reason="neither podman, docker nor buildah works here")
def test_a_build_by_googles_client_without_a_location(client: Callable[..., Any]) -> None:
    builds = client("google.cloud.devtools.cloudbuild_v1", "CloudBuildClient", "cloudbuild")
    operation = builds.create_build(project_id="demo", build={"steps": [step("build", ".")]})
    with pytest.raises(GoogleAPICallError):  # there is no Dockerfile
        operation.result(timeout=300)
    build = builds.get_build(project_id="demo", id=operation.metadata.build.id)
    assert build.status.name == "FAILURE"
    with pytest.raises(GoogleAPICallError, match="cannot cancel"):
        builds.cancel_build(project_id="demo", id=build.id)


def test_what_is_not_played_is_named(rehearsal: Rehearsal) -> None:
    status, answer = rehearsal.http(
        "POST", "/-/serviceusage/v1/projects/demo/services/compute.googleapis.com:enable", {}
    )
    assert status == 501
    assert "compute.googleapis.com:enable is not played" in answer["error"]["message"]
    status, answer = rehearsal.http("GET", "/-/translate/v3/projects/demo")
    assert status == 501
    assert "translate.googleapis.com is not played" in answer["error"]["message"]
    assert rehearsal.http("GET", f"/v1/{PARENT}/customJobs")[0] == 200


def test_every_neighbour_lists_its_methods() -> None:
    ids = [method.id for method in methods()]
    assert len(ids) == len(set(ids))
    assert {found.partition(".")[0] for found in ids} == set(SERVICE_CLASSES)
