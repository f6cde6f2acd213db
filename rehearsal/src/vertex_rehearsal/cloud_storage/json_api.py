"""The JSON API: `/storage/v1`, `/upload/storage/v1`, `/download/storage/v1` and their batches."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import checksums, errors, media, mime, policies, resources
from vertex_rehearsal.cloud_storage.listing import MOST_RESULTS, Query
from vertex_rehearsal.cloud_storage.messages import Answer, Request, as_json, refusal_as_json
from vertex_rehearsal.cloud_storage.preconditions import ANY, Preconditions
from vertex_rehearsal.cloud_storage.records import Object, etag
from vertex_rehearsal.cloud_storage.store import Source, Store
from vertex_rehearsal.cloud_storage.uploads import Progress, Span, Uploads

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

    def answer(self, request: Request) -> Answer:
        """The answer to any request below one of the JSON API's addresses."""
        try:
            check_encryption(request)
            return self._dispatch(request)
        except errors.Refused as refused:
            if request.query.get("alt") == "media" and refused.status != 304:
                text = refused.message.encode()  # as Google answers who asked for content, not for a document
                return Answer(refused.status, {"Content-Type": "text/html; charset=UTF-8"}, text)
            return refusal_as_json(refused)

    def _dispatch(self, request: Request) -> Answer:
        match request.segments:
            case ("batch", "storage", "v1", *_) if request.method == "POST":
                return self._batch(request)
            case (*_, "upload", "storage", "v1", "b", bucket, "o"):
                return self._upload(request, bucket)
            case ("download", "storage", "v1", "b", bucket, "o", name) if request.method in ("GET", "HEAD"):
                return self._download(request, bucket, name)
            case ("storage", "v1", "b", *rest):
                return self._in_buckets(request, rest)
            case ("storage", "v1", "projects", _, "serviceAccount") if request.method == "GET":
                email = f"service-{resources.PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
                return as_json({"kind": "storage#serviceAccount", "email_address": email})
            case ("storage", "v1", "projects", _, what, *_):
                raise errors.not_played(what)
        raise errors.Refused(404, "notFound", "Not Found")

    def _in_buckets(self, request: Request, rest: list[str]) -> Answer:
        match rest:
            case []:
                return self._buckets(request)
            case [bucket]:
                return self._bucket(request, bucket)
            case [bucket, "o"]:
                return self._objects(request, bucket)
            case [bucket, "o", name]:
                return self._object(request, bucket, name)
            case [bucket, "o", name, "compose"] if request.method == "POST":
                return self._compose(request, bucket, name)
            case [bucket, "o", name, ("copyTo" | "rewriteTo") as verb, "b", other, "o", new] if (
                request.method == "POST"
            ):
                return self._copy(request, verb, Source(bucket, name), (other, new))
            case [bucket, "o", name, "moveTo", "o", new] if request.method == "POST":
                source = Source(bucket, name, None, Preconditions.of(request.query, prefix="ifSource"))
                made = self._store.move(source, new, preconditions=Preconditions.of(request.query))
                return self._shown_object(request, made)
            case [bucket, *around]:
                return self._around_bucket(request, bucket, around)
        raise errors.Refused(404, "notFound", "Not Found")

    def _around_bucket(self, request: Request, bucket: str, rest: list[str]) -> Answer:
        match request.method, rest:
            case "GET", ["iam"]:
                return as_json(policies.of_bucket(self._store.bucket(bucket)))
            case "PUT", ["iam"]:
                policy = resources.parse(request.document())
                unchanged = Preconditions(etags_match=(str(policy["etag"]),)) if policy.get("etag") else ANY
                changed = self._store.change_bucket(bucket, policies.replacing(policy), unchanged)
                return as_json(policies.of_bucket(changed))
            case "GET", ["iam", "testPermissions"]:
                self._store.bucket(bucket)
                asked = [value for key, value in request.repeated if key == "permissions"]
                if not asked:
                    raise errors.required("permissions")
                return as_json({"kind": "storage#testIamPermissionsResponse", "permissions": asked})
            case "GET", ["storageLayout"]:
                found = resources.of_bucket(self._store.bucket(bucket), request.base)
                layout = {key: found[key] for key in ("location", "locationType")}
                layout |= {"kind": "storage#storageLayout", "bucket": bucket}
                return as_json(layout | {"hierarchicalNamespace": {"enabled": False}})
            case _, [what, *_] if what in NOT_PLAYED:
                raise errors.not_played(f"{request.method} b/{bucket}/{what}")
            case _, ["o", name, what, *_] if what in NOT_PLAYED:
                raise errors.not_played(f"{request.method} b/{bucket}/o/{name}/{what}")
        raise errors.Refused(404, "notFound", "Not Found")

    def _buckets(self, request: Request) -> Answer:
        project = request.query.get("project")
        if not project:
            raise errors.required("project")
        if request.method == "POST":
            resource = resources.parse(request.document())
            name = resource.get("name")
            if not isinstance(name, str) or not name:
                raise errors.required("name")
            settings = resources.bucket_settings(resource)
            made = self._store.create_bucket(name, project=project, settings=settings)
            return self._shown(request, resources.of_bucket(made, request.base))
        _expect(request, "GET")
        limit = min(request.number("maxResults") or MOST_RESULTS, MOST_RESULTS)
        after = request.query.get("pageToken", "")
        prefix = request.query.get("prefix", "")
        found = self._store.buckets(project, prefix=prefix, after=after, limit=limit + 1)
        document: dict[str, Any] = {"kind": "storage#buckets"}
        if found:
            document["items"] = [resources.of_bucket(each, request.base) for each in found[:limit]]
        if len(found) > limit:
            document["nextPageToken"] = found[limit - 1].name
        return self._shown(request, document)

    def _bucket(self, request: Request, bucket: str) -> Answer:
        preconditions = _preconditions(request)
        match request.method:
            case "GET" | "HEAD":
                found = self._store.bucket(bucket, preconditions)
            case "PATCH":
                change = resources.patching_bucket(resources.parse(request.document()))
                found = self._store.change_bucket(bucket, change, preconditions)
            case "PUT":
                change = resources.updating_bucket(resources.parse(request.document()))
                found = self._store.change_bucket(bucket, change, preconditions)
            case "DELETE":
                self._store.delete_bucket(bucket, preconditions)
                return Answer(204)
            case _:
                raise _not_allowed(request)
        return self._shown(request, resources.of_bucket(found, request.base))

    def _objects(self, request: Request, bucket: str) -> Answer:
        _expect(request, "GET")
        if request.flag("softDeleted"):
            raise errors.not_played("softDeleted")
        limit = request.number("maxResults")
        query = Query(
            bucket, prefix=request.query.get("prefix", ""), delimiter=request.query.get("delimiter", ""),
            start=request.query.get("startOffset", ""), end=request.query.get("endOffset", ""),
            glob=request.query.get("matchGlob", ""), versions=request.flag("versions"),
            include_trailing_delimiter=request.flag("includeTrailingDelimiter"),
            limit=limit or MOST_RESULTS, page_token=request.query.get("pageToken", ""),
        )  # fmt: skip
        page = self._store.objects(query)
        document: dict[str, Any] = {"kind": "storage#objects"}
        if page.prefixes:
            document["prefixes"] = page.prefixes
        if page.items:
            document["items"] = [resources.of_object(found, request.base) for found in page.items]
        if page.next_token:
            document["nextPageToken"] = page.next_token
        return self._shown(request, document)

    def _object(self, request: Request, bucket: str, name: str) -> Answer:
        generation, preconditions = request.number("generation"), _preconditions(request)
        match request.method:
            case "GET" | "HEAD" if request.query.get("alt") == "media":
                return self._download(request, bucket, name)
            case "GET" | "HEAD":
                found = self._store.get(bucket, name, generation=generation, preconditions=preconditions)
            case "PATCH" | "PUT":
                resource = resources.parse(request.document())
                kind = resources.patching_object if request.method == "PATCH" else resources.updating_object
                found = self._store.change(
                    bucket, name, kind(resource), generation=generation, preconditions=preconditions
                )
            case "DELETE":
                self._store.delete(bucket, name, generation=generation, preconditions=preconditions)
                return Answer(204)
            case _:
                raise _not_allowed(request)
        return self._shown_object(request, found)

    def _download(self, request: Request, bucket: str, name: str) -> Answer:
        if request.query.get("alt", "media") != "media":
            return self._object(request, bucket, name)
        found, file = self._store.read(
            bucket, name, generation=request.number("generation"), preconditions=_preconditions(request)
        )
        return media.download(found, file, headers=request.headers, etag=etag(found.generation, found.metageneration))

    def _compose(self, request: Request, bucket: str, name: str) -> Answer:
        document = resources.parse(request.document())
        sources = document.get("sourceObjects")
        if not isinstance(sources, list) or not all(isinstance(source, dict) for source in sources):
            raise errors.invalid("You must provide at least one source component.", location="sourceObjects")
        settings = resources.object_settings(document.get("destination") or {})
        preconditions = Preconditions.of(request.query)
        chosen = [_component(bucket, source) for source in sources]
        made = self._store.compose(bucket, name, chosen, settings=settings, preconditions=preconditions)
        return self._shown_object(request, made)

    def _copy(self, request: Request, verb: str, source: Source, target: tuple[str, str]) -> Answer:
        source_preconditions = Preconditions.of(request.query, prefix="ifSource")
        source = Source(source.bucket, source.name, request.number("sourceGeneration"), source_preconditions)
        change = resources.copying_object(resources.parse(request.document()))
        made = self._store.copy(source, *target, change=change, preconditions=Preconditions.of(request.query))
        resource = resources.of_object(made, request.base)
        if verb == "copyTo":
            return self._shown(request, resource)
        size = str(made.size)
        document = {"kind": "storage#rewriteResponse", "totalBytesRewritten": size, "objectSize": size, "done": True}
        return self._shown(request, document | {"resource": resource})

    def _upload(self, request: Request, bucket: str) -> Answer:
        if request.query.get("upload_id"):
            return self._resume(request, request.query["upload_id"])
        if request.method not in ("POST", "PUT"):
            raise _not_allowed(request)
        self._store.bucket(bucket)
        match request.query.get("uploadType"):
            case "media":
                return self._upload_media(request, bucket)
            case "multipart":
                return self._upload_multipart(request, bucket)
            case "resumable":
                return self._begin(request, bucket)
            case None:
                raise errors.required("uploadType")
            case other:
                raise errors.invalid(f"Invalid upload type: {other}", location="uploadType")

    def _upload_media(self, request: Request, bucket: str) -> Answer:
        resource = {"contentType": request.headers.get("content-type")}
        resource["contentEncoding"] = request.headers.get("content-encoding")
        return self._insert(request, bucket, resource, request.chunks)

    def _upload_multipart(self, request: Request, bucket: str) -> Answer:
        boundary = mime.boundary_of(request.headers.get("content-type", ""))
        head, headers, content = mime.related(request.content(), boundary)
        resource = resources.parse(head.content)
        resource.setdefault("contentType", headers.get("content-type"))
        return self._insert(request, bucket, resource, content)

    def _insert(self, request: Request, bucket: str, resource: dict[str, Any], chunks: Iterable[bytes]) -> Answer:
        name, settings = _named(request, resource)
        preconditions = _preconditions(request)
        staged = self._store.files.stage(chunks)
        try:
            checksums.compare(staged.checksums, _expected(request, resource))
            made = self._store.put(bucket, name, staged, settings=settings, preconditions=preconditions)
        finally:
            staged.path.unlink(missing_ok=True)
        return self._shown_object(request, made)

    def _begin(self, request: Request, bucket: str) -> Answer:
        resource = resources.parse(request.document())
        resource.setdefault("contentType", request.headers.get("x-upload-content-type"))
        name, settings = _named(request, resource)
        total = request.headers.get("x-upload-content-length", "")
        identifier = self._uploads.begin(
            bucket, name, settings=settings, preconditions=_preconditions(request),
            expected=_expected(request, resource), total=int(total) if total.isdigit() else None,
        )  # fmt: skip
        location = f"{request.base}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={identifier}"
        return Answer(200, {"Location": location, "X-GUploader-UploadID": identifier})

    def _resume(self, request: Request, identifier: str) -> Answer:
        if request.method == "DELETE":
            self._uploads.cancel(identifier)
            return Answer(499)
        if request.method not in ("PUT", "POST"):
            raise _not_allowed(request)
        progress = self.resumed(request, identifier)
        return self._shown_object(request, progress.finished) if progress.finished else incomplete(progress)

    def resumed(self, request: Request, identifier: str) -> Progress:
        """How far an upload has come with what a request brings."""
        span = span_of(request.headers.get("content-range", ""))
        expected = checksums.from_header(request.headers.get("x-goog-hash", ""))
        return self._uploads.write(identifier, span, request.chunks, expected=expected)

    def _batch(self, request: Request) -> Answer:
        boundary = mime.boundary_of(request.headers.get("content-type", ""))
        parts = mime.parts_of(request.document(), boundary)
        if len(parts) > MOST_CALLS:
            raise errors.invalid(f"The batch request has {len(parts)} calls; at most {MOST_CALLS} are allowed.")
        mark = "batch_of_answers"
        answers = [_as_part(part, self._called(request, part)) for part in parts]
        body = b"".join(f"--{mark}\r\n".encode() + answer + b"\r\n" for answer in answers) + f"--{mark}--\r\n".encode()
        return Answer(200, {"Content-Type": f"multipart/mixed; boundary={mark}"}, body)

    def _called(self, request: Request, part: mime.Part) -> Answer:
        try:
            call = _call(request, part)
            if call.segments[:2] != ("storage", "v1") or call.query.get("alt") == "media":
                raise errors.invalid("Uploads and downloads are not possible in a batch.")
        except errors.Refused as refused:
            return refusal_as_json(refused)
        return self.answer(call)

    def _shown_object(self, request: Request, found: Object) -> Answer:
        return self._shown(request, resources.of_object(found, request.base))

    def _shown(self, request: Request, resource: dict[str, Any]) -> Answer:
        """A resource, or the fields of it that were asked for."""
        headers = {"ETag": resource["etag"]} if "etag" in resource else {}
        return as_json(resources.only(resource, request.query.get("fields", "")), headers=headers)


