"""Preconditions, as Google's page "Request preconditions" describes them, and what they are for: no lost update."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from google.api_core import exceptions
from google.cloud import storage

from cloud_storage_server import Cloud, client_of

THREADS = 16


def test_zero_means_not_there_yet(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed, match="pre-conditions"):
        bucket.blob("x").upload_from_string("second", if_generation_match=0)
    assert bucket.blob("x").download_as_bytes() == b"first"
    blob.delete()
    bucket.blob("x").upload_from_string("third", if_generation_match=0)


def test_an_upload_over_a_known_generation(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    known = blob.generation
    blob.upload_from_string("second", if_generation_match=known)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string("third", if_generation_match=known)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string("third", if_generation_not_match=blob.generation)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string("third", if_metageneration_match=9)
    assert bucket.blob("x").download_as_bytes() == b"second"


def test_not_match_zero_means_already_there(bucket: storage.Bucket) -> None:
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("x").upload_from_string("first", if_generation_not_match=0)
    bucket.blob("x").upload_from_string("first")
    bucket.blob("x").upload_from_string("second", if_generation_not_match=0)


def test_a_resumable_upload_has_preconditions(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x", chunk_size=2**18)
    blob.upload_from_string(b"z" * 2**19, if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"y" * 2**19, if_generation_match=0)
    assert bucket.blob("x").download_as_bytes() == b"z" * 2**19


def test_a_resumable_upload_is_checked_once_more_at_its_end(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=resumable&name=x&ifGenerationMatch=0"
    session = cloud.call("POST", path).headers["Location"]
    bucket.blob("x").upload_from_string("quicker")
    assert cloud.http.put(session, data=b"slower", timeout=60).status_code == 412
    assert bucket.blob("x").download_as_bytes() == b"quicker"


def test_conditional_deletes(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    for condition in (
        {"if_generation_match": 1},
        {"if_generation_not_match": blob.generation},
        {"if_metageneration_match": 2},
        {"if_metageneration_not_match": 1},
    ):
        with pytest.raises(exceptions.PreconditionFailed):
            bucket.blob("x").delete(**condition)
    bucket.blob("x").delete(if_generation_match=blob.generation, if_metageneration_match=1)
    with pytest.raises(exceptions.NotFound):
        bucket.blob("x").delete(if_generation_match=blob.generation)


def test_conditional_patches(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    blob.metadata = {"a": "1"}
    blob.patch(if_metageneration_match=1)
    blob.metadata = {"a": "2"}
    with pytest.raises(exceptions.PreconditionFailed):
        blob.patch(if_metageneration_match=1)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.patch(if_generation_match=1)
    assert bucket.get_blob("x").metadata == {"a": "1"}


def test_conditional_reads(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    assert blob.download_as_bytes(if_generation_match=blob.generation) == b"first"
    with pytest.raises(exceptions.PreconditionFailed):
        blob.download_as_bytes(if_generation_match=1)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.reload(if_metageneration_match=9)
    for query in (f"ifGenerationNotMatch={blob.generation}", "ifMetagenerationNotMatch=1"):
        for alt in ("json", "media"):
            answer = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o/x?{query}&alt={alt}")
            assert (answer.status_code, answer.content) == (304, b"")


def test_etags(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    path = f"/storage/v1/b/{bucket.name}/o/x"
    known = blob.etag
    assert cloud.call("GET", path).headers["ETag"] == known
    assert cloud.call("GET", path, headers={"If-None-Match": known}).status_code == 304
    assert cloud.call("GET", f"{path}?alt=media", headers={"If-None-Match": f'"{known}"'}).status_code == 304
    assert cloud.call("GET", path, headers={"If-Match": known}).status_code == 200
    blob.metadata = {"a": "b"}
    blob.patch()
    assert blob.etag != known
    assert cloud.call("GET", path, headers={"If-None-Match": known}).status_code == 200
    assert cloud.call("GET", path, headers={"If-Match": known}).status_code == 412
    assert cloud.call("PATCH", path, json={}, headers={"If-Match": known}).status_code == 412
    assert cloud.call("DELETE", path, headers={"If-Match": known}).status_code == 412
    assert cloud.call("DELETE", path, headers={"If-Match": blob.etag}).status_code == 204


def test_the_source_of_a_copy_has_preconditions_of_its_own(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    for condition in (
        {"if_source_generation_match": 1},
        {"if_source_generation_not_match": blob.generation},
        {"if_source_metageneration_match": 2},
        {"if_source_metageneration_not_match": 1},
        {"if_generation_match": 5},
    ):
        with pytest.raises(exceptions.PreconditionFailed):
            bucket.copy_blob(blob, bucket, "y", **condition)
        with pytest.raises(exceptions.PreconditionFailed):
            bucket.blob("y").rewrite(blob, **condition)
    bucket.copy_blob(blob, bucket, "y", if_source_generation_match=blob.generation, if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.copy_blob(blob, bucket, "y", if_generation_match=0)


def test_the_components_of_a_compose_have_preconditions(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("y").compose([blob], if_source_generation_match=[1])
    bucket.blob("y").compose([blob], if_source_generation_match=[blob.generation], if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("y").compose([blob], if_generation_match=0)


def test_a_precondition_that_is_no_number(cloud: Cloud, bucket: storage.Bucket) -> None:
    answer = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o/x?ifGenerationMatch=new")
    assert (answer.status_code, answer.json()["error"]["errors"][0]["location"]) == (400, "ifGenerationMatch")


def test_the_xml_api_has_preconditions(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/{bucket.name}/x"
    assert cloud.call("PUT", path, data=b"1", headers={"x-goog-if-generation-match": "0"}).status_code == 200
    answer = cloud.call("PUT", path, data=b"2", headers={"x-goog-if-generation-match": "0"})
    assert answer.status_code == 412
    assert "<Code>PreconditionFailed</Code>" in answer.text
    etag = cloud.call("HEAD", path).headers["ETag"]
    assert cloud.call("GET", path, headers={"If-None-Match": etag}).status_code == 304
    assert cloud.call("GET", path, headers={"If-Match": '"other"'}).status_code == 412


def test_of_many_who_create_one_wins(cloud: Cloud, bucket: storage.Bucket) -> None:
    """1,000 small objects, each wanted by two threads of 16."""
    clients = [client_of(cloud.address).bucket(bucket.name) for _ in range(THREADS)]

    def work(number: int) -> int:
        won = 0
        for each in range(125):
            wanted = clients[number].blob(f"{number // 2}/{each}")
            try:
                wanted.upload_from_string(f"{number}", if_generation_match=0)
                won += 1
            except exceptions.PreconditionFailed:
                pass
        return won

    with ThreadPoolExecutor(THREADS) as pool:
        won = list(pool.map(work, range(THREADS)))
    assert sum(won) == 1000
    assert sum(1 for _ in bucket.list_blobs()) == 1000


def test_a_counter_loses_no_count(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("counter").upload_from_string("0")
    clients = [client_of(cloud.address).bucket(bucket.name) for _ in range(THREADS)]

    def count(number: int) -> None:
        done = 0
        while done < 3:
            blob = clients[number].get_blob("counter")
            try:
                value = int(blob.download_as_bytes(if_generation_match=blob.generation))
                clients[number].blob("counter").upload_from_string(str(value + 1), if_generation_match=blob.generation)
                done += 1
            except (exceptions.PreconditionFailed, exceptions.NotFound):
                continue

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(count, range(THREADS)))
    assert bucket.blob("counter").download_as_text() == str(THREADS * 3)
