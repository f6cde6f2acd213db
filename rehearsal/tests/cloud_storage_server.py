"""Cloud Storage as a process of its own, and Google's client for it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

SERVER = """
import sys, threading
from pathlib import Path
from vertex_rehearsal.cloud_storage.application import serve_in_thread
from vertex_rehearsal.cloud_storage.store import Store
with serve_in_thread(Store(Path(sys.argv[1]))) as address:
    print(address, flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Cloud:
    """A server process, the directory of its buckets, and clients of it."""

    address: str
    root: Path
    client: storage.Client
    http: requests.Session
    process: "subprocess.Popen[str]"

    def call(self, method: str, path: str, **options: Any) -> requests.Response:
        """A request as no client library sends it."""
        return self.http.request(method, self.address + path, timeout=60, **options)


@contextmanager
def running(root: Path) -> Iterator[Cloud]:
    """A server of this directory, which ends with the block however that ends."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            if not address:
                log.seek(0)
                raise AssertionError(log.read())
            with requests.Session() as http:
                yield Cloud(address, root, client_of(address), http, process)
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
            log.seek(0)
            complaints = log.read()
    assert "Traceback" not in complaints, complaints


def client_of(address: str) -> storage.Client:
    """Google's own client, unmodified, pointed here as its users would."""
    options = {"api_endpoint": address}
    return storage.Client(project="test", credentials=AnonymousCredentials(), client_options=options)