def check_encryption(request: Request) -> None:
    """Refuse keys of the user's own: nothing is encrypted here."""
    if "kmsKeyName" in request.query or any(name.startswith("x-goog-encryption-") for name in request.headers):
        raise errors.not_played("Encryption with your own keys")


def span_of(header: str) -> Span:
    """What a Content-Range says: `bytes 0-9/20`, `bytes 0-9/*`, `bytes */20`, `bytes */*`, or nothing at all."""
    if not header:
        return Span(ends=True)
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if not match:
        raise errors.invalid(f"Failed to parse Content-Range header: {header}", location="Content-Range")
    first, last, total = match.groups()
    whole = None if total == "*" else int(total)
    if first is None:
        return Span(None, total=whole)
    if last == "*":
        return Span(int(first), total=whole, ends=True)
    if int(last) < int(first) or (whole is not None and int(last) >= whole):
        raise errors.invalid(f"Invalid Content-Range header: {header}", location="Content-Range")
    return Span(int(first), int(last), whole)


def incomplete(progress: Progress) -> Answer:
    """What an upload that is not finished is answered with."""
    return Answer(308, {"Range": f"bytes=0-{progress.persisted - 1}"} if progress.persisted else {})


def _preconditions(request: Request) -> Preconditions:
    return Preconditions.of(request.query, headers=request.headers)


