"""Bundles signed, and signatures verified, by the name of a bundle or of its run."""

from collections.abc import Sequence
from pathlib import Path

from tagline.prediction import signatures
from tagline.prediction.bundle import Bundle
from tagline.runs.lookup import locate_bundle
from tagline.system import extras


@extras.explain_missing_packages()
def sign(bundle: str | Path, *, key: str | Path, runs: str | Path = "runs") -> str:
    """Sign a bundle with an ed25519 private key (PEM or OpenSSH); returns where the signature was written.

    A key's password is read from TAGLINE_KEY_PASSWORD.
    """
    return signatures.sign(locate_bundle(str(bundle), runs), key=key)


@extras.explain_missing_packages()
def verify(bundle: str | Path, *, key: str | Path | Sequence[str | Path], runs: str | Path = "runs") -> Bundle:
    """Open a bundle if one of these ed25519 public keys (PEM or OpenSSH) has signed it as it is."""
    return signatures.verify(locate_bundle(str(bundle), runs), key=key)
