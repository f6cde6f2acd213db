"""`tagline rehearsal`: the local cloud, for any client."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagline.cli.options import Debug, Json
from tagline.rehearsal import requirements
from tagline.rehearsal.access import TOKEN_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tagline.rehearsal.finding import Facts

app = typer.Typer(help="The local cloud, for any client.", no_args_is_help=True, rich_markup_mode=None)

Directory = Annotated[Path, typer.Option("--directory", metavar="DIR", help="Where all of it is kept.")]


@app.command()
def start(
    directory: Directory = Path("rehearsal"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="For HTTP; 0: any that is free.")] = 8085,
    grpc_port: Annotated[int, typer.Option("--grpc-port", min=0, max=65535, help="For gRPC; 0: any.")] = 8086,
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS on the gRPC port, by an authority of its own.")] = False,
    is_open: Annotated[
        bool, typer.Option("--open", help="Demand no token: every user of this machine may run commands as you.")
    ] = False,
    token: Annotated[bool, typer.Option("--token", hidden=True, help="Demand a token, as it does anyway.")] = False,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Jobs that run at a time; others wait.")] = 5,
    strict: Annotated[bool, typer.Option("--strict", help="Hide this machine's packages from Python jobs.")] = False,
    grace: Annotated[float, typer.Option("--grace", min=0, help="Seconds from SIGTERM to SIGKILL.")] = 30.0,
    ready: Annotated[float, typer.Option("--ready", min=0, help="Seconds for a model's server to be healthy.")] = 600.0,
    detach: Annotated[bool, typer.Option("--detach", help="Go on in the background.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Play Vertex AI, Cloud Storage and Cloud Logging on this machine until told to stop."""
    requirements.check_installed()
    from tagline.errors import SpecError
    from tagline.rehearsal import finding, house
    from tagline.rehearsal.stage import Settings

    if is_open and token:
        raise SpecError("--open demands no token, --token does: one of them", hint="a token is the default")
    settings = Settings(
        directory=directory.absolute(), port=port, grpc_port=grpc_port, tls=tls, is_open=is_open, at_once=at_once,
        strict=strict, grace_s=grace, ready_s=ready,
    )  # fmt: skip
    if not detach:
        os.umask(0o077)  # its buckets, tables and logs hold data: they are its owner's alone, and so is what jobs write
        house.serve(settings, ready=lambda facts: _show(facts, json))
        return
    words = ["--directory", str(directory.absolute()), "--port", str(port), "--grpc-port", str(grpc_port)]
    words += ["--at-once", str(at_once), "--grace", str(grace), "--ready", str(ready)]
    words += [flag for flag, given in (("--tls", tls), ("--open", is_open), ("--strict", strict)) if given]
    _show(finding.start_detached(settings.directory, words), json)


@app.command()
def status(directory: Directory = Path("rehearsal"), json: Json = False, debug: Debug = False) -> None:
    """Where it is found, and what it is doing."""
    requirements.check_installed()
    from tagline.cli import console
    from tagline.rehearsal import finding

    facts = finding.find(directory)
    found = finding.ask(directory, "/-/status")
    if json:
        console.out_json({**_described(facts), "clients": dict(_directions(facts)), **found})
        return
    jobs = found["jobs"]
    console.out(f"{facts.address} and gRPC at localhost:{facts.grpc_port} (process {facts.pid})")
    console.out(f"jobs: {jobs['running']} running, {jobs['queued']} queued")


@app.command()
def stop(directory: Directory = Path("rehearsal"), json: Json = False, debug: Debug = False) -> None:
    """End it, with every job that runs; what it keeps stays."""
    requirements.check_installed()
    from tagline.cli import console
    from tagline.rehearsal import finding

    facts = finding.stop(directory)
    if json:
        console.out_json({"stopped": facts.pid})
    else:
        console.out(f"stopped (process {facts.pid})")


