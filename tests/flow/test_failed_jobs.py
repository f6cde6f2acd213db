"""Jobs that really fail in a rehearsal, through Google's own clients, each explained by name."""

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rehearsing import ENDED, PARENT, Rehearsal, custom_job, pool, python, rehearsing, until
from tagline import failures, spec
from tagline.failures import Failure

EXECUTOR = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"
NO_IMPORT = "import no_such_module_here"
FULL = "open('/dev/full', 'w').write('x' * 100_000)"
KILLED = "import os; os.kill(os.getpid(), 9)"
REFUSED = """
import http.server, json, os, threading
WHY = ("trainer@demo.iam.gserviceaccount.com does not have storage.objects.get access to the Google Cloud Storage "
       "object. Permission 'storage.objects.get' denied on resource (or it may not exist).")
class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"error": {"code": 403, "message": WHY, "errors": [{"reason": "forbidden"}]}}).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", 0), Door)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{server.server_port}"
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
storage.Client(project="demo", credentials=AnonymousCredentials()).bucket("corpus").blob("a.csv").download_as_bytes()
"""
GONE = """
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
storage.Client(project="demo", credentials=AnonymousCredentials()).get_bucket("no-such-bucket")
"""
TALK = """
import json, os, socket, time
spec = json.loads(os.environ["CLUSTER_SPEC"])
host, port = spec["cluster"]["workerpool0"][0].split(":")
if spec["task"]["type"] == "workerpool0":
    server = socket.create_server((host, int(port)))
    talks = [server.accept()[0] for _ in range(3)]
    talks[0].sendall(b"x")
    while all(talk.recv(1) for talk in talks):
        pass
    raise ConnectionResetError("Connection reset by peer")
while True:
    try:
        talk = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
for number in range(500):
    print("step", number)
talk.recv(1)
try:
    raise KeyError("what it came of")
except KeyError as error:
    raise ValueError("what came of it") from error
"""


def package(rehearsal: Rehearsal) -> str:
    """A package that needs one that nobody has."""
    path = rehearsal.directory / "buckets" / "staging" / "trainer-0.1-py3-none-any.whl"
    path.parent.mkdir(exist_ok=True)
    facts = "Metadata-Version: 2.1\nName: trainer\nVersion: 0.1\nRequires-Dist: no-such-package-anywhere==9\n"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("trainer/task.py", "")
        wheel.writestr("trainer-0.1.dist-info/METADATA", facts)
        wheel.writestr("trainer-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("trainer-0.1.dist-info/RECORD", "")
    return f"gs://staging/{path.name}"


def job_specs(rehearsal: Rehearsal, data: Path) -> dict[str, dict[str, Any]]:
    """A job of each cause."""
    train = (sys.executable, "-m", "tagline", "train", str(data), "--runs", str(rehearsal.directory / "runs"))
    uses_package = {"executorImageUri": EXECUTOR, "packageUris": [package(rehearsal)], "pythonModule": "trainer.task"}
    in_package = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "pythonPackageSpec": uses_package}
    diverges = (
        "model.family=lstm", "training.learning_rate=1e30", "training.baseline=false", "training.export=false",
        "data.fraction=0.2",
    )  # fmt: skip
    return {
        "nan": custom_job(pool(*train, *diverges)),
        "pip-conflict": custom_job(in_package),
        "missing-column": custom_job(pool(*train, "model.family=linear", "data.text=massage")),
        "permission": custom_job(pool(sys.executable, "-c", REFUSED)),
        "not-found": custom_job(pool(sys.executable, "-c", GONE)),
        "import-error": custom_job(python(NO_IMPORT)),
        "disk-full": custom_job(python(FULL)),
        "host-memory": custom_job(python(KILLED)),
        "start": custom_job(pool("no-such-program")),
        "timeout": custom_job(python("import time; time.sleep(60)"), scheduling={"timeout": "1s"}),
        "preempted": custom_job(
            python("import time; print('ready', flush=True); time.sleep(60)"),
            scheduling={"strategy": "SPOT", "disableRetries": True},
        ),
        "unknown": custom_job(python(TALK), python(TALK, replicas=3)),
    }  # fmt: skip


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Failure]]:
    """Why the job that was made for a cause failed; all of them run at the same time."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform_v1, logging

    data = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"
    given = spec.defaults({"train": str(data), "text": "message", "labels": "topic"})
    directory = tmp_path_factory.mktemp("rehearsal") / "here"
    with rehearsing(directory, "--grace", "1", "--at-once", "20", PIP_NO_INDEX="1") as rehearsal:
        log = logging.Client(
            project="demo", credentials=AnonymousCredentials(), client_options={"api_endpoint": rehearsal.address},
            _use_grpc=False,
        )  # fmt: skip
        jobs = {
            cause: rehearsal.rest.create_custom_job(
                parent=PARENT, custom_job=aiplatform_v1.CustomJob.from_json(json.dumps(job))
            ).name
            for cause, job in job_specs(rehearsal, data).items()
        }  # fmt: skip
        until(lambda: "ready" in rehearsal.said(jobs["preempted"]), "a job to be taken away")
        rehearsal.http("POST", "/-/preempt", {"job": jobs["preempted"].rpartition("/")[2]})

        def explain(cause: str) -> Failure:
            job = until(
                lambda: (found := rehearsal.rest.get_custom_job(name=jobs[cause])).state.name in ENDED and found, cause
            )
            wanted = f'resource.type="ml_job" AND resource.labels.job_id="{job.name.rpartition("/")[2]}"'
            entries = log.list_entries(filter_=wanted, order_by="timestamp asc", page_size=1000)
            lines = [failures.line_of(entry.to_api_repr()) for entry in entries]
            return failures.explain(lines, message=job.error.message, spec=given)

        with ThreadPoolExecutor(4) as threads:
            found = dict(zip(jobs, threads.map(explain, jobs), strict=True))
        yield found.__getitem__


@pytest.mark.parametrize(
    ("cause", "words", "command"),
    [
        ("nan", "the loss is nan at step", "training.learning_rate=1e-05"),
        ("pip-conflict", "no-such-package-anywhere==9", "pip install --dry-run no-such-package-anywhere==9"),
        ("missing-column", 'no column "massage"', "tagline check SPEC data.text=message"),
        ("permission", "trainer@demo.iam.gserviceaccount.com lacks storage.objects.get", "gs://corpus --member"),
        ("not-found", "did not find gs://no-such-bucket", "gcloud storage ls gs://no-such-bucket"),
        ("import-error", "cannot import no_such_module_here", "--on rehearsal"),
        ("disk-full", "the disk of workerpool0-0 is full", "data.fraction=0.5"),
        ("host-memory", "was killed", "vertex.machine=n1-highmem-8"),
        ("start", "could not start no-such-program", "--on rehearsal"),
        ("timeout", "stopped after", "vertex.max_hours=48"),
        ("preempted", "spot machines", "vertex.spot=false"),
    ],
)
def test_a_job_that_fails_is_explained(
    explained: Callable[[str], Failure], cause: str, words: str, command: str
) -> None:  # fmt: skip
    found = explained(cause)
    assert found.cause == cause, found
    assert found.replica in ("workerpool0-0", "")
    assert words in found.sentence
    assert command in found.command


def test_the_replica_that_failed_first(explained: Callable[[str], Failure]) -> None:
    found = explained("unknown")
    assert found.cause == "unknown", found
    assert found.replica.startswith("workerpool1-")
    assert found.traceback[-1] == "KeyError: 'what it came of'"
