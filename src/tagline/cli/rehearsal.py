"""`tagline rehearsal`: the local cloud, for any client."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tagline.cli.options import Debug, Json

if TYPE_CHECKING:
    from tagline.jobs.emulator import Facts

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
    from tagline.commands import rehearsal

    rehearsal.start(
        directory=directory,
        port=port,
        grpc_port=grpc_port,
        tls=tls,
        open=is_open,
        token=token,
        at_once=at_once,
        strict=strict,
        grace=grace,
        ready=ready,
        detach=detach,
        on_ready=lambda facts: _show(facts, json),
    )


@app.command()
def status(directory: Directory = Path("rehearsal"), json: Json = False, debug: Debug = False) -> None:
    """Where it is found, and what it is doing."""
    from tagline.cli import console
    from tagline.commands import rehearsal

    found = rehearsal.status(directory=directory)
    if json:
        console.out_json(found)
        return
    jobs = found["jobs"]
    console.out(f"{found['address']} and gRPC at {found['grpc']} (process {found['pid']})")
    console.out(f"jobs: {jobs['running']} running, {jobs['queued']} queued")


@app.command()
def stop(directory: Directory = Path("rehearsal"), json: Json = False, debug: Debug = False) -> None:
    """End it, with every job that runs; what it keeps stays."""
    from tagline.cli import console
    from tagline.commands import rehearsal

    pid = rehearsal.stop(directory=directory)
    if json:
        console.out_json({"stopped": pid})
    else:
        console.out(f"stopped (process {pid})")


@app.command()
def reset(
    directory: Directory = Path("rehearsal"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Forget everything that it keeps: jobs, buckets, logs."""
    from tagline.cli import console
    from tagline.commands import rehearsal
    from tagline.errors import SpecError

    if not yes:
        if not sys.stdin.isatty():
            raise SpecError(f"would delete what is in {directory}", hint="add --yes")
        typer.confirm(f"Delete what is in {directory}?", abort=True, err=True)
    rehearsal.reset(directory=directory)
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
    from tagline.cli import console
    from tagline.commands import rehearsal

    found = rehearsal.preempt(job, replica=replica, directory=directory)
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
    from tagline.cli import console
    from tagline.commands import rehearsal

    found = rehearsal.fail(
        method, status=status, times=times, after_effect=after_effect, drop=drop, directory=directory
    )
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
    from tagline.cli import console
    from tagline.commands import rehearsal

    found = rehearsal.methods(name)
    if json:
        console.out_json([dict(zip(("method", "extent", "limit"), row, strict=True)) for row in found])
    else:
        console.out_table(("method", "", "limit"), found)


def _show(facts: "Facts", as_json: bool) -> None:
    """Where it is, and how clients are pointed at it."""
    from tagline.cli import console
    from tagline.commands.rehearsal import describe
    from tagline.jobs.emulator import token_file

    found = describe(facts)
    if as_json:
        console.out_json(found, indent=None)
    else:
        console.out(f"The rehearsal is at {facts.address} and, for gRPC, at {found['grpc']}.")
        console.out(f"Everything is kept in {facts.directory}; buckets are the directories in its buckets/.")
        if facts.token:
            console.out(f"Clients need a token, which is in {token_file(facts)}; with it they are:")
        else:
            console.out("It is open: every user of this machine may run commands as you.")
        for client, words in found["clients"].items():
            console.out(f"\n{client}:\n  {words}")
    sys.stdout.flush()
