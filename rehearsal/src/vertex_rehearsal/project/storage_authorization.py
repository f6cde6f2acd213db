"""Authorizes Cloud Storage requests: maps each to its documented method and permission."""

from urllib.parse import parse_qs, unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.cloud_storage.errors import StorageError
from vertex_rehearsal.connections import DropConnection
from vertex_rehearsal.project.authorization import Authorizer, Call

OBJECT_VERBS = {"GET": "get", "HEAD": "get", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
NAMED_VERBS = {
    "compose": "compose", "copyTo": "copy", "rewriteTo": "rewrite", "moveTo": "move", "restore": "restore",
}  # fmt: skip
LIST_VERBS = {"GET": "list", "POST": "insert"}
ACCESS_LISTS = {"acl": "bucketAccessControls", "defaultObjectAcl": "defaultObjectAccessControls"}
PERMISSIONS = {
    "storage.objects.insert": "storage.objects.create", "storage.objects.get": "storage.objects.get",
    "storage.objects.list": "storage.objects.list", "storage.objects.delete": "storage.objects.delete",
    "storage.objects.patch": "storage.objects.update", "storage.objects.update": "storage.objects.update",
    "storage.objects.compose": "storage.objects.create", "storage.objects.copy": "storage.objects.create",
    "storage.objects.rewrite": "storage.objects.create", "storage.objects.move": "storage.objects.move",
    "storage.buckets.insert": "storage.buckets.create", "storage.buckets.get": "storage.buckets.get",
    "storage.buckets.list": "storage.buckets.list", "storage.buckets.delete": "storage.buckets.delete",
    "storage.buckets.patch": "storage.buckets.update", "storage.buckets.update": "storage.buckets.update",
    "storage.buckets.getIamPolicy": "storage.buckets.getIamPolicy",
    "storage.buckets.setIamPolicy": "storage.buckets.setIamPolicy", "storage.buckets.testIamPermissions": "",
    "storage.buckets.getStorageLayout": "storage.objects.list", "storage.buckets.restore": "storage.buckets.restore",
    "storage.buckets.lockRetentionPolicy": "storage.buckets.update",
    "storage.objects.restore": "storage.objects.restore",
    "storage.projects.serviceAccount.get": "", "storage.batch": "", "storage.other": "",
} | {
    f"storage.{kind}.{verb}": f"storage.{owner}.{'getIamPolicy' if verb in ('get', 'list') else 'setIamPolicy'}"
    for kind, owner in (
        ("bucketAccessControls", "buckets"), ("defaultObjectAccessControls", "buckets"),
        ("objectAccessControls", "objects"),
    )
    for verb in ("delete", "get", "insert", "list", "patch", "update")
}  # fmt: skip
"""The permission of each method that can be recognised. Requests inside a batch are not checked."""
REASONS = {
    400: "invalid", 401: "authError", 403: "forbidden", 404: "notFound", 409: "conflict", 429: "rateLimitExceeded",
    499: "cancelled", 501: "notImplemented",
}  # fmt: skip
"""The JSON API's reason for each status; backendError for those above 499."""


def parse_call(verb: str, path: str, query: str) -> Call:
    """Return the call that a request makes, given its raw path."""
    method, bucket = _match_method(verb, [unquote(part) for part in path.strip("/").split("/")], query)
    resource = f"projects/_/buckets/{bucket}" if bucket else "projects/_"
    return Call("storage", (method, "storage"), PERMISSIONS[method], resource)


def _match_method(verb: str, words: list[str], query: str) -> tuple[str, str]:
    """Return the method and the bucket."""
    match words:
        case ["batch", "storage", "v1", *_]:
            return "storage.batch", ""
        case [*_, "upload", "storage", "v1", "b", bucket, "o"]:
            return "storage.objects.insert", bucket
        case ["download", "storage", "v1", "b", bucket, "o", _]:
            return "storage.objects.get", bucket
        case ["storage", "v1", "b", *rest]:
            return _match_json_method(verb, rest)
        case ["storage", "v1", "projects", _, "serviceAccount"]:
            return "storage.projects.serviceAccount.get", ""
        case ["storage", "v1", *_]:
            return "storage.other", ""
    return _match_xml_method(verb, words, query)


def _match_json_method(verb: str, rest: list[str]) -> tuple[str, str]:
    match rest:
        case []:
            return f"storage.buckets.{'insert' if verb == 'POST' else 'list'}", ""
        case [bucket]:
            return f"storage.buckets.{OBJECT_VERBS.get(verb, 'get')}", bucket
        case [bucket, "o"]:
            return "storage.objects.list", bucket
        case [bucket, "o", _]:
            return f"storage.objects.{OBJECT_VERBS.get(verb, 'get')}", bucket
        case [bucket, "o", _, "acl", *entity]:
            return f"storage.objectAccessControls.{_list_verb(verb, entity)}", bucket
        case [bucket, ("acl" | "defaultObjectAcl") as which, *entity]:
            return f"storage.{ACCESS_LISTS[which]}.{_list_verb(verb, entity)}", bucket
        case [bucket, ("lockRetentionPolicy" | "restore") as what]:
            return f"storage.buckets.{what}", bucket
        case [bucket, "o", _, what, *_] if what in NAMED_VERBS:
            return f"storage.objects.{NAMED_VERBS[what]}", bucket
        case [bucket, "iam"] if verb in ("GET", "PUT"):
            return f"storage.buckets.{'set' if verb == 'PUT' else 'get'}IamPolicy", bucket
        case [bucket, "iam", "testPermissions"]:
            return "storage.buckets.testIamPermissions", bucket
        case [bucket, "storageLayout"]:
            return "storage.buckets.getStorageLayout", bucket
    return "storage.other", rest[0]


def _list_verb(verb: str, entity: list[str]) -> str:
    """Return the method of a request for an access control list or one of its entries."""
    return OBJECT_VERBS.get(verb, "get") if entity else LIST_VERBS.get(verb, "list")


def _match_xml_method(verb: str, words: list[str], query: str) -> tuple[str, str]:
    bucket, is_object = words[0], len(words) > 1 and words[1] != ""
    if not bucket:
        return "storage.buckets.list", ""
    if is_object:
        uploads = verb in ("PUT", "POST") or "uploadId" in parse_qs(query, keep_blank_values=True)
        return f"storage.objects.{'insert' if uploads else OBJECT_VERBS.get(verb, 'get')}", bucket
    methods = {"GET": "objects.list", "PUT": "buckets.insert", "DELETE": "buckets.delete"}
    return f"storage.{methods.get(verb, 'buckets.get')}", bucket


class AuthorizedStorage:
    """Wraps the Cloud Storage app with authorization and fault injection."""

    def __init__(self, app: ASGIApp, authorizer: Authorizer) -> None:
        self._app = app
        self._authorizer = authorizer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or fail it with an error or a dropped connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = parse_call(scope["method"], scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1"))
        error: Exception
        try:
            fault = self._authorizer.check_call(call)
            if fault is None:
                await self._app(scope, receive, send)
                return
            error = fault.error
        except ApiError as problem:
            fault, error = None, problem
        if fault and fault.after_effect:
            await self._app(scope, receive, _discard_message)
        elif isinstance(error, ApiError):
            async for _ in Request(scope, receive).stream():  # who is still sending would not see the answer
                pass
        answer = _build_refusal(error, call) if isinstance(error, ApiError) else DropConnection()
        await answer(scope, receive, send)


async def _discard_message(_: Message) -> None:
    """Discard a response."""


def _build_refusal(problem: ApiError, call: Call) -> Response:
    message = problem.message
    if problem.cause and problem.cause.reason == "IAM_PERMISSION_DENIED":
        message = (
            f"The caller does not have {call.permission} access to the Google Cloud Storage "
            f"{call.permission.split('.')[1].removesuffix('s')}. Permission '{call.permission}' denied on resource "
            "(or it may not exist)."
        )
    status = problem.http_status
    refused = StorageError(status, REASONS.get(status, "backendError"), message)
    return JSONResponse(refused.document(), status)
