"""The `vertex-rehearsal` command: start the emulator, find it, stop it, and make it misbehave."""

import json as json_module
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vertex_rehearsal import __version__
from vertex_rehearsal.access import TOKEN_FILE
from vertex_rehearsal.errors import InvalidSettings, RehearsalError

if TYPE_CHECKING:
    from vertex_rehearsal.discovery import RehearsalInfo

BUG_EXIT_CODE = 70


app = typer.Typer(
    name="vertex-rehearsal",
    help="A local emulator of Vertex AI, Cloud Storage and Cloud Logging, for any client.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Directory = Annotated[Path, typer.Option("--directory", metavar="DIR", help="Where all of it is kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


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
    process_image: Annotated[
        list[str] | None,
        typer.Option(
            "--process-image",
            metavar="PREFIX=COMMAND",
            help="Run images whose name begins with PREFIX as processes of COMMAND, without a container runtime.",
        ),
    ] = None,
    process_image_args: Annotated[
        list[str] | None,
        typer.Option(
            "--process-image-args",
            metavar="PREFIX=ARGS",
            help="For requests with neither command nor arguments; $(AIP_STORAGE_DIR) holds a model's files.",
        ),
    ] = None,
    without_torch_variables: Annotated[
        bool,
        typer.Option(
            "--without-torch-variables", help="Set no RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT on replicas."
        ),
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Go on in the background.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Emulate Vertex AI, Cloud Storage and Cloud Logging on this machine until told to stop."""
    from vertex_rehearsal.settings import Settings, parse_process_images

    if is_open and token:
        raise InvalidSettings("--open demands no token, --token does: one of them", hint="a token is the default")
    images, image_args = process_image or [], process_image_args or []
    settings = Settings(
        directory=directory.absolute(),
        port=port,
        grpc_port=grpc_port,
        tls=tls,
        is_open=is_open,
        at_once=at_once,
        strict=strict,
        grace_s=grace,
        ready_s=ready,
        sets_torch_variables=not without_torch_variables,
        process_images=parse_process_images(images, image_args),
    )
    if not detach:
        from vertex_rehearsal import app as emulator

        os.umask(0o077)  # its buckets, tables and logs hold data: they are its owner's alone, and so is what jobs write
        emulator.serve(settings, ready=lambda facts: _print_start(facts, json))
        return
    from vertex_rehearsal import discovery

    words = ["--directory", str(directory.absolute()), "--port", str(port), "--grpc-port", str(grpc_port)]
    words += ["--at-once", str(at_once), "--grace", str(grace), "--ready", str(ready)]
    words += [flag for flag, given in (("--tls", tls), ("--open", is_open), ("--strict", strict)) if given]
    words += ["--without-torch-variables"] * without_torch_variables
    words += [word for each in images for word in ("--process-image", each)]
    words += [word for each in image_args for word in ("--process-image-args", each)]
    _print_start(discovery.start_detached(settings.directory, words), json)


@app.command()
def status(directory: Directory = Path("rehearsal"), json: Json = False, debug: Debug = False) -> None:
    """Where it is found, and what it is doing."""
    from vertex_rehearsal import discovery

    facts = discovery.find_rehearsal(directory)
    found = discovery.send_request(directory, "/-/status")
    if json:
        _print_json({**_describe(facts), "clients": dict(_describe_clients(facts)), **found})
        return
    jobs = found["jobs"]
    print(f"{facts.address} and gRPC at localhost:{facts.grpc_port} (process {facts.pid})")
    print(f"jobs: {jobs['running']} running, {jobs['queued']} queued")


@app.command()
def stop(directory: Directory = Path("rehearsal"), json: Json = False, debug: Debug = False) -> None:
    """End it, with every job that runs; what it keeps stays."""
    from vertex_rehearsal import discovery

    facts = discovery.stop(directory)
    _print_result({"stopped": facts.pid}, f"stopped (process {facts.pid})", as_json=json)


@app.command()
def reset(
    directory: Directory = Path("rehearsal"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Forget everything that it keeps: jobs, buckets, logs."""
    from vertex_rehearsal import discovery

    if not yes:
        if not sys.stdin.isatty():
            raise InvalidSettings(f"would delete what is in {directory}", hint="add --yes")
        typer.confirm(f"Delete what is in {directory}?", abort=True, err=True)
    discovery.reset(directory)
    _print_result({"reset": str(directory)}, f"forgotten: {directory}", as_json=json)


@app.command()
def preempt(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A running job's id or name.")],
    replica: Annotated[str, typer.Option("--replica", help="One of its replicas, as workerpool1-0; else all.")] = "",
    directory: Directory = Path("rehearsal"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Take a job's spot machines away: SIGTERM, the grace period, SIGKILL, and a restart."""
    from vertex_rehearsal import discovery

    found = discovery.send_request(directory, "/-/preempt", {"job": job, "replica": replica})
    _print_result(found, f"preempted {found['job']}", as_json=json)


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
    from vertex_rehearsal import discovery

    asked = {"method": method, "status": status, "times": times, "after_effect": after_effect, "drop": drop}
    found = discovery.send_request(directory, "/-/fail", asked)
    sentence = f"{method}: {times} calls will fail" if times else f"{method}: no calls will fail"
    _print_result(found, sentence, as_json=json)


@app.command()
def methods(
    name: Annotated[str, typer.Argument(metavar="[TEXT]", help="Only methods whose name holds this.")] = "",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Every method of the emulated APIs: played, partly, or not."""
    from vertex_rehearsal.protocol.registry import list_methods

    found = [row for row in list_methods() if name.lower() in row[0].lower()]
    if json:
        _print_json([dict(zip(("method", "extent", "limit"), row, strict=True)) for row in found])
    else:
        _print_table([("method", "", "limit"), *found])


def main() -> None:
    """Run the `vertex-rehearsal` command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns its exit code."""
    if list(arguments) == ["--version"]:
        print(f"vertex-rehearsal {__version__}")
        return 0
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        app(args=list(arguments) or ["--help"], prog_name="vertex-rehearsal", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:  # answered no
        return 1
    except BaseException as error:
        return _print_error(error, as_json="--json" in arguments, debug="--debug" in arguments)
    return 0


def _exit_on_signal(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _print_error(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Say what happened and what to do next; returns the exit code."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    code, message, hint = BUG_EXIT_CODE, f"this is a bug in vertex-rehearsal: {type(error).__name__}: {error}", ""
    if isinstance(error, RehearsalError):
        code, message, hint = error.exit_code, error.message, error.hint
    elif isinstance(error, KeyboardInterrupt):
        code, message = 130, "interrupted"
    elif hasattr(error, "format_message"):  # wrong usage, as click puts it
        code, message, hint = 2, error.format_message(), "vertex-rehearsal --help, or --help after any command"
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"next: {hint}", file=sys.stderr)
    if as_json:
        _print_json({"error": {"type": type(error).__name__, "message": message, "hint": hint, "exit_code": code}})
    return code


def _print_result(document: Mapping[str, Any], sentence: str, *, as_json: bool) -> None:
    if as_json:
        _print_json(document)
    else:
        print(sentence)


def _print_json(document: Any, *, indent: int | None = 2) -> None:
    print(json_module.dumps(document, indent=indent))


def _print_table(rows: Iterable[Sequence[str]]) -> None:
    cells = [tuple(row) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _describe(facts: "RehearsalInfo") -> dict[str, Any]:
    return {
        "address": facts.address,
        "grpc": f"localhost:{facts.grpc_port}",
        "pid": facts.pid,
        "directory": facts.directory,
        "token": facts.token,
        "ca": facts.ca,
    }


def _describe_clients(facts: "RehearsalInfo") -> Mapping[str, str]:
    """How clients are pointed at an emulator."""
    from vertex_rehearsal.client_setup import build_client_setup

    return build_client_setup(
        http_port=facts.http_port,
        grpc_port=facts.grpc_port,
        token=facts.token,
        ca=facts.ca,
        token_file=str(Path(facts.directory) / TOKEN_FILE) if facts.token else "",
        roots=str(Path(facts.directory) / "certificates" / "roots.pem"),
    )


def _print_start(facts: "RehearsalInfo", as_json: bool) -> None:
    """Where it is, and how clients are pointed at it."""
    clients = _describe_clients(facts)
    if as_json:
        _print_json({**_describe(facts), "clients": dict(clients)}, indent=None)
    else:
        print(f"The rehearsal is at {facts.address} and, for gRPC, at localhost:{facts.grpc_port}.")
        print(f"Everything is kept in {facts.directory}; buckets are the directories in its buckets/.")
        if facts.token:
            print(f"Clients need a token, which is in {Path(facts.directory) / TOKEN_FILE}; with it they are:")
        else:
            print("It is open: every user of this machine may run commands as you.")
        for client, words in clients.items():
            print(f"\n{client}:\n  {words}")
    sys.stdout.flush()
