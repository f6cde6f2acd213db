"""Jobs of the rehearsal: replicas that find each other, and every way in which a job can end."""

import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rehearsing import ENDED, IMAGE, PARENT, Rehearsal, custom_job, pool, python, rehearsing, until
from vertex_rehearsal.api.messages import fill_message, v1
from vertex_rehearsal.api.methods import load_methods
from vertex_rehearsal.context import Context
from vertex_rehearsal.execution import processes
from vertex_rehearsal.execution.processes import started
from vertex_rehearsal.execution.queue import get_job_state
from vertex_rehearsal.execution.replicas import RunnableJob, build_environment, create_cluster
from vertex_rehearsal.execution.workloads import HELD, Workload
from vertex_rehearsal.settings import Settings
from vertex_rehearsal.training.service import create_queue, name_job

MEET = """
import json, os, socket
spec = json.loads(os.environ["CLUSTER_SPEC"])
host, port = spec["cluster"]["workerpool0"][0].split(":")
mine, _ = spec["cluster"][spec["task"]["type"]][spec["task"]["index"]].split(":")
if spec["task"]["type"] == "workerpool0":
    server = socket.create_server((host, int(port)))
    said = set()
    while len(said) < 2:
        connection, (address, _) = server.accept()
        said.add(address + " " + connection.recv(100).decode())
    print(*sorted(said), sep=chr(10))
else:
    import time
    while True:
        try:
            connection = socket.create_connection((host, int(port)), source_address=(mine, 0))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    connection.sendall(str(spec["task"]["index"]).encode())
    connection.close()
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """Its grace is long, so that what a replica says before it ends does not depend on how fast the machine is."""
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here", "--grace", "600") as found:
        yield found
        assert found.processes() == set()


def test_three_replicas_find_each_other_and_the_primary_decides(rehearsal: Rehearsal) -> None:
    name = rehearsal.submit(custom_job(python(MEET), python(MEET, replicas=2)))
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)
    hosts, indexes = zip(*(line.split() for line in rehearsal.said(name)[-2:]), strict=True)
    assert set(indexes) == {"0", "1"}
    assert len(set(hosts)) == 2
    assert all(host.startswith("127.") and host != "127.0.0.1" for host in hosts)
    assert rehearsal.processes() == set(), "workers that would sleep for ten minutes are gone"


DISTRIBUTED = """
import torch, torch.distributed
torch.distributed.init_process_group("gloo", init_method="env://")
torch.distributed.all_reduce(total := torch.tensor(10.0 ** torch.distributed.get_rank()))
print("SUM", total.item(), "of", torch.distributed.get_world_size())
"""


def test_torch_finds_the_other_replicas_by_its_variables(rehearsal: Rehearsal) -> None:
    pytest.importorskip("torch")
    worker = pool("python", "-c", DISTRIBUTED, replicas=2)
    name = rehearsal.submit(custom_job(pool("python", "-c", DISTRIBUTED), worker))
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)
    assert rehearsal.said(name)[-1] == "SUM 111.0 of 3"


@pytest.mark.parametrize("sets_torch_variables", [True, False])
def test_who_has_which_rank(tmp_path: Path, sets_torch_variables: bool) -> None:
    """Reduction servers and evaluators train nothing, and what a request sets itself stays."""
    load_methods()
    context = Context.create(Settings(directory=tmp_path / "here", sets_torch_variables=sets_torch_variables))
    spec = fill_message(
        v1.CustomJobSpec(),
        {
            "workerPoolSpecs": [
                python(""),
                python("", replicas=2, env=[{"name": "MASTER_PORT", "value": "9"}]),
                python(""),
            ]
        },
    )
    job = RunnableJob(f"{PARENT}/customJobs/1", spec)
    cluster = create_cluster(spec)
    found = [build_environment(job, replica, cluster, context, tmp_path) for replica in cluster]
    host, port = cluster[0].address.split(":")
    assert json.loads(found[2]["CLUSTER_SPEC"])["cluster"]["workerpool0"] == [f"{host}:{port}"]
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    ranks = [tuple(each.get(name, "") for name in names) for each in found]
    if sets_torch_variables:
        assert ranks[:3] == [("0", "3", host, port), ("1", "3", host, "9"), ("2", "3", host, "9")]
    else:
        assert ranks[:3] == [("", "", "", ""), ("", "", "", "9"), ("", "", "", "9")]
    assert ranks[3] == ("", "", "", "")
    alone = fill_message(v1.CustomJobSpec(), {"workerPoolSpecs": [python("")]})
    (only,) = create_cluster(alone)
    assert not set(names) & set(build_environment(RunnableJob(job.name, alone), only, [only], context, tmp_path))
    context.close()


def test_the_environment_of_a_replica(rehearsal: Rehearsal) -> None:
    code = "import json, os; print('ENV ' + json.dumps(dict(os.environ)))"
    spec = custom_job(
        python(code, env=[{"name": "MINE", "value": "1"}], args=["$(MINE)", "$$(MINE)", "$(NOBODY)"]),
        {},
        python("import time; time.sleep(600)"),
        baseOutputDirectory={"outputUriPrefix": "gs://bucket/base/"},
    )
    name = rehearsal.submit(spec)
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    found = json.loads(next(line for line in rehearsal.said(name) if line.startswith("ENV "))[4:])
    assert found["AIP_MODEL_DIR"] == "gs://bucket/base/model/"
    assert found["AIP_CHECKPOINT_DIR"] == "gs://bucket/base/checkpoints/"
    assert found["AIP_TENSORBOARD_LOG_DIR"] == "gs://bucket/base/logs/"
    assert found["CLOUD_ML_JOB_ID"] == name.rpartition("/")[2]
    assert found["CLOUD_ML_REGION"] == "us-central1"
    assert found["CLOUD_ML_PROJECT_ID"].isdigit()
    assert found["STORAGE_EMULATOR_HOST"].startswith("http://127.0.0.1:")
    assert found["MINE"] == "1"
    assert "SSH_AUTH_SOCK" not in found
    cluster = json.loads(found["CLUSTER_SPEC"])
    assert set(cluster["cluster"]) == {"workerpool0", "workerpool2"}
    assert cluster["task"] == {"type": "workerpool0", "index": 0}
    assert cluster["environment"] == "cloud"
    assert cluster["job"]["worker_pool_specs"][0]["container_spec"]["image_uri"] == IMAGE
    tensorflow = json.loads(found["TF_CONFIG"])
    assert tensorflow["cluster"]["ps"] == cluster["cluster"]["workerpool2"]
    assert tensorflow["task"]["type"] == "chief"
    assert Path(found["REHEARSAL_GCS"]) == rehearsal.directory / "buckets"


def test_a_job_alone_has_no_tf_config_and_no_output_directories(rehearsal: Rehearsal) -> None:
    code = "import os; print(sorted({'TF_CONFIG', 'AIP_MODEL_DIR'} & set(os.environ)))"
    name = rehearsal.submit(custom_job(python(code)))
    rehearsal.wait(name)
    assert rehearsal.said(name)[-1] == "[]"


def test_buckets_are_at_gcs(rehearsal: Rehearsal) -> None:
    bucket = rehearsal.directory / "buckets" / "corpus"
    bucket.mkdir()
    (bucket / "a.txt").write_text("read me")
    root = "/gcs" if os.geteuid() == 0 else "$(REHEARSAL_GCS)"
    code = "import sys; print(open(sys.argv[1] + '/a.txt').read()); open(sys.argv[1] + '/b.txt', 'w').write('written')"
    name = rehearsal.submit(custom_job(python(code, args=[f"{root}/corpus"])))
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)
    assert rehearsal.said(name)[-1] == "read me"
    assert (bucket / "b.txt").read_text() == "written"


def test_log_entries_are_as_vertex_writes_them(rehearsal: Rehearsal) -> None:
    code = """
