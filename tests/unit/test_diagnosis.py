"""Failures: what the replica that failed first said of it, found among thousands of lines, and what helps."""

import itertools
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagline import spec as specs
from tagline.gcp import machines
from tagline.jobs.diagnosis import advice, causes
from tagline.jobs.diagnosis.log import Failure, Line, diagnose_log, parse_entry
from tagline.spec import Spec

BEGIN = datetime(2026, 9, 1, 12, tzinfo=UTC)
REPLICAS = ("workerpool0-0", "workerpool1-0", "workerpool1-1", "workerpool1-2")
NOISE = (
    "step 150/2000  loss 0.5123  learning_rate 4.5e-05", "validation macro_f1 0.8714 at step 500  (kept)",
    "  5%|5         | 100/2000 [00:35<11:05,  2.85it/s]", "warning: 3 texts with different labels, in 6 rows",
    "[W socket.cpp:436] The server socket has failed to listen: errno: 98, Address already in use.",
    "FutureWarning: `resume_download` is deprecated", "Some weights were not initialized from the checkpoint",
    "DEBUG connectionpool: https://storage.googleapis.com:443 \"GET /b/x/o/y HTTP/1.1\" 200 None", "", "  ",
    "texts say anything: my card was denied, out of memory, quota, error 403 on the site", "I was Killed by the boss",
)  # fmt: skip
EXITED = (
    "The replica {} exited with a non-zero status of {}. To find out more about why your job exited please check the "
    "logs: https://console.cloud.google.com/logs/viewer?project=1&resource=ml_job%2Fjob_id%2F46&advancedFilter=x"
)


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def said(text: str, *, replica: str = "workerpool0-0", when: float = 600.0, severity: str = "ERROR") -> list[Line]:
    """What a replica printed, a line an entry, within a few milliseconds."""
    return [Line(at(when + n / 1000), replica, severity, each) for n, each in enumerate(text.strip("\n").split("\n"))]


@cache
def noise(count: int, *, seed: int) -> tuple[Line, ...]:
    """What goes on in a job, of every replica, in the order of time."""
    dice = random.Random(seed)
    moments = sorted(dice.uniform(0, 599) for _ in range(count))
    return tuple(
        Line(at(when), dice.choice(REPLICAS), dice.choice(("INFO", "ERROR")), dice.choice(NOISE)) for when in moments
    )


def mixed(lines: Iterable[Line], *, seed: int) -> list[Line]:
    """Replicas interleaved at random, the lines of each still in order."""
    queues: dict[str, list[Line]] = {}
    for line in lines:
        queues.setdefault(line.replica, []).append(line)
    turns = [name for name, queue in queues.items() for _ in queue]
    random.Random(seed).shuffle(turns)
    waiting = {name: iter(queue) for name, queue in queues.items()}
    return [next(waiting[name]) for name in turns]


def spec(*overrides: str) -> Spec:
    tables = {"data": {"train": "reviews.csv", "text": "review", "labels": "sentiment"}}
    return specs.parse(specs.apply_overrides(tables, overrides), where="the spec")


