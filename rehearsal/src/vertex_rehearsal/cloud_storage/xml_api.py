"""The XML API, at `/<bucket>/<object>`: what transfer managers, signed addresses and plain HTTP clients use."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vertex_rehearsal.cloud_storage import checksums, errors, media, resources
from vertex_rehearsal.cloud_storage.json_api import JsonApi, check_encryption, incomplete
from vertex_rehearsal.cloud_storage.listing import MOST_RESULTS, Query
from vertex_rehearsal.cloud_storage.messages import Answer, Request
from vertex_rehearsal.cloud_storage.preconditions import Preconditions
from vertex_rehearsal.cloud_storage.records import Object, rfc3339
from vertex_rehearsal.cloud_storage.store import Source, Store
from vertex_rehearsal.cloud_storage.uploads import Uploads, part_etag

NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
PART_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
"""Google answers multipart uploads in this one, and its own client insists on it."""
NOT_PLAYED = (
    "acl", "cors", "lifecycle", "logging", "versioning", "website", "tagging", "billing", "encryption", "compose",
    "storageClass", "requestPayment", "policy", "retention",
)  # fmt: skip
"""Parts of a bucket or an object that the XML API addresses by a parameter; the JSON API answers some of them."""


class XmlApi:
    """One method a call."""

    def __init__(self, store: Store, uploads: Uploads, json_api: JsonApi, *, project: str) -> None:
        self._store = store
        self._uploads = uploads
        self._json = json_api
        self._project = project

    def answer(self, request: Request) -> Answer:
        """The answer to any request below a bucket's address."""
        try:
            check_encryption(request)
            return self._dispatch(request)
        except errors.Refused as refused:
            return _refusal(refused)

    def _dispatch(self, request: Request) -> Answer:
        bucket, name = request.segments[0], "/".join(request.segments[1:])
        if asked := [part for part in NOT_PLAYED if part in request.query]:
            raise errors.not_played(f"?{asked[0]} in the XML API")
        if not bucket:
            return self._service(request)
        if not name:
            return self._bucket(request, bucket)
        if "uploads" in request.query or "uploadId" in request.query:
            return self._parts(request, bucket, name)
        return self._object(request, bucket, name)

    def _service(self, request: Request) -> Answer:
        _expect(request, "GET", "HEAD")
        root = Element("ListAllMyBucketsResult", xmlns=NAMESPACE)
        found = SubElement(root, "Buckets")
        for bucket in self._store.buckets(request.headers.get("x-goog-project-id", self._project)):
            _fill(SubElement(found, "Bucket"), Name=bucket.name, CreationDate=rfc3339(bucket.created))
        return _document(root)

    def _bucket(self, request: Request, bucket: str) -> Answer:
        match request.method:
            case "GET" if "uploads" in request.query:
                return self._unfinished(bucket)
            case "GET" if "location" in request.query:
                found = resources.of_bucket(self._store.bucket(bucket), request.base)
                root = Element("LocationConstraint", xmlns=NAMESPACE)
                root.text = found["location"]
                return _document(root)
            case "GET":
                return self._list(request, bucket)
            case "HEAD":
                self._store.bucket(bucket)
                return Answer(200, {"Content-Type": "application/xml; charset=UTF-8"})
            case "PUT":
                settings = resources.bucket_settings(_bucket_resource(request))
                project = request.headers.get("x-goog-project-id", self._project)
                self._store.create_bucket(bucket, project=project, settings=settings)
                return Answer(200)
            case "DELETE":
                self._store.delete_bucket(bucket)
                return Answer(204)
        raise _not_allowed()

    def _list(self, request: Request, bucket: str) -> Answer:
        asked = request.query
        second = asked.get("list-type") == "2"
        after = asked.get("start-after" if second else "marker", "")
        token = asked.get("continuation-token", "") if second else ""
        limit = min(MOST_RESULTS, request.number("max-keys") or MOST_RESULTS)
        start = after + "\0" if after and not token else ""
        query = Query(
            bucket, prefix=asked.get("prefix", ""), delimiter=asked.get("delimiter", ""), start=start,
            versions="versions" in asked, limit=limit, page_token=token,
        )  # fmt: skip
        page = self._store.objects(query)
        root = Element("ListBucketResult", xmlns=NAMESPACE)
        is_cut = bool(page.next_token)
        _fill(root, Name=bucket, Prefix=query.prefix, MaxKeys=str(limit), IsTruncated=str(is_cut).lower())
        if query.delimiter:
            _fill(root, Delimiter=query.delimiter)
        if second:
            _fill(root, KeyCount=str(len(page.items) + len(page.prefixes)))
            if is_cut:
                _fill(root, NextContinuationToken=page.next_token)
        else:
            _fill(root, Marker=after)
            if is_cut:
                _fill(root, NextMarker=_last(page.items, page.prefixes))
        for found in page.items:
            _fill(
                SubElement(root, "Contents"), Key=found.name, Generation=str(found.generation),
                MetaGeneration=str(found.metageneration), LastModified=rfc3339(found.updated),
                ETag=f'"{found.xml_etag}"', Size=str(found.size),
            )  # fmt: skip
        for prefix in page.prefixes:
            _fill(SubElement(root, "CommonPrefixes"), Prefix=prefix)
        return _document(root)

    def _object(self, request: Request, bucket: str, name: str) -> Answer:
        generation, preconditions = request.number("generation"), _preconditions(request)
        match request.method:
            case "GET" | "HEAD":
                found, file = self._store.read(bucket, name, generation=generation, preconditions=preconditions)
                return media.download(found, file, headers=request.headers, etag=f'"{found.xml_etag}"')
            case "PUT" if request.query.get("upload_id"):
                return self._resume(request, request.query["upload_id"])
            case "PUT" if "x-goog-copy-source" in request.headers:
                return self._copy(request, bucket, name, preconditions)
            case "PUT":
                staged = self._store.files.stage(request.chunks)
                try:
                    checksums.compare(staged.checksums, _expected(request))
                    settings = resources.object_settings(_resource(request))
                    made = self._store.put(bucket, name, staged, settings=settings, preconditions=preconditions)
                finally:
                    staged.path.unlink(missing_ok=True)
                return Answer(200, _made_headers(made))
            case "POST" if request.headers.get("x-goog-resumable", "").lower() == "start":
                return self._begin(request, bucket, name)
            case "DELETE" if request.query.get("upload_id"):
                self._uploads.cancel(request.query["upload_id"])
                return Answer(204)
            case "DELETE":
                self._store.delete(bucket, name, generation=generation, preconditions=preconditions)
                return Answer(204)
        raise _not_allowed()

    def _copy(self, request: Request, bucket: str, name: str, preconditions: Preconditions) -> Answer:
        other, _, other_name = unquote(request.headers["x-goog-copy-source"]).removeprefix("/").partition("/")
        generation = request.headers.get("x-goog-copy-source-generation", "")
        conditions = _conditions(request, "x-goog-copy-source-if-")
        source = Source(other, other_name, int(generation) if generation.isdigit() else None, conditions)
        replaced = request.headers.get("x-goog-metadata-directive", "COPY").upper() == "REPLACE"
        given = resources.object_settings(_resource(request)) if replaced else {}
        change = (lambda _: given) if replaced else resources.copying_object(_storage_class(request))
        made = self._store.copy(source, bucket, name, change=change, preconditions=preconditions)
        root = Element("CopyObjectResult", xmlns=NAMESPACE)
        _fill(root, LastModified=rfc3339(made.updated), ETag=f'"{made.xml_etag}"')
        return _document(root, headers=_made_headers(made))

    def _begin(self, request: Request, bucket: str, name: str) -> Answer:
        identifier = self._uploads.begin(
            bucket, name, settings=resources.object_settings(_resource(request)),
            preconditions=_preconditions(request), expected=_expected(request), total=None,
        )  # fmt: skip
        path = "/".join(resources.quoted(part) for part in (bucket, *name.split("/")))
        return Answer(201, {"Location": f"{request.base}/{path}?upload_id={identifier}"})

    def _resume(self, request: Request, identifier: str) -> Answer:
        progress = self._json.resumed(request, identifier)
        return Answer(200, _made_headers(progress.finished)) if progress.finished else incomplete(progress)

    def _parts(self, request: Request, bucket: str, name: str) -> Answer:
        identifier = request.query.get("uploadId", "")
        match request.method:
            case "POST" if "uploads" in request.query:
                settings = resources.object_settings(_resource(request))
                identifier = self._uploads.begin_parts(bucket, name, settings=settings)
                root = Element("InitiateMultipartUploadResult", xmlns=PART_NAMESPACE)
                return _document(_fill(root, Bucket=bucket, Key=name, UploadId=identifier))
            case "PUT":
                number = request.number("partNumber") or 0
                part = self._uploads.write_part(
                    identifier, bucket, name, number, request.chunks, expected=_expected(request)
                )
                hashes = f"crc32c={part['crc32c']},md5={part['md5']}"
                return Answer(200, {"ETag": f'"{part_etag(part)}"', "x-goog-hash": hashes})
            case "GET":
                return self._list_parts(request, bucket, name, identifier)
            case "POST":
                chosen = _chosen_parts(request.document())
                made = self._uploads.complete(identifier, bucket, name, chosen, _preconditions(request))
                root = Element("CompleteMultipartUploadResult", xmlns=PART_NAMESPACE)
                location = f"{request.base}/{bucket}/{name}"
                _fill(root, Location=location, Bucket=bucket, Key=name, ETag=f'"{made.xml_etag}"')
                return _document(root, headers=_made_headers(made))
            case "DELETE":
                self._uploads.abort(identifier, bucket, name)
                return Answer(204)
        raise _not_allowed()

    def _list_parts(self, request: Request, bucket: str, name: str, identifier: str) -> Answer:
        after, limit = request.number("part-number-marker") or 0, request.number("max-parts") or 1000
        parts = [part for part in self._uploads.parts(identifier, bucket, name) if part["number"] > after]
        root = Element("ListPartsResult", xmlns=PART_NAMESPACE)
        is_cut = len(parts) > limit
        _fill(root, Bucket=bucket, Key=name, UploadId=identifier, PartNumberMarker=str(after), MaxParts=str(limit))
        _fill(root, IsTruncated=str(is_cut).lower())
        if is_cut:
            _fill(root, NextPartNumberMarker=str(parts[limit - 1]["number"]))
        for part in parts[:limit]:
            _fill(
                SubElement(root, "Part"), PartNumber=str(part["number"]), LastModified=rfc3339(part["updated"]),
                ETag=f'"{part_etag(part)}"', Size=str(part["size"]),
            )  # fmt: skip
        return _document(root)

    def _unfinished(self, bucket: str) -> Answer:
        root = Element("ListMultipartUploadsResult", xmlns=PART_NAMESPACE)
        _fill(root, Bucket=bucket, IsTruncated="false")
        for upload in self._uploads.unfinished_parts(bucket):
            started = rfc3339(upload["created"])
            _fill(SubElement(root, "Upload"), Key=upload["name"], UploadId=upload["id"], Initiated=started)
        return _document(root)


