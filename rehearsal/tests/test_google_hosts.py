"""What Google's packages ask at Google's own host names: answered here, for clients that are given a tunnel."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from google.cloud import resourcemanager_v3, storage

from rehearsing import Rehearsal, custom_job, pool, rehearsing

LINE = "google-cloud-aiplatform, PipelineJob.submit and projects"
ASK = """
import sys
from google.cloud.aiplatform import initializer
from google.cloud.aiplatform.utils import gcs_utils, resource_manager_utils
from google.cloud import storage
from google.oauth2.credentials import Credentials
initializer.global_config._credentials = Credentials(sys.argv[1])
number = resource_manager_utils.get_project_number("demo")
print(number, resource_manager_utils.get_project_id(number))
client = storage.Client(project="demo", credentials=Credentials(sys.argv[1]))
print(gcs_utils._verify_bucket_ownership(client.bucket("mine-in-demo"), "demo", client))
print(gcs_utils._verify_bucket_ownership(client.bucket("mine-in-demo"), "another", client))
"""
IN_A_JOB = """
import google.auth
from google.cloud import aiplatform
print(google.auth.default()[1])
aiplatform.init(location="us-central1")
print(aiplatform.initializer.global_config.project)
"""


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """One for all checks."""
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here") as found:
        yield found


def run_client(rehearsal: Rehearsal, code: str, *arguments: str) -> list[str]:
    """What a program prints that has the environment of the line for clients."""
    line = rehearsal.facts["clients"][LINE]
    variables = dict(word.split("=", 1) for word in line.split()) | {"STORAGE_EMULATOR_HOST": rehearsal.address}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_sdk_learns_a_projects_number_and_whose_a_bucket_is(rehearsal: Rehearsal) -> None:
    client = storage.Client(
        project="demo", credentials=rehearsal.credentials, client_options={"api_endpoint": rehearsal.address}
    )
    bucket = client.create_bucket("mine-in-demo")
    said = run_client(rehearsal, ASK, rehearsal.token)
    assert said == [f"{bucket.project_number} demo", "True", "False"]


def test_default_credentials_inside_a_job_know_the_project(rehearsal: Rehearsal) -> None:
    name = rehearsal.submit(custom_job(pool("python", "-c", IN_A_JOB)))
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)
    assert [line for line in rehearsal.said(name) if line == "demo"] == ["demo", "demo"]


def test_a_message_is_as_googles_package_reads_it(rehearsal: Rehearsal) -> None:
    client = resourcemanager_v3.ProjectsClient(
        transport=resourcemanager_v3.ProjectsClient.get_transport_class("grpc")(channel=rehearsal.channel)
    )
    found = client.get_project(name="projects/demo")
    assert (found.project_id, found.display_name, found.state.name) == ("demo", "demo", "ACTIVE")
    assert client.get_project(name=found.name).project_id == "demo"
    for wrong in ("demo", "projects/", "projects/a/b"):
        with pytest.raises(Exception, match="no name of a project"):
            client.get_project(name=wrong)


def test_without_the_token_nothing_is_told(rehearsal: Rehearsal) -> None:
    channel = grpc.insecure_channel(rehearsal.facts["grpc"])
    client = resourcemanager_v3.ProjectsClient(
        transport=resourcemanager_v3.ProjectsClient.get_transport_class("grpc")(channel=channel)
    )
    with pytest.raises(Exception, match=r"401|UNAUTHENTICATED|credential"):
        client.get_project(name="projects/demo", retry=None)


def ask_for_tunnel(rehearsal: Rehearsal, *pieces: bytes) -> tuple[socket.socket, bytes]:
    """A connection on which these pieces were sent, and the first that was answered."""
    host, _, port = rehearsal.address.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for piece in pieces:
        connection.sendall(piece)
    return connection, connection.recv(4096)


def test_other_hosts_are_passed_on(rehearsal: Rehearsal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connection, answer = ask_for_tunnel(
            rehearsal, b"CON", f"NECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        with connection:
            assert answer.startswith(b"HTTP/1.1 200")
            other, _ = server.accept()
            with other:
                connection.sendall(b"ping")
                assert other.recv(10) == b"ping"
                other.sendall(b"pong")
                assert connection.recv(10) == b"pong"
            assert connection.recv(10) == b"", "one end closes both"
    for nowhere in (f"127.0.0.1:{port}", "127.0.0.1:x", "127.0.0.1:99999"):
        connection, answer = ask_for_tunnel(rehearsal, f"CONNECT {nowhere} HTTP/1.1\r\n\r\n".encode())
        connection.close()
        assert answer.startswith(b"HTTP/1.1 502")


def test_other_requests_are_requests(rehearsal: Rehearsal) -> None:
    connection, answer = ask_for_tunnel(rehearsal, b"GET / HT", b"TP/1.1\r\nHost: localhost\r\n\r\n")
    connection.close()
    assert answer.startswith(b"HTTP/1.1 200")
