"""Objects, as Google's pages "Objects" (JSON API), "Object metadata", "Composite objects", "Transcoding" have them."""

import base64
import gzip
import hashlib
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage

from cloud_storage_server import Cloud

ODD_NAMES = [
    "a b", "a+b", "100%", "a%2Fb", "what?", "#1", "a&b=c", "ünïcödé", "日本語/ファイル.txt", "emoji 🎉",
    "a:b@c,d;e!$'()*[]", 'quote"quote', "back\\slash", "~", "a//b", "/leading", "trailing/", "a/./b", "a/../b",
    "../escape", "...", ".hidden", "a/.", "a/..", "tab\there", "x" * 1024, "d/" + "y" * 300, "nul\0byte", "\x01",
    "ß" * 512, "_", "-", "CON", "o", "b/o/x", "compose", "x/compose", "é", "e\u0301", "rewriteTo", "acl",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name)[1:20])
def test_every_name_that_google_allows(bucket: storage.Bucket, name: str) -> None:
    blob = bucket.blob(name)
    blob.upload_from_string(name.encode())
    assert [each.name for each in bucket.list_blobs()] == [name]
    assert bucket.blob(name).download_as_bytes() == name.encode()
    copied = bucket.copy_blob(blob, bucket, f"copy of {name[:100]}")
    assert copied.size == len(name.encode())
    blob.metadata = {"k": "v"}
    blob.patch()
    assert bucket.get_blob(name).metadata == {"k": "v"}
    blob.delete()
    assert not bucket.blob(name).exists()


@pytest.mark.parametrize(
    "name",
    ["x" * 1025, "ß" * 513, "a\nb", "a\rb", ".", "..", ".well-known/acme-challenge/x"],
    ids=lambda name: ascii(name)[1:20],
)
def test_names_that_google_refuses(cloud: Cloud, bucket: storage.Bucket, name: str) -> None:
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name={quote(name, safe='')}"
    answer = cloud.call("POST", path, data=b"x")
    assert answer.status_code == 400
    assert list(bucket.list_blobs()) == []


def test_an_empty_name_is_refused(cloud: Cloud, bucket: storage.Bucket) -> None:
    answer = cloud.call("POST", f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=", data=b"x")
    assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "required")


def test_names_that_no_directory_could_hold_at_once(bucket: storage.Bucket) -> None:
    names = ["a", "a/", "a/b", "a/b/", "a/b/c", "A", "a//", "a/b//c"]
    for name in names:
        bucket.blob(name).upload_from_string(name)
    for name in reversed(names):
        bucket.blob(name).upload_from_string(name * 2)
    assert [each.name for each in bucket.list_blobs()] == sorted(names)
    assert {each.name: each.download_as_text() for each in bucket.list_blobs()} == {name: name * 2 for name in names}
    for name in names:
        bucket.blob(name).delete()
        assert not bucket.blob(name).exists()


def test_a_new_object_says_what_it_is(cloud: Cloud, bucket: storage.Bucket) -> None:
    content = b"some content"
    begun = datetime.now(UTC)
    blob = bucket.blob("folder/x.txt")
    blob.upload_from_string(content, content_type="text/plain")
    found = bucket.get_blob("folder/x.txt")
    assert (found.size, found.content_type, found.metageneration) == (len(content), "text/plain", 1)
    assert found.md5_hash == base64.b64encode(hashlib.md5(content).digest()).decode()
    assert found.crc32c == base64.b64encode(google_crc32c.Checksum(content).digest()).decode()
    assert found.id == f"{bucket.name}/folder/x.txt/{found.generation}"
    assert (found.storage_class, found.component_count) == ("STANDARD", None)
    assert found.etag == blob.etag
    edge = timedelta(seconds=1)  # a time may be rounded
    for moment in (found.time_created, found.updated):
        assert begun - edge <= moment <= datetime.now(UTC) + edge
    assert cloud.http.get(found.self_link, timeout=60).json()["name"] == "folder/x.txt"
    assert cloud.http.get(found.media_link, timeout=60).content == content


