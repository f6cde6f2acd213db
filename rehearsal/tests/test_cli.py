"""`vertex-rehearsal`: started, found, stopped and forgotten from the command line."""

import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rehearsing import PARENT, custom_job, python, rehearsing
from vertex_rehearsal.execution.processes import started


def test_from_start_to_reset(vertex_rehearsal: Callable[..., Any], tmp_path: Path) -> None:
    done = vertex_rehearsal("start", "--detach", "--port", "0", "--grpc-port", "0", "--json")
    assert done.code == 0, done.err
    facts = done.json
    try:
        assert facts["address"].startswith("http://localhost:")
        for client in ("google-cloud-aiplatform", "google-cloud-storage", "google-cloud-logging", "gcloud", "curl"):
            assert facts["address"] in facts["clients"][client]
        assert "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM" in facts["clients"]["gcloud"]
        twice = vertex_rehearsal("start", "--port", "0", "--grpc-port", "0")
        assert twice.code == 5
        assert "already" in twice.err
        status = vertex_rehearsal("status", "--json")
        assert status.json["jobs"] == {"running": 0, "queued": 0}
        assert status.json["pid"] == facts["pid"]
        assert "0 running" in vertex_rehearsal("status").out
        assert vertex_rehearsal("reset", "--yes").code == 2
        assert vertex_rehearsal("preempt", "1").code == 4
    finally:
        stopped = vertex_rehearsal("stop", "--json")
    assert stopped.json == {"stopped": facts["pid"]}
    assert started(facts["pid"]) == ""
    for command in ("status", "stop"):
        missing = vertex_rehearsal(command, "--json")
        assert missing.code == 5
        assert missing.json["error"]["exit_code"] == 5
    (tmp_path / "rehearsal" / "buckets" / "mine").mkdir()
    (tmp_path / "rehearsal" / "notes.txt").write_text("not the rehearsal's")
    assert vertex_rehearsal("reset").code == 2, "nobody to ask"
    assert vertex_rehearsal("reset", "--yes", "--json").json == {"reset": "rehearsal"}
    assert [path.name for path in (tmp_path / "rehearsal").iterdir()] == ["notes.txt"]
    assert vertex_rehearsal("reset", "--yes").code == 5


def test_it_ends_a_job_and_stops_when_told(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "here") as rehearsal:
        assert rehearsal.run(custom_job(python("print(1)")))["state"] == "JOB_STATE_SUCCEEDED"
        assert rehearsal.stop() == 0
    assert not (tmp_path / "here" / "rehearsal.json").exists()


def test_a_port_that_is_taken_and_a_directory_that_cannot_be(
    vertex_rehearsal: Callable[..., Any], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in (("--port", port, "--grpc-port", "0"), ("--port", "0", "--grpc-port", port)):
            done = vertex_rehearsal("start", *words, "--json")
            assert done.code == 5
            assert done.json["error"]["hint"]
    (tmp_path / "file").write_text("")
    assert vertex_rehearsal("start", "--directory", "file", "--port", "0", "--grpc-port", "0").code == 5
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "rehearsal.sqlite").write_bytes(b"no database at all" * 100)
    done = vertex_rehearsal("start", "--directory", "damaged", "--port", "0", "--grpc-port", "0")
    assert done.code == 5
    assert "rehearsal reset" in done.err


def test_methods_lists_what_is_played(vertex_rehearsal: Callable[..., Any]) -> None:
    found = {row["method"]: row for row in vertex_rehearsal("methods", "--json").json}
    assert len([path for path in found if "aiplatform.v1." in path]) == 345
    assert found["/google.cloud.aiplatform.v1.JobService/GetCustomJob"]["extent"] == "played"
    assert "not" in vertex_rehearsal("methods", "NasJob").out


def test_a_token_given_by_the_environment(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "here", "--token", VERTEX_REHEARSAL_TOKEN="known to both") as rehearsal:
        assert rehearsal.facts["token"] == "known to both"
        bearer = {"Authorization": "Bearer known to both"}
        status, _ = rehearsal.http("POST", f"/v1/{PARENT}/customJobs", custom_job(python("pass")), headers=bearer)
        assert status == 200
        with urllib.request.urlopen(f"{rehearsal.keyed_address}/storage/v1/b?project=demo") as answer:
            assert answer.status == 200, "in an address the token is quoted"
    assert (tmp_path / "here" / "rehearsal.sqlite").stat().st_size > 0


def test_a_token_is_demanded_unless_it_is_open(tmp_path: Path, vertex_rehearsal: Callable[..., Any]) -> None:
    directory, token = tmp_path / "rehearsal", ""
    for expected in ("made", "kept"):
        with rehearsing(directory) as rehearsal:
            for path in ("/-/status", "/storage/v1/b?project=demo", f"/v1/{PARENT}/customJobs"):
                assert rehearsal.http("GET", path, headers={"Authorization": ""})[0] == 401
                assert rehearsal.http("GET", path)[0] == 200
            if expected == "kept":
                assert rehearsal.token == token, "clients that have it go on after a restart"
            token = rehearsal.token
            assert (directory / "token").read_text() == token
            for file in ("token", "rehearsal.json"):
                assert (directory / file).stat().st_mode & 0o777 == 0o600
            assert directory.stat().st_mode & 0o077 == 0
            assert vertex_rehearsal("status", "--json").json["clients"] == rehearsal.facts["clients"]
    (directory / "token").chmod(0o644)
    with rehearsing(directory) as rehearsal:
        assert rehearsal.token != token, "one that others could read is one no more"
    with rehearsing(directory, "--open") as rehearsal:
        assert rehearsal.token == ""
        assert rehearsal.http("GET", f"/v1/{PARENT}/customJobs")[0] == 200
    assert vertex_rehearsal("start", "--open", "--token").code == 2


def test_a_token_is_not_read_from_nor_written_to_where_a_link_leads(tmp_path: Path) -> None:
    from vertex_rehearsal.access import keep_token

    planted = tmp_path / "planted"
    planted.write_text("known to somebody else")
    planted.chmod(0o600)
    here = tmp_path / "here"
    here.mkdir()
    (here / "token").symlink_to(planted)
    assert keep_token(here) != "known to somebody else"
    assert planted.read_text() == "known to somebody else"
    assert not (here / "token").is_symlink()
    assert keep_token(here) == (here / "token").read_text()
