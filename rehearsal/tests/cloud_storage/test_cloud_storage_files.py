"""Objects are plain files: what jobs write there are objects, and no kill leaves anything but whole ones."""

import base64
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage

from cloud_storage_server import Cloud, client_of, running
from vertex_rehearsal.cloud_storage.checksums import checksum_file
from vertex_rehearsal.cloud_storage.errors import StorageError
from vertex_rehearsal.cloud_storage.listing import Query
from vertex_rehearsal.cloud_storage.store import SourceObject, Store
from vertex_rehearsal.errors import EmulatorUnavailable


def test_an_object_is_a_file(bucket: storage.Bucket, directory: Path) -> None:
    bucket.blob("models/v1/model.bin").upload_from_string(b"weights")
    assert (directory / "models" / "v1" / "model.bin").read_bytes() == b"weights"
    bucket.blob("models/v1/model.bin").delete()
    assert list(directory.iterdir()) == []


def test_a_folder_object_is_a_directory(bucket: storage.Bucket, directory: Path) -> None:
    bucket.blob("logs/").upload_from_string(b"")
    assert (directory / "logs").is_dir()
    (directory / "logs" / "run.txt").write_text("line")
    assert [blob.name for blob in bucket.list_blobs()] == ["logs/", "logs/run.txt"]


def test_a_file_is_an_object(bucket: storage.Bucket, directory: Path) -> None:
    (directory / "out" / "deep").mkdir(parents=True)
    (directory / "out" / "deep" / "result.json").write_text('{"a": 1}')
    (directory / "top.bin").write_bytes(b"\0" * 1000)
    found = bucket.get_blob("out/deep/result.json")
    assert (found.size, found.content_type, found.metageneration) == (8, "application/json", 1)
    assert found.download_as_bytes(checksum="md5") == b'{"a": 1}'
    listed = {blob.name: blob for blob in bucket.list_blobs()}
    assert list(listed) == ["out/deep/result.json", "top.bin"]
    assert listed["top.bin"].size == 1000
    assert listed["out/deep/result.json"].generation == found.generation


def test_a_file_that_is_changed_gets_a_new_generation(bucket: storage.Bucket, directory: Path) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string(b"old")
    before = blob.generation
    (directory / "x").write_bytes(b"new")  # as long as before
    found = bucket.get_blob("x")
    assert found.generation > before
    assert found.download_as_bytes() == b"new"
    (directory / "x").write_bytes(b"other")
    assert [(each.size, each.generation > found.generation) for each in bucket.list_blobs()] == [(5, True)]
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("x").upload_from_string(b"late", if_generation_match=before)
    bucket.blob("x").upload_from_string(b"late", if_generation_match=bucket.get_blob("x").generation)
    assert (directory / "x").read_bytes() == b"late"


def test_a_file_that_does_not_change_keeps_its_generation(bucket: storage.Bucket, directory: Path) -> None:
    (directory / "x").write_text("x")
    generations = {bucket.get_blob("x").generation for _ in range(5)}
    assert {blob.generation for blob in bucket.list_blobs()} == generations


def test_a_file_that_is_removed_is_no_object(bucket: storage.Bucket, directory: Path) -> None:
    for name in ("a/1", "a/2", "b"):
        bucket.blob(name).upload_from_string("x")
    (directory / "a" / "1").unlink()
    assert not bucket.blob("a/1").exists()
    assert [blob.name for blob in bucket.list_blobs()] == ["a/2", "b"]
    (directory / "a" / "2").unlink()
    (directory / "a").rmdir()
    assert [blob.name for blob in bucket.list_blobs(prefix="a/")] == []
    (directory / "b").rename(directory / "c")
    assert [blob.name for blob in bucket.list_blobs()] == ["c"]


def test_new_files_are_seen_in_every_list(bucket: storage.Bucket, directory: Path) -> None:
    (directory / "d").mkdir()
    for number in range(10):
        (directory / "d" / f"{number:02}").write_text("x")
        assert len(list(bucket.list_blobs(prefix="d/"))) == number + 1


def test_a_bucket_with_a_file_in_it_is_not_empty(bucket: storage.Bucket, directory: Path) -> None:
    (directory / "x").write_text("x")
    with pytest.raises(exceptions.Conflict):
        bucket.delete()