# Printed by the programs themselves, shortened to what is theirs.
CUDA_MEMORY = """
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/tagline/models/loop.py", line 211, in _step
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB of \
which 1.06 GiB is free. Process 7 has 13.69 GiB memory in use. See documentation for Memory Management
"""
CUDA_MEMORY_OLD = """
Traceback (most recent call last):
  File "task.py", line 3, in <module>
RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB total capacity; 14.75 GiB already \
allocated; 15.75 MiB free; 14.88 GiB reserved in total by PyTorch)
"""
NO_KERNEL = """
Traceback (most recent call last):
  File "task.py", line 3, in <module>
RuntimeError: CUDA error: no kernel image is available for execution on the device
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
"""
OLD_DRIVER = """
Traceback (most recent call last):
  File "task.py", line 3, in <module>
RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver
"""
CPU_TORCH = """
Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "torch/cuda/__init__.py", line 522, in _lazy_init
    raise AssertionError("Torch not compiled with CUDA enabled")
AssertionError: Torch not compiled with CUDA enabled
"""
NO_CUDART = """
Traceback (most recent call last):
  File "task.py", line 1, in <module>
    import torch
ImportError: libcudart.so.12: cannot open shared object file: No such file or directory
"""
CONFLICT = """
Collecting requests==2.20.0
ERROR: Cannot install requests==2.20.0 and urllib3==2.2.0 because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested urllib3==2.2.0
    requests 2.20.0 depends on urllib3<1.25 and >=1.21.1

To fix this you could try to:
1. loosen the range of package versions you've specified
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/dependency-resolution/
"""
NO_PACKAGE = """
ERROR: Could not find a version that satisfies the requirement no-such-package==9 (from versions: none)
ERROR: No matching distribution found for no-such-package==9
"""
FORBIDDEN = """
Traceback (most recent call last):
  File "site-packages/google/cloud/storage/blob.py", line 1041, in _do_download
    raise InvalidResponse(('Request failed with status code', 403, 'Expected one of', 200))
google.resumable_media.common.InvalidResponse: ('Request failed with status code', 403, 'Expected one of', 200)

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "task.py", line 5, in <module>
google.api_core.exceptions.Forbidden: 403 GET https://storage.googleapis.com/download/storage/v1/b/corpus/o/a.csv: \
service-12@gcp-sa-aiplatform-cc.iam.gserviceaccount.com does not have storage.objects.get access to the Google Cloud \
Storage object. Permission 'storage.objects.get' denied on resource (or it may not exist).
"""
ENOSPC = """
Traceback (most recent call last):
  File "task.py", line 2, in <module>
OSError: [Errno 28] No space left on device: '/var/cache/huggingface/blobs/1'
"""
NO_MODULE = """
Traceback (most recent call last):
  File "task.py", line 1, in <module>
    import tensorflow_text
ModuleNotFoundError: No module named 'tensorflow_text'
"""
KEY = """
Traceback (most recent call last):
  File "task.py", line 9, in <module>
    rows["review"]
KeyError: 'review'
"""
NO_COLUMN = """
error: the spec for messages.csv has 1 problem:
  data.text: messages.csv has no column "massage"; it has: id, received, channel, message, topic
"""
NAN = """
error: the loss is nan at step 3
next: lower training.learning_rate
"""
NO_GPU = """
error: the job asked for a GPU and torch finds none: it stops rather than pay for it
next: vertex.image must hold a torch for CUDA
"""
NUMPY_MEMORY = """
Traceback (most recent call last):
  File "numpy/_core/numeric.py", line 232, in ones
    a = empty(shape, dtype, order, device=device)
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape (100000, 100000)
"""
TORCH_MEMORY = """
Traceback (most recent call last):
  File "task.py", line 1, in <module>
RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to \
allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)
"""
BUG = """
error: this is a bug in Tagline: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
next: please report it with the output of: the same command with --debug, and tagline info
"""

BY_LOG = [
    (CUDA_MEMORY, "gpu-memory", "2.00 GiB more did not fit into 14.75 GiB", "training.batch_size=16"),
    (CUDA_MEMORY_OLD, "gpu-memory", "20.00 MiB more did not fit into 15.90 GiB", "training.batch_size=16"),
    (BUG, "gpu-memory", "workerpool1-0 ran out of GPU memory", "training.batch_size=16"),
    (NO_KERNEL, "wrong-cuda", "not built for NVIDIA_TESLA_T4", "vertex.accelerator=NVIDIA_L4"),
    (OLD_DRIVER, "wrong-cuda", "newer than the driver of the machine: name an image", ""),
    (CPU_TORCH, "wrong-cuda", "one for CPUs: name an image", ""),
    (NO_CUDART, "wrong-cuda", "lacks libcudart.so.12 of CUDA: name an image", ""),
    (CONFLICT, "pip-conflict", "requests==2.20.0 and urllib3==2.2.0 together",
     "pip install --dry-run requests==2.20.0 urllib3==2.2.0"),
    (NO_PACKAGE, "pip-conflict", "no version of no-such-package==9", "pip install --dry-run no-such-package==9"),
    (FORBIDDEN, "permission", "lacks storage.objects.get: grant it roles/storage.objectUser",
     "gcloud storage buckets add-iam-policy-binding gs://corpus --member=serviceAccount:"
     "service-12@gcp-sa-aiplatform-cc.iam.gserviceaccount.com --role=roles/storage.objectUser"),
    (ENOSPC, "disk-full", "full while it wrote /var/cache/huggingface/blobs/1", "vertex.disk_gb=200"),
    (NO_MODULE, "import-error", "cannot import tensorflow_text", "--on rehearsal"),
    (KEY, "missing-column", 'no column "review"', "tagline check SPEC"),
    (NO_COLUMN, "missing-column", "it has: id, received", "tagline check SPEC data.text=message"),
    (NAN, "nan", "the loss is nan at step 3; lower training.learning_rate", "training.learning_rate=1e-05"),
    (NO_GPU, "no-gpu", "asked for a GPU and torch finds none", "vertex.accelerators=0"),
    (NUMPY_MEMORY, "host-memory", "ran out of memory on n1-standard-8", "vertex.machine=n1-highmem-8"),
    (TORCH_MEMORY, "host-memory", "ran out of memory on n1-standard-8", "vertex.machine=n1-highmem-8"),
    ("Killed", "host-memory", "was killed", "vertex.machine=n1-highmem-8"),
]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("log", "cause", "words", "command"), BY_LOG)
def test_a_cause_is_found_among_thousands_of_lines(log: str, cause: str, words: str, command: str, seed: int) -> None:
    lines = mixed([*noise(2000, seed=seed), *said(log, replica="workerpool1-0")], seed=seed)
    found = diagnose_log(lines, message=EXITED.format("workerpool0-0", 1), spec=spec())
    assert (found.cause, found.replica) == (cause, "workerpool1-0")
    assert words in found.sentence
    assert command in found.command
    if "Traceback" in log:
        assert found.traceback[0] == "Traceback (most recent call last):"
        assert len(found.traceback) < 8


