"""Paths read, written and listed: files there whole or not at all, and every failure said in words."""

import errno
import gzip
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tagline.errors import DataError, PlaceError, RunError
from tagline.storage import addresses, atomic, hashing, inputs


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(address: str | Path) -> bytes:
    with inputs.open_for_reading(str(address)) as file:
        return file.read()


def left_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_glob_is_replaced_by_its_files_in_order(here: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        (here / name).write_text("x")
    (here / "d.csv").mkdir()
    assert inputs.expand_globs(["*.csv", "c.txt"]) == ["a.csv", "b.csv", "c.txt"]


def test_a_glob_reaches_into_directories(here: Path) -> None:
    (here / "deep" / "er").mkdir(parents=True)
    (here / "deep" / "er" / "a.csv").write_text("x")
    assert inputs.expand_globs(["**/*.csv"]) == ["deep/er/a.csv"]


@pytest.mark.parametrize("name", ["[x].csv", "what?.csv", "*.csv", "[a-z.csv"])
def test_a_file_named_like_a_pattern_is_that_file(name: str, here: Path) -> None:
    (here / name).write_text("x")
    (here / "x.csv").write_text("other")
    assert inputs.expand_globs([name]) == [name]


@pytest.mark.parametrize("address", ["-", "hf://glue/mnli", "gs://bucket/data.csv", "missing.csv"])
def test_everything_else_stands_as_it_is(address: str) -> None:
    assert inputs.expand_globs([address]) == [address]


def test_a_glob_without_a_match_says_where_it_looked(here: Path) -> None:
    with pytest.raises(DataError, match=r"no file matches \*\.csv") as error:
        inputs.expand_globs(["*.csv"])
    assert str(here) in error.value.hint


def test_a_gzip_is_unzipped_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(gzip.compress(b"one") + gzip.compress(b"two"))
    assert contents(path) == b"onetwo"


def test_a_file_named_gz_that_is_none_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "data.csv.gz"
    path.write_bytes(b"plain")
    assert contents(path) == b"plain"


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"text" * 1000)[:-20], gzip.compress(b"text")[:5], b"\x1f\x8bnot at all gzip", b"\x1f\x8b"],
    ids=["cut off", "in the head", "not one", "mark alone"],
)
def test_a_damaged_gzip_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged gzip") as error:
        contents(path)
    assert str(path) in error.value.message
    assert error.value.hint


def test_a_missing_file_is_named_with_the_one_that_was_meant(here: Path) -> None:
    (here / "reviews.csv").write_text("x")
    with pytest.raises(DataError, match=r"no file review\.csv") as error:
        contents("review.csv")
    assert "reviews.csv" in error.value.hint


def test_a_broken_link_is_a_missing_file(here: Path) -> None:
    (here / "link.csv").symlink_to("nowhere.csv")
    with pytest.raises(DataError, match=r"no file link\.csv") as error:
        contents("link.csv")
    assert error.value.hint == "it is a link to nowhere.csv, which is not there"


def not_readable(directory: Path) -> Iterator[tuple[str, str]]:
    (directory / "loop").symlink_to("loop")
    yield "loop", "symbolic links"
    yield ".", "is a directory"
    yield "a" * 5000, "too long"
    yield "a*" * 3000, "too long"
    yield "zero\0byte.csv", "not that of a file"
    yield "zero\0byte[x].csv", "no file matches"
    yield os.devnull, "is a device"
    yield "/dev/zero", "is a device"
    yield os.fsdecode(b"caf\xe9.csv"), "not UTF-8"
    (directory / "file").write_text("x")
    yield "file/below.csv", "Not a directory"


def test_what_cannot_be_read_is_said_with_a_next_step(here: Path) -> None:
    for address, reason in not_readable(here):
        with pytest.raises(DataError, match=reason) as error:
            [contents(found) for found in inputs.expand_globs([address])]
        assert error.value.hint, address
        error.value.message.encode()  # can be written to any terminal


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.csv"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(DataError, match="Permission denied"):
        contents(path)