import json, sys
print("to standard output", flush=True)
print("to standard error", file=sys.stderr, flush=True)
print(json.dumps({"message": "structured", "severity": "WARNING", "step": 3}), flush=True)
print("an odd \\x1b[0m line \\udcff".encode("utf-8", "surrogateescape").decode("utf-8", "replace"), flush=True)
sys.stdout.buffer.write(b"not utf-8: \\xff\\n{broken json\\n")
print("x" * 100_000)
print("no line end", end="")
"""
    name = rehearsal.submit(custom_job(python(code)))
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    entries = rehearsal.entries(name, 'AND resource.labels.task_name="workerpool0-0"')
    by_text = {entry["jsonPayload"].get("message"): entry for entry in entries}
    assert by_text["to standard output"]["severity"] == "INFO"
    assert by_text["to standard error"]["severity"] == "ERROR"
    structured = by_text["structured"]
    assert structured["severity"] == "WARNING"
    assert structured["jsonPayload"]["step"] == 3
    assert structured["logName"] == "projects/demo/logs/workerpool0-0"
    assert structured["resource"] == {
        "type": "ml_job",
        "labels": {"job_id": name.rpartition("/")[2], "project_id": "demo", "task_name": "workerpool0-0"},
    }
    assert {"not utf-8: \ufffd", "{broken json", "no line end"} <= set(by_text)
    assert sum(len(text) for text in by_text if text and set(text) == {"x"}) <= 100_000
    service = [entry["textPayload"] for entry in rehearsal.entries(name) if "textPayload" in entry]
    assert service[0] == "Waiting for job to be provisioned."
    assert service[-1] == "Job completed successfully."
    warned = rehearsal.entries(name, "AND severity>=WARNING")
    assert {entry["severity"] for entry in warned} == {"WARNING", "ERROR"}
    stamps = [entry["timestamp"] for entry in rehearsal.entries(name)]
    assert stamps == sorted(stamps)
    later = rehearsal.entries(name, f'AND timestamp>="{stamps[-1]}"')
    assert [entry["timestamp"] for entry in later] == [stamps[-1]]


def test_whoever_sees_a_state_finds_it_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_methods()
    context = Context.create(Settings(directory=tmp_path / "here", at_once=0))
    jobs = create_queue(context)
    job = jobs.submit(name_job(v1.CustomJob(), PARENT))
    seen = []
    monkeypatch.setattr(
        context.logs, "write_note", lambda text, **_: seen.append((text, get_job_state(context.database.get(job.name))))
    )
    jobs.cancel(job.name)
    assert seen == [("Job cancelled.", "QUEUED")]
    assert get_job_state(context.database.get(job.name)) == "CANCELLED"
    context.close()


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_a_failure_says_which_replica_and_how(rehearsal: Rehearsal, code: str, status: int) -> None:
    job = rehearsal.run(custom_job(python("import time; time.sleep(600)"), python(code)))
    assert job["state"] == "JOB_STATE_FAILED"
    assert job["error"]["code"] == 3
    begun = f"The replica workerpool1-0 exited with a non-zero status of {status}. To find out more"
    assert job["error"]["message"].startswith(begun)
    assert Path(job["error"]["message"].rpartition(": ")[2]).exists()


def test_a_program_that_is_not_there(rehearsal: Rehearsal) -> None:
    job = rehearsal.run(custom_job(pool("no-such-program")))
    assert "non-zero status of 127" in job["error"]["message"]
    assert any("no-such-program" in line for line in rehearsal.said(job["name"]))


def test_transient_statuses_are_retried_three_times(rehearsal: Rehearsal) -> None:
    name = rehearsal.submit(custom_job(python("print('attempt'); import os; os.abort()")))
    job = rehearsal.wait(name)
    assert "non-zero status of 134" in job["error"]["message"]
    assert rehearsal.said(name).count("attempt") == 4
    name = rehearsal.submit(
        custom_job(python("print('attempt'); import os; os.abort()"), scheduling={"disableRetries": True})
    )
    assert rehearsal.wait(name)["state"] == "JOB_STATE_FAILED"
    assert rehearsal.said(name).count("attempt") == 1


COUNTING = """
import os, sys, time
path = sys.argv[1] + os.environ["CLOUD_ML_JOB_ID"] + sys.argv[2]
open(path, "a").write("x")
print("start", os.path.getsize(path), flush=True)
"""
DIES_ONCE = (
    COUNTING
    + """