BY_MESSAGE = [
    ("The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_nvidia_t4_gpus",
     "quota", "custom_model_training_nvidia_t4_gpus in us-central1 is too small for 1 NVIDIA_TESLA_T4",
     "vertex.machine=g2-standard-8 vertex.accelerator=NVIDIA_L4"),
    ("The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_cpus",
     "quota", "custom_model_training_cpus", "vertex.region=us-east1"),
    ("Resources are insufficient in region: us-central1. Try a different region or use a different accelerator.",
     "capacity", "no machine free for 1 NVIDIA_TESLA_T4 in us-central1", "vertex.region=us-east1"),
    ("The replica workerpool0-0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL).",
     "host-memory", "workerpool0-0 ran out of memory on n1-standard-8", "vertex.machine=n1-highmem-8"),
    ("The replica workerpool0-0 ran out of memory and exited with a non-zero status of 137.",
     "host-memory", "workerpool0-0 ran out of memory", "vertex.machine=n1-highmem-8"),
    (EXITED.format("workerpool0-0", 137), "host-memory", "was killed, as happens", "vertex.machine=n1-highmem-8"),
    (EXITED.format("workerpool0-0", 139), "crash", "segmentation fault", "--on rehearsal"),
    ('denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource "projects/p/locations/'
     'us/repositories/r": us-docker.pkg.dev/p/r/train:1', "image-pull", "us-docker.pkg.dev/p/r/train:1 cannot be",
     "gcloud artifacts docker images describe us-docker.pkg.dev/p/r/train:1"),
    ('Failed to pull image "us-docker.pkg.dev/p/r/train:1": rpc error: code = NotFound desc = failed to pull and '
     "unpack image: not found", "image-pull", "it is not there", "describe us-docker.pkg.dev/p/r/train:1"),
    ('The replica workerpool0-0 exited with a non-zero status of 128. Termination reason: StartError. \n Termination '
     'log message: failed to create containerd task: exec: "trainer.task": executable file not '
     "found in $PATH: unknown", "start", "could not start trainer.task", "--on rehearsal"),
    ("The replicas workerpool0-0, workerpool1-0 were preempted.", "preempted", "spot machines", "vertex.spot=false"),
    ("The job ran longer than its timeout of 86400 seconds and was cancelled.", "timeout", "vertex.max_hours = 24",
     "vertex.max_hours=48"),
    ("Internal error occurred for the current attempt.", "internal", "an error of its own", "--on vertex"),
    ("CANCELED", "cancelled", "was cancelled", ""),
    ('Service account `1-compute@developer.gserviceaccount.com` does not have `[storage.objects.get, '
     'storage.objects.create]` IAM permission(s) to the bucket "corpus".', "permission", "lacks storage.objects.get",
     "gs://corpus --member=serviceAccount:1-compute@developer.gserviceaccount.com --role=roles/storage.objectUser"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "cause", "words", "command"), BY_MESSAGE)
def test_a_cause_that_the_service_names(message: str, cause: str, words: str, command: str) -> None:
    for lines in ((), noise(2000, seed=1)):
        found = diagnose_log(lines, message=message, spec=spec())
        assert found.cause == cause
        assert words in found.sentence
        assert command in found.command
        assert found.traceback == ()


def test_every_cause_has_its_advice_and_is_tried_here() -> None:
    assert {rule.cause for rule in causes.RULES} | set(causes.BY_STATUS.values()) <= set(advice.ADVICE)
    tried = {cause for _, cause, *_ in BY_LOG + BY_MESSAGE} | {"not-found", "network", "lost-worker"}
    assert tried == set(advice.ADVICE)


