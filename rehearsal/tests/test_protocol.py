"""One answer through every door: REST, gRPC, async clients and plain HTTP, with Google's own packages unmodified."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsing import IMAGE, PARENT, Rehearsal, custom_job, pool, python, rehearsing, until

SPEC = {
    "worker_pool_specs": [{
        "machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1,
        "container_spec": {"image_uri": IMAGE, "command": ["python", "-S", "-c", "print('hello')"]},
    }]
}  # fmt: skip


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here", "--grace", "1") as found:
        yield found


@pytest.fixture(params=["rest", "grpc"])
def jobs(request: pytest.FixtureRequest, rehearsal: Rehearsal) -> Any:
    """The client of jobs, over each transport."""
    return getattr(rehearsal, request.param)


def test_a_job_by_the_client(jobs: Any) -> None:
    from google.cloud.aiplatform_v1 import CustomJob, JobState

    created = jobs.create_custom_job(parent=PARENT, custom_job=CustomJob(display_name="hello", job_spec=SPEC))
    assert created.name.startswith(f"{PARENT}/customJobs/")
    assert created.state in (JobState.JOB_STATE_QUEUED, JobState.JOB_STATE_PENDING)
    ended = until(lambda: (job := jobs.get_custom_job(name=created.name)).end_time and job, "the job's end")
    assert ended.state == JobState.JOB_STATE_SUCCEEDED
    assert created.create_time <= ended.start_time <= ended.end_time <= ended.update_time
    listed = jobs.list_custom_jobs(request={"parent": PARENT, "filter": 'display_name="hello"'})
    assert created.name in {job.name for job in listed}
    assert jobs.delete_custom_job(name=created.name).result(timeout=120) is not None
    with pytest.raises(Exception, match="was not found") as missing:
        jobs.get_custom_job(name=created.name)
    assert type(missing.value).__name__ == "NotFound"


@pytest.mark.parametrize("transport", ["rest", "grpc"])
def test_the_clients_of_v1beta1(rehearsal: Rehearsal, transport: str) -> None:
    """Answered as v1 is, where v1 has the same; what it has alone is refused, and never dropped in silence."""
    from google.cloud import aiplatform_v1beta1

    jobs = rehearsal.client("JobServiceClient", transport, library=aiplatform_v1beta1)
    wish = {"display_name": "beta", "job_spec": SPEC}
    created = jobs.create_custom_job(parent=PARENT, custom_job=wish)
    assert isinstance(created, aiplatform_v1beta1.CustomJob)
    assert rehearsal.wait(created.name)["state"] == "JOB_STATE_SUCCEEDED"
    assert created.name in {job.name for job in jobs.list_custom_jobs(parent=PARENT)}
    jobs.delete_custom_job(name=created.name).result(timeout=120)
    with pytest.raises(Exception, match="was not found"):
        jobs.get_custom_job(name=created.name)
    endpoints = rehearsal.client("EndpointServiceClient", transport, library=aiplatform_v1beta1)
    begun = endpoints.create_endpoint(parent=PARENT, endpoint={"display_name": "beta"})
    endpoint = begun.result(timeout=120)
    assert isinstance(endpoint, aiplatform_v1beta1.Endpoint)
    assert isinstance(begun.metadata, aiplatform_v1beta1.CreateEndpointOperationMetadata)
    endpoints.delete_endpoint(name=endpoint.name).result(timeout=120)
    (pool,) = SPEC["worker_pool_specs"]
    machine = {"machine_spec": {"machine_type": "n1-standard-4", "multihost_gpu_node_count": 2}}
    for call in (
        lambda: jobs.create_custom_job(
            parent=PARENT, custom_job={"display_name": "x", "job_spec": {"worker_pool_specs": [pool | machine]}}
        ),
        lambda: jobs.list_nas_jobs(parent=PARENT),
    ):
        with pytest.raises(Exception, match=r"not played|what v1 has, too") as refused:
            call()
        assert type(refused.value).__name__ == "MethodNotImplemented"


def test_an_invalid_argument_names_its_field(jobs: Any) -> None:
    with pytest.raises(Exception, match="display_name") as caught:
        jobs.create_custom_job(parent=PARENT, custom_job={"job_spec": SPEC})
    assert caught.value.code == 400  # type: ignore[attr-defined]
    assert "custom_job.display_name" in str(caught.value.details)  # type: ignore[attr-defined]


def test_what_is_not_played_says_its_name(jobs: Any) -> None:
    with pytest.raises(Exception, match=r"aiplatform\.v1\.JobService/GetNasJob is not played") as caught:
        jobs.get_nas_job(name=f"{PARENT}/nasJobs/1")
    assert caught.value.code == 501  # type: ignore[attr-defined]


def test_every_method_over_grpc_is_answered_or_says_its_name(rehearsal: Rehearsal) -> None:
    import grpc

    from vertex_rehearsal.protocol.registry import build_method_table

    with rehearsal.channel as channel:
        for path, known in build_method_table().items():
            if known.extent == "not" and known.method.kind == "unary_unary":
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(path)(b"")
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
                assert path in caught.value.details()


def test_every_method_over_http_is_answered_or_says_its_name(rehearsal: Rehearsal) -> None:
    """Each of its paths; where two methods share one, the name is either's."""
    from vertex_rehearsal.api.transcoding import VARIABLE
    from vertex_rehearsal.protocol.registry import build_method_table

    paths: dict[tuple[str, str], set[str]] = {}
    for path, known in build_method_table().items():
        for rule in known.method.rules if known.extent == "not" else ():
            filled = VARIABLE.sub(lambda found: (found[2] or "x").replace("**", "x").replace("*", "x"), rule.uri)
            paths.setdefault((rule.verb, filled), set()).add(path)
    assert len(paths) > 300
    answered = 0
    for (verb, path), names in paths.items():
        status, body = rehearsal.http(verb, path, {} if verb in ("POST", "PATCH", "PUT") else None)
        if status == 501:
            error = body["error"]
            assert error["status"] == "UNIMPLEMENTED"
            assert any(name in error["message"] for name in names) or len(names) > 1, (verb, path, error)
        else:
            answered += 1
            assert body["error"]["code"] == status, (verb, path, body)
    assert answered <= 2, "paths that a method which is played has, too"


