"""`tagline sign` and `tagline verify`: sign bundles and verify signatures."""

from typing import Annotated

import typer

from tagline.cli.options import BundleName, Debug, Json, Runs


def sign(
    bundle: BundleName,
    key: Annotated[str, typer.Option("--key", metavar="FILE", help="An ed25519 private key, PEM or OpenSSH.")],
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Sign a bundle, so that others can verify who made it. A key's password is read from TAGLINE_KEY_PASSWORD."""
    from tagline.cli import console
    from tagline.commands import signatures
    from tagline.runs.lookup import locate_bundle

    place = locate_bundle(bundle, runs)
    signature = signatures.sign(place, key=key, runs=runs)
    if json:
        console.out_json({"bundle": str(place), "signature": signature})
    else:
        console.out(f"signed {place}: wrote {signature}")


def verify(
    bundle: BundleName,
    key: Annotated[
        list[str],
        typer.Option("--key", metavar="FILE", help="An ed25519 public key, PEM or OpenSSH; several: any of them."),
    ],
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check that a bundle is as the holder of a key has signed it."""
    from tagline.cli import console
    from tagline.commands import signatures
    from tagline.runs.lookup import locate_bundle

    place = locate_bundle(bundle, runs)
    verified = signatures.verify(place, key=key, runs=runs)
    if json:
        console.out_json({"bundle": str(place), "verified": True, "files": len(verified.manifest.files)})
    else:
        console.out(f"{place} is signed by this key, and its {len(verified.manifest.files)} files are unchanged")