CLOSED = (
    "Traceback (most recent call last):\n"
    '  File "torch/distributed/distributed_c10d.py", line 3252, in all_reduce\n'
    "    work.wait()\n"
    "RuntimeError: [third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:34512. This "
    "is "
    "typically caused by a remote worker crashing. Check the logs of the remote worker before reporting an error."
)
NCCL = (
    "Traceback (most recent call last):\n"
    '  File "task.py", line 8, in <module>\n'
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, remote process exited or there was "
    "a network error, NCCL version 2.19.3\nncclRemoteError: A call failed possibly due to a network error"
)
BAD_VALUE = """
Traceback (most recent call last):
  File "task.py", line 8, in <module>
    check(batch)
ValueError: the batch is odd
"""


@pytest.mark.parametrize("seed", range(4))
def test_the_replica_that_failed_first_among_four(seed: int) -> None:
    lines = [
        *noise(2000, seed=seed),
        *said(CLOSED, replica="workerpool0-0", when=600.2),
        *said(BAD_VALUE, replica="workerpool1-1", when=600.1),
        *said(NCCL, replica="workerpool1-0", when=600.15),
        *said(BAD_VALUE.replace("odd", "even"), replica="workerpool1-2", when=600.4),
        *said("torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15", when=601.0),
    ]
    found = diagnose_log(mixed(lines, seed=seed), message=EXITED.format("workerpool0-0", 1), spec=spec())
    assert (found.cause, found.replica) == ("unknown", "workerpool1-1")
    assert found.sentence == "workerpool1-1 failed first, with ValueError: the batch is odd"
    assert found.traceback == tuple(BAD_VALUE.strip().split("\n"))


def test_a_consequence_that_came_earlier_is_none() -> None:
    lines = said(CLOSED, when=600) + said(CUDA_MEMORY, replica="workerpool1-0", when=601)
    assert diagnose_log(lines, message=EXITED.format("workerpool0-0", 1)).cause == "gpu-memory"


def test_only_consequences() -> None:
    found = diagnose_log(
        said(CLOSED) + said("hello", replica="workerpool1-0"), message=EXITED.format("workerpool0-0", 1)
    )
    assert (found.cause, found.replica) == ("lost-worker", "workerpool0-0")
    assert found.traceback[-1].startswith("RuntimeError: [third_party/gloo")


def test_a_worker_that_was_killed_says_nothing_and_another_one_something_else() -> None:
    lines = said(BAD_VALUE, replica="workerpool0-0")
    found = diagnose_log(lines, message=EXITED.format("workerpool1-0", 137), spec=spec())
    assert (found.cause, found.replica) == ("host-memory", "workerpool1-0")


CHAIN = """
Traceback (most recent call last):
  File "a.py", line 3, in <module>
FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 5, in <module>
ValueError: cannot start

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 7, in <module>
RuntimeError: and cannot stop
"""
LOADER = """
Traceback (most recent call last):
  File "torch/_utils.py", line 794, in reraise
    raise exception
KeyError: Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
KeyError: 'review'
"""
SPAWN = """
W1116 16:09:32.633000 19774 torch/multiprocessing/spawn.py:165] Terminating process 19933 via signal SIGTERM
Traceback (most recent call last):
  File "torch/multiprocessing/spawn.py", line 211, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "w2.py", line 3, in f
    if i == 1: raise ValueError("in spawn")
ValueError: in spawn
"""
REMOTE = '''
concurrent.futures.process._RemoteTraceback:
"""
Traceback (most recent call last):
  File "concurrent/futures/process.py", line 256, in _process_worker
ZeroDivisionError: division by zero
"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 5, in <module>
ZeroDivisionError: division by zero
'''
GROUP = """
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 2, in <module>
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ModuleNotFoundError: No module named 'peft'
    +---------------- 2 ----------------
    | ValueError: b
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("log", "cause", "last"),
    [
        (CHAIN, "unknown", "FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent'"),
        (LOADER, "missing-column", "KeyError: 'review'"),
        (SPAWN, "unknown", "ValueError: in spawn"),
        (REMOTE, "unknown", "ZeroDivisionError: division by zero"),
    ],
)
def test_the_root_of_exceptions_that_came_of_each_other(log: str, cause: str, last: str) -> None:
    for lines in (said(log), [Line(at(600), "workerpool0-0", "ERROR", log.strip("\n"))]):
        found = diagnose_log([*noise(2000, seed=1), *lines], message=EXITED.format("workerpool0-0", 1), spec=spec())
        assert (found.cause, found.replica) == (cause, "workerpool0-0")
        assert found.traceback[-1] == last
        assert sum("Traceback" in line for line in found.traceback) == 1


GROUP_CODE = """
def fail():
    raise ImportError("no such thing")
try:
    fail()
except ImportError as error:
    raise ExceptionGroup("outer", [ExceptionGroup("inner", [error]), ValueError("b")])
