"""Files to Cloud Storage and back: whole, once, in the place of what was seen there, through a network that fails."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage

from tagline import gcp
from tagline.errors import Conflict, DataError, PlaceError
from tagline.gcp import cloud_storage
from tagline.storage import addresses, hashing
from vertex_rehearsal.cloud_storage import application
from vertex_rehearsal.cloud_storage.store import Store

PART = 5 * 2**20
"""The least that Cloud Storage takes as a part."""


class Network:
    """Cloud Storage behind a network that loses requests, or the answers to them."""

    def __init__(self, answered: Any) -> None:
        self._answered = answered
        self.requests: list[tuple[str, str]] = []
        self.lost: list[tuple[str, bool]] = []
        """What to lose: the requests of a method, before or after they were carried out."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._answered(scope, receive, send)
            return
        self.requests.append((scope["method"], scope["path"]))
        losing = next((each for each in self.lost if each[0] == scope["method"]), None)
        if losing is None:
            await self._answered(scope, receive, send)
            return
        self.lost.remove(losing)
        if losing[1]:
            await self._answered(scope, receive, _into_the_void)
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b"unavailable"})


async def _into_the_void(_message: Any) -> None:
    """Where an answer goes that is lost."""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """With the bucket `here` behind it."""
    store = Store(tmp_path_factory.mktemp("buckets"))
    patch = pytest.MonkeyPatch()
    between = Network(application.create_storage_app(store))
    patch.setattr(application, "create_storage_app", lambda _: between)
    with application.serve_in_thread(store) as address:
        patch.setenv("STORAGE_EMULATOR_HOST", address)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        gcp.storage_client.cache_clear()
        google_storage.Client(project="demo", credentials=AnonymousCredentials()).create_bucket("here", location="EU")
        yield between
    patch.undo()
    gcp.storage_client.cache_clear()
    store.close()


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, bytes], Path]:
    """A file with this content."""

    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few megabytes count as large."""
    monkeypatch.setattr(cloud_storage, "LARGE", PART)
    monkeypatch.setattr(cloud_storage, "CHUNK", PART)


def content(address: str) -> bytes:
    found = cloud_storage.object_at(address)
    assert found is not None
    return cloud_storage.read_bytes(found)


@pytest.mark.usefixtures("network")
def test_an_object_takes_the_place_only_of_the_one_that_was_seen(file: Any) -> None:
    first = cloud_storage.upload(file("a", b"one"), "gs://here/fence", if_generation=0)
    assert first.crc32c == cloud_storage.compute_checksum(file("b", b"one"))
    with pytest.raises(Conflict, match="gs://here/fence was written by somebody else"):
        cloud_storage.upload(file("a", b"two"), "gs://here/fence", if_generation=0)
    second = cloud_storage.upload(file("a", b"three"), "gs://here/fence", if_generation=first.generation)
    with pytest.raises(Conflict):
        cloud_storage.upload(file("a", b"four"), "gs://here/fence", if_generation=first.generation)
    assert content("gs://here/fence") == b"three"
    cloud_storage.delete(first)
    assert cloud_storage.object_at("gs://here/fence") == second, (
        "another generation than the one that was to be removed"
    )
    cloud_storage.delete(second)
    cloud_storage.delete(second)
    assert cloud_storage.object_at("gs://here/fence") is None
    with pytest.raises(Conflict, match="replaced or removed"):
        cloud_storage.read_bytes(second)


@pytest.mark.parametrize("is_done", [False, True], ids=["request", "answer"])
def test_what_the_network_loses_is_tried_again_and_done_once(network: Network, file: Any, is_done: bool) -> None:
    address = f"gs://here/lost-{is_done}"
    network.lost.append(("POST", is_done))
    made = cloud_storage.upload(file("a", b"one"), address, if_generation=0)
    assert not network.lost
    assert cloud_storage.object_at(address) == made
    network.lost.append(("GET", False))
    assert content(address) == b"one"


def test_a_network_that_stays_away_is_said(network: Network, file: Any) -> None:
    network.lost += [("POST", False)] * 50
    with pytest.raises(PlaceError, match="503"):
        cloud_storage.upload(file("a", b"one"), "gs://here/away", if_generation=0, patience_s=0.5)
    network.lost.clear()
    assert cloud_storage.object_at("gs://here/away") is None


@pytest.mark.usefixtures("in_parts")
def test_a_large_file_goes_in_parts_and_appears_at_once(network: Network, file: Any, tmp_path: Path) -> None:
    large = os.urandom(2 * PART + 7)
    network.requests.clear()
    made = cloud_storage.upload(file("large", large), "gs://here/large", if_generation=0)
    assert sum(verb == "PUT" for verb, _ in network.requests) == 3
    assert (made.size, made.crc32c) == (len(large), cloud_storage.compute_checksum(tmp_path / "large"))
    with pytest.raises(Conflict):
        cloud_storage.upload(file("large", large[::-1]), "gs://here/large", if_generation=0)
    assert cloud_storage.list_objects("gs://here/large", unfinished=True) == [made]
    cloud_storage.download(made, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large
    assert [
        each
        for each in cloud_storage.list_objects("gs://here/", unfinished=True)
        if cloud_storage.UNFINISHED in each.name
    ] == []


@pytest.mark.usefixtures("in_parts", "network")
@pytest.mark.parametrize("size", [3, PART + 1])
def test_a_bucket_that_is_not_there_is_named(file: Any, size: int) -> None:
    with pytest.raises(PlaceError, match="there is no bucket nowhere-at-all"):
        cloud_storage.upload(file("a", bytes(size)), "gs://nowhere-at-all/a", if_generation=0)
    assert cloud_storage.find_bucket("nowhere-at-all") is None
    assert cloud_storage.find_bucket("here") == cloud_storage.BucketInfo("here", "eu")


@pytest.mark.usefixtures("in_parts", "network")
def test_a_directory_goes_there_with_its_last_file_last_and_only_what_changed_again(file: Any, tmp_path: Path) -> None:
    for name, part in (("d/a", b"a"), ("d/deep/b", b"b"), ("d/large", bytes(PART)), ("d/manifest", b"m")):
        file(name, part)
    addresses.copy_up(tmp_path / "d", "gs://here/copy", last="manifest")
    last = cloud_storage.object_at("gs://here/copy/manifest")
    others = [each for each in cloud_storage.list_objects("gs://here/copy") if each != last]
    assert last is not None
    assert max(each.generation for each in others) < last.generation
    copied = addresses.fetch_copy("gs://here/copy")
    assert {path.relative_to(copied).as_posix(): path.read_bytes() for path in hashing.files_below(copied)} == {
        path.relative_to(tmp_path / "d").as_posix(): path.read_bytes() for path in hashing.files_below(tmp_path / "d")
    }
    file("d/a", b"another")
    addresses.copy_up(tmp_path / "d", "gs://here/copy/", last="manifest")
    assert [each for each in cloud_storage.list_objects("gs://here/copy") if each in others] == others[1:]
    assert content("gs://here/copy/a") == b"another"
    addresses.remove_remote("gs://here/copy")
    assert cloud_storage.list_objects("gs://here/copy/") == []


@pytest.mark.usefixtures("network")
def test_an_object_that_is_replaced_while_it_is_read_is_said(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    really = cloud_storage.list_objects
    cloud_storage.upload(file("a", b"one"), "gs://here/changing.csv")

    def seen(address: str) -> list[cloud_storage.RemoteObject]:
        found = really(address)
        cloud_storage.upload(file("a", b"two"), "gs://here/changing.csv")
        return found

    monkeypatch.setattr(cloud_storage, "list_objects", seen)
    with pytest.raises(DataError, match="changed while it was being read"):
        addresses.fetch_copy("gs://here/changing.csv")


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("name", ["a/../../outside", "a//b", "a/./b"])
def test_an_object_whose_name_leads_out_of_a_directory_is_refused(file: Any, name: str) -> None:
    cloud_storage.upload(file("x", b"x"), f"gs://here/odd-{len(name)}/{name}")
    with pytest.raises(DataError, match="no file can have"):
        addresses.fetch_copy(f"gs://here/odd-{len(name)}")


def test_work_is_shared_out_in_order_and_the_first_problem_is_raised() -> None:
    assert addresses.run_concurrently(
        lambda number: number * 2, range(20), size=lambda n: cloud_storage.LARGE * (n % 2)
    ) == [*range(0, 40, 2)]
    with pytest.raises(ZeroDivisionError):
        addresses.run_concurrently(lambda number: 1 // number, [1, 0, 2])
