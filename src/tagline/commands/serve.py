"""Serving a bundle over HTTP."""

import os
from collections.abc import Sequence
from pathlib import Path

from tagline.commands.bundles import Say, locate_bundle
from tagline.errors import SpecError
from tagline.serving import app


def serve(
    bundle: str | Path = "",
    *,
    host: str | None = None,
    port: int | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    allow_host: Sequence[str] = (),
    require_signature: Sequence[str] = (),
    runs: str | Path = "runs",
    say: Say = lambda _: None,
) -> None:
    """Serve a bundle over HTTP until this process is told to stop.

    What is not given is read from the environment that Vertex AI sets, or has a default: 127.0.0.1, port 8080, one
    process a core. `timeout` is in seconds. `require_signature` names public keys: one of them must have signed it.
    `say` is told which run `last` is.
    """
    name = str(bundle) or os.environ.get("AIP_STORAGE_URI", "")
    if not name:
        raise SpecError("no bundle to serve", hint="tagline serve BUNDLE, or AIP_STORAGE_URI")
    settings = app.ServerSettings.of(
        os.environ,
        host=host,
        port=port,
        workers=workers,
        timeout_s=timeout,
        allowed_hosts=tuple(allow_host),
        signed_by=tuple(require_signature),
    )
    app.serve(locate_bundle(name, runs, say=say), settings)
