"""Cluster: the machines of one training, and how workers are started and supervised on this one."""

import ctypes
import json
import logging
import os
import signal
import socket
import struct
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tagline import errors, gcp
from tagline.errors import Interrupted, PlaceError, RunError, SpecError, TaglineError, first_line
from tagline.models.nn.devices import core_count, gpu_count
from tagline.models.nn.workers import JOIN_TIMEOUT, shared_store
from tagline.system.processes import is_worker

RESTARTS = 3
WORDS = "TAGLINE_WORDS"
"""Names the directory where failing workers write their errors, which the launcher reports for all of them."""
JOB = "TAGLINE_JOB"
"""Names the job that workers belong to, the same after every restart."""
ACCELERATORS = "TAGLINE_ACCELERATORS"
"""Names how many GPUs were requested for this machine of a job."""
TAKEN_OVER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Read by torch when it is imported: hides warnings such as a missing host name."""
KEEP_ALIVE_S = 365 * 24 * 3600
"""Keep-alive interval; effectively disables torch's rendezvous heartbeat."""
SAVING = timedelta(minutes=5)
"""Time-out for workers to save a checkpoint after a signal."""


@dataclass(frozen=True)
class Cluster:
    """The machines of one training, seen from one of them."""

    machines: int = 1
    number: int = 0
    main: str = ""
    """Address and port of the first machine, where the others find it."""
    own_name: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Cluster":
        """Read Vertex AI's CLUSTER_SPEC; where it is not set, the cluster is this machine alone."""
        if not environment.get("CLUSTER_SPEC"):
            return cls()
        try:
            spec = json.loads(environment["CLUSTER_SPEC"])
            own = (spec["task"]["type"], int(spec["task"]["index"]))
            # Pool 2 holds reduction servers and pool 3 evaluators: neither runs Tagline.
            machines = {
                (pool, index): address
                for pool in ("workerpool0", "workerpool1")
                for index, address in enumerate(spec["cluster"].get(pool, ()))
            }
            addresses = list(machines.values())
            names = [name for name, _ in map(_split_address, addresses)]
            number = list(machines).index(own)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            hint = "unset it to train here alone"
            raise PlaceError(f"cannot understand CLUSTER_SPEC: {error!r}", hint=hint) from error
        return cls(len(machines), number, addresses[0], names[number])


def _split_address(address: str) -> tuple[str, int]:
    name, _, port = address.rpartition(":")
    return name, int(port)


def count_workers(count: int | None, cluster: Cluster, *, can_share: bool) -> int:
    """Return how many workers to start here: as requested, else one a GPU; 0 if this process is enough."""
    if is_worker(os.environ):
        return 0  # it has been started as a worker
    gpus = gpu_count() if can_share else 0
    if count is None:
        count = max(1, gpus)
    if count > gpus > 0:
        raise SpecError(f"{count} workers need as many GPUs; there are {gpus}", hint=f"--workers {gpus}")
    return count if count * cluster.machines > 1 else 0


def check_accelerators(environment: Mapping[str, str], *, uses_device: bool) -> str:
    """Refuse to train on the CPU in a job that requested a GPU; returns a warning, or "".

    A rehearsal has the GPUs that this machine has, and goes on without.
    """
    asked = environment.get(ACCELERATORS, "")
    if not uses_device or not asked.isdecimal() or int(asked) == 0 or gpu_count():
        return ""
    if gcp.find_rehearsal():
        return "the job asks for a GPU, and this rehearsal has none: it computes on the processor"
    wanted = "a GPU" if asked == "1" else f"{asked} GPUs"
    hint = (
        "vertex.image must hold a torch for CUDA; to train without a GPU: vertex.accelerators=0, or here "
        f"vertex.environment.{ACCELERATORS}=0"
    )
    raise PlaceError(f"the job asked for {wanted} and torch finds none: it stops rather than pay for it", hint=hint)