def _refusal(refused: errors.Refused) -> Answer:
    if refused.status == 304:
        return Answer(304)
    root = Element("Error")
    return _document(_fill(root, Code=refused.code, Message=refused.message), status=refused.status)


def _resource(request: Request) -> dict[str, Any]:
    """What a request's headers set of an object."""
    prefix = "x-goog-meta-"
    custom = {name.removeprefix(prefix): value for name, value in request.headers.items() if name.startswith(prefix)}
    named = {"contentType": "content-type"} | {key: header.lower() for key, header in media.HEADERS.items()}
    return {key: request.headers.get(header) for key, header in named.items()} | {"metadata": custom or None}


def _storage_class(request: Request) -> dict[str, Any]:
    return {"storageClass": request.headers.get("x-goog-storage-class")}


def _bucket_resource(request: Request) -> dict[str, Any]:
    """What the body of a bucket's creation sets."""
    body = request.document()
    root = _parsed(body) if body.strip() else Element("CreateBucketConfiguration")
    texts = {_local(element): element.text for element in root}
    return {"location": texts.get("LocationConstraint"), "storageClass": texts.get("StorageClass")}


def _expected(request: Request) -> dict[str, str]:
    found = checksums.from_header(request.headers.get("x-goog-hash", ""))
    return found | ({"md5": request.headers["content-md5"]} if request.headers.get("content-md5") else {})


