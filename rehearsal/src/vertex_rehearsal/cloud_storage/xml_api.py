"""The XML API at `/<bucket>/<object>`: for transfer managers, signed URLs and plain HTTP clients."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vertex_rehearsal.cloud_storage import access_controls, checksums, customer_keys, errors, media, resources
from vertex_rehearsal.cloud_storage.bucket_settings import read_bucket_settings
from vertex_rehearsal.cloud_storage.json_api import JsonApi, build_incomplete_response
from vertex_rehearsal.cloud_storage.listing import MOST_RESULTS, Query
from vertex_rehearsal.cloud_storage.messages import StorageRequest, StorageResponse
from vertex_rehearsal.cloud_storage.object_settings import ACL, ENCRYPTION, make_object_copy, read_object_settings
from vertex_rehearsal.cloud_storage.preconditions import Preconditions
from vertex_rehearsal.cloud_storage.records import ObjectRecord, format_rfc3339
from vertex_rehearsal.cloud_storage.store import SourceObject, Store
from vertex_rehearsal.cloud_storage.uploads import Uploads, part_etag

NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"
PART_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
"""Namespace of responses to multipart uploads, which Google's own client requires."""
NOT_PLAYED = (
    "acl", "cors", "lifecycle", "logging", "versioning", "website", "tagging", "billing", "encryption", "compose",
    "storageClass", "requestPayment", "policy", "retention", "object-lock", "defaultObjectAcl", "notification",
    "delete", "autoclass", "softDelete", "publicAccessPrevention", "customplacementconfig", "rpo", "restore",
)  # fmt: skip
"""Unsupported subresources, addressed by a parameter; some of them are supported in the JSON API."""
NOT_PLAYED_HEADERS = (
    "x-goog-object-lock-", "x-goog-bucket-object-lock-", "x-goog-bypass-governance-retention", "x-goog-encryption-kms-",
    "x-goog-temporary-hold", "x-goog-event-based-hold", "x-goog-contexts", "x-goog-object-contexts", "x-goog-grant-",
)  # fmt: skip
"""Unsupported headers; some of what they ask for is supported in the JSON API."""


