"""The local emulator of Vertex AI: started, asked, and stopped."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagline.errors import SpecError
from tagline.jobs import emulator

if TYPE_CHECKING:
    from tagline.jobs.emulator import Facts

HERE = Path("rehearsal")
"""Where an emulator keeps everything, if no other directory is named."""


def start(
    *,
    directory: str | Path = HERE,
    port: int = 8085,
    grpc_port: int = 8086,
    tls: bool = False,
    open: bool = False,  # noqa: A002 - the option's name
    token: bool = False,
    at_once: int = 5,
    strict: bool = False,
    grace: float = 30.0,
    ready: float = 600.0,
    detach: bool = False,
    on_ready: "Callable[[Facts], None]" = lambda _: None,
) -> None:
    """Run the emulator until it is told to stop; with `detach`, in a process of its own that goes on.

    Once it can be reached, `on_ready` is called with where it is found. Ports of 0 are any that are free; `open`
    demands no token; `grace` and `ready` are seconds.
    """
    emulator.check_installed()
    if open and token:
        raise SpecError("--open demands no token, --token does: one of them", hint="a token is the default")
    place = Path(directory).absolute()
    if detach:
        words = ["--directory", str(place), "--port", str(port), "--grpc-port", str(grpc_port)]
        words += ["--at-once", str(at_once), "--grace", str(grace), "--ready", str(ready)]
        words += [flag for flag, given in (("--tls", tls), ("--open", open), ("--strict", strict)) if given]
        on_ready(emulator.start_detached(place, words))
        return
    os.umask(0o077)  # its buckets, tables and logs hold data: they are its owner's alone, and so is what jobs write
    emulator.serve(
        place,
        ready=on_ready,
        port=port,
        grpc_port=grpc_port,
        tls=tls,
        is_open=open,
        at_once=at_once,
        strict=strict,
        grace_s=grace,
        ready_s=ready,
    )


def status(*, directory: str | Path = HERE) -> dict[str, Any]:
    """Where the emulator is found, how clients are pointed at it, and what it is doing."""
    emulator.check_installed()
    facts = emulator.find_running(Path(directory))
    return {**describe(facts), **emulator.ask(Path(directory), "/-/status")}


def stop(*, directory: str | Path = HERE) -> int:
    """Stop the emulator with every job that runs; what it keeps stays. Returns the id of its process."""
    emulator.check_installed()
    return emulator.stop(Path(directory)).pid


def reset(*, directory: str | Path = HERE) -> None:
    """Delete everything that the emulator keeps: jobs, buckets, logs."""
    emulator.check_installed()
    emulator.reset(Path(directory))


def preempt(job: str, *, replica: str = "", directory: str | Path = HERE) -> dict[str, Any]:
    """Take a job's spot machines away: SIGTERM, the grace period, SIGKILL, and a restart."""
    emulator.check_installed()
    found: dict[str, Any] = emulator.ask(Path(directory), "/-/preempt", {"job": job, "replica": replica})
    return found


def fail(
    method: str,
    *,
    status: int = 503,
    times: int = 1,
    after_effect: bool = False,
    drop: bool = False,
    directory: str | Path = HERE,
) -> dict[str, Any]:
    """Let the next calls of a method fail, to see what a client makes of it."""
    emulator.check_installed()
    asked = {"method": method, "status": status, "times": times, "after_effect": after_effect, "drop": drop}
    found: dict[str, Any] = emulator.ask(Path(directory), "/-/fail", asked)
    return found


def methods(name: str = "") -> list[tuple[str, str, str]]:
    """Every method of the emulated APIs whose name holds this: its name, its extent, and what is missing."""
    emulator.check_installed()
    return [row for row in emulator.list_methods() if name.lower() in row[0].lower()]


def describe(facts: "Facts") -> dict[str, Any]:
    """Where an emulator is found, and how clients are pointed at it."""
    return {
        "address": facts.address,
        "grpc": f"localhost:{facts.grpc_port}",
        "pid": facts.pid,
        "directory": facts.directory,
        "token": facts.token,
        "ca": facts.ca,
        "clients": dict(emulator.describe_clients(facts)),
    }