"""


def test_a_group_that_python_printed() -> None:
    done = subprocess.run([sys.executable, "-c", GROUP_CODE], capture_output=True, text=True, check=False)
    found = diagnose_log([*said(done.stderr), *said("bye")])
    assert (found.cause, found.sentence) == ("import-error", "workerpool0-0 cannot import what it needs: no such thing")


def test_a_group_of_exceptions() -> None:
    for lines in (said(GROUP), [Line(at(600), "workerpool0-0", "ERROR", GROUP.strip("\n"))], said(GROUP) + said("bye")):
        found = diagnose_log(lines)
        assert found.cause == "import-error"
        assert "peft" in found.sentence


TORCHRUN = """
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "w.py", line 5, in <module>
[rank0]:   File "w.py", line 6, in <module>
[rank1]:     raise ValueError("root cause here")
[rank0]:     d.all_reduce(torch.ones(3))
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:34512.
[rank1]: ValueError: root cause here
W1116 16:09:19.749000 19411 torch/distributed/elastic/api.py:1028] Sending process 19486 closing signal SIGTERM
E1116 16:09:19.813000 19411 torch/distributed/elastic/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 1)
Traceback (most recent call last):
  File "torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
w.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 19487)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_the_summary_of_torchrun_is_no_cause() -> None:
    found = diagnose_log(
        mixed([*noise(2000, seed=1), *said(TORCHRUN)], seed=5), message=EXITED.format("workerpool0-0", 1)
    )
    assert found.sentence == "workerpool0-0 failed first, with ValueError: root cause here"
    assert found.traceback == (
        "Traceback (most recent call last):",
        '  File "w.py", line 5, in <module>',
        '    raise ValueError("root cause here")',
        "ValueError: root cause here",
    )


def test_the_summary_of_torchrun_names_what_was_killed() -> None:
    table = TORCHRUN[TORCHRUN.index("W1116") :].replace("exitcode  : 1 ", "exitcode  : -9 ")
    assert diagnose_log(said(table), message=EXITED.format("workerpool0-0", 1)).cause == "host-memory"


def test_what_a_replica_has_outlived_is_not_what_ended_it() -> None:
    early = said(NO_MODULE, when=1)
    late = said(BAD_VALUE, when=600)
    lines = sorted([*early, *noise(2000, seed=2), *late], key=lambda line: line.time)
    assert diagnose_log(lines).sentence.endswith("ValueError: the batch is odd")
    alone = diagnose_log(
        sorted([*early, *noise(2000, seed=2)], key=lambda line: line.time), message=EXITED.format("workerpool0-0", 1)
    )
    assert alone.cause == "unknown"
    assert "went on after this" in alone.sentence
    assert alone.traceback[-1] == "ModuleNotFoundError: No module named 'tensorflow_text'"


def test_one_that_happens_again_after_every_restart_counts_from_the_first_time() -> None:
    again = [line for n in range(3) for line in said(BAD_VALUE, replica="workerpool1-0", when=100 * n + 1)]
    between = [Line(at(100 * n + 2 + k / 100), "workerpool1-0", "INFO", "step") for n in range(2) for k in range(150)]
    other = said(BAD_VALUE.replace("odd", "even"), replica="workerpool0-0", when=50)
    lines = sorted([*again, *between, *other], key=lambda line: line.time)
    assert diagnose_log(lines).replica == "workerpool1-0"


def test_errors_that_python_ignored_and_standard_output_in_between() -> None:
    ignored = "Exception ignored in: <function Pool.__del__ at 0x7>\n" + BAD_VALUE.strip().replace("odd", "ignored")
    traceback = said(BAD_VALUE, when=601)
    printed = Line(at(601.0015), "workerpool0-0", "INFO", "printed meanwhile")
    lines = [*said(ignored), traceback[0], printed, *traceback[1:], *said("bye", when=602)]
    assert diagnose_log(lines).traceback == tuple(BAD_VALUE.strip().split("\n"))


@pytest.mark.parametrize("form", ["whole", "json", "escaped"])
def test_a_traceback_in_one_entry(form: str) -> None:
    import json

    text = BAD_VALUE.strip()
    text = {
        "whole": text,
        "json": json.dumps({"message": "it failed", "exc_info": text}),
        "escaped": text.replace("\n", "\\n"),
    }[form]
    found = diagnose_log([Line(at(1), "workerpool0-0", "ERROR", text), *said("bye")])
    assert found.traceback[0].startswith("Traceback")
    assert found.traceback[-1] == "ValueError: the batch is odd"