def test_links_and_names_that_are_no_text_are_no_objects(bucket: storage.Bucket, directory: Path) -> None:
    (directory / "link").symlink_to("/etc/hostname")
    Path(os.fsdecode(os.fsencode(directory) + b"/\xff")).write_text("x")
    (directory / "line\nbreak").write_text("x")
    assert list(bucket.list_blobs()) == []
    bucket.blob("link").upload_from_string("object")
    assert bucket.blob("link").download_as_bytes() == b"object"
    assert Path("/etc/hostname").exists()
    (directory / "elsewhere").symlink_to(directory.parent, target_is_directory=True)
    bucket.blob("elsewhere/x").upload_from_string("object")
    assert not (directory.parent / "x").exists()
    assert bucket.blob("elsewhere/x").download_as_bytes() == b"object"
    assert [blob.name for blob in bucket.list_blobs(prefix="elsewhere/")] == ["elsewhere/x"]
    bucket.blob("real").upload_from_string("object")
    assert not bucket.blob(f"elsewhere/{bucket.name}/real").exists()


def test_a_file_takes_the_place_of_an_object_kept_aside(bucket: storage.Bucket, directory: Path) -> None:
    bucket.blob("a").upload_from_string("file")
    bucket.blob("a/b").upload_from_string("aside")
    (directory / "a").unlink()
    (directory / "a").mkdir()
    (directory / "a" / "b").write_text("written by a job")
    assert bucket.blob("a/b").download_as_bytes() == b"written by a job"
    assert [blob.name for blob in bucket.list_blobs()] == ["a/b"]


def test_a_file_that_somebody_keeps_writing_can_be_read(bucket: storage.Bucket, directory: Path) -> None:
    path = directory / "log"
    path.write_text("")
    with ThreadPoolExecutor(1) as pool:

        def write() -> None:
            until = time.monotonic() + 1
            with path.open("a") as file:
                while time.monotonic() < until:
                    file.write("line\n")
                    file.flush()

        writing = pool.submit(write)
        while not writing.done():
            found = bucket.blob("log").download_as_bytes(checksum=None)
            assert (b"line\n" * (len(found) // 5 + 1)).startswith(found)  # a line at the edge of a page may be cut
            assert len(list(bucket.list_blobs())) == 1
        writing.result()
    assert bucket.blob("log").download_as_bytes() == path.read_bytes()


def test_readers_never_see_half_of_an_object(cloud: Cloud, bucket: storage.Bucket) -> None:
    contents = [bytes([letter]) * 300_000 for letter in b"abcdef"]
    bucket.blob("x").upload_from_string(contents[0])

    def write(number: int) -> None:
        mine = client_of(cloud.address).bucket(bucket.name)
        for turn in range(10):
            mine.blob("x").upload_from_string(contents[(number + turn) % len(contents)])

    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, number) for number in range(3)]
        while not all(each.done() for each in writing):
            assert bucket.blob("x").download_as_bytes() in contents
        for each in writing:
            each.result()


def test_a_kill_leaves_only_whole_objects(tmp_path: Path) -> None:
    """Writers are cut off by SIGKILL three times; whatever was answered is there, whatever is there is whole."""
    answered: dict[str, str] = {}
    for turn in range(3):
        with running(tmp_path) as cloud:
            if turn == 0:
                bucket = cloud.client.create_bucket("killed-bucket")
                bucket.versioning_enabled = True
                bucket.patch()
            with ThreadPoolExecutor(8) as pool:
                writing = [pool.submit(_write, cloud.address, turn, number) for number in range(8)]
                until = time.monotonic() + 300
                while len(list(tmp_path.glob("killed-bucket/*/*"))) < 45 * (turn + 1) and time.monotonic() < until:
                    time.sleep(0.01)
                os.kill(cloud.process.pid, signal.SIGKILL)
                for each in writing:
                    answered |= each.result()
    assert len(answered) >= 100
    with running(tmp_path) as cloud:
        bucket = cloud.client.bucket("killed-bucket")
        found = {blob.name: blob for blob in bucket.list_blobs()}
        assert set(answered) <= set(found)
        for name, blob in found.items():
            content = bucket.blob(name).download_as_bytes(checksum="md5")
            assert content == _content(name)
            assert blob.content_type == "text/kill"
            assert answered.get(name, blob.crc32c) == blob.crc32c
        for version in bucket.list_blobs(versions=True):
            assert version.download_as_bytes(checksum="crc32c") == _content(version.name)
    assert list((tmp_path / ".cloud-storage" / "staging").iterdir()) == []


def _content(name: str) -> bytes:
    return (name * 5000).encode()


def _write(address: str, turn: int, number: int) -> dict[str, str]:
    """Names and checksums of what the server said it has, until it is gone."""
    bucket = client_of(address).bucket("killed-bucket")
    answered: dict[str, str] = {}
    for each in range(10_000):
        name = f"{turn}-{number}/{each // 2}"  # each of them twice: the second takes the place of the first
        blob = bucket.blob(name)
        try:
            blob.upload_from_string(_content(name), content_type="text/kill", retry=None)
        except Exception:
            break
        answered[name] = blob.crc32c
    return answered


