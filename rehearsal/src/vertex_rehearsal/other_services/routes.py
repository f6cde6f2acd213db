"""Routes of the other services: finds the method of a request, checks its permission and calls it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.connections import DropConnection
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest
from vertex_rehearsal.project.authorization import Authorizer, Call
from vertex_rehearsal.project.faults import ConnectionDropped

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

SERVICE_CLASSES = {
    "artifactregistry": "artifact_registry:ArtifactRegistry", "cloudbuild": "cloud_build:CloudBuild",
    "cloudresourcemanager": "resource_manager:ResourceManager", "iam": "service_accounts:ServiceAccounts",
    "secretmanager": "secret_manager:SecretManager", "serviceusage": "service_usage:ServiceUsage",
}  # fmt: skip
"""The class of each service, by the first part of the service's host name."""
VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def load_service(service: str) -> Any:
    """Return the class of a service."""
    module, _, name = SERVICE_CLASSES[service].partition(":")
    return getattr(import_module(f"vertex_rehearsal.other_services.{module}"), name)


def methods() -> Iterator[RestMethod]:
    """Iterate over the emulated methods of all services."""
    for service in SERVICE_CLASSES:
        yield from load_service(service).METHODS


class OtherServices:
    """The other services, each below a path of its own."""

    def __init__(self, context: "Context", authorizer: Authorizer) -> None:
        self._context = context
        self._authorizer = authorizer
        self._parts = {service: load_service(service)(context) for service in SERVICE_CLASSES}
        self._routes = {
            service: [(method.pattern, method) for method in part.METHODS] for service, part in self._parts.items()
        }

    def parts(self) -> list[Any]:
        """Return the service instances, which are resumed and closed with the emulator."""
        return list(self._parts.values())

    def routes(self) -> list[Route]:
        """Return the routes, at paths that are not buckets."""
        return [Route("/-/{service}/{rest:path}", self._handle_request, methods=list(VERBS))]

    async def _handle_request(self, request: Request) -> Response:
        body = await request.body()
        try:
            return JSONResponse(await run_in_threadpool(self._call_method, request, body))
        except ApiError as error:
            return JSONResponse(error.body(), error.http_status)
        except ConnectionDropped:
            return DropConnection()
        except Exception as error:  # an emulator bug fails this request, not the server
            report_bug(error)
            return JSONResponse(ApiError("INTERNAL", f"{type(error).__name__}: {error}").body(), 500)

    def _call_method(self, request: Request, body: bytes) -> Any:
        service = request.path_params["service"]
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0].removeprefix(f"/-/{service}/")
        query = parse_qs(request.url.query, keep_blank_values=True)
        return self.perform(service, request.method, path, query=query, body=_parse_body(body))

    def perform(
        self,
        service: str,
        verb: str,
        path: str,
        *,
        query: Mapping[str, Sequence[str]] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a method, if the caller may, and return its response."""
        if service not in self._parts:
            known = ", ".join(self._parts)
            raise ApiError("UNIMPLEMENTED", f"{service}.googleapis.com is not played by this rehearsal; {known} are.")
        method, named = self._match_method(service, verb, path)
        resource = path.partition("/")[2]  # without the version of the API
        if ":" in method.path:
            resource = resource.rpartition(":")[0]
        call = Call(service, (method.id, service), method.permission, resource)
        request = ServiceRequest(named, query or {}, body or {})
        return self._authorizer.perform(call, lambda: getattr(self._parts[service], method.handler)(request))

    def _match_method(self, service: str, verb: str, path: str) -> tuple[RestMethod, Mapping[str, str]]:
        for pattern, method in self._routes[service]:
            if method.verb == verb and (match := pattern.fullmatch(path)):
                named = {name: unquote(value) for name, value in match.groupdict().items()}
                return method, named | {"project": self._context.project_id(named["project"])}
        raise ApiError(
            "UNIMPLEMENTED",
            f"{verb} https://{service}.googleapis.com/{path} is not played by this rehearsal; "
            "vertex-rehearsal methods lists what is.",
        )


def _parse_body(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid_argument("", f"Invalid JSON payload received. {error}") from error
    if not isinstance(document, dict):
        raise invalid_argument("", "Invalid JSON payload received. An object is expected.")
    return document
