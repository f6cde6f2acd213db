"""The rehearsal's Cloud Storage with 100,000 objects, and with one of 1 GB. Goals: a page in 0.2 s, 100 MiB."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from measure import write

from vertex_rehearsal.cloud_storage.store import Store

OBJECTS = 100_000
FOLDERS = 1_000
GIGABYTE = 10**9
SERVER = """
import sys
from pathlib import Path
from vertex_rehearsal.cloud_storage.application import serve_in_thread
from vertex_rehearsal.cloud_storage.store import Store
with serve_in_thread(Store(Path(sys.argv[1]))) as address:
    print(address, flush=True)
    sys.stdin.read()
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        figures = {"write 100,000 objects": fill(root)} | dict(lists(root)) | dict(large(root))
    write("rehearsal_storage", figures)


def fill(root: Path) -> float:
    """Seconds to write all objects through the store itself: half in folders, half in one."""
    store = Store(root)
    store.create_bucket("bench-bucket", project="bench", settings={})
    names = [f"many/{n % FOLDERS:04}/{n}" if n % 2 else f"flat/{n}" for n in range(OBJECTS)]

    def put(name: str) -> None:
        store.put("bench-bucket", name, store.files.stage_content([b"content"]), settings={})

    def work() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, names))

    seconds = timed("write 100,000 objects, 4 threads", work)
    store.close()
    return seconds


def lists(root: Path) -> Iterator[tuple[str, float]]:
    """Seconds of each kind of list, over HTTP, by Google's client."""
    with serving(root) as (client, _):
        kinds: dict[str, dict[str, Any]] = {
            "first page after a start": {"max_results": 1000},
            "first page": {"max_results": 1000},
            "a folder": {"prefix": "many/0501/"},
            "folders by delimiter": {"prefix": "many/", "delimiter": "/"},
            "from the middle": {"start_offset": "flat/5", "max_results": 1000},
            "glob in all": {"match_glob": "**/*9999"},
            "all of them, 100 pages": {},
        }
        for name, options in kinds.items():
            bucket = client.bucket("bench-bucket")
            yield name, timed(name, lambda b=bucket, o=options: len(list(b.list_blobs(**o))))
        bucket.blob("flat/new").upload_from_string("x")
        yield (
            "first page after a write",
            timed("first page after a write", lambda: list(bucket.list_blobs(max_results=1000))),
        )


def large(root: Path) -> Iterator[tuple[str, float]]:
    """Seconds to send and fetch 1 GB, and the server's memory at its highest."""
    source, target = root / "source", root / "target"
    with source.open("wb") as file:
        for _ in range(GIGABYTE // 10**7):
            file.write(os.urandom(10**7))
    with serving(root) as (client, process):
        blob = client.bucket("bench-bucket").blob("large")
        yield "upload 1 GB", timed("upload 1 GB", lambda: blob.upload_from_filename(source, timeout=600))
        yield "download 1 GB", timed("download 1 GB", lambda: blob.download_to_filename(target, timeout=600))
        status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        mebibytes = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
        print(f"{'memory of the server, MiB':<36}{mebibytes:>10.0f}")
        yield "memory of the server, MiB", mebibytes
    begun = time.perf_counter()
    shutil.copyfile(source, root / "copied")
    yield "copy 1 GB without a server", time.perf_counter() - begun


def timed(name: str, work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - begun
    print(f"{name:<36}{seconds:>10.3f} s   {found if isinstance(found, int) else ''}", flush=True)
    return seconds


@contextmanager
def serving(root: Path) -> Iterator[tuple[storage.Client, "subprocess.Popen[str]"]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline().strip()
        options = {"api_endpoint": address}
        yield storage.Client(project="bench", credentials=AnonymousCredentials(), client_options=options), process
    finally:
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