@pytest.mark.usefixtures("signed_out")
def test_a_bucket_needs_credentials_to_be_read_and_is_no_path() -> None:
    with pytest.raises(PlaceError, match="needs Google credentials"):
        contents("gs://bucket/data.csv")
    with pytest.raises(PlaceError, match="has to be on a disk") as error:
        addresses.require_local("gs://bucket/runs")
    assert "gcloud storage cp" in error.value.hint


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("https://example.org/data.csv", "download it first"),
        ("s3://bucket/data.csv", "download it first"),
        ("file:///data/a.csv", "name the path: /data/a.csv"),
    ],
)
def test_an_address_that_is_no_path_is_refused_with_the_way_around(address: str, hint: str) -> None:
    with pytest.raises(PlaceError, match=address) as error:
        contents(address)
    assert hint in error.value.hint


def test_a_named_pipe_can_be_read_more_than_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"through a pipe",))
    writer.start()
    assert contents(pipe) == b"through a pipe"
    writer.join()
    assert contents(pipe) == b"through a pipe"
    assert inputs.read_stamp(str(pipe)) == inputs.read_stamp(str(pipe))


def test_a_file_that_grows_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text,label\n")

    def read_and_append() -> None:
        with inputs.open_for_reading(str(path)) as file, path.open("a") as more:
            more.write(file.read().decode())

    with pytest.raises(DataError, match="changed while"):
        read_and_append()


def test_a_file_replaced_while_it_is_read_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("old")
    with inputs.open_for_reading(str(path)) as file:
        atomic.write_text(path, "new")
        assert file.read() == b"old"
    assert contents(path) == b"new"


def test_a_written_file_is_whole_and_has_the_usual_permissions(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "file.txt"
    atomic.write_text(path, "grüße", is_private=False)
    assert path.read_bytes() == "grüße".encode()
    (tmp_path / "usual").write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)
    assert left_in(path.parent) == ["file.txt"]


def test_a_failed_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write_half() -> None:
        with atomic.open_for_writing(path) as file:
            file.write(b"half")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert path.read_text() == "old"
    assert left_in(tmp_path) == ["file.txt"]


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def write_half() -> None:
        with atomic.writing_directory(tmp_path / "half") as scratch:
            (scratch / "a").write_text("a")
            raise RuntimeError("half way")

    with atomic.writing_directory(tmp_path / "whole") as scratch:
        (scratch / "a").write_text("a")
        assert not (tmp_path / "whole").exists()
    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert left_in(tmp_path) == ["whole"]
    assert left_in(tmp_path / "whole") == ["a"]


def test_a_directory_is_never_put_over_another(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "precious").write_text("x")
    with pytest.raises(PlaceError, match="cannot write"), atomic.writing_directory(tmp_path / "there") as scratch:
        (scratch / "a").write_text("a")
    assert left_in(tmp_path / "there") == ["precious"]
    assert left_in(tmp_path) == ["there"]


def test_writing_below_a_file_is_an_error_of_the_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(PlaceError, match="cannot write"):
        atomic.write_text(tmp_path / "file" / "below.txt", "x")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_while_writing_says_what_to_do(tmp_path: Path) -> None:
    def write() -> None:
        with atomic.open_for_writing(tmp_path / "file.txt"), Path("/dev/full").open("wb") as full:
            full.write(b"x")

    with pytest.raises(PlaceError, match="No space left") as error:
        write()
    assert "free some space" in error.value.hint
    assert left_in(tmp_path) == []


def test_a_removed_directory_is_gone_and_a_missing_one_no_problem(tmp_path: Path) -> None:
    (tmp_path / "run" / "deep").mkdir(parents=True)
    atomic.remove_directory(tmp_path / "run")
    atomic.remove_directory(tmp_path / "run")
    assert left_in(tmp_path) == []


def test_sweeping_removes_what_was_left_half_written_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / f"{atomic.SCRATCH_PREFIX}dir" / "deep").mkdir(parents=True)
    (tmp_path / f"{atomic.SCRATCH_PREFIX}file").write_text("x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("x")
    (tmp_path / f"{atomic.SCRATCH_PREFIX}link").symlink_to(tmp_path / "outside")
    atomic.sweep_scratch(tmp_path)
    assert left_in(tmp_path) == ["outside"]
    assert left_in(tmp_path / "outside") == ["kept"]


def test_files_below_are_listed_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b/2", "a", "b/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert [str(path.relative_to(tmp_path)) for path in hashing.files_below(tmp_path)] == ["a", "b/1", "b/2"]


def test_a_directory_is_held_though_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", refuse)
    with (
        atomic.lock_directory(tmp_path),
        pytest.raises(RunError, match="is in use by process"),
        atomic.lock_directory(tmp_path),
    ):
        pass
