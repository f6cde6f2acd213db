"""Uploads in several requests, as Google's pages "Resumable uploads" and "XML API multipart uploads" describe them."""

import base64
import hashlib
import http.client
import io
from urllib.parse import urlsplit

import pytest
import requests
from google.cloud import storage
from test_cloud_storage_listing import tree

from cloud_storage_server import Cloud

QUANTUM = 256 * 1024


@pytest.fixture
def session(cloud: Cloud, bucket: storage.Bucket) -> str:
    """The address of a new resumable upload of the object x."""
    headers = {"X-Upload-Content-Type": "text/x"}
    answer = cloud.call("POST", path_of(bucket), json={"metadata": {"k": "v"}}, headers=headers)
    assert (answer.status_code, answer.content) == (200, b"")
    return answer.headers["Location"]


def path_of(bucket: storage.Bucket, **more: str) -> str:
    extra = "".join(f"&{key}={value}" for key, value in more.items())
    return f"/upload/storage/v1/b/{bucket.name}/o?uploadType=resumable&name=x{extra}"


def put(cloud: Cloud, address: str, content_range: str = "", content: bytes = b"", **headers: str) -> requests.Response:
    given = {"Content-Range": content_range} if content_range else {}
    return cloud.http.put(address, data=content, headers=given | headers, timeout=60)