if os.path.getsize(path) == 1:
    other = sys.argv[1] + os.environ["CLOUD_ML_JOB_ID"] + "primary"
    while not os.path.exists(other) or not os.path.getsize(other): time.sleep(0.02)
    os.kill(os.getpid(), 11)
"""
)
WAITS_FOR_WORKER = (
    COUNTING
    + """
other = sys.argv[1] + os.environ["CLOUD_ML_JOB_ID"] + "worker"
while not os.path.exists(other) or os.path.getsize(other) < 2: time.sleep(0.02)
"""
)


@pytest.mark.parametrize("whole", [False, True])
def test_a_dead_worker_is_restarted_alone_or_with_its_job(rehearsal: Rehearsal, tmp_path: Path, whole: bool) -> None:
    spec = custom_job(
        python(WAITS_FOR_WORKER, args=[f"{tmp_path}/", "primary"]),
        python(DIES_ONCE + "time.sleep(600)", args=[f"{tmp_path}/", "worker"]),
        scheduling={"restartJobOnWorkerRestart": whole},
    )
    name = rehearsal.submit(spec)
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)
    assert "start 2" in rehearsal.said(name, "workerpool1-0")
    assert ("start 2" in rehearsal.said(name)) == whole


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("told to stop", flush=True))
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
"""


