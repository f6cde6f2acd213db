"""Lists of objects, as Google's pages "Objects: list" (JSON API) and "GET Bucket" (XML API) describe them."""

from xml.etree import ElementTree

import pytest
from google.api_core import exceptions
from google.cloud import storage

from cloud_storage_server import Cloud, running

NAMES = ["a.txt", "b/1.txt", "b/2.csv", "b/c/3.txt", "b/c/d/4.txt", "b0", "c/", "c/5.txt", "ä/6.txt"]


@pytest.fixture(scope="session")
def full(cloud: Cloud) -> storage.Bucket:
    """A bucket that nobody writes to."""
    bucket = cloud.client.create_bucket("bucket-to-be-listed")
    for name in NAMES:
        bucket.blob(name).upload_from_string(name)
    return bucket


def names(found: object) -> list[str]:
    return [blob.name for blob in found]  # type: ignore[attr-defined]


def test_the_order_is_that_of_the_names_bytes(full: storage.Bucket) -> None:
    assert names(full.list_blobs()) == sorted(NAMES, key=str.encode) == NAMES


@pytest.mark.parametrize("prefix", ["b", "b/", "b/c/", "a.txt", "c/", "ä", "nothing", "b/c/d/4.txt"])
def test_prefix(full: storage.Bucket, prefix: str) -> None:
    assert names(full.list_blobs(prefix=prefix)) == [name for name in NAMES if name.startswith(prefix)]


@pytest.mark.parametrize(
    ("prefix", "items", "prefixes"),
    [
        ("", ["a.txt", "b0"], {"b/", "c/", "ä/"}),
        ("b", ["b0"], {"b/"}),
        ("b/", ["b/1.txt", "b/2.csv"], {"b/c/"}),
        ("c/", ["c/", "c/5.txt"], set()),
    ],
)
def test_delimiter(full: storage.Bucket, prefix: str, items: list[str], prefixes: set[str]) -> None:
    found = full.list_blobs(prefix=prefix, delimiter="/")
    assert (names(found), found.prefixes) == (items, prefixes)


def test_a_delimiter_of_any_length(full: storage.Bucket) -> None:
    found = full.list_blobs(delimiter=".t")
    assert names(found) == ["b/2.csv", "b0", "c/"]
    assert found.prefixes == {"a.t", "b/1.t", "b/c/3.t", "b/c/d/4.t", "c/5.t", "ä/6.t"}


def test_an_object_that_is_its_prefix_can_be_listed_as_well(full: storage.Bucket) -> None:
    found = full.list_blobs(delimiter="/", include_trailing_delimiter=True)
    assert names(found) == ["a.txt", "b0", "c/"]
    assert found.prefixes == {"b/", "c/", "ä/"}


def test_offsets(full: storage.Bucket) -> None:
    assert names(full.list_blobs(start_offset="b/2.csv", end_offset="c/")) == [
        "b/2.csv",
        "b/c/3.txt",
        "b/c/d/4.txt",
        "b0",
    ]
    assert names(full.list_blobs(start_offset="zzz")) == ["ä/6.txt"]
    assert names(full.list_blobs(end_offset="a")) == []
    found = full.list_blobs(start_offset="b/c/d", delimiter="/")
    assert (names(found), found.prefixes) == (["b0"], {"b/", "c/", "ä/"})


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("delimiter", [None, "/"])
def test_pages_hold_everything_once(full: storage.Bucket, size: int, delimiter: str | None) -> None:
    listed = full.list_blobs(page_size=size, delimiter=delimiter)
    pages = [names(page) for page in listed.pages]
    whole = full.list_blobs(delimiter=delimiter)
    assert [name for page in pages for name in page] == names(whole)
    assert listed.prefixes == whole.prefixes
    assert all(len(page) <= size for page in pages)


def test_items_and_prefixes_count_together(cloud: Cloud, full: storage.Bucket) -> None:
    page = cloud.call("GET", f"/storage/v1/b/{full.name}/o?maxResults=2&delimiter=/").json()
    assert (len(page["items"]), page["prefixes"]) == (1, ["b/"])
    page = cloud.call(
        "GET", f"/storage/v1/b/{full.name}/o", params={"delimiter": "/", "pageToken": page["nextPageToken"]}
    ).json()
    assert ([item["name"] for item in page["items"]], page["prefixes"]) == (["b0"], ["c/", "ä/"])
    assert "nextPageToken" not in page


def test_max_results(full: storage.Bucket) -> None:
    assert names(full.list_blobs(max_results=3)) == NAMES[:3]
    assert names(full.list_blobs(max_results=100)) == NAMES


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.txt", ["a.txt"]),
        ("**.txt", ["a.txt", "b/1.txt", "b/c/3.txt", "b/c/d/4.txt", "c/5.txt", "ä/6.txt"]),
        ("**/*.txt", ["a.txt", "b/1.txt", "b/c/3.txt", "b/c/d/4.txt", "c/5.txt", "ä/6.txt"]),
        ("b/*", ["b/1.txt", "b/2.csv"]),
        ("b/?.txt", ["b/1.txt"]),
        ("b/[12].*", ["b/1.txt", "b/2.csv"]),
        ("b/[!1].*", ["b/2.csv"]),
        ("{a,b/1}.txt", ["a.txt", "b/1.txt"]),
        ("b/**", ["b/1.txt", "b/2.csv", "b/c/3.txt", "b/c/d/4.txt"]),
        ("a.t\\xt", ["a.txt"]),
    ],
)
def test_globs(full: storage.Bucket, glob: str, expected: list[str]) -> None:
    assert names(full.list_blobs(match_glob=glob)) == expected