def test_the_message_itself_may_hold_the_end_of_a_traceback() -> None:
    message = (
        "The replica workerpool1-1 exited with a non-zero status of 1. Termination reason: Error. \n"
        + NO_MODULE.strip().replace("\n", "\n  [...]\n", 1)
    )
    found = diagnose_log([], message=message)
    assert (found.cause, found.replica) == ("import-error", "workerpool1-1")

    found = diagnose_log([], message=message.replace("\n", " "))
    assert (found.cause, found.replica) == ("import-error", "workerpool1-1")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("terminate called after throwing an instance of 'std::bad_alloc'", "host-memory"),
        ("bash: line 1: 4711 Killed                  python train.py", "host-memory"),
        ("[  1.5] Out of memory: Killed process 7 (python)", "host-memory"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. ", "host-memory"),
        ("  what():  CUDA error: out of memory", "gpu-memory"),
        ("error while loading shared libraries: libcudart.so.12: cannot open shared object file", "wrong-cuda"),
        ("cp: write: No space left on device", "disk-full"),
        ("ERROR: Package 'x' requires a different Python: 3.10.2 not in '>=3.11'", "pip-conflict"),
        ("ERROR: Could not build wheels for spacy, which is required to install", "pip-conflict"),
        ("error: metadata-generation-failed", "pip-conflict"),
        ("AccessDeniedException: 403 x@y.com does not have storage.objects.list access to seed", "permission"),
        ("ERROR: (gcloud.storage.cp) PERMISSION_DENIED: Caller lacks something", "permission"),
        ("rpc failed: ACCESS_TOKEN_SCOPE_INSUFFICIENT", "permission"),
        ("curl: 403 Forbidden", "permission"),
        ("NoSuchBucket", "not-found"), ("No such object: corpus/a.csv", "not-found"),
        ("/usr/bin/python: No module named trainer", "import-error"),
        ("Loss is NaN, stopping", "nan"), ("train.py stopped: NaN loss", "nan"),
        ("Fatal Python error: Segmentation fault", "crash"), ("Segmentation fault (core dumped)", "crash"),
        ("sh: exec: python: exec format error", "start"),
    ],
)  # fmt: skip
def test_a_mere_line_that_names_a_cause(text: str, cause: str) -> None:
    lines = [*noise(2000, seed=1), *said(text, severity="INFO")]
    assert diagnose_log(lines, message=EXITED.format("workerpool0-0", 1)).cause == cause


def test_a_status_says_more_than_a_line_before_it() -> None:
    lines = said("Could not load libcudart.so.11.0: cannot open shared object file; ignore this without a GPU")
    assert diagnose_log(lines, message=EXITED.format("workerpool0-0", 137)).cause == "host-memory"


def test_times_of_any_form_are_compared_as_times() -> None:
    late = [Line("2026-09-01T14:00:00.5+02:00", "a-0", "ERROR", line.text) for line in said(BAD_VALUE)]
    early = [Line("2026-09-01T12:00:00.123456789Z", "b-0", "ERROR", line.text) for line in said(BAD_VALUE)]
    never = [Line("yesterday", "c-0", "ERROR", line.text) for line in said(BAD_VALUE)]
    assert diagnose_log([*never, *late, *early]).replica == "b-0"


def test_nothing_was_logged() -> None:
    found = diagnose_log([])
    assert (found.cause, found.replica, found.traceback) == ("unknown", "", ())
    assert "roles/logging.logWriter" in found.sentence
    found = diagnose_log([], message=EXITED.format("workerpool0-0", 1))
    assert found.replica == "workerpool0-0"
    assert found.sentence.startswith("workerpool0-0 exited with status 1, and its log is empty")
    found = diagnose_log([*noise(2000, seed=1), *said("bye")], message=EXITED.format("workerpool0-0", 1))
    assert found.sentence == "workerpool0-0 exited with status 1 without saying why; the last that it printed was: bye"