def test_many_who_write_and_remove_through_every_door(tmp_path: Path) -> None:
    """Names that are in each other's way, by the API and behind its back: in the end every object has its bytes."""
    store = Store(tmp_path)
    for bucket, versioned in (("plain", False), ("kept", True)):
        store.create_bucket(bucket, project="test", settings={"versioning": {"enabled": versioned}})
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda seed: _meddle(store, random.Random(seed)), range(6)))
    for bucket in ("plain", "kept"):
        for listed in store.list_objects(Query(bucket, versions=True)).items:
            found, file = store.read(bucket, listed.name, generation=listed.generation)
            with file:
                assert checksum_file(file).result().crc32c == found.crc32c
    assert list((tmp_path / ".cloud-storage" / "staging").iterdir()) == []
    store.close()


def _meddle(store: Store, chance: random.Random) -> None:
    names = ["a", "a/b", "a/b/c", "a/", "x//y", "b/1", "b/2", "c"]
    for _ in range(60):
        bucket, name, other = chance.choice(["plain", "kept"]), chance.choice(names), chance.choice(names)
        path = store.files.bucket_directory(bucket) / name
        try:
            match chance.randrange(8):
                case 0 | 1:
                    store.put(
                        bucket, name, store.files.stage_content([name.encode() * chance.randrange(1000)]), settings={}
                    )
                case 2:
                    store.delete(bucket, name)
                case 3:
                    store.move(SourceObject(bucket, name), other)
                case 4:
                    store.compose(bucket, other, [SourceObject(bucket, name)] * 2, settings={})
                case 5:
                    store.list_objects(Query(bucket, delimiter="/"))
                case 6 if not name.endswith("/"):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(b"by a job" * chance.randrange(1000))
                case 7:
                    path.unlink()
        except StorageError as refused:
            assert refused.status in (400, 404, 412)  # noqa: PT017
        except OSError as error:
            assert error.filename == str(path) or str(path).startswith(str(error.filename))  # noqa: PT017


KILLED = """
import os, signal, sys
from pathlib import Path
from vertex_rehearsal.cloud_storage.files import Files
from vertex_rehearsal.cloud_storage.store import Store
store = Store(Path(sys.argv[1]))
store.create_bucket("killed-bucket", project="test", settings={"versioning": {"enabled": True}})
store.put("killed-bucket", "a/x", store.files.stage_content([b"first"]), settings={"metadata": {"turn": "1"}})
left, move = int(sys.argv[2]), Files.apply_move
def killed(*arguments):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    move(*arguments)
Files.apply_move = killed
if sys.argv[3] == "put":
    store.put("killed-bucket", "a/x", store.files.stage_content([b"second"]), settings={"metadata": {"turn": "2"}})
else:
    store.delete("killed-bucket", "a/x")
"""


@pytest.mark.parametrize(("work", "moves"), [("put", 0), ("put", 1), ("delete", 0)])
def test_a_kill_between_the_decision_and_the_deed(tmp_path: Path, work: str, moves: int) -> None:
    """What was committed is done at the next start: no object without its bytes, no bytes without their object."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(moves), work], check=False)
    assert done.returncode == -signal.SIGKILL
    store = Store(tmp_path)
    found = store.list_objects(Query("killed-bucket", versions=True)).items
    contents = []
    for each in found:
        _, file = store.read("killed-bucket", "a/x", generation=each.generation)
        with file:
            contents.append(file.read())
    assert contents == ([b"first", b"second"] if work == "put" else [b"first"])
    assert [each.noncurrent_since is None for each in found] == ([False, True] if work == "put" else [False])
    assert [each.custom["turn"] for each in found] == ["1", "2"][: len(found)]
    assert (tmp_path / "killed-bucket" / "a" / "x").exists() == (work == "put")
    store.close()


def test_two_processes_do_not_share_a_directory(cloud: Cloud) -> None:
    with pytest.raises(EmulatorUnavailable, match="another process serves the buckets"):
        Store(cloud.root)


def test_checksums_of_files_are_right(bucket: storage.Bucket, directory: Path) -> None:
    content = os.urandom(3_000_000)
    (directory / "x").write_bytes(content)
    expected = base64.b64encode(google_crc32c.Checksum(content).digest()).decode()
    assert next(iter(bucket.list_blobs())).crc32c == expected
