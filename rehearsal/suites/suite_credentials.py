"""Pytest plug-in for the suites: clients without credentials get those of a generated service account."""

import inspect
import os
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.cloud.storage import Client
from google.oauth2 import service_account

_original_init = Client.__init__
_signature = inspect.signature(_original_init)
_key = (
    rsa.generate_private_key(public_exponent=65537, key_size=2048)
    .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    .decode()
)


class _SuiteCredentials(service_account.Credentials):  # type: ignore[misc]
    """Credentials of a service account that use the emulator's token."""

    def refresh(self, request: Any) -> None:  # noqa: ARG002
        """Set the emulator's token, which needs no request."""
        self.token, self.expiry = os.environ["SUITE_TOKEN"], None


def _build_credentials() -> _SuiteCredentials:
    info = {
        "type": "service_account",
        "client_email": os.environ["SUITE_ACCOUNT"],
        "private_key": _key,
        "private_key_id": "1",
        "project_id": os.environ["GOOGLE_CLOUD_PROJECT"],
        "token_uri": "http://localhost:1/",
    }
    credentials: _SuiteCredentials = _SuiteCredentials.from_service_account_info(info)
    return credentials


def _init_with_credentials(self: Client, *args: Any, **kwargs: Any) -> None:
    bound = _signature.bind(self, *args, **kwargs)
    if bound.arguments.get("credentials") is None:
        bound.arguments["credentials"] = _build_credentials()
    _original_init(*bound.args, **bound.kwargs)


Client.__init__ = _init_with_credentials