@pytest.mark.parametrize(
    "query",
    [
        "pageToken=%25%25",
        "pageToken=nonsense",
        "pageToken=OTk5OTk5OTk5OTk5OTk5OTk5OTk6YQ==",
        "maxResults=many",
        "matchGlob={a",
        "versions=2",
    ],
)
def test_questions_that_cannot_be_answered(cloud: Cloud, full: storage.Bucket, query: str) -> None:
    assert cloud.call("GET", f"/storage/v1/b/{full.name}/o?{query}").status_code == 400


def test_versions_come_in_pages_too(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.patch()
    for content in "123":
        for name in ("x", "y"):
            bucket.blob(name).upload_from_string(content)
    listed = bucket.list_blobs(versions=True, page_size=2)
    found = [(blob.name, blob.download_as_text()) for page in listed.pages for blob in page]
    assert found == [("x", "1"), ("x", "2"), ("x", "3"), ("y", "1"), ("y", "2"), ("y", "3")]


def test_what_is_deleted_between_pages_is_not_listed(bucket: storage.Bucket) -> None:
    for letter in "abcd":
        bucket.blob(letter).upload_from_string("x")
    pages = bucket.list_blobs(page_size=2).pages
    assert names(next(pages)) == ["a", "b"]
    bucket.blob("c").delete()
    assert names(next(pages)) == ["d"]


def test_the_xml_list(cloud: Cloud, full: storage.Bucket) -> None:
    answer = cloud.call("GET", f"/{full.name}?delimiter=/&max-keys=2")
    found = tree(answer.text)
    assert (found["Name"], found["IsTruncated"], found["Key"], found["Prefix"]) == (
        [full.name],
        ["true"],
        ["a.txt"],
        ["", "b/"],
    )
    rest = tree(cloud.call("GET", f"/{full.name}?delimiter=/&marker={found['NextMarker'][0]}").text)
    assert (rest["Key"], rest["IsTruncated"]) == (["b0"], ["false"])
    second = tree(cloud.call("GET", f"/{full.name}?list-type=2&prefix=b/&max-keys=1").text)
    assert (second["Key"], second["KeyCount"]) == (["b/1.txt"], ["1"])
    path = f"/{full.name}?list-type=2&prefix=b/&continuation-token={second['NextContinuationToken'][0]}"
    assert tree(cloud.call("GET", path).text)["Key"] == ["b/2.csv", "b/c/3.txt", "b/c/d/4.txt"]


def tree(text: str) -> dict[str, list[str]]:
    """The texts of an XML document by the names of their elements."""
    found: dict[str, list[str]] = {}
    for element in ElementTree.fromstring(text).iter():
        found.setdefault(element.tag.rpartition("}")[2], []).append(element.text or "")
    return found


def test_a_list_of_a_bucket_that_is_not_there(cloud: Cloud) -> None:
    with pytest.raises(exceptions.NotFound):
        list(cloud.client.list_blobs("bucket-that-is-not-there"))
    assert "<Code>NoSuchBucket</Code>" in cloud.call("GET", "/bucket-that-is-not-there").text


def test_environment_variable(cloud: Cloud, full: storage.Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud.address)
    client = storage.Client.create_anonymous_client()
    assert names(client.list_blobs(full.name)) == NAMES


def test_nothing_is_lost_by_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("restarted")
    with running(root) as cloud:
        bucket = cloud.client.create_bucket("kept-bucket")
        blob = bucket.blob("a//b")
        blob.metadata = {"k": "v"}
        blob.upload_from_string("content", content_type="text/x")
        path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=resumable&name=slow"
        session = cloud.call("POST", path).headers["Location"]
        headers = {"Content-Range": f"bytes 0-{2**18 - 1}/{2**19}"}
        assert cloud.http.put(session, data=b"1" * 2**18, headers=headers, timeout=60).status_code == 308
    with running(root) as cloud:
        found = cloud.client.bucket("kept-bucket").get_blob("a//b")
        assert (found.generation, found.metadata, found.content_type) == (blob.generation, {"k": "v"}, "text/x")
        assert found.download_as_bytes() == b"content"
        session = cloud.address + session[session.index("/upload/") :]
        answer = cloud.http.put(session, headers={"Content-Range": "bytes */*"}, timeout=60)
        assert (answer.status_code, answer.headers["Range"]) == (308, f"bytes=0-{2**18 - 1}")
        headers = {"Content-Range": f"bytes {2**18}-{2**19 - 1}/{2**19}"}
        assert cloud.http.put(session, data=b"2" * 2**18, headers=headers, timeout=60).status_code == 200
        content = cloud.client.bucket("kept-bucket").blob("slow").download_as_bytes()
        assert content == b"1" * 2**18 + b"2" * 2**18