def test_policies_of_resources_are_refused_by_name(rehearsal: Rehearsal) -> None:
    for kind in ("models", "endpoints", "customJobs", "pipelineJobs"):
        for verb in ("getIamPolicy", "setIamPolicy", "testIamPermissions"):
            status, answer = rehearsal.http("POST", f"/v1/{PARENT}/{kind}/1:{verb}", {})
            assert (status, answer["error"]["status"]) == (501, "UNIMPLEMENTED")
            assert f"/google.iam.v1.IAMPolicy/{verb[0].upper()}{verb[1:]}" in answer["error"]["message"]


def test_a_key_in_another_region_is_refused(rehearsal: Rehearsal) -> None:
    key = {"kmsKeyName": "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"}
    body = {"displayName": "x", "encryptionSpec": key}
    refused = rehearsal.http("POST", f"/v1/{PARENT}/endpoints", body)[1]["error"]
    assert refused["details"][0]["fieldViolations"][0]["field"] == "endpoint.encryption_spec.kms_key_name"


def test_pages_and_filters(rehearsal: Rehearsal) -> None:
    parent = "projects/pages/locations/europe-west4"
    spec = custom_job(python("pass"))
    names = []
    for number in range(5):
        status, job = rehearsal.http("POST", f"/v1/{parent}/customJobs", spec | {"displayName": f"page {number}"})
        assert status == 200
        names.append(job["name"])
    for transport in (rehearsal.rest, rehearsal.grpc):
        pager = transport.list_custom_jobs(request={"parent": parent, "page_size": 2})
        pages = [[job.display_name for job in page.custom_jobs] for page in pager.pages]
        assert pages == [["page 4", "page 3"], ["page 2", "page 1"], ["page 0"]]
    for name in names:
        rehearsal.wait(name)
    path = f"/v1/{parent}/customJobs"
    found = rehearsal.http(
        "GET", path + '?filter=state="JOB_STATE_SUCCEEDED"%20AND%20displayName:"page 3"'.replace(" ", "%20")
    )
    assert [job["displayName"] for job in found[1]["customJobs"]] == ["page 3"]
    assert rehearsal.http("GET", path + "?filter=state=")[0] == 400
    refused = rehearsal.http("GET", path + "?filter=nobody=1")[1]["error"]
    assert (refused["status"], refused["details"][0]["fieldViolations"][0]["field"]) == ("INVALID_ARGUMENT", "filter")
    for mask in ("displayName,jobSpec.workerPoolSpecs", "display_name,job_spec.worker_pool_specs"):
        masked = rehearsal.http("GET", f"{path}?readMask={mask}&pageSize=1")[1]["customJobs"]
        assert [set(job) for job in masked] == [{"displayName", "jobSpec"}], mask
    assert rehearsal.http("GET", path + "?readMask=nonsense")[0] == 400
    for transport in (rehearsal.rest, rehearsal.grpc):
        asked = {
            "parent": parent,
            "page_size": 1,
            "read_mask": {"paths": ["display_name"]},
            "filter": 'display_name:"page*"',
        }
        assert [(job.name, job.display_name) for job in transport.list_custom_jobs(request=asked)] == [
            ("", f"page {number}") for number in (4, 3, 2, 1, 0)
        ]
    for token in ("nonsense", "%C2%B2", "9" * 30, "-1"):
        assert rehearsal.http("GET", f"{path}?pageToken={token}")[1]["error"]["status"] == "INVALID_ARGUMENT"
    assert rehearsal.http("GET", path + "?pageSize=-1")[0] == 400
    assert rehearsal.http("GET", "/v1/projects/other/locations/us-central1/customJobs") == (200, {})


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b"{", "", "Invalid JSON payload"), (b"[1]", "", "Invalid JSON payload"), (b"\xff", "", "Invalid JSON payload"),
        ({"displayNam": "x"}, "displayNam", 'Unknown name "displayNam"'),
        ({"displayName": "x", "jobSpec": {"pools": 1}}, "jobSpec.pools", 'Unknown name "pools" at'),
        ({"displayName": 3}, "displayName", "Invalid value at"),
        ({"displayName": "x" * 129}, "custom_job.display_name", "128"),
        ({"displayName": "x", "jobSpec": 3}, "jobSpec", "Invalid value"),
        (b'{"displayName": ' + b"[" * 5000 + b"]" * 5000 + b"}", "", "Invalid"),
    ],
)  # fmt: skip
def test_a_bad_body(rehearsal: Rehearsal, body: Any, field: str, words: str) -> None:
    status, answer = rehearsal.http("POST", f"/v1/{PARENT}/customJobs", body)
    assert status == 400
    assert answer["error"]["status"] == "INVALID_ARGUMENT"
    assert words in answer["error"]["message"]
    if field:
        named = answer["error"]["details"][0]["fieldViolations"][0]["field"]
        assert named.endswith(field)