def _named(request: Request, resource: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of a new object, and its settings."""
    name = request.query.get("name") or resource.get("name")
    if not isinstance(name, str) or not name:
        raise errors.required("name")
    settings = dict(resource)
    if request.query.get("contentEncoding"):
        settings["contentEncoding"] = request.query["contentEncoding"]
    return name, resources.object_settings(settings)


def _expected(request: Request, resource: Mapping[str, Any]) -> dict[str, str]:
    return checksums.from_header(request.headers.get("x-goog-hash", "")) | resources.expected_checksums(resource)


def _component(bucket: str, source: Mapping[str, Any]) -> Source:
    name = source.get("name")
    if not isinstance(name, str) or not name:
        raise errors.required("sourceObjects.name")
    numbers = {key: str(value) for key, value in (source.get("objectPreconditions") or {}).items()}
    generation = source.get("generation")
    if generation is not None and not str(generation).isdigit():
        raise errors.invalid(f"Invalid value for 'generation': '{generation}' is not a valid integer.")
    return Source(bucket, name, None if generation is None else int(generation), Preconditions.of(numbers))


def _call(request: Request, part: mime.Part) -> Request:
    """A call inside a batch as a request of its own."""
    head, _, body = part.content.replace(b"\r\n", b"\n").partition(b"\n\n")
    line, *fields = head.decode("utf-8", "replace").strip().split("\n")
    words = line.split(" ")
    if len(words) < 2:
        raise errors.invalid(f"Malformed call in a batch: {line}")
    path, _, query = re.sub(r"^https?://[^/]+", "", words[1]).partition("?")
    pairs = (field.partition(":") for field in fields)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    headers = {"host": request.headers.get("host", "localhost")} | headers
    path = path.removeprefix(request.prefix)
    return Request.of(words[0].upper(), path, query, headers, [body], scheme=request.scheme, prefix=request.prefix)


def _as_part(part: mime.Part, answer: Answer) -> bytes:
    assert isinstance(answer.body, bytes)
    identifier = part.headers.get("content-id", "").strip("<>")
    named = f"Content-ID: <response-{identifier}>\r\n" if identifier else ""
    headers = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    length = f"Content-Length: {len(answer.body)}\r\n"
    outer = f"Content-Type: application/http\r\n{named}\r\n"
    return f"{outer}HTTP/1.1 {answer.status} {_phrase(answer.status)}\r\n{headers}{length}\r\n".encode() + answer.body


def _phrase(status: int) -> str:
    known = {200: "OK", 204: "No Content", 304: "Not Modified", 400: "Bad Request", 404: "Not Found",
             409: "Conflict", 412: "Precondition Failed"}  # fmt: skip
    return known.get(status, "Status")


def _expect(request: Request, method: str) -> None:
    if request.method != method:
        raise _not_allowed(request)


def _not_allowed(request: Request) -> errors.Refused:
    return errors.Refused(405, "methodNotAllowed", f"{request.method} is not allowed here.")
