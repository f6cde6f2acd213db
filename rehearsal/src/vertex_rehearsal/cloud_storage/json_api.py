"""The JSON API: `/storage/v1`, `/upload/storage/v1`, `/download/storage/v1` and their batches."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import (
    access_controls,
    bucket_settings,
    checksums,
    customer_keys,
    errors,
    media,
    mime,
    object_settings,
    policies,
    resources,
    retention,
)
from vertex_rehearsal.cloud_storage.access_lists import AccessLists, is_full, read_bucket_acls
from vertex_rehearsal.cloud_storage.field_masks import select_fields
from vertex_rehearsal.cloud_storage.json_values import parse_body
from vertex_rehearsal.cloud_storage.listing import MOST_RESULTS, Query
from vertex_rehearsal.cloud_storage.messages import (
    StorageRequest,
    StorageResponse,
    build_json_error,
    build_json_response,
)
from vertex_rehearsal.cloud_storage.preconditions import ANY, Preconditions
from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord, etag, get_project_number
from vertex_rehearsal.cloud_storage.store import SourceObject, Store
from vertex_rehearsal.cloud_storage.uploads import Span, UploadProgress, Uploads

MOST_CALLS = 100
"""Limit of calls in one batch."""

NOT_PLAYED = frozenset({
    "iam", "notificationConfigs", "folders", "managedFolders", "anywhereCaches", "relocate", "operations",
})  # fmt: skip
"""Subresources of buckets and objects that are not supported."""
NOT_PLAYED_PARAMETERS = ("kmsKeyName", "destinationKmsKeyName", "restoreToken")
"""Parameters that are not supported."""

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+|\*)|\*)/(\d+|\*)")


class JsonApi:
    """Routes and handles requests of the JSON API."""

    def __init__(self, store: Store, uploads: Uploads) -> None:
        self._store = store
        self._uploads = uploads
        self._access_lists = AccessLists(store)

    def handle_request(self, request: StorageRequest) -> StorageResponse:
        """Return the response to a request at any of the JSON API's paths."""
        try:
            _refuse_parameters(request)
            return self._dispatch(request)
        except errors.StorageError as error:
            if request.query.get("alt") == "media" and error.status != 304:
                text = error.message.encode()  # downloads get errors as text, as with Google
                return StorageResponse(error.status, {"Content-Type": "text/html; charset=UTF-8"}, text)
            return build_json_error(error)

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
            case ("storage", "v1", "projects", project, "serviceAccount") if request.method == "GET":
                email = f"service-{get_project_number(project)}@gs-project-accounts.iam.gserviceaccount.com"
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
            case [bucket, "o", ("watch" | "bulkRestore") as what] if request.method == "POST":
                raise errors.unsupported_feature(f"POST b/{bucket}/o/{what}")
            case [bucket, "o", name]:
                return self._handle_object(request, bucket, name)
            case [bucket, "o", name, "compose"] if request.method == "POST":
                return self._compose_object(request, bucket, name)
            case [bucket, "o", name, ("copyTo" | "rewriteTo") as verb, "b", other, "o", new] if (
                request.method == "POST"
            ):
                return self._copy_object(request, verb, (bucket, name), (other, new))
            case [bucket, "o", name, "moveTo", "o", new] if request.method == "POST":
                source = SourceObject(bucket, name, None, Preconditions.of(request.query, prefix="ifSource"))
                record = self._store.move(source, new, preconditions=Preconditions.of(request.query))
                return self._render_object(request, record)
            case [bucket, *around]:
                return self._handle_subresource(request, bucket, around)
        raise errors.StorageError(404, "notFound", "Not Found")

    def _handle_subresource(self, request: StorageRequest, bucket: str, rest: list[str]) -> StorageResponse:
        match request.method, rest:
            case _, ["iam", *subpath]:
                return self._handle_policy(request, bucket, subpath)
            case "GET", ["storageLayout"]:
                resource = resources.build_bucket_resource(self._store.bucket(bucket), request.base)
                layout = {key: resource[key] for key in ("location", "locationType")}
                layout |= {"kind": "storage#storageLayout", "bucket": bucket}
                return build_json_response(layout | {"hierarchicalNamespace": {"enabled": False}})
            case "POST", ["lockRetentionPolicy"]:
                if "ifMetagenerationMatch" not in request.query:
                    raise errors.missing_parameter("ifMetagenerationMatch")
                bucket_record = self._store.change_bucket(bucket, retention.lock_policy, _read_preconditions(request))
                return self._render_bucket(request, bucket_record)
            case "POST", ["restore"]:
                return self._render_bucket(request, self._store.restore_bucket(bucket, _require_generation(request)))
            case "POST", ["o", name, "restore"]:
                return self._restore_object(request, bucket, name)
            case _, [("acl" | "defaultObjectAcl") as which, *entity] if len(entity) < 2:
                return self._access_lists.handle_bucket(request, bucket, which, *entity)
            case _, ["o", name, "acl", *entity] if len(entity) < 2:
                return self._access_lists.handle_object(request, bucket, name, *entity)
        if NOT_PLAYED.intersection((rest[0], *rest[2:3])):  # below a bucket, or below an object
            raise errors.unsupported_feature(f"{request.method} b/{bucket}/{'/'.join(rest)}")
        raise errors.StorageError(404, "notFound", "Not Found")

    def _handle_policy(self, request: StorageRequest, bucket: str, rest: list[str]) -> StorageResponse:
        match request.method, rest:
            case "GET", []:
                version = request.read_number("optionsRequestedPolicyVersion")
                policy = policies.build_policy(self._store.bucket(bucket), version=version or 1)
                return self._render_resource(request, policy, kind="policy")
            case "PUT", []:
                return self._set_policy(request, bucket)
            case "GET", ["testPermissions"]:
                self._store.bucket(bucket)
                permissions = [value for key, value in request.repeated if key == "permissions"]
                if not permissions:
                    raise errors.missing_parameter("permissions")
                return build_json_response({"kind": "storage#testIamPermissionsResponse", "permissions": permissions})
        raise _method_error(request)

    def _set_policy(self, request: StorageRequest, bucket: str) -> StorageResponse:
        policy = parse_body(request.document())
        unchanged = Preconditions(etags_match=(str(policy["etag"]),)) if policy.get("etag") else ANY
        before = self._store.bucket(bucket)
        change = policies.make_policy_change(
            policy, is_uniform=before.has_uniform_access, prevents_public=before.prevents_public_access
        )
        bucket_record = self._store.change_bucket(bucket, change, unchanged)
        policy_resource = policies.build_policy(bucket_record, version=policies.WITH_CONDITIONS)
        return self._render_resource(request, policy_resource, kind="policy")

    def _handle_buckets(self, request: StorageRequest) -> StorageResponse:
        project = request.query.get("project")
        if not project:
            raise errors.missing_parameter("project")
        if request.method == "POST":
            return self._create_bucket(request, project)
        _require_method(request, "GET")
        limit = min(request.read_number("maxResults") or MOST_RESULTS, MOST_RESULTS)
        page_token = request.query.get("pageToken", "")
        prefix = request.query.get("prefix", "")
        deleted = request.read_flag("softDeleted")
        buckets = self._store.list_buckets(
            project, prefix=prefix, after=page_token, limit=limit + 1, soft_deleted=deleted
        )
        document: dict[str, Any] = {"kind": "storage#buckets"}
        if buckets:
            full = is_full(request)
            items = [resources.build_bucket_resource(bucket, request.base, full=full) for bucket in buckets[:limit]]
            document["items"] = items
        if len(buckets) > limit:
            document["nextPageToken"] = buckets[limit - 1].name
        return self._render_resource(request, document, kind="buckets")

    def _create_bucket(self, request: StorageRequest, project: str) -> StorageResponse:
        resource = parse_body(request.document())
        name = resource.get("name")
        if not isinstance(name, str) or not name:
            raise errors.missing_parameter("name")
        has_retention = request.read_flag("enableObjectRetention")
        settings = bucket_settings.read_bucket_settings(resource, has_object_retention=has_retention)
        settings |= read_bucket_acls(request, resource, project)
        bucket_record = self._store.create_bucket(name, project=project, settings=settings)
        return self._render_bucket(request, bucket_record)

    def _handle_bucket(self, request: StorageRequest, bucket: str) -> StorageResponse:
        preconditions = _read_preconditions(request)
        match request.method:
            case "GET" | "HEAD" if request.read_flag("softDeleted"):
                bucket_record = self._store.soft_deleted_bucket(bucket, _require_generation(request))
            case "GET" | "HEAD":
                bucket_record = self._store.bucket(bucket, preconditions)
            case "PATCH" | "PUT":
                resource = parse_body(request.document())
                patches = request.method == "PATCH"
                make_change = bucket_settings.make_bucket_patch if patches else bucket_settings.make_bucket_update
                change, entries = (
                    make_change(resource),
                    read_bucket_acls(request, resource, self._store.bucket(bucket).project),
                )
                if entries:
                    access_controls.check_public(
                        self._store.bucket(bucket), [entry for acl in entries.values() for entry in acl]
                    )
                bucket_record = self._store.change_bucket(
                    bucket, lambda settings: change(settings) | entries, preconditions
                )
            case "DELETE":
                self._store.delete_bucket(bucket, preconditions)
                return StorageResponse(204)
            case _:
                raise _method_error(request)
        return self._render_bucket(request, bucket_record)

    def _list_objects(self, request: StorageRequest, bucket: str) -> StorageResponse:
        _require_method(request, "GET")
        limit = request.read_number("maxResults")
        query = Query(
            bucket,
            prefix=request.query.get("prefix", ""),
            delimiter=request.query.get("delimiter", ""),
            start=request.query.get("startOffset", ""),
            end=request.query.get("endOffset", ""),
            glob=request.query.get("matchGlob", ""),
            filter=request.query.get("filter", ""),
            versions=request.read_flag("versions"),
            soft_deleted=request.read_flag("softDeleted"),
            include_trailing_delimiter=request.read_flag("includeTrailingDelimiter"),
            limit=limit or MOST_RESULTS,
            page_token=request.query.get("pageToken", ""),
        )
        if query.soft_deleted and query.versions:
            raise errors.invalid_request("softDeleted and versions exclude each other.", location="softDeleted")
        page = self._store.list_objects(query)
        document: dict[str, Any] = {"kind": "storage#objects"}
        if page.prefixes:
            document["prefixes"] = page.prefixes
        if page.items:
            bucket_record, full = self._store.bucket(bucket), is_full(request)
            document["items"] = [
                resources.build_object_resource(
                    record, bucket_record, request.base, full=full, hashes=not _needs_key(record)
                )
                for record in page.items
            ]
        if page.next_token:
            document["nextPageToken"] = page.next_token
        return self._render_resource(request, document, kind="objects")

    def _handle_object(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        generation, preconditions = request.read_number("generation"), _read_preconditions(request)
        match request.method:
            case "GET" | "HEAD" if request.query.get("alt") == "media":
                return self._download_object(request, bucket, name)
            case "GET" | "HEAD" if request.read_flag("softDeleted"):
                record = self._store.soft_deleted(bucket, name, _require_generation(request))
            case "GET" | "HEAD":
                record = self._store.get(bucket, name, generation=generation, preconditions=preconditions)
            case "PATCH" | "PUT":
                record = self._change_object(request, bucket, name, generation)
            case "DELETE":
                self._store.delete(bucket, name, generation=generation, preconditions=preconditions)
                return StorageResponse(204)
            case _:
                raise _method_error(request)
        return self._render_object(request, record)

    def _change_object(self, request: StorageRequest, bucket: str, name: str, generation: int | None) -> ObjectRecord:
        resource = parse_body(request.document())
        patches = request.method == "PATCH"
        change = (object_settings.make_object_patch if patches else object_settings.make_object_update)(resource)
        acl = self._read_object_acl(request, bucket, resource)
        return self._store.change(
            bucket,
            name,
            lambda settings: change(settings) | acl,
            generation=generation,
            preconditions=_read_preconditions(request),
            overrides_retention=request.read_flag("overrideUnlockedRetention"),
        )

    def _restore_object(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        copies = request.read_flag("copySourceAcl")
        generation, preconditions = _require_generation(request), Preconditions.of(request.query)
        record = self._store.restore(bucket, name, generation, copies_acl=copies, preconditions=preconditions)
        return self._render_object(request, record)

    def _read_object_acl(
        self, request: StorageRequest, bucket: str, resource: Mapping[str, Any], parameter: str = "predefinedAcl"
    ) -> dict[str, Any]:
        """Return the access control list that a request sets on an object; empty if it sets none."""
        if request.query.get(parameter):
            project = self._store.bucket(bucket).project
            entries = access_controls.expand_object_acl(request.query[parameter], project, location=parameter)
        elif resource.get("acl") is not None:
            entries = access_controls.parse_entries(resource["acl"], access_controls.OBJECT_ROLES)
        else:
            return {}
        return {object_settings.ACL: access_controls.check_public(self._store.bucket(bucket), entries)}

    def _download_object(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        if request.query.get("alt", "media") != "media":
            return self._handle_object(request, bucket, name)
        record, file = self._store.read(
            bucket, name, generation=request.read_number("generation"), preconditions=_read_preconditions(request)
        )
        return media.build_download(
            record, file, headers=request.headers, etag=etag(record.generation, record.metageneration)
        )

    def _compose_object(self, request: StorageRequest, bucket: str, name: str) -> StorageResponse:
        document = parse_body(request.document())
        sources = document.get("sourceObjects")
        if not isinstance(sources, list) or not all(isinstance(source, dict) for source in sources):
            raise errors.invalid_request("You must provide at least one source component.", location="sourceObjects")
        destination = document.get("destination") or {}
        key = customer_keys.read_customer_key(request.headers)
        settings = object_settings.read_object_settings(destination) | customer_keys.build_encryption(key)
        settings |= self._read_object_acl(request, bucket, destination, "destinationPredefinedAcl")
        preconditions = Preconditions.of(request.query)
        chosen = [_parse_component(bucket, source, key) for source in sources]
        record = self._store.compose(bucket, name, chosen, settings=settings, preconditions=preconditions)
        return self._render_object(request, record)

    def _copy_object(
        self, request: StorageRequest, verb: str, source: tuple[str, str], target: tuple[str, str]
    ) -> StorageResponse:
        chosen = SourceObject(
            *source,
            request.read_number("sourceGeneration"),
            Preconditions.of(request.query, prefix="ifSource"),
            customer_keys.read_customer_key(request.headers, customer_keys.SOURCE_PREFIX),
        )
        resource = parse_body(request.document())
        drops = _read_dropped_contexts(request)
        copy_settings = object_settings.make_object_copy(resource, drops_contexts=drops)
        added = customer_keys.build_encryption(customer_keys.read_customer_key(request.headers))
        added |= self._read_object_acl(request, target[0], resource, "destinationPredefinedAcl")
        preconditions = Preconditions.of(request.query)
        record = self._store.copy(
            chosen, *target, change=lambda settings: copy_settings(settings) | added, preconditions=preconditions
        )
        if verb == "copyTo":
            return self._render_object(request, record)
        size = str(record.size)
        document = {"kind": "storage#rewriteResponse", "totalBytesRewritten": size, "objectSize": size, "done": True}
        return self._render_resource(
            request, document | {"resource": self._build_object(request, record)}, kind="rewrite"
        )

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
        resource: dict[str, Any] = {"contentType": request.headers.get("content-type")}
        resource["contentEncoding"] = request.headers.get("content-encoding")
        return self._insert_object(request, bucket, resource, request.chunks)

    def _upload_multipart(self, request: StorageRequest, bucket: str) -> StorageResponse:
        boundary = mime.parse_boundary(request.headers.get("content-type", ""))
        head, headers, content = mime.stream_parts(request.content(), boundary)
        resource = parse_body(head.content)
        resource.setdefault("contentType", headers.get("content-type"))
        return self._insert_object(request, bucket, resource, content)

    def _insert_object(
        self, request: StorageRequest, bucket: str, resource: dict[str, Any], chunks: Iterable[bytes]
    ) -> StorageResponse:
        name, settings = self._read_name_and_settings(request, bucket, resource)
        preconditions = _read_preconditions(request)
        staged = self._store.files.stage_content(chunks)
        try:
            checksums.verify_checksums(staged.checksums, _read_checksums(request, resource))
            record = self._store.put(bucket, name, staged, settings=settings, preconditions=preconditions)
        finally:
            staged.path.unlink(missing_ok=True)
        return self._render_object(request, record)

    def _begin_upload(self, request: StorageRequest, bucket: str) -> StorageResponse:
        resource = parse_body(request.document())
        resource.setdefault("contentType", request.headers.get("x-upload-content-type"))
        name, settings = self._read_name_and_settings(request, bucket, resource)
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
        """Write a request's bytes to a resumable upload and return its progress."""
        span = parse_content_range(request.headers.get("content-range", ""))
        expected = checksums.parse_hash_header(request.headers.get("x-goog-hash", ""))
        return self._uploads.write(identifier, span, request.chunks, expected=expected)

    def _handle_batch(self, request: StorageRequest) -> StorageResponse:
        boundary = mime.parse_boundary(request.headers.get("content-type", ""))
        parts = mime.parse_parts(request.document(), boundary)
        if len(parts) > MOST_CALLS:
            raise errors.invalid_request(f"The batch request has {len(parts)} calls; at most {MOST_CALLS} are allowed.")
        delimiter = "batch_of_answers"
        responses = [_encode_part(part, self._answer_call(request, part)) for part in parts]
        body = (
            b"".join(f"--{delimiter}\r\n".encode() + response + b"\r\n" for response in responses)
            + f"--{delimiter}--\r\n".encode()
        )
        return StorageResponse(200, {"Content-Type": f"multipart/mixed; boundary={delimiter}"}, body)

    def _answer_call(self, request: StorageRequest, part: mime.Part) -> StorageResponse:
        try:
            call = _parse_call(request, part)
            if call.segments[:2] != ("storage", "v1") or call.query.get("alt") == "media":
                raise errors.invalid_request("Uploads and downloads are not possible in a batch.")
        except errors.StorageError as error:
            return build_json_error(error)
        return self.handle_request(call)

    def _read_name_and_settings(
        self, request: StorageRequest, bucket: str, resource: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Return the name and the settings of a new object."""
        name = request.query.get("name") or resource.get("name")
        if not isinstance(name, str) or not name:
            raise errors.missing_parameter("name")
        fields = dict(resource)
        if fields.get("kmsKeyName"):
            raise errors.unsupported_feature("kmsKeyName")
        if request.query.get("contentEncoding"):
            fields["contentEncoding"] = request.query["contentEncoding"]
        settings = object_settings.read_object_settings(fields) | self._read_object_acl(request, bucket, resource)
        key = customer_keys.read_customer_key(request.headers)
        return name, settings | customer_keys.build_encryption(key)

    def _build_object(self, request: StorageRequest, record: ObjectRecord) -> dict[str, Any]:
        key = customer_keys.read_customer_key(request.headers)
        if key and request.method == "GET":
            customer_keys.check_customer_key(record, key)
        return resources.build_object_resource(
            record,
            self._store.bucket(record.bucket),
            request.base,
            full=is_full(request),
            hashes=bool(key) or not _needs_key(record),
        )

    def _render_object(self, request: StorageRequest, record: ObjectRecord) -> StorageResponse:
        return self._render_resource(request, self._build_object(request, record), kind="object")

    def _render_bucket(self, request: StorageRequest, bucket_record: BucketRecord) -> StorageResponse:
        resource = resources.build_bucket_resource(bucket_record, request.base, full=is_full(request))
        return self._render_resource(request, resource, kind="bucket")

    def _render_resource(self, request: StorageRequest, resource: dict[str, Any], *, kind: str) -> StorageResponse:
        """Return a response with a resource, or with the fields of it that were requested."""
        headers = {"ETag": resource["etag"]} if "etag" in resource else {}
        return build_json_response(select_fields(resource, request.query.get("fields", ""), kind), headers=headers)


def _refuse_parameters(request: StorageRequest) -> None:
    """Refuse parameters that are not supported."""
    for name in NOT_PLAYED_PARAMETERS:
        if request.query.get(name):
            raise errors.unsupported_feature(name)


def _needs_key(record: ObjectRecord) -> bool:
    return object_settings.ENCRYPTION in record.settings


def _require_generation(request: StorageRequest) -> int:
    generation = request.read_number("generation")
    if generation is None:
        raise errors.missing_parameter("generation")
    return generation


def _read_dropped_contexts(request: StorageRequest) -> bool:
    """Return whether a copy drops its source's contexts; `custom` is the only group."""
    groups = [value for key, value in request.repeated if key == "dropContextGroups"]
    if set(groups) - {"custom"}:
        message = f"Invalid value for 'dropContextGroups': '{groups[0]}'; it is custom."
        raise errors.invalid_request(message, location="dropContextGroups")
    return bool(groups)


def parse_content_range(header: str) -> Span:
    """Parse a Content-Range: `bytes 0-9/20`, `bytes 0-9/*`, `bytes */20`, `bytes */*`, or an empty one."""
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
    """Return the response to an upload that is not complete."""
    return StorageResponse(308, {"Range": f"bytes=0-{progress.persisted - 1}"} if progress.persisted else {})


def _read_preconditions(request: StorageRequest) -> Preconditions:
    return Preconditions.of(request.query, headers=request.headers)


def _read_checksums(request: StorageRequest, resource: Mapping[str, Any]) -> dict[str, str]:
    return checksums.parse_hash_header(request.headers.get("x-goog-hash", "")) | _expected_checksums(resource)


def _expected_checksums(resource: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksums in an object's resource."""
    expected = {"crc32c": resource.get("crc32c"), "md5": resource.get("md5Hash")}
    return {name: str(value) for name, value in expected.items() if value}


def _parse_component(bucket: str, source: Mapping[str, Any], key: str) -> SourceObject:
    name = source.get("name")
    if not isinstance(name, str) or not name:
        raise errors.missing_parameter("sourceObjects.name")
    numbers = {key: str(value) for key, value in (source.get("objectPreconditions") or {}).items()}
    generation = source.get("generation")
    if generation is not None and not str(generation).isdigit():
        raise errors.invalid_request(f"Invalid value for 'generation': '{generation}' is not a valid integer.")
    return SourceObject(bucket, name, None if generation is None else int(generation), Preconditions.of(numbers), key)


def _parse_call(request: StorageRequest, part: mime.Part) -> StorageRequest:
    """Parse a call of a batch into a request."""
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