def test_paths_that_are_nothing(rehearsal: Rehearsal) -> None:
    assert rehearsal.http("GET", "/v1/nothing")[0] == 404
    status, answer = rehearsal.http("GET", f"/v1beta1/{PARENT}/nothing")
    assert (status, "what v1 has, too" in answer["error"]["message"]) == (501, True)
    assert rehearsal.http("GET", f"/v1beta1/{PARENT}/customJobs/1")[0] == 404
    assert rehearsal.http("PUT", f"/v1/{PARENT}/customJobs", {})[0] == 404
    assert rehearsal.http("GET", f"/v1/{PARENT}/customJobs/1")[1]["error"]["status"] == "NOT_FOUND"
    assert rehearsal.http("POST", "/v1/projects/p/locations/mars/customJobs", custom_job(python("")))[0] == 400


def test_numbers_for_enumerations_only_where_they_are_asked_for(rehearsal: Rehearsal) -> None:
    name = rehearsal.submit(custom_job(python("pass")))
    rehearsal.wait(name)
    assert rehearsal.job(name)["state"] == "JOB_STATE_SUCCEEDED"
    assert rehearsal.http("GET", f"/v1/{name}?%24alt=json%3Benum-encoding%3Dint")[1]["state"] == 4


def test_a_project_may_be_named_by_its_number(rehearsal: Rehearsal) -> None:
    name = rehearsal.submit(custom_job(python("import os; print(os.environ['CLOUD_ML_PROJECT_ID'])")))
    rehearsal.wait(name)
    number = rehearsal.said(name)[-1]
    assert number.isdigit()
    assert rehearsal.job(name.replace("projects/demo", f"projects/{number}"))["name"] == name