def job() -> str:
    """Return the name of this process's job, the same after every restart; empty if there is none."""
    if found := os.environ.get(JOB) or os.environ.get(gcp.JOB_ID):
        trial = os.environ.get("CLOUD_ML_TRIAL_ID", "")  # the trials of a tuning job have its id in common
        return f"{found} trial {trial}" if trial else found
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"torchrun {run_id} {os.getppid()}" if run_id else ""


def launch_workers(arguments: Sequence[str], *, count: int, cluster: Cluster) -> Iterator[str]:
    """Run `python -m tagline` with these arguments in several workers, to the end; yields lines for the user.

    When a worker dies, the others cannot continue: all are restarted from the last checkpoint. An error that a worker
    has recorded would only happen again: it is raised here, once for all of them.
    """
    with _preserve_process_state(QUIET):
        from torch.distributed.elastic.multiprocessing import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    job_name = os.environ.get(gcp.JOB_ID) or uuid.uuid4().hex
    for attempt in range(RESTARTS + 1):
        with tempfile.TemporaryDirectory() as directory:
            words = Path(directory)
            try:
                with _preserve_process_state(_worker_variables(words, job_name, count, cluster)):
                    _run_agent(arguments, count=count, cluster=cluster, attempt=attempt)
            except SignalException as asked:
                what = "interrupted" if asked.sigval == signal.SIGINT else "told to stop"
                saved = [word for word in _read_worker_errors(words) if isinstance(word, Interrupted)]
                message, hint = (saved[0].message, saved[0].hint) if saved else (what, "")
                raise Interrupted(message, signal_number=int(asked.sigval), hint=hint) from asked
            except ChildFailedError as failed:
                # One that was told to stop was told so because another one had died.
                if said := next(
                    (word for word in _read_worker_errors(words) if not isinstance(word, Interrupted)), None
                ):
                    raise said from failed
                rank, failure = failed.get_first_failure()
                code = failure.exitcode
                how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                if attempt == RESTARTS:
                    hint = "is there enough memory? --workers 1 needs less"
                    raise RunError(f"worker {rank} {how}, the last of {RESTARTS + 1} times", hint=hint) from failed
            else:
                return
        yield f"worker {rank} {how}; starting all of them again, from the last checkpoint"