class XmlApi:
    """Routes and handles requests of the XML API."""

    def __init__(self, store: Store, uploads: Uploads, json_api: JsonApi, *, project: str) -> None:
        self._store = store
        self._uploads = uploads
        self._json = json_api
        self._project = project

    def handle_request(self, request: StorageRequest) -> StorageResponse:
        """Return the response to a request at any of the XML API's paths."""
        try:
            _refuse_headers(request)
            return self._dispatch(request)
        except errors.StorageError as error:
            return _build_error(error)

    def _dispatch(self, request: StorageRequest) -> StorageResponse:
        bucket, name = request.segments[0], "/".join(request.segments[1:])
        if unsupported := [part for part in NOT_PLAYED if part in request.query]:
            raise errors.unsupported_feature(f"?{unsupported[0]} in the XML API")
        if not bucket:
            return self._list_buckets(request)
        if not name:
            return self._handle_bucket(request, bucket)
        if "uploads" in request.query or "uploadId" in request.query:
            return self._handle_multipart(request, bucket, name)
        return self._handle_object(request, bucket, name)

    def _list_buckets(self, request: StorageRequest) -> StorageResponse:
        _require_method(request, "GET", "HEAD")
        root = Element("ListAllMyBucketsResult", xmlns=NAMESPACE)
        buckets = SubElement(root, "Buckets")
        for bucket in self._store.list_buckets(request.headers.get("x-goog-project-id", self._project)):
            _add_children(SubElement(buckets, "Bucket"), Name=bucket.name, CreationDate=format_rfc3339(bucket.created))
        return _build_document(root)

    def _handle_bucket(self, request: StorageRequest, bucket: str) -> StorageResponse:
        match request.method:
            case "GET" if "uploads" in request.query:
                return self._list_uploads(bucket)
            case "GET" if "location" in request.query:
                resource = resources.build_bucket_resource(self._store.bucket(bucket), request.base)
                root = Element("LocationConstraint", xmlns=NAMESPACE)
                root.text = resource["location"]
                return _build_document(root)
            case "GET":
                return self._list_objects(request, bucket)
            case "POST":
                raise errors.unsupported_feature("Upload by an HTML form (POST b/BUCKET)")
            case "HEAD":
                self._store.bucket(bucket)
                return StorageResponse(200, {"Content-Type": "application/xml; charset=UTF-8"})
            case "PUT":
                project = request.headers.get("x-goog-project-id", self._project)
                settings = read_bucket_settings(_read_bucket_resource(request)) | _read_bucket_acl(request, project)
                self._store.create_bucket(bucket, project=project, settings=settings)
                return StorageResponse(200)
            case "DELETE":
                self._store.delete_bucket(bucket)
                return StorageResponse(204)
        raise _method_error()

    def _list_objects(self, request: StorageRequest, bucket: str) -> StorageResponse:
        parameters = request.query
        is_version_2 = parameters.get("list-type") == "2"
        after = parameters.get("start-after" if is_version_2 else "marker", "")
        token = parameters.get("continuation-token", "") if is_version_2 else ""
        limit = min(MOST_RESULTS, request.read_number("max-keys") or MOST_RESULTS)
        start = after + "\0" if after and not token else ""
        query = Query(
            bucket,
            prefix=parameters.get("prefix", ""),
            delimiter=parameters.get("delimiter", ""),
            start=start,
            versions="versions" in parameters,
            limit=limit,
            page_token=token,
        )
        page = self._store.list_objects(query)
        root = Element("ListBucketResult", xmlns=NAMESPACE)
        is_truncated = bool(page.next_token)
        _add_children(root, Name=bucket, Prefix=query.prefix, MaxKeys=str(limit), IsTruncated=str(is_truncated).lower())
        if query.delimiter:
            _add_children(root, Delimiter=query.delimiter)
        if is_version_2:
            _add_children(root, KeyCount=str(len(page.items) + len(page.prefixes)))
            if is_truncated:
                _add_children(root, NextContinuationToken=page.next_token)
        else:
            _add_children(root, Marker=after)
            if is_truncated:
                _add_children(root, NextMarker=_last_name(page.items, page.prefixes))
        for record in page.items:
            _add_children(
                SubElement(root, "Contents"),
                Key=record.name,
                Generation=str(record.generation),
                MetaGeneration=str(record.metageneration),
                LastModified=format_rfc3339(record.updated),
                ETag=f'"{record.xml_etag}"',
                Size=str(record.size),
            )
        for prefix in page.prefixes:
            _add_children(SubElement(root, "CommonPrefixes"), Prefix=prefix)
        return _build_document(root)

    def _handle_object(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        generation, preconditions = request.read_number("generation"), _read_preconditions(request)
        match request.method:
            case "GET" | "HEAD":
                record, file = self._store.read(bucket, name, generation=generation, preconditions=preconditions)
                return media.build_download(record, file, headers=request.headers, etag=f'"{record.xml_etag}"')
            case "PUT" if request.query.get("upload_id"):
                return self._resume_upload(request, request.query["upload_id"])
            case "PUT" if "x-goog-copy-source" in request.headers:
                return self._copy_object(request, bucket, name, preconditions)
            case "PUT":
                staged = self._store.files.stage_content(request.chunks)
                try:
                    checksums.verify_checksums(staged.checksums, _read_checksums(request))
                    settings = self._read_settings(request, bucket)
                    record = self._store.put(bucket, name, staged, settings=settings, preconditions=preconditions)
                finally:
                    staged.path.unlink(missing_ok=True)
                return StorageResponse(200, _object_headers(record))
            case "POST" if request.headers.get("x-goog-resumable", "").lower() == "start":
                return self._begin_upload(request, bucket, name)
            case "DELETE" if request.query.get("upload_id"):
                self._uploads.cancel(request.query["upload_id"])
                return StorageResponse(204)
            case "DELETE":
                self._store.delete(bucket, name, generation=generation, preconditions=preconditions)
                return StorageResponse(204)
        raise _method_error()

    def _copy_object(
        self, request: StorageRequest, bucket: str, name: str, preconditions: Preconditions
    ) -> StorageResponse:
        other, _, other_name = unquote(request.headers["x-goog-copy-source"]).removeprefix("/").partition("/")
        generation = request.headers.get("x-goog-copy-source-generation", "")
        conditions = _read_conditions(request, "x-goog-copy-source-if-")
        key = customer_keys.read_customer_key(request.headers, customer_keys.SOURCE_PREFIX)
        source = SourceObject(other, other_name, int(generation) if generation.isdigit() else None, conditions, key)
        replaces = request.headers.get("x-goog-metadata-directive", "COPY").upper() == "REPLACE"
        request_settings = self._read_settings(request, bucket)
        added = {key: request_settings[key] for key in (ACL, ENCRYPTION) if key in request_settings}
        copy_settings = make_object_copy(_read_storage_class(request))

        def change(settings: dict[str, Any]) -> dict[str, Any]:
            return request_settings if replaces else copy_settings(settings) | added

        record = self._store.copy(source, bucket, name, change=change, preconditions=preconditions)
        root = Element("CopyObjectResult", xmlns=NAMESPACE)
        _add_children(root, LastModified=format_rfc3339(record.updated), ETag=f'"{record.xml_etag}"')
        return _build_document(root, headers=_object_headers(record))

    def _begin_upload(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        identifier = self._uploads.begin_resumable(
            bucket,
            name,
            settings=self._read_settings(request, bucket),
            preconditions=_read_preconditions(request),
            expected=_read_checksums(request),
            total=None,
        )
        path = "/".join(resources.quote_name(part) for part in (bucket, *name.split("/")))
        return StorageResponse(201, {"Location": f"{request.base}/{path}?upload_id={identifier}"})

    def _resume_upload(self, request: StorageRequest, identifier: str) -> StorageResponse:
        progress = self._json.write_upload(request, identifier)
        return (
            StorageResponse(200, _object_headers(progress.finished))
            if progress.finished
            else build_incomplete_response(progress)
        )

    def _handle_multipart(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        identifier = request.query.get("uploadId", "")
        match request.method:
            case "POST" if "uploads" in request.query:
                settings = self._read_settings(request, bucket)
                identifier = self._uploads.begin_parts(bucket, name, settings=settings)
                root = Element("InitiateMultipartUploadResult", xmlns=PART_NAMESPACE)
                return _build_document(_add_children(root, Bucket=bucket, Key=name, UploadId=identifier))
            case "PUT":
                number = request.read_number("partNumber") or 0
                part = self._uploads.write_part(
                    identifier, bucket, name, number, request.chunks, expected=_read_checksums(request)
                )
                hashes = f"crc32c={part['crc32c']},md5={part['md5']}"
                return StorageResponse(200, {"ETag": f'"{part_etag(part)}"', "x-goog-hash": hashes})
            case "GET":
                return self._list_parts(request, bucket, name, identifier)
            case "POST":
                chosen = _parse_chosen_parts(request.plain_document())
                record = self._uploads.complete(identifier, bucket, name, chosen, _read_preconditions(request))
                root = Element("CompleteMultipartUploadResult", xmlns=PART_NAMESPACE)
                location = f"{request.base}/{bucket}/{name}"
                _add_children(root, Location=location, Bucket=bucket, Key=name, ETag=f'"{record.xml_etag}"')
                return _build_document(root, headers=_object_headers(record))
            case "DELETE":
                self._uploads.abort(identifier, bucket, name)
                return StorageResponse(204)
        raise _method_error()

    def _read_settings(self, request: StorageRequest, bucket: str) -> dict[str, Any]:
        """Return the settings of an object in a request's headers, with its key and access control list."""
        settings = read_object_settings(_read_resource(request))
        settings |= customer_keys.build_encryption(customer_keys.read_customer_key(request.headers))
        if predefined := _read_predefined_acl(request):
            bucket_record = self._store.bucket(bucket)
            entries = access_controls.expand_object_acl(predefined, bucket_record.project, location="x-goog-acl")
            settings[ACL] = access_controls.check_public(bucket_record, entries)
        return settings

    def _list_parts(self, request: StorageRequest, bucket: str, name: str, identifier: str) -> StorageResponse:
        after, limit = request.read_number("part-number-marker") or 0, request.read_number("max-parts") or 1000
        parts = [part for part in self._uploads.list_parts(identifier, bucket, name) if part["number"] > after]
        root = Element("ListPartsResult", xmlns=PART_NAMESPACE)
        is_truncated = len(parts) > limit
        _add_children(
            root, Bucket=bucket, Key=name, UploadId=identifier, PartNumberMarker=str(after), MaxParts=str(limit)
        )
        _add_children(root, IsTruncated=str(is_truncated).lower())
        if is_truncated:
            _add_children(root, NextPartNumberMarker=str(parts[limit - 1]["number"]))
        for part in parts[:limit]:
            _add_children(
                SubElement(root, "Part"),
                PartNumber=str(part["number"]),
                LastModified=format_rfc3339(part["updated"]),
                ETag=f'"{part_etag(part)}"',
                Size=str(part["size"]),
            )
        return _build_document(root)

    def _list_uploads(self, bucket: str) -> StorageResponse:
        root = Element("ListMultipartUploadsResult", xmlns=PART_NAMESPACE)
        _add_children(root, Bucket=bucket, IsTruncated="false")
        for upload in self._uploads.list_multipart_uploads(bucket):
            started = format_rfc3339(upload["created"])
            _add_children(SubElement(root, "Upload"), Key=upload["name"], UploadId=upload["id"], Initiated=started)
        return _build_document(root)


def _build_error(error: errors.StorageError) -> StorageResponse:
    if error.status == 304:
        return StorageResponse(304)
    root = Element("Error")
    return _build_document(_add_children(root, Code=error.code, Message=error.message), status=error.status)


def _read_resource(request: StorageRequest) -> dict[str, Any]:
    """Return the fields of an object in a request's headers."""
    prefix = "x-goog-meta-"
    custom = {name.removeprefix(prefix): value for name, value in request.headers.items() if name.startswith(prefix)}
    named = {"contentType": "content-type"} | {key: header.lower() for key, header in media.HEADERS.items()}
    return {key: request.headers.get(header) for key, header in named.items()} | {"metadata": custom or None}


def _refuse_headers(request: StorageRequest) -> None:
    """Refuse headers that are not supported."""
    for name in request.headers:
        if name.startswith(NOT_PLAYED_HEADERS):
            raise errors.unsupported_feature(f"{name} in the XML API")


def _read_predefined_acl(request: StorageRequest) -> str:
    """Return a header's predefined list by its name in the JSON API: public-read is publicRead."""
    first, *rest = request.headers.get("x-goog-acl", "").split("-")
    return first + "".join(word.capitalize() for word in rest)


def _read_bucket_acl(request: StorageRequest, project: str) -> dict[str, Any]:
    predefined = _read_predefined_acl(request)
    return {ACL: access_controls.expand_bucket_acl(predefined, project, location="x-goog-acl")} if predefined else {}


def _read_storage_class(request: StorageRequest) -> dict[str, Any]:
    return {"storageClass": request.headers.get("x-goog-storage-class")}


def _read_bucket_resource(request: StorageRequest) -> dict[str, Any]:
    """Return the settings in the body of a bucket's creation."""
    body = request.document()
    root = _parse_xml(body) if body.strip() else Element("CreateBucketConfiguration")
    texts = {_local_name(element): element.text for element in root}
    if unknown := sorted(set(texts) - {"LocationConstraint", "StorageClass"}):
        raise errors.unsupported_feature(f"{unknown[0]} in the XML API")
    return {"location": texts.get("LocationConstraint"), "storageClass": texts.get("StorageClass")}


def _read_checksums(request: StorageRequest) -> dict[str, str]:
    hashes = checksums.parse_hash_header(request.headers.get("x-goog-hash", ""))
    return hashes | ({"md5": request.headers["content-md5"]} if request.headers.get("content-md5") else {})


def _read_preconditions(request: StorageRequest) -> Preconditions:
    return Preconditions.of(_map_condition_headers(request, "x-goog-if-"), headers=request.headers)


def _read_conditions(request: StorageRequest, prefix: str) -> Preconditions:
    return Preconditions.of(_map_condition_headers(request, prefix))


def _map_condition_headers(request: StorageRequest, prefix: str) -> Mapping[str, str]:
    """Return precondition headers (`x-goog-if-generation-match`) under the JSON API's names."""
    words = ("generation-match", "metageneration-match")
    names = {prefix + word: "if" + word.title().replace("-", "") for word in words}
    return {name: request.headers[header] for header, name in names.items() if header in request.headers}


def _object_headers(record: ObjectRecord) -> dict[str, str]:
    names = ("x-goog-generation", "x-goog-metageneration", "x-goog-hash", "x-goog-stored-content-encoding")
    headers = media.build_object_headers(record)
    return {name: headers[name] for name in names} | {"ETag": f'"{record.xml_etag}"'}


def _parse_chosen_parts(body: bytes) -> list[tuple[int, str]]:
    """Return number and ETag of each part that a completion names."""
    chosen = []
    for element in _parse_xml(body):
        texts = {_local_name(child): (child.text or "").strip() for child in element}
        if not texts.get("PartNumber", "").isdigit() or not texts.get("ETag"):
            raise errors.invalid_request("A part needs a PartNumber and an ETag.", code="MalformedXML")
        chosen.append((int(texts["PartNumber"]), texts["ETag"]))
    return chosen


def _parse_xml(body: bytes) -> Element:
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise errors.invalid_request("The XML must not define entities.", code="MalformedXML")
    try:
        return ElementTree.fromstring(body)  # noqa: S314 - entities are refused above
    except ElementTree.ParseError as error:
        message = "The XML you provided was not well-formed or did not validate against our published schema."
        raise errors.invalid_request(message, code="MalformedXML") from error


def _local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _last_name(items: list[ObjectRecord], prefixes: list[str]) -> str:
    return max([record.name for record in items] + prefixes, key=str.encode)


def _add_children(element: Element, **texts: str) -> Element:
    for name, text in texts.items():
        SubElement(element, name).text = "".join(_replace_control_chars(text))
    return element


def _replace_control_chars(text: str) -> Iterator[str]:
    """Replace control characters, which XML 1.0 cannot represent, as Google does."""
    for character in text:
        yield character if character >= " " or character in "\t\n\r" else "\ufffd"


def _build_document(root: Element, *, status: int = 200, headers: Mapping[str, str] | None = None) -> StorageResponse:
    body = b"<?xml version='1.0' encoding='UTF-8'?>" + ElementTree.tostring(root)
    return StorageResponse(status, {"Content-Type": "application/xml; charset=UTF-8"} | dict(headers or {}), body)


def _require_method(request: StorageRequest, *methods: str) -> None:
    if request.method not in methods:
        raise _method_error()


def _method_error() -> errors.StorageError:
    return errors.StorageError(405, "methodNotAllowed", "The specified method is not allowed against this resource.")