def _preconditions(request: Request) -> Preconditions:
    return Preconditions.of(_parameters(request, "x-goog-if-"), headers=request.headers)


def _conditions(request: Request, prefix: str) -> Preconditions:
    return Preconditions.of(_parameters(request, prefix))


def _parameters(request: Request, prefix: str) -> Mapping[str, str]:
    """`x-goog-if-generation-match` and the like, under the names of the JSON API."""
    words = ("generation-match", "metageneration-match")
    names = {prefix + word: "if" + word.title().replace("-", "") for word in words}
    return {name: request.headers[header] for header, name in names.items() if header in request.headers}


def _made_headers(made: Object) -> dict[str, str]:
    kept = ("x-goog-generation", "x-goog-metageneration", "x-goog-hash", "x-goog-stored-content-encoding")
    found = media.headers_of(made)
    return {name: found[name] for name in kept} | {"ETag": f'"{made.xml_etag}"'}


def _chosen_parts(body: bytes) -> list[tuple[int, str]]:
    """Number and ETag of each part that a completion names."""
    chosen = []
    for element in _parsed(body):
        texts = {_local(child): (child.text or "").strip() for child in element}
        if not texts.get("PartNumber", "").isdigit() or not texts.get("ETag"):
            raise errors.invalid("A part needs a PartNumber and an ETag.", code="MalformedXML")
        chosen.append((int(texts["PartNumber"]), texts["ETag"]))
    return chosen


def _parsed(body: bytes) -> Element:
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise errors.invalid("The XML must not define entities.", code="MalformedXML")
    try:
        return ElementTree.fromstring(body)  # noqa: S314 - entities are refused above
    except ElementTree.ParseError as error:
        message = "The XML you provided was not well-formed or did not validate against our published schema."
        raise errors.invalid(message, code="MalformedXML") from error


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _last(items: list[Object], prefixes: list[str]) -> str:
    return max([found.name for found in items] + prefixes, key=str.encode)


def _fill(element: Element, **texts: str) -> Element:
    for name, text in texts.items():
        SubElement(element, name).text = "".join(_allowed(text))
    return element


def _allowed(text: str) -> Iterator[str]:
    """XML 1.0 has no way to write control characters; Google leaves a mark in their place too."""
    for character in text:
        yield character if character >= " " or character in "\t\n\r" else "\ufffd"


def _document(root: Element, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    body = b"<?xml version='1.0' encoding='UTF-8'?>" + ElementTree.tostring(root)
    return Answer(status, {"Content-Type": "application/xml; charset=UTF-8"} | dict(headers or {}), body)


def _expect(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise _not_allowed()


def _not_allowed() -> errors.Refused:
    return errors.Refused(405, "methodNotAllowed", "The specified method is not allowed against this resource.")