def stubborn(until: Path) -> dict[str, Any]:
    """A job that hears that it is to stop, and goes on until there is a file."""
    sleeping = python("import time; time.sleep(600)", replicas=2)
    return custom_job(python(STUBBORN, args=[str(until)]), sleeping)


def test_cancel(rehearsal: Rehearsal, tmp_path: Path) -> None:
    name = rehearsal.submit(stubborn(tmp_path / "enough"))
    until(lambda: "ready" in rehearsal.said(name), "the replica to be ready")
    assert rehearsal.http("POST", f"/v1/{name}:cancel", {}) == (200, {})
    until(lambda: "told to stop" in rehearsal.said(name), "the replica to hear of it")
    assert rehearsal.job(name)["state"] == "JOB_STATE_CANCELLING"
    assert rehearsal.http("DELETE", f"/v1/{name}")[1]["error"]["status"] == "FAILED_PRECONDITION"
    (tmp_path / "enough").touch()
    job = rehearsal.wait(name)
    assert job["state"] == "JOB_STATE_CANCELLED"
    assert job["error"]["code"] == 1
    assert rehearsal.processes() == set()
    assert rehearsal.http("POST", f"/v1/{name}:cancel", {}) == (200, {}), "once more changes nothing"
    assert rehearsal.job(name) == job


def test_who_does_not_stop_in_its_grace_is_ended(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "here", "--grace", "1") as rehearsal:
        name = rehearsal.submit(stubborn(tmp_path / "never"))
        until(lambda: "ready" in rehearsal.said(name), "the replica to be ready")
        assert rehearsal.http("POST", f"/v1/{name}:cancel", {}) == (200, {})
        assert rehearsal.wait(name)["state"] == "JOB_STATE_CANCELLED"
        assert rehearsal.processes() == set()


def test_a_job_that_takes_longer_than_its_timeout(rehearsal: Rehearsal) -> None:
    job = rehearsal.run(custom_job(python("import time; time.sleep(600)"), scheduling={"timeout": "1s"}))
    assert job["state"] == "JOB_STATE_CANCELLED"
    assert "timeout of 1 seconds" in job["error"]["message"]


SAVES_ON_SIGTERM = (
    COUNTING
    + """
import signal
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(143)))
print("ready", flush=True)
if os.path.getsize(path) == 1: time.sleep(600)
"""
)


def test_a_spot_machine_is_taken_away_and_given_back(
    rehearsal: Rehearsal, tmp_path: Path, vertex_rehearsal: Any
) -> None:
    spec = custom_job(python(SAVES_ON_SIGTERM, args=[f"{tmp_path}/", "primary"]), scheduling={"strategy": "SPOT"})
    name = rehearsal.submit(spec)
    until(lambda: "ready" in rehearsal.said(name), "the replica to be ready")
    done = vertex_rehearsal("preempt", name.rpartition("/")[2], "--directory", rehearsal.directory, "--json")
    assert done.code == 0, done.err
    assert done.json == {"job": name}
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    said = [line for line in rehearsal.said(name) if line in ("start 1", "saved", "start 2")]
    assert said == ["start 1", "saved", "start 2"]


