"""`tagline serve`: run the HTTP server and its playground."""

from typing import Annotated

import typer

from tagline.cli.options import BundleName, Debug, Json, Runs


def serve(
    bundle: BundleName = "",
    host: Annotated[str | None, typer.Option("--host", help="To listen on; 127.0.0.1 where none is given.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="8080, or AIP_HTTP_PORT.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes; one a core.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.1, help="Seconds a request may take.")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name of this server in the header Host; can be repeated."),
    ] = None,
    require_signature: Annotated[
        list[str] | None,
        typer.Option(
            "--require-signature", metavar="PUBKEY", help="Serve only what this key has signed; several: any of them."
        ),
    ] = None,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Serve a bundle over HTTP until told to stop. SIGHUP loads it anew; a token in TAGLINE_TOKEN is asked for."""
    from tagline.cli import console
    from tagline.commands.serve import serve as serve_bundle

    serve_bundle(
        bundle,
        host=host,
        port=port,
        workers=workers,
        timeout=timeout,
        allow_host=allow_host or (),
        require_signature=require_signature or (),
        runs=runs,
        say=console.say,
    )
