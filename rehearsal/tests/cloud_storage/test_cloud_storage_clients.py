"""Other clients, unmodified: transfer manager, gcsfs, pyarrow's file system."""

import datetime
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gcsfs
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet
import pytest
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager

from cloud_storage_server import Cloud
from vertex_rehearsal.client_setup import build_client_setup

MEBIBYTE = 2**20


@pytest.fixture
def content() -> bytes:
    """Some that does not repeat."""
    return os.urandom(11 * MEBIBYTE + 3)


def test_the_transfer_manager_moves_many_files(bucket: storage.Bucket, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    names = [f"{number % 7}/{number}.txt" for number in range(100)]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    done = transfer_manager.upload_many_from_filenames(
        bucket, names, source_directory=str(source), worker_type="thread", max_workers=8, skip_if_exists=True
    )
    assert done == [None] * 100
    again = transfer_manager.upload_many_from_filenames(
        bucket, names[:2], source_directory=str(source), worker_type="thread", skip_if_exists=True
    )
    assert all(isinstance(each, exceptions.PreconditionFailed) for each in again)
    done = transfer_manager.download_many_to_path(
        bucket, names, destination_directory=str(target), worker_type="thread", max_workers=8
    )
    assert done == [None] * 100
    assert all((target / name).read_text() == name for name in names)


def test_the_transfer_manager_cuts_large_files(bucket: storage.Bucket, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "large").write_bytes(content)
    blob = bucket.blob("large")
    blob.metadata = {"k": "v"}
    transfer_manager.upload_chunks_concurrently(
        str(tmp_path / "large"), blob, content_type="x/y", chunk_size=5 * MEBIBYTE, worker_type="thread"
    )
    found = bucket.get_blob("large")
    assert (found.size, found.content_type, found.metadata) == (len(content), "x/y", {"k": "v"})
    transfer_manager.download_chunks_concurrently(
        bucket.blob("large"), str(tmp_path / "again"), chunk_size=2 * MEBIBYTE, worker_type="thread"
    )
    assert (tmp_path / "again").read_bytes() == content


@pytest.fixture
def files(cloud: Cloud) -> Iterator[Any]:
    """gcsfs, pointed here."""
    found = gcsfs.GCSFileSystem(
        project="test", token="anon", endpoint_url=cloud.address, skip_instance_cache=True, use_listings_cache=False
    )
    yield found
    found.close_session(found.loop, found._session)


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
def test_gcsfs(files: Any, bucket: storage.Bucket, content: bytes) -> None:
    base = bucket.name
    with files.open(f"{base}/a/large", "wb") as file:
        file.write(content)
    files.pipe(f"{base}/a/b/small", b"0123456789")
    assert files.cat_file(f"{base}/a/b/small", start=2, end=5) == b"234"
    assert files.info(f"{base}/a/large")["size"] == len(content)
    with files.open(f"{base}/a/large", "rb") as file:
        file.seek(7 * MEBIBYTE)
        assert file.read(1000) == content[7 * MEBIBYTE : 7 * MEBIBYTE + 1000]
    assert sorted(files.ls(f"{base}/a")) == [f"{base}/a/b", f"{base}/a/large"]
    assert files.find(base) == [f"{base}/a/b/small", f"{base}/a/large"]
    assert files.glob(f"{base}/**/s*") == [f"{base}/a/b/small"]
    assert files.isdir(f"{base}/a/b")
    assert not files.exists(f"{base}/nothing")
    files.cp(f"{base}/a/b/small", f"{base}/copied")
    files.mv(f"{base}/copied", f"{base}/moved")
    assert (files.exists(f"{base}/copied"), files.cat(f"{base}/moved")) == (False, b"0123456789")
    with pytest.raises(FileNotFoundError):
        files.cat(f"{base}/nothing")
    files.rm(f"{base}/a", recursive=True)
    assert files.find(base) == [f"{base}/moved"]


@pytest.fixture
def arrow(cloud: Cloud) -> pyarrow.fs.GcsFileSystem:
    """pyarrow's file system, which is Google's C++ client, pointed here."""
    return pyarrow.fs.GcsFileSystem(
        anonymous=True,
        endpoint_override=cloud.address.removeprefix("http://"),
        scheme="http",
        project_id="test",
        retry_time_limit=datetime.timedelta(seconds=120),
    )


def test_pyarrow(arrow: pyarrow.fs.GcsFileSystem, bucket: storage.Bucket, content: bytes) -> None:
    base = bucket.name
    with arrow.open_output_stream(f"{base}/a/large", metadata={"Content-Type": "x/y"}) as stream:
        stream.write(content)
    assert bucket.get_blob("a/large").content_type == "x/y"
    with arrow.open_input_file(f"{base}/a/large") as file:
        assert (file.size(), file.read_at(10, 5 * MEBIBYTE)) == (
            len(content),
            content[5 * MEBIBYTE : 5 * MEBIBYTE + 10],
        )
    with arrow.open_input_stream(f"{base}/a/large") as stream:
        assert stream.read() == content
    arrow.copy_file(f"{base}/a/large", f"{base}/b")
    arrow.create_dir(f"{base}/empty/dir")
    found = arrow.get_file_info(pyarrow.fs.FileSelector(base, recursive=True))
    kinds = {info.path.removeprefix(f"{base}/"): info.type for info in found}
    assert kinds["a/large"] == kinds["b"] == pyarrow.fs.FileType.File
    assert kinds["empty/dir"] == pyarrow.fs.FileType.Directory
    assert arrow.get_file_info(f"{base}/nothing").type == pyarrow.fs.FileType.NotFound
    arrow.move(f"{base}/b", f"{base}/c")
    arrow.delete_file(f"{base}/c")
    with pytest.raises(FileNotFoundError):
        arrow.open_input_stream(f"{base}/c").read()


def test_parquet_by_pyarrow(arrow: pyarrow.fs.GcsFileSystem, bucket: storage.Bucket) -> None:
    table = pa.table({"text": [f"text {number}" for number in range(10_000)]})
    pyarrow.parquet.write_table(table, f"{bucket.name}/t.parquet", filesystem=arrow)
    assert pyarrow.parquet.read_table(f"{bucket.name}/t.parquet", filesystem=arrow).equals(table)


def test_the_line_for_gcsfs_is_all_that_it_needs(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("a/x").upload_from_string("hello")
    line = build_client_setup(http_port=int(cloud.address.rpartition(":")[2]), grpc_port=1)["gcsfs, pandas, fsspec"]
    script = f"import fsspec; print(fsspec.open('gs://{bucket.name}/a/x', 'rt').open().read())"
    others = {name: value for name, value in os.environ.items() if not name.startswith("GCSFS_")}
    variables = others | dict(word.split("=", 1) for word in line.split())
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, "bucket type" in done.stderr) == ("hello\n", False), done.stderr