@app.command()
def reset(
    directory: Directory = Path("rehearsal"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Forget everything that it keeps: jobs, buckets, logs."""
    requirements.check_installed()
    from tagline.cli import console
    from tagline.errors import SpecError
    from tagline.rehearsal import finding

    if not yes:
        if not sys.stdin.isatty():
            raise SpecError(f"would delete what is in {directory}", hint="add --yes")
        typer.confirm(f"Delete what is in {directory}?", abort=True, err=True)
    finding.reset(directory)
    if json:
        console.out_json({"reset": str(directory)})
    else:
        console.out(f"forgotten: {directory}")


@app.command()
def preempt(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A running job's id or name.")],
    replica: Annotated[str, typer.Option("--replica", help="One of its replicas, as workerpool1-0; else all.")] = "",
    directory: Directory = Path("rehearsal"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Take a job's spot machines away: SIGTERM, the grace period, SIGKILL, and a restart."""
    requirements.check_installed()
    from tagline.cli import console
    from tagline.rehearsal import finding

    found = finding.ask(directory, "/-/preempt", {"job": job, "replica": replica})
    if json:
        console.out_json(found)
    else:
        console.out(f"preempted {found['job']}")


@app.command()
def fail(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="CreateCustomJob, storage.objects.insert, aiplatform.")
    ],
    status: Annotated[int, typer.Option("--status", help="What the calls are answered with.")] = 503,
    times: Annotated[int, typer.Option("--times", min=0, help="How many calls; 0: none any more.")] = 1,
    after_effect: Annotated[bool, typer.Option("--after-effect", help="Perform the calls all the same.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Close the connection instead of an answer.")] = False,
    directory: Directory = Path("rehearsal"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Let the next calls of a method fail, to see what a client makes of it."""
    requirements.check_installed()
    from tagline.cli import console
    from tagline.rehearsal import finding

    asked = {"method": method, "status": status, "times": times, "after_effect": after_effect, "drop": drop}
    found = finding.ask(directory, "/-/fail", asked)
    if json:
        console.out_json(found)
    else:
        console.out(f"{method}: {times} calls will fail" if times else f"{method}: no calls will fail")


@app.command()
def methods(
    name: Annotated[str, typer.Argument(metavar="[TEXT]", help="Only methods whose name holds this.")] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Every method of the played APIs: played, partly, or not."""
    requirements.check_installed()
    from tagline.cli import console
    from tagline.rehearsal.services import listing

    found = [row for row in listing() if name.lower() in row[0].lower()]
    if json:
        console.out_json([dict(zip(("method", "extent", "limit"), row, strict=True)) for row in found])
    else:
        console.out_table(("method", "", "limit"), found)


def _described(facts: "Facts") -> dict[str, Any]:
    return {
        "address": facts.address, "grpc": f"localhost:{facts.grpc_port}", "pid": facts.pid,
        "directory": facts.directory, "token": facts.token, "ca": facts.ca,
    }  # fmt: skip


def _directions(facts: "Facts") -> "Mapping[str, str]":
    """How clients are pointed at a rehearsal."""
    from tagline.rehearsal.directions import directions

    return directions(
        http_port=facts.http_port, grpc_port=facts.grpc_port, token=facts.token, ca=facts.ca,
        token_file=str(Path(facts.directory) / TOKEN_FILE) if facts.token else "",
    )  # fmt: skip


def _show(facts: "Facts", as_json: bool) -> None:
    """Where it is, and how clients are pointed at it."""
    from tagline.cli import console

    clients = _directions(facts)
    if as_json:
        console.out_json({**_described(facts), "clients": dict(clients)}, indent=None)
    else:
        console.out(f"The rehearsal is at {facts.address} and, for gRPC, at localhost:{facts.grpc_port}.")
        console.out(f"Everything is kept in {facts.directory}; buckets are the directories in its buckets/.")
        if facts.token:
            console.out(f"Clients need a token, which is in {Path(facts.directory) / TOKEN_FILE}; with it they are:")
        else:
            console.out("It is open: every user of this machine may run commands as you.")
        for client, words in clients.items():
            console.out(f"\n{client}:\n  {words}")
    sys.stdout.flush()