def test_operations_are_found_by_both_paths_and_both_doors(rehearsal: Rehearsal) -> None:
    name = rehearsal.submit(custom_job(python("pass")))
    rehearsal.wait(name)
    status, operation = rehearsal.http("DELETE", f"/v1/{name}")
    assert status == 200
    assert operation["metadata"]["@type"].endswith("google.cloud.aiplatform.v1.DeleteOperationMetadata")
    path = operation["name"]
    for prefix in ("v1", "ui"):
        assert rehearsal.http("GET", f"/{prefix}/{path}")[1]["done"] is True
    assert rehearsal.http("POST", f"/v1/{path}:wait?timeout=1s")[1]["done"] is True
    assert rehearsal.http("GET", f"/v1/{name}/operations")[1]["operations"][0]["name"] == path
    assert rehearsal.grpc.get_operation({"name": path}).done
    assert rehearsal.http("DELETE", f"/v1/{path}") == (200, {})
    assert rehearsal.http("GET", f"/v1/{path}")[0] == 404


def test_the_regions(rehearsal: Rehearsal) -> None:
    found = rehearsal.http("GET", "/v1/projects/demo/locations")[1]["locations"]
    assert "europe-west4" in {location["locationId"] for location in found}
    assert rehearsal.http("GET", "/v1/projects/demo/locations/mars")[0] == 404
    pages, token = [], ""
    while not pages or token:
        status, page = rehearsal.http("GET", f"/v1/projects/demo/locations?pageSize=7&pageToken={token}")
        assert status == 200
        assert 0 < len(page["locations"]) <= 7
        pages += page["locations"]
        token = page.get("nextPageToken", "")
    assert pages == found
    for wrong in ("pageSize=-1", "pageToken=mars", "filter=nonsense=1"):
        assert rehearsal.http("GET", f"/v1/projects/demo/locations?{wrong}")[0] == 400, wrong