@pytest.mark.parametrize(
    ("log", "status", "cause"),
    [
        ("error: there is no spec gone.toml\nnext: tagline init DATA writes one", 2, "spec"),
        ("error: a.csv:7: no label", 3, "data"), ("error: run x is in use by process 7", 4, "run"),
        ("error: cannot find the machine x of CLUSTER_SPEC", 5, "place"), ("error: macro_f1 is below", 1, "check"),
        ("error: this is a bug in Tagline: KeyError: 1", 70, "bug"), ("error: anything", 77, "unknown"),
        ("error: gs://b/x.csv may not be used: 403 GET https://storage.googleapis.com/storage/v1/b/b/o/x: a@b.iam."
         "gserviceaccount.com does not have storage.objects.get access\nnext: grant roles/storage.objectUser", 5,
         "permission"),
        ("error: there is no gs://gone/x.csv\nnext: is the name of the bucket right?", 3, "not-found"),
        ("error: run x is not in gs://gone/tagline/runs any more\nnext: was it removed?", 4, "not-found"),
        ("error: the bucket of gs://gone/tagline/runs/x is not there any more\nnext: was it removed?", 5, "not-found"),
        ("error: there is no bucket gone\nnext: was it removed, or is its name wrong?", 5, "not-found"),
        ("error: worker 1 was killed by signal 9, the last of 4 times\nnext: --workers 1 needs less", 4, "host-memory"),
        ("error: cannot write runs/x: No space left on device\nnext: free some space", 5, "disk-full"),
    ],
)  # fmt: skip
def test_what_tagline_says_itself_is_carried_over(log: str, status: int, cause: str) -> None:
    lines = mixed(
        [
            *noise(2000, seed=1),
            *said(log, replica="workerpool1-0"),
            *said("error: another worker is gone: gloo", when=599.5),
        ],
        seed=7,
    )
    found = diagnose_log(lines, message=EXITED.format("workerpool1-0", status), spec=spec())
    assert (found.cause, found.replica) == (cause, "workerpool1-0")
    message, _, hint = log.partition("\nnext: ")
    assert found.sentence == message.removeprefix("error: ") + (f"; {hint}" if hint else "")
    if cause == "not-found":
        assert found.command.startswith("gcloud storage ls gs://gone")


def test_network() -> None:
    log = """
Traceback (most recent call last):
  File "task.py", line 1, in <module>
requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with \
url: /x (Caused by NameResolutionError("Failed to resolve 'huggingface.co'"))
"""
    found = diagnose_log(said(log))
    assert (found.cause, found.sentence.partition(":")[0]) == ("network", "workerpool0-0 does not reach huggingface.co")


@pytest.mark.parametrize(
    ("overrides", "log", "command"),
    [
        (["training.batch_size=1"], CUDA_MEMORY, "vertex.machine=g2-standard-8 vertex.accelerator=NVIDIA_L4"),
        (["training.batch_size=1", "vertex.accelerator=NVIDIA_L4", "vertex.accelerators=2"], CUDA_MEMORY,
         "vertex.machine=a2-highgpu-2g vertex.accelerator=NVIDIA_TESLA_A100"),
        (["vertex.machine=n1-highmem-8"], TORCH_MEMORY, "vertex.machine=n1-highmem-16"),
        (["vertex.machine=n1-highmem-16"], TORCH_MEMORY, "data.fraction=0.5"),
        (["vertex.machine=n1-highmem-16", "vertex.accelerators=0"], TORCH_MEMORY, "vertex.machine=n1-highmem-32"),
        (["vertex.machine=n2-standard-4", "vertex.accelerators=0"], TORCH_MEMORY, "vertex.machine=n2-highmem-4"),
        (["vertex.machine=n1-highmem-96"], TORCH_MEMORY, "data.fraction=0.5"),
        (["vertex.machine=c2-standard-8"], TORCH_MEMORY, "data.fraction=0.5"),
        (["vertex.machine=g2-standard-8", "vertex.accelerator=NVIDIA_L4"], TORCH_MEMORY,
         "vertex.machine=g2-standard-12"),
        (["vertex.machine=a2-highgpu-4g", "vertex.accelerator=NVIDIA_TESLA_A100", "vertex.accelerators=4"],
         TORCH_MEMORY, "vertex.machine=a2-ultragpu-4g"),
        (["training.learning_rate=0.5"], NAN, "training.learning_rate=0.05"),
        (["training.precision=float16"], NAN, "training.precision=float32"),
        (["model.family=lstm"], NAN, "training.learning_rate=0.0001"),
        (["vertex.image=us-docker.pkg.dev/p/r/own:1"], NO_KERNEL, "vertex.image="),
    ],
)  # fmt: skip
def test_the_command_fits_the_spec(overrides: Sequence[str], log: str, command: str) -> None:
    found = diagnose_log(said(log), spec=spec(*overrides))
    assert command in found.command
    settings = [word for word in found.command.split() if "=" in word]
    changed = spec(*overrides, *settings)
    assert changed != spec(*overrides)
    vertex = changed.vertex
    assert "vertex.machine" not in command or not any(
        machines.find_misfit(vertex.machine, vertex.accelerator if vertex.accelerators else "", vertex.accelerators)
    )


def test_spot_machines_are_given_last() -> None:
    for message in (
        "Resources are insufficient in region: us-central1.",
        "The following quota metrics exceed quota "
        "limits: aiplatform.googleapis.com/custom_model_training_preemptible_nvidia_t4_gpus",
    ):
        assert diagnose_log([], message=message, spec=spec("vertex.spot=true")).command.endswith("vertex.spot=false")