def test_only_spot_machines_are_taken_away(rehearsal: Rehearsal, tmp_path: Path) -> None:
    spec = custom_job(
        python("import time; time.sleep(600)"),
        python(SAVES_ON_SIGTERM + "time.sleep(600)", args=[f"{tmp_path}/", "worker"]),
    )
    name = rehearsal.submit(spec)
    until(lambda: "ready" in rehearsal.said(name, "workerpool1-0"), "the worker to be ready")
    status, answer = rehearsal.http("POST", "/-/preempt", {"job": name})
    assert (status, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert rehearsal.http("POST", "/-/preempt", {"job": name, "replica": "workerpool1-7"})[0] == 404
    assert rehearsal.http("POST", "/-/preempt", {"job": "nobody"})[0] == 404
    assert rehearsal.http("POST", "/-/preempt", b"nonsense")[0] == 400
    assert rehearsal.http("POST", "/-/preempt", {"job": name, "replica": "workerpool1-0"})[0] == 200
    until(lambda: "start 2" in rehearsal.said(name, "workerpool1-0"), "the worker to be there again")
    rehearsal.http("POST", f"/v1/{name}:cancel", {})
    assert rehearsal.wait(name)["state"] == "JOB_STATE_CANCELLED"


def test_no_process_outlives_its_job_however_it_hides(rehearsal: Rehearsal) -> None:
    code = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
said, saying = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(saying, str(os.getpid()).encode())
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
print("bare", os.read(said, 100).decode())
"""
    job = rehearsal.run(custom_job(python(code)))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    assert rehearsal.processes() == set()
    (bare,) = (int(line.split()[1]) for line in rehearsal.said(job["name"]) if line.startswith("bare"))
    assert started(bare) == "", "without its environment, too"


def test_a_program_begins_when_all_that_it_starts_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context.create(Settings(directory=tmp_path / "here"))
    seen: list[bytes] = []
    said: list[str] = []
    codes: queue.Queue[int] = queue.Queue()

    def read_command(pid: int, _: str) -> None:
        while not (command := Path(f"/proc/{pid}/cmdline").read_bytes()):
            pass  # exec has told Popen that it succeeds, and has yet to put the arguments in their place
        seen.append(command)

    monkeypatch.setattr(processes, "brand_process", read_command)
    program = Workload(
        ["echo", "begun"],
        {"PATH": os.environ["PATH"]},
        home=tmp_path / "home",
        container="",
        mark=context.build_mark("7"),
        context=context,
        write_log=lambda lines, _: said.extend(lines),
        on_exit=codes.put,
    )
    assert codes.get(timeout=60) == 0
    program.end(until=0)
    assert seen == [b"\0".join(word.encode() for word in (*HELD, "echo", "begun", ""))]
    assert said == ["begun"]
    context.close()


def test_an_image_that_cannot_run_here_is_refused_or_fails(rehearsal: Rehearsal) -> None:
    spec = custom_job(python("pass"))
    spec["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["imageUri"] = "us-docker.pkg.dev/nobody/repository/image:1"
    status, answer = rehearsal.http("POST", f"/v1/{PARENT}/customJobs", spec)
    if status == 200:  # there is podman or docker, which has to find the image first
        assert rehearsal.wait(answer["name"])["state"] == "JOB_STATE_FAILED"
    else:
        assert answer["error"]["status"] == "FAILED_PRECONDITION"
        assert "neither podman nor docker" in answer["error"]["message"]


@pytest.mark.skipif("TAGLINE_CONTAINER_IMAGE" not in os.environ, reason="TAGLINE_CONTAINER_IMAGE names no image")
def test_a_container(rehearsal: Rehearsal) -> None:
    """By podman or docker, with an image that has python3 and is on this machine under a registry's name."""
    (rehearsal.directory / "buckets" / "container").mkdir()
    (rehearsal.directory / "buckets" / "container" / "a.txt").write_text("in the bucket")

    def contained(code: str) -> dict[str, Any]:
        task = {"imageUri": os.environ["TAGLINE_CONTAINER_IMAGE"], "env": [{"name": "MINE", "value": "1"}]}
        return pool("python3", "-c", code) | {"containerSpec": task | {"command": ["python3", "-c", code]}}

    code = "import os; print(open('/gcs/container/a.txt').read(), os.environ['MINE'], 'CLUSTER_SPEC' in os.environ)"
    name = rehearsal.submit(custom_job(contained(code), contained("import time; time.sleep(600)")))
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED"
    assert rehearsal.said(name)[-1] == "in the bucket 1 True"
    failed = rehearsal.run(custom_job(contained("raise SystemExit(7)")))
    assert "non-zero status of 7" in failed["error"]["message"]
    assert rehearsal.processes() == set()


def test_many_jobs_five_at_a_time(rehearsal: Rehearsal, tmp_path: Path) -> None:
    """The benchmark of the same name does this with 50."""
    go = tmp_path / "go"
    code = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
    code += "sys.exit(int(os.environ['HOW']))"
    collection = "/v1/projects/many/locations/us-central1/customJobs"
    for number in range(12):
        how = [{"name": "HOW", "value": "1" if number % 4 == 3 else "0"}]
        sleeping = python("import time; time.sleep(600)", replicas=2)
        spec = custom_job(python(code, env=how, args=[str(go)]), sleeping)
        assert rehearsal.http("POST", collection, spec)[0] == 200

    def states() -> list[str]:
        return [job["state"] for job in reversed(rehearsal.http("GET", collection)[1]["customJobs"])]

    until(lambda: states() == ["JOB_STATE_RUNNING"] * 5 + ["JOB_STATE_QUEUED"] * 7, "as many to run as may")
    go.touch()

    def ended() -> list[str]:
        now = states()
        assert sum(state in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING") for state in now) <= 5
        return now if set(now) <= set(ENDED) else []

    found = until(ended, "all of them to end")
    assert found == ["JOB_STATE_FAILED" if number % 4 == 3 else "JOB_STATE_SUCCEEDED" for number in range(12)]
    assert rehearsal.processes() == set()


def test_a_queued_job_can_be_cancelled(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "one", "--at-once", "1", "--grace", "0") as rehearsal:
        first = rehearsal.submit(custom_job(python("import time; time.sleep(600)")))
        second = rehearsal.submit(custom_job(python("pass")))
        assert rehearsal.job(second)["state"] == "JOB_STATE_QUEUED"
        rehearsal.http("POST", f"/v1/{second}:cancel", {})
        assert rehearsal.job(second)["state"] == "JOB_STATE_CANCELLED"
        rehearsal.wait(first, "JOB_STATE_RUNNING")
        assert rehearsal.stop() == 0
        assert rehearsal.processes() == set()
    with rehearsing(tmp_path / "one") as again:
        job = again.job(first)
        assert job["state"] == "JOB_STATE_FAILED"
        assert job["error"]["message"] == "The rehearsal was stopped while the job was running."


@contextmanager
def only_the_pid_of_an_orphan(directory: Path) -> Iterator[None]:
    """A process that a rehearsal takes for one of its own if it looks at pids alone; it has to be left alone."""
    stranger = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        with closing(sqlite3.connect(directory / "rehearsal.sqlite")) as connection, connection:
            connection.execute("INSERT INTO processes VALUES (?, '12345', '')", (stranger.pid,))
        yield
        assert stranger.poll() is None
    finally:
        os.killpg(stranger.pid, signal.SIGKILL)
        stranger.wait()


def test_killed_and_started_again(tmp_path: Path) -> None:
    """SIGKILL while jobs run: nothing is corrupt, the jobs have failed with the reason, orphans are ended."""
    hides = "import os, time\nif os.fork() == 0: os.setsid()\nos.write(1, b'up' + bytes([10]))\ntime.sleep(600)"
    # In one piece, or what the two of them write may come to stand on one line.
    bare = "import os\nos.setsid() if os.fork() == 0 else None\nos.write(1, b'%d%c' % (os.getpid(), 10))\n"
    bare += "os.execve('/bin/sleep', ['sleep', '600'], {})"
    with rehearsing(tmp_path / "here", "--at-once", "2") as rehearsal:
        ended = rehearsal.run(custom_job(python("print('before')")))["name"]
        pools = python(hides), python(hides, replicas=2), python(bare)
        running = [rehearsal.submit(custom_job(*pools)) for _ in range(2)]
        waits = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"
        queued = rehearsal.submit(custom_job(python(waits, args=[str(tmp_path / "go")])))
        for name in running:
            for task in ("workerpool0-0", "workerpool1-0", "workerpool1-1"):
                until(lambda: rehearsal.said(name, task).count("up") == 2, "its processes to be up")  # noqa: B023
            until(lambda: len(rehearsal.said(name, "workerpool2-0")) == 3, "those without an environment")  # noqa: B023
        without = [int(line) for name in running for line in rehearsal.said(name, "workerpool2-0") if line.isdigit()]
        rehearsal.kill()
        assert len(rehearsal.processes()) >= 12
        assert all(map(started, without))
        assert list((tmp_path / "here" / "jobs").glob("*/workerpool0-0/")), "homes of its replicas"
    with only_the_pid_of_an_orphan(tmp_path / "here"), rehearsing(tmp_path / "here", "--at-once", "2") as again:
        for name in running:
            assert again.processes(name) == set()
            job = again.job(name)
            assert job["state"] == "JOB_STATE_FAILED"
            assert job["error"]["message"] == "The rehearsal was ended while the job was running."
        assert not any(map(started, without))
        (tmp_path / "go").touch()
        assert again.wait(queued)["state"] == "JOB_STATE_SUCCEEDED"
        assert not list((tmp_path / "here" / "jobs").glob("*/*/")), "of a job that has ended only logs are left"
        assert again.job(ended)["state"] == "JOB_STATE_SUCCEEDED"
        assert again.said(ended)[-1] == "before"
        assert again.http("GET", "/-/status")[1]["ended_at_start"] >= 16
        assert again.processes() == set()