def _worker_variables(words: Path, job_name: str, count: int, cluster: Cluster) -> dict[str, str]:
    """Return environment variables for workers, in addition to torchrun's; those already set are kept."""
    ours = QUIET | {
        WORDS: str(words),
        JOB: job_name,
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(SAVING.total_seconds())),
    }
    theirs = {"OMP_NUM_THREADS": str(max(1, core_count() // count))}
    if cluster.machines > 1 and (interface := _find_interface(cluster)):
        theirs["GLOO_SOCKET_IFNAME"] = interface
    return ours | {name: value for name, value in theirs.items() if name not in os.environ}


@contextmanager
def _preserve_process_state(variables: Mapping[str, str]) -> Iterator[None]:
    """Prepare this process for torchrun, which passes on the environment, takes over signals, and
    logs errors that are reported more clearly afterwards."""
    environment, silenced = dict(os.environ), logging.root.manager.disable
    handlers = {number: signal.getsignal(number) for number in TAKEN_OVER}
    os.environ |= variables
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        logging.disable(silenced)
        os.environ.clear()
        os.environ |= environment


def _run_agent(arguments: Sequence[str], *, count: int, cluster: Cluster, attempt: int) -> None:
    """Start the workers of this machine once, and wait until they have exited."""
    from torch.distributed import DistError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Of several machines the first is the main one. Alone, a machine takes any port that is free, and has nobody to
    # show that it lives: torch's heart beats in a thread that must not be the last to know what it beats for.
    meeting: dict[str, Any] = {
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "local_addr": "localhost",
        "rdzv_configs": {"keep_alive_interval": KEEP_ALIVE_S},
    }
    if cluster.machines > 1:
        meeting = {
            "rdzv_backend": "static",
            "rdzv_endpoint": cluster.main,
            "rdzv_configs": {"rank": cluster.number},
            "local_addr": cluster.own_name,
        }
    config = LaunchConfig(
        min_nodes=cluster.machines,
        max_nodes=cluster.machines,
        nproc_per_node=count,
        run_id=f"tagline-{attempt}",
        rdzv_timeout=int(JOIN_TIMEOUT.total_seconds()),
        max_restarts=0,
        monitor_interval=0.2,
        **meeting,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "tagline", *arguments)
    except (DistError, RendezvousError) as error:
        problem = f"the {cluster.machines} machines of CLUSTER_SPEC do not find each other at {cluster.main}"
        raise PlaceError(f"{problem}: {first_line(error)}", hint="did all of them start?") from error


def follow_launcher() -> None:
    """Have the kernel send SIGTERM to this worker when its launcher dies; on Linux only."""
    if WORDS in os.environ and is_worker(os.environ) and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def report_to_launcher(error: BaseException) -> bool:
    """Report this worker's error to the launcher and to other machines; returns False without a launcher."""
    path = os.environ.get(WORDS)
    if not path or not is_worker(os.environ):
        return False
    for number in (signal.SIGTERM, signal.SIGINT):  # it is on its way out
        signal.signal(number, signal.SIG_IGN)
    rank = int(os.environ["RANK"])
    word = json.dumps(_serialize_error(error, rank)) if not _is_worker_loss(error) else _read_remote_error()
    if word:
        with suppress(OSError):  # the launcher is gone, or its disk is full
            (Path(path) / f"{rank:06d}").write_text(word, "utf-8")
        if not isinstance(error, Interrupted) and shared_store.cache_info().currsize:
            with suppress(RuntimeError):  # the store is unreachable: no other worker is left to read it
                shared_store().set("word", word)
    return True


def explain_worker_loss(error: BaseException) -> BaseException:
    """Return the error, or one that says that another worker has gone where that caused it."""
    if not _is_worker_loss(error):
        return error
    return PlaceError(f"another worker is gone: {first_line(error)}", hint="what it said itself tells more")


def _serialize_error(error: BaseException, rank: int) -> dict[str, Any]:
    if isinstance(error, TaglineError):
        return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
    kind = "BrokenPipeError" if isinstance(error, BrokenPipeError) else ""
    return {"kind": kind, "message": f"worker {rank}: {type(error).__name__}: {error}", "hint": ""}


def _is_worker_loss(error: BaseException) -> bool:
    """Return whether an error means that another worker has gone."""
    return isinstance(error, RuntimeError) and ("gloo" in str(error).lower() or type(error).__name__.startswith("Dist"))


def _read_remote_error() -> str:
    """Return the error recorded by the worker that has gone, maybe on another machine."""
    with suppress(RuntimeError):
        if shared_store().check(["word"]):
            return shared_store().get("word").decode()
    return ""


def _read_worker_errors(directory: Path) -> Iterator[Exception]:
    """Return the errors that workers have recorded, the main worker's first."""
    for path in sorted(directory.iterdir()):
        with suppress(ValueError):  # cut off
            word = json.loads(path.read_text("utf-8"))
            kind, message, hint = word["kind"], word["message"], word["hint"]
            if kind == "Interrupted":
                yield Interrupted(message, signal_number=signal.SIGTERM, hint=hint)
            elif kind == "BrokenPipeError":  # who reads the output has seen enough
                yield BrokenPipeError(message)
            else:
                yield getattr(errors, kind)(message, hint=hint) if kind else RuntimeError(message)


def _find_interface(cluster: Cluster) -> str:
    """Return the network interface that routes to the other machines: gloo would take that of the host name."""
    import fcntl

    host, port = _split_address(cluster.main)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((cluster.own_name if cluster.number == 0 else host, port))
        except OSError as error:
            raise PlaceError(f"cannot find the machine {host} of CLUSTER_SPEC: {error}") from error
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
            except OSError:
                continue  # an interface without an address
            if socket.inet_ntoa(found[20:24]) == own:
                return name
    return ""
