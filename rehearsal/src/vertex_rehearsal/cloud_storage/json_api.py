"""The JSON API: `/storage/v1`, `/upload/storage/v1`, `/download/storage/v1` and their batches."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import checksums, errors, media, mime, policies, resources
from vertex_rehearsal.cloud_storage.listing import MOST_RESULTS, Query
from vertex_rehearsal.cloud_storage.messages import (
    StorageRequest,
    StorageResponse,
    build_json_error,
    build_json_response,
)
from vertex_rehearsal.cloud_storage.preconditions import ANY, Preconditions
from vertex_rehearsal.cloud_storage.records import ObjectRecord, etag
from vertex_rehearsal.cloud_storage.store import SourceObject, Store
from vertex_rehearsal.cloud_storage.uploads import Span, UploadProgress, Uploads

MOST_CALLS = 100
"""In one batch."""

NOT_PLAYED = (
    "acl", "defaultObjectAcl", "iam", "notificationConfigs", "lockRetentionPolicy", "folders", "managedFolders",
    "anywhereCaches", "relocate", "operations", "restore",
)  # fmt: skip
"""What buckets and objects have beside themselves, and not here."""

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+|\*)|\*)/(\d+|\*)")


class JsonApi:
    """One method a call."""

    def __init__(self, store: Store, uploads: Uploads) -> None:
        self._store = store
        self._uploads = uploads

    def handle_request(self, request: StorageRequest) -> StorageResponse:
        """The answer to any request below one of the JSON API's addresses."""
        try:
            check_encryption(request)
            return self._dispatch(request)
        except errors.StorageError as refused:
            if request.query.get("alt") == "media" and refused.status != 304:
                text = refused.message.encode()  # as Google answers who asked for content, not for a document
                return StorageResponse(refused.status, {"Content-Type": "text/html; charset=UTF-8"}, text)
            return build_json_error(refused)

    def _dispatch(self, request: StorageRequest) -> StorageResponse:
        match request.segments:
            case ("batch", "storage", "v1", *_) if request.method == "POST":
                return self._handle_batch(request)
            case (*_, "upload", "storage", "v1", "b", bucket, "o"):
                return self._handle_upload(request, bucket)
            case ("download", "storage", "v1", "b", bucket, "o", name) if request.method in ("GET", "HEAD"):
                return self._download_object(request, bucket, name)
            case ("storage", "v1", "b", *rest):
                return self._dispatch_bucket(request, rest)
            case ("storage", "v1", "projects", _, "serviceAccount") if request.method == "GET":
                email = f"service-{resources.PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
                return build_json_response({"kind": "storage#serviceAccount", "email_address": email})
            case ("storage", "v1", "projects", _, what, *_):
                raise errors.unsupported_feature(what)
        raise errors.StorageError(404, "notFound", "Not Found")

    def _dispatch_bucket(self, request: StorageRequest, rest: list[str]) -> StorageResponse:
        match rest:
            case []:
                return self._handle_buckets(request)
            case [bucket]:
                return self._handle_bucket(request, bucket)
            case [bucket, "o"]:
                return self._list_objects(request, bucket)
            case [bucket, "o", name]:
                return self._handle_object(request, bucket, name)
            case [bucket, "o", name, "compose"] if request.method == "POST":
                return self._compose_object(request, bucket, name)
            case [bucket, "o", name, ("copyTo" | "rewriteTo") as verb, "b", other, "o", new] if (
                request.method == "POST"
            ):
                return self._copy_object(request, verb, SourceObject(bucket, name), (other, new))
            case [bucket, "o", name, "moveTo", "o", new] if request.method == "POST":
                source = SourceObject(bucket, name, None, Preconditions.of(request.query, prefix="ifSource"))
                made = self._store.move(source, new, preconditions=Preconditions.of(request.query))
                return self._render_object(request, made)
            case [bucket, *around]:
                return self._handle_subresource(request, bucket, around)
        raise errors.StorageError(404, "notFound", "Not Found")

    def _handle_subresource(self, request: StorageRequest, bucket: str, rest: list[str]) -> StorageResponse:
        match request.method, rest:
            case "GET", ["iam"]:
                return build_json_response(policies.build_policy(self._store.bucket(bucket)))
            case "PUT", ["iam"]:
                policy = resources.parse_body(request.document())
                unchanged = Preconditions(etags_match=(str(policy["etag"]),)) if policy.get("etag") else ANY
                changed = self._store.change_bucket(bucket, policies.make_policy_change(policy), unchanged)
                return build_json_response(policies.build_policy(changed))
            case "GET", ["iam", "testPermissions"]:
                self._store.bucket(bucket)
                asked = [value for key, value in request.repeated if key == "permissions"]
                if not asked:
                    raise errors.missing_parameter("permissions")
                return build_json_response({"kind": "storage#testIamPermissionsResponse", "permissions": asked})
            case "GET", ["storageLayout"]:
                found = resources.build_bucket_resource(self._store.bucket(bucket), request.base)
                layout = {key: found[key] for key in ("location", "locationType")}
                layout |= {"kind": "storage#storageLayout", "bucket": bucket}
                return build_json_response(layout | {"hierarchicalNamespace": {"enabled": False}})
            case _, [what, *_] if what in NOT_PLAYED:
                raise errors.unsupported_feature(f"{request.method} b/{bucket}/{what}")
            case _, ["o", name, what, *_] if what in NOT_PLAYED:
                raise errors.unsupported_feature(f"{request.method} b/{bucket}/o/{name}/{what}")
        raise errors.StorageError(404, "notFound", "Not Found")

    def _handle_buckets(self, request: StorageRequest) -> StorageResponse:
        project = request.query.get("project")
        if not project:
            raise errors.missing_parameter("project")
        if request.method == "POST":
            resource = resources.parse_body(request.document())
            name = resource.get("name")
            if not isinstance(name, str) or not name:
                raise errors.missing_parameter("name")
            settings = resources.bucket_settings(resource)
            made = self._store.create_bucket(name, project=project, settings=settings)
            return self._render_resource(request, resources.build_bucket_resource(made, request.base))
        _require_method(request, "GET")
        limit = min(request.read_number("maxResults") or MOST_RESULTS, MOST_RESULTS)
        after = request.query.get("pageToken", "")
        prefix = request.query.get("prefix", "")
        found = self._store.list_buckets(project, prefix=prefix, after=after, limit=limit + 1)
        document: dict[str, Any] = {"kind": "storage#buckets"}
        if found:
            document["items"] = [resources.build_bucket_resource(each, request.base) for each in found[:limit]]
        if len(found) > limit:
            document["nextPageToken"] = found[limit - 1].name
        return self._render_resource(request, document)

    def _handle_bucket(self, request: StorageRequest, bucket: str) -> StorageResponse:
        preconditions = _read_preconditions(request)
        match request.method:
            case "GET" | "HEAD":
                found = self._store.bucket(bucket, preconditions)
            case "PATCH":
                change = resources.make_bucket_patch(resources.parse_body(request.document()))
                found = self._store.change_bucket(bucket, change, preconditions)
            case "PUT":
                change = resources.make_bucket_update(resources.parse_body(request.document()))
                found = self._store.change_bucket(bucket, change, preconditions)
            case "DELETE":
                self._store.delete_bucket(bucket, preconditions)
                return StorageResponse(204)
            case _:
                raise _method_error(request)
        return self._render_resource(request, resources.build_bucket_resource(found, request.base))

    def _list_objects(self, request: StorageRequest, bucket: str) -> StorageResponse:
        _require_method(request, "GET")
        if request.read_flag("softDeleted"):
            raise errors.unsupported_feature("softDeleted")
        limit = request.read_number("maxResults")
        query = Query(
            bucket,
            prefix=request.query.get("prefix", ""),
            delimiter=request.query.get("delimiter", ""),
            start=request.query.get("startOffset", ""),
            end=request.query.get("endOffset", ""),
            glob=request.query.get("matchGlob", ""),
            versions=request.read_flag("versions"),
            include_trailing_delimiter=request.read_flag("includeTrailingDelimiter"),
            limit=limit or MOST_RESULTS,
            page_token=request.query.get("pageToken", ""),
        )
        page = self._store.list_objects(query)
        document: dict[str, Any] = {"kind": "storage#objects"}
        if page.prefixes:
            document["prefixes"] = page.prefixes
        if page.items:
            document["items"] = [resources.build_object_resource(found, request.base) for found in page.items]
        if page.next_token:
            document["nextPageToken"] = page.next_token
        return self._render_resource(request, document)

    def _handle_object(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        generation, preconditions = request.read_number("generation"), _read_preconditions(request)
        match request.method:
            case "GET" | "HEAD" if request.query.get("alt") == "media":
                return self._download_object(request, bucket, name)
            case "GET" | "HEAD":
                found = self._store.get(bucket, name, generation=generation, preconditions=preconditions)
            case "PATCH" | "PUT":
                resource = resources.parse_body(request.document())
                kind = resources.make_object_patch if request.method == "PATCH" else resources.make_object_update
                found = self._store.change(
                    bucket, name, kind(resource), generation=generation, preconditions=preconditions
                )
            case "DELETE":
                self._store.delete(bucket, name, generation=generation, preconditions=preconditions)
                return StorageResponse(204)
            case _:
                raise _method_error(request)
        return self._render_object(request, found)

    def _download_object(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        if request.query.get("alt", "media") != "media":
            return self._handle_object(request, bucket, name)
        found, file = self._store.read(
            bucket, name, generation=request.read_number("generation"), preconditions=_read_preconditions(request)
        )
        return media.build_download(
            found, file, headers=request.headers, etag=etag(found.generation, found.metageneration)
        )

    def _compose_object(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        document = resources.parse_body(request.document())
        sources = document.get("sourceObjects")
        if not isinstance(sources, list) or not all(isinstance(source, dict) for source in sources):
            raise errors.invalid_request("You must provide at least one source component.", location="sourceObjects")
        settings = resources.object_settings(document.get("destination") or {})
        preconditions = Preconditions.of(request.query)
        chosen = [_parse_component(bucket, source) for source in sources]
        made = self._store.compose(bucket, name, chosen, settings=settings, preconditions=preconditions)
        return self._render_object(request, made)

    def _copy_object(
        self, request: StorageRequest, verb: str, source: SourceObject, target: tuple[str, str]
    ) -> StorageResponse:
        source_preconditions = Preconditions.of(request.query, prefix="ifSource")
        source = SourceObject(source.bucket, source.name, request.read_number("sourceGeneration"), source_preconditions)
        change = resources.make_object_copy(resources.parse_body(request.document()))
        made = self._store.copy(source, *target, change=change, preconditions=Preconditions.of(request.query))
        resource = resources.build_object_resource(made, request.base)
        if verb == "copyTo":
            return self._render_resource(request, resource)
        size = str(made.size)
        document = {"kind": "storage#rewriteResponse", "totalBytesRewritten": size, "objectSize": size, "done": True}
        return self._render_resource(request, document | {"resource": resource})

    def _handle_upload(self, request: StorageRequest, bucket: str) -> StorageResponse:
        if request.query.get("upload_id"):
            return self._resume_upload(request, request.query["upload_id"])
        if request.method not in ("POST", "PUT"):
            raise _method_error(request)
        self._store.bucket(bucket)
        match request.query.get("uploadType"):
            case "media":
                return self._upload_media(request, bucket)
            case "multipart":
                return self._upload_multipart(request, bucket)
            case "resumable":
                return self._begin_upload(request, bucket)
            case None:
                raise errors.missing_parameter("uploadType")
            case other:
                raise errors.invalid_request(f"Invalid upload type: {other}", location="uploadType")

    def _upload_media(self, request: StorageRequest, bucket: str) -> StorageResponse:
        resource = {"contentType": request.headers.get("content-type")}
        resource["contentEncoding"] = request.headers.get("content-encoding")
        return self._insert_object(request, bucket, resource, request.chunks)

    def _upload_multipart(self, request: StorageRequest, bucket: str) -> StorageResponse:
        boundary = mime.parse_boundary(request.headers.get("content-type", ""))
        head, headers, content = mime.stream_parts(request.content(), boundary)
        resource = resources.parse_body(head.content)
        resource.setdefault("contentType", headers.get("content-type"))
        return self._insert_object(request, bucket, resource, content)

    def _insert_object(
        self, request: StorageRequest, bucket: str, resource: dict[str, Any], chunks: Iterable[bytes]
    ) -> StorageResponse:
        name, settings = _read_name_and_settings(request, resource)
        preconditions = _read_preconditions(request)
        staged = self._store.files.stage_content(chunks)
        try:
            checksums.verify_checksums(staged.checksums, _read_checksums(request, resource))
            made = self._store.put(bucket, name, staged, settings=settings, preconditions=preconditions)
        finally:
            staged.path.unlink(missing_ok=True)
        return self._render_object(request, made)

    def _begin_upload(self, request: StorageRequest, bucket: str) -> StorageResponse:
        resource = resources.parse_body(request.document())
        resource.setdefault("contentType", request.headers.get("x-upload-content-type"))
        name, settings = _read_name_and_settings(request, resource)
        total = request.headers.get("x-upload-content-length", "")
        identifier = self._uploads.begin_resumable(
            bucket,
            name,
            settings=settings,
            preconditions=_read_preconditions(request),
            expected=_read_checksums(request, resource),
            total=int(total) if total.isdigit() else None,
        )
        location = f"{request.base}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={identifier}"
        return StorageResponse(200, {"Location": location, "X-GUploader-UploadID": identifier})

    def _resume_upload(self, request: StorageRequest, identifier: str) -> StorageResponse:
        if request.method == "DELETE":
            self._uploads.cancel(identifier)
            return StorageResponse(499)
        if request.method not in ("PUT", "POST"):
            raise _method_error(request)
        progress = self.write_upload(request, identifier)
        return (
            self._render_object(request, progress.finished)
            if progress.finished
            else build_incomplete_response(progress)
        )

    def write_upload(self, request: StorageRequest, identifier: str) -> UploadProgress:
        """How far an upload has come with what a request brings."""
        span = parse_content_range(request.headers.get("content-range", ""))
        expected = checksums.parse_hash_header(request.headers.get("x-goog-hash", ""))
        return self._uploads.write(identifier, span, request.chunks, expected=expected)

    def _handle_batch(self, request: StorageRequest) -> StorageResponse:
        boundary = mime.parse_boundary(request.headers.get("content-type", ""))
        parts = mime.parse_parts(request.document(), boundary)
        if len(parts) > MOST_CALLS:
            raise errors.invalid_request(f"The batch request has {len(parts)} calls; at most {MOST_CALLS} are allowed.")
        mark = "batch_of_answers"
        answers = [_encode_part(part, self._answer_call(request, part)) for part in parts]
        body = b"".join(f"--{mark}\r\n".encode() + answer + b"\r\n" for answer in answers) + f"--{mark}--\r\n".encode()
        return StorageResponse(200, {"Content-Type": f"multipart/mixed; boundary={mark}"}, body)

    def _answer_call(self, request: StorageRequest, part: mime.Part) -> StorageResponse:
        try:
            call = _parse_call(request, part)
            if call.segments[:2] != ("storage", "v1") or call.query.get("alt") == "media":
                raise errors.invalid_request("Uploads and downloads are not possible in a batch.")
        except errors.StorageError as refused:
            return build_json_error(refused)
        return self.handle_request(call)

    def _render_object(self, request: StorageRequest, found: ObjectRecord) -> StorageResponse:
        return self._render_resource(request, resources.build_object_resource(found, request.base))

    def _render_resource(self, request: StorageRequest, resource: dict[str, Any]) -> StorageResponse:
        """A resource, or the fields of it that were asked for."""
        headers = {"ETag": resource["etag"]} if "etag" in resource else {}
        return build_json_response(resources.select_fields(resource, request.query.get("fields", "")), headers=headers)


def check_encryption(request: StorageRequest) -> None:
    """Refuse keys of the user's own: nothing is encrypted here."""
    if "kmsKeyName" in request.query or any(name.startswith("x-goog-encryption-") for name in request.headers):
        raise errors.unsupported_feature("Encryption with your own keys")


def parse_content_range(header: str) -> Span:
    """What a Content-Range says: `bytes 0-9/20`, `bytes 0-9/*`, `bytes */20`, `bytes */*`, or nothing at all."""
    if not header:
        return Span(ends=True)
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if not match:
        raise errors.invalid_request(f"Failed to parse Content-Range header: {header}", location="Content-Range")
    first, last, total = match.groups()
    whole = None if total == "*" else int(total)
    if first is None:
        return Span(None, total=whole)
    if last == "*":
        return Span(int(first), total=whole, ends=True)
    if int(last) < int(first) or (whole is not None and int(last) >= whole):
        raise errors.invalid_request(f"Invalid Content-Range header: {header}", location="Content-Range")
    return Span(int(first), int(last), whole)


def build_incomplete_response(progress: UploadProgress) -> StorageResponse:
    """What an upload that is not finished is answered with."""
    return StorageResponse(308, {"Range": f"bytes=0-{progress.persisted - 1}"} if progress.persisted else {})


def _read_preconditions(request: StorageRequest) -> Preconditions:
    return Preconditions.of(request.query, headers=request.headers)


def _read_name_and_settings(request: StorageRequest, resource: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a new object, and its settings."""
    name = request.query.get("name") or resource.get("name")
    if not isinstance(name, str) or not name:
        raise errors.missing_parameter("name")
    settings = dict(resource)
    if request.query.get("contentEncoding"):
        settings["contentEncoding"] = request.query["contentEncoding"]
    return name, resources.object_settings(settings)


def _read_checksums(request: StorageRequest, resource: Mapping[str, Any]) -> dict[str, str]:
    return checksums.parse_hash_header(request.headers.get("x-goog-hash", "")) | resources.expected_checksums(resource)


def _parse_component(bucket: str, source: Mapping[str, Any]) -> SourceObject:
    name = source.get("name")
    if not isinstance(name, str) or not name:
        raise errors.missing_parameter("sourceObjects.name")
    numbers = {key: str(value) for key, value in (source.get("objectPreconditions") or {}).items()}
    generation = source.get("generation")
    if generation is not None and not str(generation).isdigit():
        raise errors.invalid_request(f"Invalid value for 'generation': '{generation}' is not a valid integer.")
    return SourceObject(bucket, name, None if generation is None else int(generation), Preconditions.of(numbers))


def _parse_call(request: StorageRequest, part: mime.Part) -> StorageRequest:
    """A call inside a batch as a request of its own."""
    head, _, body = part.content.replace(b"\r\n", b"\n").partition(b"\n\n")
    line, *fields = head.decode("utf-8", "replace").strip().split("\n")
    words = line.split(" ")
    if len(words) < 2:
        raise errors.invalid_request(f"Malformed call in a batch: {line}")
    path, _, query = re.sub(r"^https?://[^/]+", "", words[1]).partition("?")
    pairs = (field.partition(":") for field in fields)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    headers = {"host": request.headers.get("host", "localhost")} | headers
    path = path.removeprefix(request.prefix)
    return StorageRequest.of(
        words[0].upper(), path, query, headers, [body], scheme=request.scheme, prefix=request.prefix
    )


def _encode_part(part: mime.Part, answer: StorageResponse) -> bytes:
    assert isinstance(answer.body, bytes)
    identifier = part.headers.get("content-id", "").strip("<>")
    named = f"Content-ID: <response-{identifier}>\r\n" if identifier else ""
    headers = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    length = f"Content-Length: {len(answer.body)}\r\n"
    outer = f"Content-Type: application/http\r\n{named}\r\n"
    return (
        f"{outer}HTTP/1.1 {answer.status} {_reason_phrase(answer.status)}\r\n{headers}{length}\r\n".encode()
        + answer.body
    )


def _reason_phrase(status: int) -> str:
    known = {
        200: "OK",
        204: "No Content",
        304: "Not Modified",
        400: "Bad Request",
        404: "Not Found",
        409: "Conflict",
        412: "Precondition Failed",
    }
    return known.get(status, "Status")


def _require_method(request: StorageRequest, method: str) -> None:
    if request.method != method:
        raise _method_error(request)


def _method_error(request: StorageRequest) -> errors.StorageError:
    return errors.StorageError(405, "methodNotAllowed", f"{request.method} is not allowed here.")
