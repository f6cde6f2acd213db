"""One server for all checks of Cloud Storage, and a bucket of its own for each."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.cloud import storage

from cloud_storage_server import Cloud, running

# Read when gcsfs is imported: else it asks Google over gRPC, for a minute, what kind of bucket it has before it.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A server that lives as long as the tests do."""
    with running(tmp_path_factory.mktemp("cloud")) as started:
        yield started


@pytest.fixture
def bucket_name() -> str:
    """The name of a bucket that is not there yet."""
    return f"bucket-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def bucket(cloud: Cloud, bucket_name: str) -> storage.Bucket:
    """A new bucket."""
    return cloud.client.create_bucket(bucket_name)


@pytest.fixture
def directory(cloud: Cloud, bucket: storage.Bucket) -> Path:
    """The directory of that bucket, as a job would see it below /gcs."""
    return cloud.root / str(bucket.name)