def test_the_async_clients(rehearsal: Rehearsal) -> None:
    import grpc
    from google.cloud import aiplatform_v1

    class Bearer(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        async def intercept_unary_unary(self, proceed: Any, details: Any, request: Any) -> Any:
            more = [*(details.metadata or ()), ("authorization", f"Bearer {rehearsal.token}")]
            return await proceed(details._replace(metadata=grpc.aio.Metadata(*more)), request)

    async def ask() -> Any:
        channel = grpc.aio.insecure_channel(rehearsal.facts["grpc"], interceptors=[Bearer()])
        kind = aiplatform_v1.JobServiceAsyncClient
        client = kind(transport=kind.get_transport_class("grpc_asyncio")(channel=channel))
        created = await client.create_custom_job(parent=PARENT, custom_job={"display_name": "async", "job_spec": SPEC})
        while not (job := await client.get_custom_job(name=created.name)).end_time:
            await asyncio.sleep(0.02)
        listed = [job.name async for job in await client.list_custom_jobs(parent=PARENT)]
        operation = await client.delete_custom_job(name=created.name)
        await operation.result()
        await channel.close()
        return job, listed

    job, listed = asyncio.run(ask())
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert job.name in listed


def test_pages_of_other_places_may_not_ask(rehearsal: Rehearsal) -> None:
    path = f"/v1/{PARENT}/customJobs"
    assert rehearsal.http("GET", path, headers={"Origin": "https://evil.example"})[0] == 403
    assert rehearsal.http("GET", path, headers={"Origin": "null"})[0] == 403
    assert rehearsal.http("GET", path, headers={"Host": "evil.example"})[0] == 403
    for other in (
        "http://localhost:3000",
        "http://localhost",
        f"{rehearsal.address}0",
        "http://localhost.evil.example",
    ):
        for where in (path, "/", "/computeMetadata/v1/project/project-id", "/storage/v1/b?project=demo"):
            assert rehearsal.http("GET", where, headers={"Origin": other})[0] == 403, (other, where)
    assert rehearsal.http("GET", path, headers={"Origin": rehearsal.address})[0] == 200
    port = rehearsal.address.rpartition(":")[2]
    forwarded = {"Host": "localhost:9000", "Origin": "http://localhost:9000"}  # ssh -L 9000:localhost:PORT
    assert rehearsal.http("GET", path, headers=forwarded)[0] == 200
    assert rehearsal.http("GET", path, headers={"Origin": f"http://127.0.0.1:{port}"})[0] == 403


def test_an_object_is_no_page_of_ours(rehearsal: Rehearsal) -> None:
    rehearsal.http("POST", "/storage/v1/b?project=demo", {"name": "pages"})
    upload = "/upload/storage/v1/b/pages/o?uploadType=media&name=a.html"
    rehearsal.http("POST", upload, b"<script>1</script>", headers={"Content-Type": "text/html"})
    with urllib.request.urlopen(f"{rehearsal.keyed_address}/pages/a.html") as answer:
        assert answer.headers["Content-Type"] == "text/html"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox;")


def test_only_loopback_is_bound(rehearsal: Rehearsal) -> None:
    ports = {int(rehearsal.facts["grpc"].rpartition(":")[2]), int(rehearsal.address.rpartition(":")[2])}
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            host, port = fields[1].split(":")
            if fields[3] == "0A" and int(port, 16) in ports:
                listening.add((host, int(port, 16)))
    assert {port for _, port in listening} == ports
    assert {host[-8:] for host, _ in listening} == {"0100007F"}


def test_by_curl(rehearsal: Rehearsal) -> None:
    command = [
        "curl",
        "-sS",
        "-H",
        f"Authorization: Bearer {rehearsal.token}",
        f"{rehearsal.address}/v1/{PARENT}/customJobs",
        "-d",
        json.dumps(custom_job(python("pass"))),
    ]
    answer = subprocess.run(command, capture_output=True, check=True).stdout
    assert rehearsal.wait(json.loads(answer)["name"])["state"] == "JOB_STATE_SUCCEEDED"


def test_a_token_and_tls(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "secret", "--tls") as rehearsal:
        path, token = f"/v1/{PARENT}/customJobs", rehearsal.facts["token"]
        assert len(token) > 20
        assert (tmp_path / "secret" / "rehearsal.json").stat().st_mode & 0o077 == 0
        for wrong in ("", "Bearer", "Bearer nonsense", f"Basic {token}", token, f"Bearer {token[:-1]}"):
            status, answer = rehearsal.http("GET", path, headers={"Authorization": wrong})
            assert (status, answer["error"]["status"]) == (401, "UNAUTHENTICATED"), wrong
        for prefix in ("/-/key/nonsense", "/-/key/", "/-/key", f"/-/key/{token[:-1]}", f"/x/-/key/{token}"):
            assert rehearsal.http("GET", prefix + path, headers={"Authorization": ""})[0] == 401, prefix
        assert rehearsal.http("GET", f"/-/key/{token}{path}", headers={"Authorization": ""}) == (200, {})
        bearer = {"Authorization": f"bearer {token}"}
        assert rehearsal.http("GET", path, headers=bearer) == (200, {})
        code = """
import sys
from google.auth.credentials import AnonymousCredentials
from google.oauth2.credentials import Credentials
from google.cloud import aiplatform
place = {"project": "demo", "location": "us-central1", "api_endpoint": sys.argv[1]}
aiplatform.init(credentials=Credentials(sys.argv[2]), **place)
print(len(aiplatform.CustomJob.list()))
aiplatform.init(credentials=AnonymousCredentials(), **place)
try:
    aiplatform.CustomJob.list()
except Exception as error:
    print(type(error).__name__)
"""
        environment = os.environ | {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": rehearsal.facts["ca"]}
        command = [sys.executable, "-c", code, rehearsal.facts["grpc"], token]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split() == ["0", "Unauthenticated"]
        name = rehearsal.http("POST", path, custom_job(python(INSIDE)), headers=bearer)[1]["name"]
        job = until(
            lambda: (job := rehearsal.http("GET", f"/v1/{name}", headers=bearer)[1]).get("endTime") and job, "its end"
        )
        assert job["state"] == "JOB_STATE_SUCCEEDED", job


def test_the_metadata_server_gives_the_token_to_nobody_else(rehearsal: Rehearsal) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    path = "/computeMetadata/v1/instance/service-accounts/default/token"
    # Everything is imported before it becomes somebody else, who may not read where Python is installed.
    ask = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
connection = socket.socket()
connection.connect(("127.0.0.1", int(sys.argv[2])))
lines = [f"GET {sys.argv[3]} HTTP/1.1", "Host: localhost", "Metadata-Flavor: Google", "Connection: close"]
connection.sendall("".join(f"{line}\\r\\n" for line in [*lines, ""]).encode())
print(b"".join(iter(lambda: connection.recv(65536), b"")).decode())
"""

    def asked(user: int, prefix: str = "") -> str:
        port = rehearsal.address.rpartition(":")[2]
        command = [sys.executable, "-S", "-c", ask, str(user), port, prefix + path]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for prefix in ("", "/-/key/nonsense"):
        answer = asked(65534, prefix)
        assert answer.startswith("HTTP/1.1 403 ")
        assert rehearsal.token not in answer
    assert rehearsal.token in asked(0)
    assert rehearsal.token in asked(65534, f"/-/key/{rehearsal.token}")


def test_storage_without_credentials_by_the_address_that_holds_the_token(rehearsal: Rehearsal) -> None:
    """Outside of a job and inside: the package sends an emulator none, and gcsfs neither."""
    code = """
import os, sys
from google.cloud import storage
client = storage.Client(project="demo")
bucket = client.create_bucket(sys.argv[1])
blob = bucket.blob("a/b c.bin", chunk_size=2**18)
blob.upload_from_string(b"x" * 2**20)
bucket.blob("small").upload_from_string("hello")
assert bucket.get_blob("small").download_as_bytes() == b"hello"
assert len(blob.download_as_bytes()) == 2**20
with client.batch():
    bucket.blob("small").patch()
assert [found.name for found in client.list_blobs(bucket)] == ["a/b c.bin", "small"]
bucket.delete_blobs(list(bucket.list_blobs()))
import gcsfs
files = gcsfs.GCSFileSystem(project="demo", token="anon", skip_instance_cache=True, use_listings_cache=False)
files.pipe(f"{sys.argv[1]}/by gcsfs", b"y" * 1000)
assert files.cat(f"{sys.argv[1]}/by gcsfs") == b"y" * 1000
print("done")
"""
    environment = os.environ | {"STORAGE_EMULATOR_HOST": rehearsal.keyed_address}
    command = [sys.executable, "-c", code, "keyed-outside"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "done\n", done.stderr
    name = rehearsal.submit(custom_job(pool("python", "-c", code, "keyed-inside")))
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)


INSIDE = """
import json, os, urllib.request
host, address = os.environ["GCE_METADATA_HOST"], os.environ["REHEARSAL_ADDRESS"]
path = "/computeMetadata/v1/instance/service-accounts/default/token"
request = urllib.request.Request(f"http://{host}{path}", headers={"Metadata-Flavor": "Google"})
token = json.load(urllib.request.urlopen(request))["access_token"]
jobs = f"{address}/v1/projects/demo/locations/us-central1/customJobs"
request = urllib.request.Request(jobs, headers={"Authorization": f"Bearer {token}"})
assert json.load(urllib.request.urlopen(request))["customJobs"]
"""


def test_default_credentials_inside_a_job(rehearsal: Rehearsal) -> None:
    code = """
import google.auth, google.auth.transport.requests
credentials, project = google.auth.default()
credentials.refresh(google.auth.transport.requests.Request())
print(type(credentials).__module__, project, bool(credentials.token))
"""
    name = rehearsal.submit(custom_job(pool("python", "-c", code)))
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)
    assert rehearsal.said(name)[-1] == "google.auth.compute_engine.credentials demo True"


def test_the_metadata_server_wants_its_header(rehearsal: Rehearsal) -> None:
    import urllib.error
    import urllib.request

    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{rehearsal.address}/computeMetadata/v1/project/project-id")


def test_the_metadata_server_lists_its_directories(rehearsal: Rehearsal) -> None:
    import urllib.error
    import urllib.request

    def asked(path: str) -> str:
        address = f"{rehearsal.address}/computeMetadata/v1{path}"
        with urllib.request.urlopen(urllib.request.Request(address, headers={"Metadata-Flavor": "Google"})) as response:
            return str(response.read().decode())

    assert asked("/") == "instance/\nproject/\nuniverse/\n"
    assert asked("/instance") == asked("/instance/") == "id\nservice-accounts/\nzone\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        asked("/instance/disks")


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("resources", 400, "?kind= is needed."),
        ("resources?kind=customJobs&before=x", 400, 'before must be a number, not "x".'),
        ("resource?name=projects/demo/locations/us-central1/customJobs/1", 404, "was not found"),
        ("entries?severity=LOUD", 400, "LOUD is no severity"),
        ("entries?before=1", 400, "?moment= is needed."),
        ("objects?bucket=nothing-here", 404, "The specified bucket does not exist."),
        ("object?bucket=nothing-here&name=a", 404, "The specified bucket does not exist."),
    ],
)
def test_the_page_is_told_what_is_wrong(rehearsal: Rehearsal, path: str, status: int, said: str) -> None:
    answered, body = rehearsal.http("GET", f"/-/{path}")
    assert answered == status
    assert said in body["error"]["message"]
