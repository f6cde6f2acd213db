"""Jobs that really fail in a rehearsal, through Google's own clients, each explained by name."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from rehearsing import ENDED, PARENT, Rehearsal, custom_job, pool, python, rehearsing, until
from tagline import spec
from tagline.jobs.diagnosis import log as failures
from tagline.jobs.diagnosis.log import Failure

EXECUTOR = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"
T4 = {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}
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
NO_GPU_MEMORY = """
import torch
raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB "
                             "of which 1.06 GiB is free.")
"""
NO_CUDA = """
import torch
if torch.version.cuda is None:
    torch.zeros(1, device="cuda")
raise AssertionError("Torch not compiled with CUDA enabled")
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
        "model.family=lstm",
        "training.learning_rate=1e30",
        "training.baseline=false",
        "training.export=false",
        "data.fraction=0.2",
    )
    return {
        "nan": custom_job(pool(*train, *diverges)),
        "pip-conflict": custom_job(in_package),
        "missing-column": custom_job(pool(*train, "model.family=linear", "model.characters=0", "data.text=massage")),
        "permission": custom_job(pool(sys.executable, "-c", REFUSED)),
        "not-found": custom_job(pool(sys.executable, "-c", GONE)),
        "import-error": custom_job(python(NO_IMPORT)),
        "gpu-memory": custom_job(pool(sys.executable, "-c", NO_GPU_MEMORY)),
        "wrong-cuda": custom_job(pool(sys.executable, "-c", NO_CUDA)),
        "capacity": custom_job(python("pass") | {"machineSpec": T4}),
        "disk-full": custom_job(python(FULL)),
        "host-memory": custom_job(python(KILLED)),
        "start": custom_job(pool("no-such-program")),
        "timeout": custom_job(python("import time; time.sleep(600)"), scheduling={"timeout": "1s"}),
        "preempted": custom_job(
            python("import time; print('ready', flush=True); time.sleep(600)"),
            scheduling={"strategy": "SPOT", "disableRetries": True},
        ),
        "unknown": custom_job(python(TALK), python(TALK, replicas=3)),
    }


EXPECTED = {
    "nan": ("the loss is nan at step", "training.learning_rate=1e-05"),
    "pip-conflict": ("no-such-package-anywhere==9", "pip install --dry-run no-such-package-anywhere==9"),
    "missing-column": ('no column "massage"', "tagline check SPEC data.text=message"),
    "permission": ("trainer@demo.iam.gserviceaccount.com lacks storage.objects.get", "gs://corpus --member"),
    "not-found": ("did not find gs://no-such-bucket", "gcloud storage ls gs://no-such-bucket"),
    "gpu-memory": ("2.00 GiB more did not fit into 14.75 GiB", "training.batch_size=16"),
    "wrong-cuda": ("one for CPUs: name an image", ""),
    "capacity": ("no machine free for 1 NVIDIA_TESLA_T4 in us-central1", "vertex.region="),
    "import-error": ("cannot import no_such_module_here", "--on rehearsal"),
    "disk-full": ("the disk of workerpool0-0 is full", "vertex.disk_gb=200"),
    "host-memory": ("was killed", "vertex.machine=n1-highmem-8"),
    "start": ("could not start no-such-program", "--on rehearsal"),
    "timeout": ("stopped after", "vertex.max_hours=48"),
    "preempted": ("spot machines", "vertex.spot=false"),
    "unknown": ("KeyError: 'what it came of'", "--on rehearsal"),
}
"""What the sentence and the command say."""


def test_jobs_that_fail_are_explained(tmp_path: Path) -> None:
    """All of them at the same time, which is what takes long here."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "project.json").write_text(json.dumps({"no_capacity": ["us-central1/NVIDIA_TESLA_T4"]}))
    with rehearsing(tmp_path / "here", "--grace", "1", "--at-once", "20", PIP_NO_INDEX="1") as rehearsal:
        found = explained(rehearsal)
        assert rehearsal.processes() == set()
    assert {made_for: failure.cause for made_for, failure in found.items()} == {cause: cause for cause in EXPECTED}
    for cause, (words, command) in EXPECTED.items():
        assert words in found[cause].sentence
        assert command in found[cause].command
    replicas = {cause: failure.replica.rpartition("-")[0] for cause, failure in found.items()}
    assert replicas == dict.fromkeys(EXPECTED, "workerpool0") | {
        "unknown": "workerpool1",
        "timeout": "",
        "capacity": "",
    }
    assert found["unknown"].traceback[-1] == "KeyError: 'what it came of'"


def explained(rehearsal: Rehearsal) -> dict[str, Failure]:
    """Why the job that was made for each cause failed, as Google's clients tell it."""
    from google.cloud import aiplatform_v1, logging

    data = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"
    given = spec.defaults({"train": str(data), "text": "message", "labels": "topic"})
    log = logging.Client(
        project="demo",
        credentials=rehearsal.credentials,
        client_options={"api_endpoint": rehearsal.address},
        _use_grpc=False,
    )
    jobs = {}
    for cause, job in job_specs(rehearsal, data).items():
        asked = aiplatform_v1.CustomJob.from_json(json.dumps(job))
        jobs[cause] = rehearsal.rest.create_custom_job(parent=PARENT, custom_job=asked).name
    until(lambda: "ready" in rehearsal.said(jobs["preempted"]), "a job to be taken away")
    assert rehearsal.http("POST", "/-/preempt", {"job": jobs["preempted"].rpartition("/")[2]})[0] == 200

    def explain(name: str) -> Failure:
        job = until(lambda: (now := rehearsal.rest.get_custom_job(name=name)).state.name in ENDED and now, name)
        wanted = f'resource.type="ml_job" AND resource.labels.job_id="{name.rpartition("/")[2]}"'
        entries = log.list_entries(filter_=wanted, order_by="timestamp asc", page_size=1000)
        lines = (failures.parse_entry(entry.to_api_repr()) for entry in entries)
        return failures.diagnose_log(lines, message=job.error.message, spec=given)

    return {cause: explain(name) for cause, name in jobs.items()}