def test_large_machines_can_be_waited_for() -> None:
    message = "Resources are insufficient in region: us-central1."
    found = diagnose_log(
        [], message=message, spec=spec("vertex.machine=a2-highgpu-1g", "vertex.accelerator=NVIDIA_TESLA_A100")
    )
    assert found.command.endswith("vertex.flex_start=true")


def test_an_entry_of_cloud_logging() -> None:
    labels = {"task_name": "workerpool0-0", "job_id": "1"}
    entry = {"timestamp": at(1), "severity": "ERROR", "resource": {"labels": labels}, "jsonPayload": {"message": "x"}}
    assert parse_entry(entry) == Line(at(1), "workerpool0-0", "ERROR", "x")
    assert parse_entry({"textPayload": "Job failed.", "resource": {"labels": {"task_name": "service"}}}).replica == ""
    assert parse_entry({"jsonPayload": {"step": 3}}).text == '{"step": 3}'
    assert parse_entry({}) == Line("", "", "DEFAULT", "")


REALLY = [
    ("open('/dev/full', 'w').write('x' * 100_000)", "disk-full", "is full"),
    ("import no_such_module_here", "import-error", "no_such_module_here"),
    ("from json import nothing", "import-error", "nothing from json"),
    ("import resource as r; r.setrlimit(r.RLIMIT_AS, (10**9,) * 2); bytearray(10**10)", "host-memory", "ran out of"),
    ("open('/proc/1/mem/x', 'w')", "unknown", "NotADirectoryError"),
    ("import pyarrow.csv as c, io\nc.read_csv(io.BytesIO(b'a,b\\n1,2\\n'), "
     "convert_options=c.ConvertOptions(include_columns=['text']))", "missing-column", 'no column "text"'),
]  # fmt: skip


@pytest.mark.parametrize(("code", "cause", "words"), REALLY)
def test_what_programs_really_print(code: str, cause: str, words: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode
    found = diagnose_log(said(done.stderr), message=EXITED.format("workerpool0-0", done.returncode))
    assert found.cause == cause, done.stderr
    assert words in found.sentence


def test_a_long_log_in_bounded_memory() -> None:
    def lines() -> Iterator[Line]:
        for n, line in enumerate(itertools.islice(itertools.cycle(noise(2000, seed=1)), 12_000)):
            yield line
            if n % 40 == 0 and n < 9_000:  # what is handled, and never twice the same
                yield from said(BAD_VALUE.replace("odd", f"odd: {n}"), replica=f"workerpool1-{n % 3}", when=10)
                yield Line(at(10), f"odd-{n}", "ERROR", f"[rank{n}]: Traceback (most recent call last):")
                yield Line(at(10), "workerpool0-0", "ERROR", f"[rank{n}]: Traceback (most recent call last):")
                yield Line(at(10), "", "INFO", f"Waiting for {n}.")
        yield from said(CUDA_MEMORY, when=590)

    tracemalloc.start()
    found = diagnose_log(lines(), spec=spec())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.cause == "gpu-memory"
    assert peak < 12_000_000, "whatever the length"


LOGS = (CUDA_MEMORY, CHAIN, TORCHRUN, GROUP, SPAWN, LOADER, CONFLICT, NO_COLUMN)
words = st.sampled_from([
    *NOISE, *(line for log in LOGS for line in log.split("\n")), *(message for message, *_ in BY_MESSAGE),
    "error: ", "next: ", '{"message": "Traceback (most recent call last):', "[rank1]: ",
])  # fmt: skip
texts = st.one_of(words, st.text(), st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")),
                  st.lists(words, max_size=6).map("\n".join))  # fmt: skip
times = st.one_of(st.datetimes().map(lambda moment: moment.isoformat() + "Z"), st.text(max_size=5), st.just(at(1)))
entries = st.builds(
    Line, times, st.sampled_from([*REPLICAS, "", "service", "\x00"]), st.sampled_from(["INFO", "ERROR"]), texts
)


@given(
    st.lists(entries, max_size=40), texts, st.sampled_from([None, spec(), spec("vertex.spot=true", "vertex.machine=x")])
)
def test_it_always_answers(lines: list[Line], message: str, given_spec: Spec | None) -> None:
    found = diagnose_log(lines, message=message, spec=given_spec)
    assert isinstance(found, Failure)
    assert found.cause in {*advice.ADVICE, *causes.TAGLINE_STATUS.values(), "unknown"}
    assert found.sentence
    assert all(isinstance(line, str) for line in found.traceback)