def test_a_session_makes_an_object_with_its_last_byte(cloud: Cloud, bucket: storage.Bucket, session: str) -> None:
    first = put(cloud, session, f"bytes 0-{QUANTUM - 1}/{QUANTUM + 5}", b"a" * QUANTUM)
    assert (first.status_code, first.headers["Range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    assert not bucket.blob("x").exists()
    last = put(cloud, session, f"bytes {QUANTUM}-{QUANTUM + 4}/{QUANTUM + 5}", b"bbbbb")
    assert last.status_code == 200
    assert (last.json()["size"], last.json()["contentType"], last.json()["metadata"]) == (
        str(QUANTUM + 5),
        "text/x",
        {"k": "v"},
    )
    assert bucket.blob("x").download_as_bytes() == b"a" * QUANTUM + b"bbbbb"


def test_a_finished_session_answers_again(cloud: Cloud, bucket: storage.Bucket, session: str) -> None:
    made = put(cloud, session, "bytes 0-4/5", b"12345")
    for asked in ("bytes */5", "bytes */*"):
        again = put(cloud, session, asked)
        assert (again.status_code, again.json()["generation"]) == (200, made.json()["generation"])
        bucket.blob("x").upload_from_string("something later")


def test_a_session_in_one_request(cloud: Cloud, bucket: storage.Bucket, session: str) -> None:
    assert put(cloud, session, content=b"everything").json()["size"] == "10"
    assert bucket.blob("x").download_as_bytes() == b"everything"


def test_a_session_of_nothing(cloud: Cloud, session: str) -> None:
    answer = put(cloud, session, "bytes */0")
    assert (answer.status_code, answer.json()["size"]) == (200, "0")


def test_how_far_a_session_has_come(cloud: Cloud, session: str) -> None:
    fresh = put(cloud, session, "bytes */*")
    assert (fresh.status_code, "Range" in fresh.headers) == (308, False)
    put(cloud, session, f"bytes 0-{QUANTUM - 1}/*", b"a" * QUANTUM)
    assert put(cloud, session, "bytes */*").headers["Range"] == f"bytes=0-{QUANTUM - 1}"
    assert put(cloud, session, f"bytes */{2 * QUANTUM}").headers["Range"] == f"bytes=0-{QUANTUM - 1}"


def test_a_total_that_is_known_only_at_the_end(cloud: Cloud, bucket: storage.Bucket, session: str) -> None:
    assert put(cloud, session, f"bytes 0-{QUANTUM - 1}/*", b"a" * QUANTUM).status_code == 308
    assert put(cloud, session, f"bytes {QUANTUM}-{2 * QUANTUM - 1}/*", b"b" * QUANTUM).status_code == 308
    assert put(cloud, session, f"bytes */{2 * QUANTUM}").status_code == 200
    assert bucket.get_blob("x").size == 2 * QUANTUM


def test_bytes_sent_twice_count_once(cloud: Cloud, bucket: storage.Bucket, session: str) -> None:
    put(cloud, session, "bytes 0-4/10", b"01234")
    assert put(cloud, session, "bytes 2-9/10", b"23456789").status_code == 200
    assert bucket.blob("x").download_as_bytes() == b"0123456789"


@pytest.mark.parametrize(
    ("content_range", "content"),
    [
        ("bytes 5-9/10", b"56789"), ("bytes 0-9/10", b"0123"), ("bytes 0-3/10", b"0123456789"), ("bytes 9-0/10", b"x"),
        ("bytes 0-9/5", b"0123456789"), ("nonsense", b"x"),
    ],
)  # fmt: skip
def test_ranges_that_cannot_be(cloud: Cloud, session: str, content_range: str, content: bytes) -> None:
    answer = put(cloud, session, content_range, content)
    assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "invalid")


def test_a_total_that_changes(cloud: Cloud, session: str) -> None:
    put(cloud, session, "bytes 0-4/10", b"01234")
    assert put(cloud, session, "bytes 5-9/20", b"56789").status_code == 400


def test_a_declared_length_is_kept_to(cloud: Cloud, bucket: storage.Bucket) -> None:
    answer = cloud.call("POST", path_of(bucket), headers={"X-Upload-Content-Length": "5"})
    assert put(cloud, answer.headers["Location"], content=b"1234567").status_code == 400
    assert not bucket.blob("x").exists()


def test_a_cancelled_session_is_gone(cloud: Cloud, bucket: storage.Bucket, session: str) -> None:
    put(cloud, session, "bytes 0-4/10", b"01234")
    assert cloud.http.delete(session, timeout=60).status_code == 499
    assert put(cloud, session, "bytes */*").status_code == 410
    assert not bucket.blob("x").exists()


def test_a_session_that_never_was(cloud: Cloud, session: str) -> None:
    assert put(cloud, session[:-5] + "abcde", "bytes */*").status_code == 404


def test_a_broken_connection_loses_only_what_had_not_arrived(
    cloud: Cloud, bucket: storage.Bucket, session: str
) -> None:
    content = bytes(range(256)) * 8192
    parts = urlsplit(session)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.putrequest("PUT", f"{parts.path}?{parts.query}")
    connection.putheader("Content-Length", str(len(content)))
    connection.putheader("Content-Range", f"bytes 0-{len(content) - 1}/{len(content)}")
    connection.endheaders()
    connection.send(content[: len(content) // 2])
    connection.close()
    answer = put(cloud, session, "bytes */*")
    assert answer.status_code == 308
    arrived = int(answer.headers.get("Range", "bytes=0--1").rpartition("-")[2]) + 1 if "Range" in answer.headers else 0
    assert arrived <= len(content) // 2
    answer = put(cloud, session, f"bytes {arrived}-{len(content) - 1}/{len(content)}", content[arrived:])
    assert answer.status_code == 200
    assert bucket.blob("x").download_as_bytes() == content


def test_a_broken_connection_of_a_simple_upload_makes_nothing(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("before")
    connection = http.client.HTTPConnection(urlsplit(cloud.address).netloc, timeout=60)
    connection.putrequest("POST", f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=x")
    connection.putheader("Content-Length", "1000000")
    connection.endheaders()
    connection.send(b"half of it")
    connection.close()
    assert bucket.blob("x").download_as_bytes() == b"before"


@pytest.mark.parametrize("header", ["crc32c=AAAAAA==", "md5=1B2M2Y8AsgTpgAmY7PhCfg=="])
def test_a_wrong_checksum_at_the_end_makes_nothing(
    cloud: Cloud, bucket: storage.Bucket, session: str, header: str
) -> None:
    answer = put(cloud, session, "bytes 0-4/5", b"12345", **{"X-Goog-Hash": header})
    assert answer.status_code == 400
    assert not bucket.blob("x").exists()


def test_a_wrong_checksum_in_the_resource_makes_nothing(cloud: Cloud, bucket: storage.Bucket) -> None:
    address = cloud.call("POST", path_of(bucket), json={"crc32c": "AAAAAA=="}).headers["Location"]
    assert put(cloud, address, content=b"12345").status_code == 400
    assert not bucket.blob("x").exists()


def test_googles_client_sends_chunk_after_chunk(bucket: storage.Bucket) -> None:
    content = bytes(range(251)) * 40_000
    blob = bucket.blob("x", chunk_size=4 * 2**20)
    blob.upload_from_file(io.BytesIO(content), content_type="text/x")
    assert (blob.size, blob.content_type) == (len(content), "text/x")
    assert blob.md5_hash == base64.b64encode(hashlib.md5(content).digest()).decode()
    assert blob.download_as_bytes() == content


def test_googles_client_uploads_what_has_no_known_size(bucket: storage.Bucket) -> None:
    class Pipe(io.RawIOBase):
        left = 3 * QUANTUM + 7

        def readable(self) -> bool:
            return True

        def tell(self) -> int:
            return 3 * QUANTUM + 7 - self.left

        def read(self, size: int = -1) -> bytes:
            taken = min(self.left, size)
            self.left -= taken
            return b"p" * taken

    blob = bucket.blob("x", chunk_size=QUANTUM)
    blob.upload_from_file(Pipe())
    assert blob.size == 3 * QUANTUM + 7


def test_a_session_made_by_googles_client(cloud: Cloud, bucket: storage.Bucket) -> None:
    address = bucket.blob("x").create_resumable_upload_session(content_type="text/x", size=5)
    assert put(cloud, address, content=b"12345").json()["contentType"] == "text/x"


def test_the_xml_api_writes_and_reads(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/{bucket.name}/folder/x%20y"
    headers = {"Content-Type": "text/x", "x-goog-meta-colour": "blue", "Cache-Control": "no-cache"}
    made = cloud.call("PUT", path, data=b"content", headers=headers)
    md5 = hashlib.md5(b"content").hexdigest()
    assert (made.status_code, made.headers["ETag"]) == (200, f'"{md5}"')
    found = bucket.get_blob("folder/x y")
    assert (found.content_type, found.metadata, found.cache_control) == ("text/x", {"colour": "blue"}, "no-cache")
    read = cloud.call("GET", path, headers={"Range": "bytes=1-3"})
    assert (read.status_code, read.content, read.headers["x-goog-meta-colour"]) == (206, b"ont", "blue")
    head = cloud.call("HEAD", path)
    assert (head.headers["Content-Length"], head.headers["x-goog-generation"]) == ("7", str(found.generation))
    copy = {"x-goog-copy-source": f"{bucket.name}/folder/x%20y"}
    assert cloud.call("PUT", f"/{bucket.name}/copy", headers=copy).status_code == 200
    assert bucket.get_blob("copy").metadata == {"colour": "blue"}
    assert cloud.call("DELETE", path).status_code == 204
    gone = cloud.call("GET", path)
    assert (gone.status_code, "<Code>NoSuchKey</Code>" in gone.text) == (404, True)


def test_the_xml_api_checks_what_it_is_sent(cloud: Cloud, bucket: storage.Bucket) -> None:
    answer = cloud.call("PUT", f"/{bucket.name}/x", data=b"x", headers={"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="})
    assert (answer.status_code, "<Code>BadDigest</Code>" in answer.text) == (400, True)
    answer = cloud.call("GET", f"/{bucket.name}?acl")
    assert (answer.status_code, "<Code>NotImplemented</Code>" in answer.text) == (501, True)
    assert not bucket.blob("x").exists()


def test_buckets_in_the_xml_api(cloud: Cloud, bucket_name: str) -> None:
    assert cloud.call("PUT", f"/{bucket_name}").status_code == 200
    assert cloud.call("HEAD", f"/{bucket_name}").status_code == 200
    assert bucket_name in tree(cloud.call("GET", "/").text)["Name"]
    assert cloud.call("DELETE", f"/{bucket_name}").status_code == 204
    assert cloud.call("HEAD", f"/{bucket_name}").status_code == 404


def test_a_resumable_upload_of_the_xml_api(cloud: Cloud, bucket: storage.Bucket) -> None:
    headers = {"x-goog-resumable": "start", "Content-Type": "text/x"}
    answer = cloud.call("POST", f"/{bucket.name}/a/x", headers=headers)
    assert answer.status_code == 201
    assert put(cloud, answer.headers["Location"], content=b"content").status_code == 200
    assert bucket.get_blob("a/x").content_type == "text/x"


PART = 5 * 2**20


@pytest.fixture
def parted(cloud: Cloud, bucket: storage.Bucket) -> str:
    """The path and query of a new multipart upload of the object x."""
    answer = cloud.call("POST", f"/{bucket.name}/x?uploads", headers={"Content-Type": "text/x", "x-goog-meta-k": "v"})
    found = tree(answer.text)
    assert (found["Bucket"], found["Key"]) == ([bucket.name], ["x"])
    return f"/{bucket.name}/x?uploadId={found['UploadId'][0]}"


def completion(parts: list[tuple[int, str]]) -> str:
    inner = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>" for n, etag in parts)
    return f"<CompleteMultipartUpload>{inner}</CompleteMultipartUpload>"


def test_parts_come_in_any_order(cloud: Cloud, bucket: storage.Bucket, parted: str) -> None:
    etags = {}
    for number, content in ((3, b"c"), (1, b"z" * PART), (1, b"a" * PART), (2, b"b" * PART)):
        etags[number] = cloud.call("PUT", f"{parted}&partNumber={number}", data=content).headers["ETag"]
    listed = tree(cloud.call("GET", parted).text)
    assert (listed["PartNumber"], listed["Size"]) == (["1", "2", "3"], [str(PART), str(PART), "1"])
    assert bucket.name in tree(cloud.call("GET", f"/{bucket.name}?uploads").text)["Bucket"]
    assert not bucket.blob("x").exists()
    answer = cloud.call("POST", parted, data=completion(sorted(etags.items())))
    assert answer.status_code == 200
    found = bucket.get_blob("x")
    assert (found.size, found.content_type, found.metadata) == (2 * PART + 1, "text/x", {"k": "v"})
    assert (found.md5_hash, found.component_count) == (None, 3)
    assert found.download_as_bytes() == b"a" * PART + b"b" * PART + b"c"
    assert cloud.call("GET", parted).status_code == 404


def test_completions_that_cannot_be(cloud: Cloud, bucket: storage.Bucket, parted: str) -> None:
    first = cloud.call("PUT", f"{parted}&partNumber=1", data=b"small").headers["ETag"]
    second = cloud.call("PUT", f"{parted}&partNumber=2", data=b"small too").headers["ETag"]
    for body, code in (
        (completion([(1, first), (2, second)]), "EntityTooSmall"),
        (completion([(2, second), (1, first)]), "InvalidPartOrder"),
        (completion([(1, '"0"')]), "InvalidPart"),
        (completion([(7, first)]), "InvalidPart"),
        ("<broken", "MalformedXML"),
        ("", "MalformedXML"),
    ):
        answer = cloud.call("POST", parted, data=body)
        assert (answer.status_code, f"<Code>{code}</Code>" in answer.text) == (400, True), answer.text
    assert cloud.call("PUT", f"{parted}&partNumber=0", data=b"x").status_code == 400
    wrong = {"x-goog-hash": "crc32c=AAAAAA=="}
    assert cloud.call("PUT", f"{parted}&partNumber=3", data=b"x", headers=wrong).status_code == 400
    assert not bucket.blob("x").exists()


def test_an_aborted_upload_is_gone(cloud: Cloud, bucket: storage.Bucket, parted: str) -> None:
    cloud.call("PUT", f"{parted}&partNumber=1", data=b"x")
    assert cloud.call("DELETE", parted).status_code == 204
    assert cloud.call("PUT", f"{parted}&partNumber=1", data=b"x").status_code == 404
    assert tree(cloud.call("GET", f"/{bucket.name}?uploads").text).get("UploadId") is None
