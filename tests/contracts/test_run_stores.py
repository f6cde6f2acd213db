"""What every store of a run must do: a directory of this machine, and a bucket of a real rehearsal."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage

from tagline import gcp
from tagline.errors import NameTaken, RunError, TaglineError
from tagline.runs.checkpoints import PROGRESS
from tagline.runs.formats import EVENTS, NEEDED, STATE
from tagline.runs.run import Run
from tagline.runs.stores import RunStore
from tagline.runs.stores.bucket import BucketStore
from tagline.runs.stores.local import LocalStore

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import rehearsing

BEGUN = {"spec.toml": "", "lock.json": "{}", EVENTS: "", STATE: '{"name": "waiting", "created": ""}'}
Open = Callable[[], RunStore]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    patch = pytest.MonkeyPatch()
    with rehearsing(tmp_path_factory.mktemp("rehearsal")) as rehearsal:
        patch.setenv("STORAGE_EMULATOR_HOST", rehearsal.keyed_address)
        gcp.storage_client.cache_clear()
        google_storage.Client(project="demo", credentials=AnonymousCredentials()).create_bucket("stores")
        yield "gs://stores"
    patch.undo()
    gcp.storage_client.cache_clear()


@pytest.fixture(params=["local", "bucket"])
def create(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Make the run that every test has for itself, with the files that a run begins with."""
    if request.param == "local":
        return lambda: LocalStore.create(tmp_path / "runs" / "a", BEGUN)
    address = f"{request.getfixturevalue('bucket')}/{tmp_path.name}/runs/a"
    return lambda: BucketStore.create(address, BEGUN)


@pytest.fixture
def store(create: Open) -> RunStore:
    return create()


def look(store: RunStore) -> RunStore:
    """The same run, as another process sees it."""
    seen = Run(store.address).store
    seen.refresh()
    return seen


def read(store: RunStore, name: str) -> str:
    return store.local_path(name).read_text()


def write_checkpoint(store: RunStore, name: str) -> None:
    directory = store.directory / "checkpoints" / name
    directory.mkdir(parents=True)
    (directory / "weights").write_text(name)


def test_a_new_run_has_its_files_and_takes_its_name(store: RunStore, create: Open) -> None:
    with pytest.raises(NameTaken, match=r"there is a run a in .*runs already"):
        create()
    seen = look(store)
    assert [name for name in NEEDED if seen.has(name)] == list(NEEDED)
    assert {name: read(seen, name) for name in BEGUN} == BEGUN
    assert seen.entries() == sorted(f"{store.address}/{name}" for name in BEGUN)
    assert store.absolute_address == store.address
    assert not seen.has("report.json")
    assert not seen.local_path("report.json").exists()


def test_what_is_written_is_there_and_replaces_what_was(store: RunStore) -> None:
    seen = look(store)
    for text in ("first", "second"):
        store.write_text("notes/report.html", text)
        seen.refresh()
        assert read(seen, "notes/report.html") == text
    assert f"{store.address}/notes/" in seen.entries()


def test_what_is_appended_is_there_after_a_flush(store: RunStore) -> None:
    with store.held():
        for number in range(3):
            store.append(EVENTS, b"%d\n" % number)
        store.flush(EVENTS)
        assert read(store, EVENTS) == "0\n1\n2\n"
    assert read(look(store), EVENTS) == "0\n1\n2\n"


def test_checkpoints_are_there_once_flushed_and_gone_once_no_longer_kept(store: RunStore) -> None:
    for number, kept in enumerate((["1"], ["1", "2"], ["1", "3"]), start=1):
        write_checkpoint(store, str(number))
        store.flush(*(f"checkpoints/{name}" for name in kept))
        store.write_text(PROGRESS, "{}")
        store.keep_checkpoints(kept)
    seen = look(store)
    assert [name for name in "123" if seen.has(f"checkpoints/{name}/weights")] == ["1", "3"]
    assert sorted(path.name for path in (store.directory / "checkpoints").iterdir()) == ["1", "3", "progress.json"]
    assert read(seen, PROGRESS) == "{}"
    seen.fetch_directory("checkpoints/3")
    assert (seen.directory / "checkpoints" / "3" / "weights").read_text() == "3"


@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_what_is_added_to_a_run_that_is_worked_on_is_there_in_the_end(store: RunStore, ends: str) -> None:
    def work() -> None:
        with store.worked_on():
            (store.directory / "bundle").mkdir()
            (store.directory / "bundle" / "tagline.json").write_text("{}")
            if ends != "well":
                raise RunError(ends)

    if ends == "well":
        work()
    else:
        with pytest.raises(RunError, match=ends):
            work()
    assert look(store).has("bundle/tagline.json")


def test_of_two_that_hold_a_run_only_one_can_write_what_counts(store: RunStore) -> None:
    other = look(store)
    with pytest.raises(TaglineError, match=r"is in use|has taken over"), store.held(), other.held():
        store.write_text(STATE, "of the first")
    assert read(look(store), STATE) == BEGUN[STATE]
    with other.held():
        other.write_text(STATE, "of the second")
    assert read(look(store), STATE) == "of the second"


def test_a_run_that_is_removed_is_gone(store: RunStore) -> None:
    write_checkpoint(store, "1")
    store.flush("checkpoints/1")
    store.remove()
    seen = look(store)
    assert not any(seen.has(name) for name in NEEDED)
    with pytest.raises(RunError, match="is not a run"):
        Run.open(store.address)


def test_a_bundle_that_a_killed_process_left_in_a_bucket_is_not_in_the_way_of_a_new_one(
    bucket: str, tmp_path: Path
) -> None:
    killed = Run(BucketStore.create(f"{bucket}/{tmp_path.name}/runs/a", BEGUN))
    with killed.worked_on():
        killed.bundle.mkdir()
        (killed.bundle / "tagline.json").write_text("{}")
    run = Run.open(killed.address)
    assert run.has_bundle()
    with run.held():
        assert not run.has_bundle()
        assert not run.bundle.exists()
    assert (run.bundle / "tagline.json").is_file()