def test_times_are_rfc_3339(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("x")
    found = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o/x").json()
    for key in ("timeCreated", "updated", "timeStorageClassUpdated"):
        assert found[key].endswith("Z")
        datetime.strptime(found[key], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert (found["kind"], found["size"], found["generation"].isdigit()) == ("storage#object", "1", True)


def test_an_object_that_is_not_there(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("nothing")
    assert not blob.exists()
    assert bucket.get_blob("nothing") is None
    for ask in (blob.reload, blob.delete, blob.download_as_bytes, blob.patch):
        with pytest.raises(exceptions.NotFound, match=r"No such object|nothing"):
            ask()
    error = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o/nothing").json()["error"]
    message = f"No such object: {bucket.name}/nothing"
    detail = {"message": message, "domain": "global", "reason": "notFound"}
    assert error == {"code": 404, "message": message, "errors": [detail]}


def test_an_empty_object(bucket: storage.Bucket) -> None:
    blob = bucket.blob("empty")
    blob.upload_from_string("")
    assert (blob.size, blob.download_as_bytes(), blob.crc32c) == (0, b"", "AAAAAA==")
    with blob.open("rb") as file:
        assert file.read() == b""


def test_what_is_written_is_read_at_once(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    generations = []
    for number in range(20):
        blob.upload_from_string(str(number))
        generations.append(blob.generation)
        assert bucket.blob("x").download_as_text() == str(number)
        assert [each.generation for each in bucket.list_blobs()] == [blob.generation]
    blob.delete()
    assert list(bucket.list_blobs()) == []
    blob.upload_from_string("again")
    assert [*generations, blob.generation] == sorted({*generations, blob.generation})


def test_content_types_are_guessed_by_the_client_or_given(bucket: storage.Bucket, tmp_path: Any) -> None:
    (tmp_path / "page.html").write_text("<p>")
    blob = bucket.blob("page")
    blob.upload_from_filename(tmp_path / "page.html")
    assert bucket.get_blob("page").content_type == "text/html"
    blob.upload_from_filename(tmp_path / "page.html", content_type="x/y; charset=utf-8")
    assert bucket.get_blob("page").content_type == "x/y; charset=utf-8"


def test_an_object_without_a_type_is_served_as_bytes(cloud: Cloud, bucket: storage.Bucket) -> None:
    answer = cloud.call("POST", f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=x", data=b"x")
    assert "contentType" not in answer.json()
    answer = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o/x?alt=media")
    assert answer.headers["Content-Type"] == "application/octet-stream"


def test_custom_metadata_key_by_key(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.metadata = {"colour": "blue", "größe": "groß"}
    blob.upload_from_string("x")
    assert bucket.get_blob("x").metadata == {"colour": "blue", "größe": "groß"}
    blob.metadata = {"colour": None, "shape": "round"}
    blob.patch()
    found = bucket.get_blob("x")
    assert found.metadata == {"größe": "groß", "shape": "round"}
    assert (found.metageneration, found.generation) == (2, blob.generation)
    assert found.updated > found.time_created
    assert found.download_as_bytes() == b"x"


def test_all_custom_metadata_is_removed_by_null(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.metadata = {"a": "b"}
    blob.upload_from_string("x")
    answer = cloud.call("PATCH", f"/storage/v1/b/{bucket.name}/o/x", json={"metadata": None})
    assert "metadata" not in answer.json()


def test_fixed_metadata_is_set_served_and_removed(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("x", content_type="text/plain")
    blob.cache_control, blob.content_language = "no-cache", "de"
    blob.content_disposition, blob.content_type = "attachment; filename=x.txt", "text/x"
    blob.patch()
    answer = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o/x?alt=media")
    assert (answer.headers["Cache-Control"], answer.headers["Content-Language"]) == ("no-cache", "de")
    assert answer.headers["Content-Disposition"] == "attachment; filename=x.txt"
    assert answer.headers["Content-Type"] == "text/x"
    blob.cache_control = None
    blob.patch()
    assert bucket.get_blob("x").cache_control is None


def test_update_replaces_all_metadata(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.metadata = {"a": "b"}
    blob.cache_control = "no-cache"
    blob.upload_from_string("x")
    fresh = bucket.blob("x")
    fresh.content_type = "text/x"
    fresh.update()
    found = bucket.get_blob("x")
    assert (found.content_type, found.metadata, found.cache_control) == ("text/x", None, None)
    assert found.metageneration == 2


def test_what_google_computes_cannot_be_set(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("x")
    answer = cloud.call("PATCH", f"/storage/v1/b/{bucket.name}/o/x", json={"size": "7", "md5Hash": "x", "name": "y"})
    assert (answer.json()["size"], answer.json()["name"]) == ("1", "x")


def test_metadata_that_is_no_map_of_strings_is_refused(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("x")
    for wrong in ({"metadata": {"a": 1}}, {"metadata": "x"}, {"contentType": 7}, {"metadata": {"a": "x" * 9000}}, []):
        assert cloud.call("PATCH", f"/storage/v1/b/{bucket.name}/o/x", json=wrong).status_code == 400
    assert bucket.get_blob("x").metageneration == 1


def test_custom_time_only_goes_forward(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.custom_time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    blob.upload_from_string("x")
    assert bucket.get_blob("x").custom_time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    blob.custom_time = datetime(2026, 2, 1, tzinfo=UTC)
    blob.patch()
    blob.custom_time = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(exceptions.BadRequest):
        blob.patch()


def test_a_hold_protects_an_object(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("x")
    blob.temporary_hold = True
    blob.patch()
    for change in (blob.delete, lambda: bucket.blob("x").upload_from_string("y")):
        with pytest.raises(exceptions.Forbidden, match="hold"):
            change()
    blob.temporary_hold = False
    blob.patch()
    blob.delete()


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 3, b"0123"), (4, None, b"456789"), (None, 2, b"012"), (9, 9, b"9"), (5, 100, b"56789"), (-3, None, b"789")],
)
def test_ranges(bucket: storage.Bucket, start: int | None, end: int | None, expected: bytes) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string(b"0123456789")
    assert blob.download_as_bytes(start=start, end=end) == expected


@pytest.mark.parametrize(
    ("header", "status", "content_range", "content"),
    [
        ("bytes=2-4", 206, "bytes 2-4/10", b"234"),
        ("bytes=-4", 206, "bytes 6-9/10", b"6789"),
        ("bytes=-40", 206, "bytes 0-9/10", b"0123456789"),
        ("bytes=0-", 206, "bytes 0-9/10", b"0123456789"),
        ("bytes=10-", 416, "bytes */10", None),
        ("bytes=-0", 416, "bytes */10", None),
        ("bytes=4-2", 416, "bytes */10", None),
        ("lines=1-2", 200, None, b"0123456789"),
    ],
)
def test_range_headers(
    cloud: Cloud, bucket: storage.Bucket, header: str, status: int, content_range: str | None, content: bytes | None
) -> None:
    bucket.blob("x").upload_from_string(b"0123456789")
    answer = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o/x?alt=media", headers={"Range": header})
    assert (answer.status_code, answer.headers.get("Content-Range")) == (status, content_range)
    assert content is None or answer.content == content


def test_a_range_after_the_end_is_an_error_of_its_own(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string(b"0123456789")
    with pytest.raises(exceptions.RequestRangeNotSatisfiable):
        blob.download_as_bytes(start=10)


def test_a_generation_that_no_object_can_have(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("a").upload_from_string(b"a")
    path, never = f"/storage/v1/b/{bucket.name}/o/a", "9" * 30
    for method, rest in (
        ("GET", f"?generation={never}"),
        ("DELETE", f"?generation={never}"),
        ("POST", f"/rewriteTo/b/{bucket.name}/o/b?sourceGeneration={never}"),
    ):
        assert cloud.call(method, path + rest).status_code == 404
    source = {"sourceObjects": [{"name": "a", "generation": never}]}
    assert cloud.call("POST", f"{path}/compose", json=source).status_code == 404


def test_a_download_names_checksums_and_generation(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string(b"0123456789")
    for path in (f"/storage/v1/b/{bucket.name}/o/x?alt=media", f"/download/storage/v1/b/{bucket.name}/o/x?alt=media"):
        headers = cloud.call("GET", path).headers
        assert headers["x-goog-hash"] == f"crc32c={blob.crc32c},md5={blob.md5_hash}"
        assert headers["x-goog-generation"] == str(blob.generation)
        assert headers["x-goog-metageneration"] == "1"
        assert headers["x-goog-stored-content-length"] == headers["Content-Length"] == "10"
        assert headers["x-goog-stored-content-encoding"] == "identity"
        assert headers["x-goog-storage-class"] == "STANDARD"
        assert headers["ETag"] == blob.etag


def test_packed_content_is_unpacked_for_who_cannot(cloud: Cloud, bucket: storage.Bucket) -> None:
    packed = gzip.compress(b"text " * 1000)
    blob = bucket.blob("x")
    blob.content_encoding = "gzip"
    blob.upload_from_string(packed, content_type="text/plain")
    path = f"/storage/v1/b/{bucket.name}/o/x?alt=media"
    unpacked = cloud.call("GET", path, headers={"Accept-Encoding": "identity"})
    assert unpacked.content == b"text " * 1000
    assert "Content-Encoding" not in unpacked.headers
    assert unpacked.headers["x-goog-stored-content-encoding"] == "gzip"
    assert unpacked.headers["x-goog-stored-content-length"] == str(len(packed))
    kept = cloud.call("GET", path, headers={"Accept-Encoding": "gzip"}, stream=True)
    assert kept.headers["Content-Encoding"] == "gzip"
    assert kept.raw.read(decode_content=False) == packed
    assert blob.download_as_bytes() == b"text " * 1000
    assert blob.download_as_bytes(raw_download=True) == packed


def test_no_transform_keeps_content_packed(cloud: Cloud, bucket: storage.Bucket) -> None:
    packed = gzip.compress(b"text")
    blob = bucket.blob("x")
    blob.content_encoding, blob.cache_control = "gzip", "no-transform"
    blob.upload_from_string(packed)
    path = f"/storage/v1/b/{bucket.name}/o/x?alt=media"
    answer = cloud.call("GET", path, headers={"Accept-Encoding": "identity"}, stream=True)
    assert answer.raw.read(decode_content=False) == packed


@pytest.mark.parametrize("checksum", ["crc32c", "md5", "auto", None])
def test_checksums_that_clients_ask_for(bucket: storage.Bucket, checksum: str | None) -> None:
    content = b"checked" * 1000
    blob = bucket.blob("x")
    blob.upload_from_string(content, checksum=checksum)
    assert blob.download_as_bytes(checksum=checksum) == content
    slow = bucket.blob("slow", chunk_size=2**18)
    slow.upload_from_file(io.BytesIO(b"z" * 2**19), checksum=checksum)
    assert slow.download_as_bytes(checksum=checksum) == b"z" * 2**19


@pytest.mark.parametrize(
    "wrong",
    [{"md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg=="}, {"crc32c": "AAAAAA=="}, {"md5Hash": "nonsense"}, {"crc32c": "AAAA"}],
)
def test_content_with_other_checksums_is_refused(cloud: Cloud, bucket: storage.Bucket, wrong: dict[str, str]) -> None:
    body, kind = related({"name": "x", **wrong}, b"content")
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=multipart"
    answer = cloud.call("POST", path, data=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "invalid")
    assert not bucket.blob("x").exists()


def test_the_hash_header_is_checked_too(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=x"
    answer = cloud.call("POST", path, data=b"x", headers={"x-goog-hash": "crc32c=AAAAAA=="})
    assert answer.status_code == 400
    assert not bucket.blob("x").exists()


def related(resource: dict[str, Any], content: bytes, *, newline: bytes = b"\r\n") -> tuple[bytes, str]:
    """A body of a resource and its content, and its Content-Type."""
    lines = [b"--mark", b"Content-Type: application/json", b"", json.dumps(resource).encode()]
    lines += [b"--mark", b"Content-Type: text/x", b"", content, b"--mark--", b""]
    return newline.join(lines), 'multipart/related; boundary="mark"'


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
@pytest.mark.parametrize(
    "content", [b"", b"\r\n", b"x--mark", b"a\r\n--mar\r\n", b"x" * 100_000, bytes(range(256)) * 9]
)
def test_multipart_uploads_with_content_like_boundaries(
    cloud: Cloud, bucket: storage.Bucket, newline: bytes, content: bytes
) -> None:
    body, kind = related({"name": "x"}, content, newline=newline)
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=multipart"
    answer = cloud.call("POST", path, data=body, headers={"Content-Type": kind})
    assert answer.json()["contentType"] == "text/x"
    assert bucket.blob("x").download_as_bytes() == content


@pytest.mark.parametrize("body", [b"", b"--mark\r\n", b"no boundary", b"--mark\r\nA: b\r\n\r\n{}\r\n--mark--"])
def test_a_body_that_is_cut_short_makes_no_object(cloud: Cloud, bucket: storage.Bucket, body: bytes) -> None:
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=multipart&name=x"
    answer = cloud.call("POST", path, data=body, headers={"Content-Type": "multipart/related; boundary=mark"})
    assert answer.status_code == 400
    assert not bucket.blob("x").exists()


def test_an_upload_whose_length_is_not_known_before(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=x"
    answer = cloud.call("POST", path, data=iter([b"a" * 70_000, b"b" * 70_000]), headers={"Content-Type": "text/x"})
    assert (answer.json()["size"], answer.json()["contentType"]) == ("140000", "text/x")


def test_an_upload_type_that_does_not_exist(cloud: Cloud, bucket: storage.Bucket) -> None:
    for query in ("uploadType=fast&name=x", "name=x"):
        assert cloud.call("POST", f"/upload/storage/v1/b/{bucket.name}/o?{query}", data=b"x").status_code == 400


def test_copies_keep_metadata_and_renames_move(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.metadata = {"a": "b"}
    blob.upload_from_string(b"content", content_type="text/x")
    copied = bucket.copy_blob(blob, bucket, "y")
    assert (copied.metadata, copied.content_type, copied.metageneration) == ({"a": "b"}, "text/x", 1)
    assert copied.crc32c == blob.crc32c
    moved = bucket.rename_blob(copied, "z/z")
    assert moved.download_as_bytes() == b"content"
    assert [each.name for each in bucket.list_blobs()] == ["x", "z/z"]


def test_a_copy_into_another_bucket(cloud: Cloud, bucket: storage.Bucket) -> None:
    other = cloud.client.create_bucket(f"{bucket.name}-other")
    bucket.blob("x").upload_from_string(b"content")
    assert bucket.copy_blob(bucket.blob("x"), other).download_as_bytes() == b"content"
    with pytest.raises(exceptions.NotFound):
        bucket.copy_blob(bucket.blob("nothing"), other)
    with pytest.raises(exceptions.NotFound):
        bucket.copy_blob(bucket.blob("x"), cloud.client.bucket("not-there-at-all"))


def test_a_rewrite_changes_class_and_metadata(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.metadata = {"a": "b"}
    blob.upload_from_string(b"content", content_type="text/x")
    before = blob.generation
    blob.update_storage_class("COLDLINE")
    found = bucket.get_blob("x")
    assert (found.storage_class, found.content_type, found.metadata) == ("COLDLINE", "text/x", {"a": "b"})
    assert found.generation > before
    target = bucket.blob("y")
    target.content_type = "text/y"
    token, written, total = target.rewrite(found)
    assert (token, written, total) == (None, 7, 7)
    assert bucket.get_blob("y").content_type == "text/y"
    with pytest.raises(exceptions.BadRequest, match="storage class"):
        blob.update_storage_class("CHEAP")


def test_the_move_call(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("a/x")
    blob.upload_from_string(b"content")
    moved = bucket.move_blob(blob, "b/y")
    assert [each.name for each in bucket.list_blobs()] == ["b/y"]
    assert moved.generation > blob.generation
    assert moved.download_as_bytes() == b"content"
    with pytest.raises(exceptions.NotFound):
        bucket.move_blob(blob, "c")
    path = f"/storage/v1/b/{bucket.name}/o/b%2Fy/moveTo/o/z?ifSourceGenerationMatch=1"
    assert cloud.call("POST", path).status_code == 412


def test_composing(bucket: storage.Bucket) -> None:
    parts = []
    for number in range(32):
        part = bucket.blob(f"part-{number:02}")
        part.upload_from_string(f"{number},")
        parts.append(part)
    whole = bucket.blob("whole")
    whole.content_type = "text/csv"
    whole.compose(parts)
    content = "".join(f"{number}," for number in range(32)).encode()
    found = bucket.get_blob("whole")
    assert found.download_as_bytes() == content
    assert (found.component_count, found.md5_hash, found.content_type) == (32, None, "text/csv")
    assert found.crc32c == base64.b64encode(google_crc32c.Checksum(content).digest()).decode()
    whole.compose([whole, parts[0]])
    assert bucket.get_blob("whole").component_count == 33


def test_composing_what_cannot_be(cloud: Cloud, bucket: storage.Bucket) -> None:
    part = bucket.blob("part")
    part.upload_from_string("x")
    with pytest.raises(exceptions.BadRequest):
        bucket.blob("whole").compose([part] * 33)
    with pytest.raises(exceptions.NotFound):
        bucket.blob("whole").compose([part, bucket.blob("nothing")])
    answer = cloud.call("POST", f"/storage/v1/b/{bucket.name}/o/whole/compose", json={"sourceObjects": []})
    assert answer.status_code == 400
    assert not bucket.blob("whole").exists()


def test_objects_opened_as_files(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    with blob.open("w", encoding="utf-8") as file:
        file.write("первая\nsecond\n")
    with blob.open("r", encoding="utf-8") as file:
        assert file.readlines() == ["первая\n", "second\n"]
    blob = bucket.blob("y")
    with blob.open("wb", chunk_size=2**18) as file:
        for _ in range(10):
            file.write(b"z" * 100_000)
    with blob.open("rb", chunk_size=2**18) as file:
        file.seek(999_990)
        assert file.read() == b"z" * 10


def test_batches(cloud: Cloud, bucket: storage.Bucket) -> None:
    for number in range(5):
        bucket.blob(f"ü {number}").upload_from_string("x")
    with cloud.client.batch():
        for number in range(4):
            bucket.blob(f"ü {number}").delete()
        blob = bucket.blob("ü 4")
        blob.metadata = {"größe": "7"}
        blob.patch()
    assert [each.metadata for each in bucket.list_blobs()] == [{"größe": "7"}]
    with pytest.raises(exceptions.NotFound):
        delete_together(cloud, bucket, ["ü 4", "nothing"])
    assert list(bucket.list_blobs()) == []


def test_a_batch_holds_at_most_100_calls(cloud: Cloud, bucket: storage.Bucket) -> None:
    with pytest.raises(exceptions.BadRequest):
        delete_together(cloud, bucket, [str(number) for number in range(101)])


def delete_together(cloud: Cloud, bucket: storage.Bucket, names: list[str]) -> None:
    with cloud.client.batch():
        for name in names:
            bucket.blob(name).delete()


def test_fields_are_chosen(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("x")
    path = f"/storage/v1/b/{bucket.name}/o"
    assert cloud.call("GET", f"{path}/x?fields=name,size").json() == {"name": "x", "size": "1"}
    listed = cloud.call("GET", f"{path}?fields=items(name,size),nextPageToken").json()
    assert listed == {"items": [{"name": "x", "size": "1"}]}
    assert cloud.call("GET", f"{path}?fields=items/name").json() == {"items": [{"name": "x"}]}
    assert cloud.call("GET", f"{path}?fields=items(name").status_code == 400


def test_a_path_that_does_not_exist(cloud: Cloud, bucket: storage.Bucket) -> None:
    for path in ("/storage/v1/nonsense", f"/storage/v1/b/{bucket.name}/o/slash/not/quoted"):
        answer = cloud.call("GET", path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, 404)


def test_a_method_that_does_not_fit(cloud: Cloud, bucket: storage.Bucket) -> None:
    for method, path in (("POST", "o"), ("POST", "o/x"), ("DELETE", "o")):
        assert cloud.call(method, f"/storage/v1/b/{bucket.name}/{path}", json={}).status_code == 405


def test_an_address_that_is_not_utf_8(cloud: Cloud, bucket: storage.Bucket) -> None:
    assert cloud.call("GET", f"/storage/v1/b/{bucket.name}/o/%ff").status_code == 400
