"""Dispatches calls over HTTP and gRPC to their handlers, after authorization and validation."""

from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal import listing
from vertex_rehearsal.access import TOKEN_FILE
from vertex_rehearsal.api import v1beta1
from vertex_rehearsal.api.errors import ApiError, unimplemented_error
from vertex_rehearsal.api.methods import RpcMethod
from vertex_rehearsal.context import Context
from vertex_rehearsal.project.authorization import Authorizer, Call
from vertex_rehearsal.project.permissions import get_api, get_method_names, get_permission
from vertex_rehearsal.protocol.registry import EmulatedMethod
from vertex_rehearsal.training import validation

THREADS = 512
"""Concurrent requests per protocol: a prediction occupies its thread until the model has answered."""


class Dispatcher:
    """Maps methods to handlers and prepares their requests."""

    def __init__(
        self,
        context: Context,
        emulated: Mapping[str, EmulatedMethod],
        handlers: Mapping[str, Callable[..., Any]],
        authorizer: Authorizer,
    ) -> None:
        self.context = context
        self.methods = {path: entry.method for path, entry in emulated.items()}
        self._handlers = handlers
        self._authorizer = authorizer
        self.beta = v1beta1.BetaOperations()

    def find_handler(self, method: RpcMethod) -> Callable[..., Any]:
        """Return the handler of a method, with authorization and validation; raise UNIMPLEMENTED if there is none."""
        handler = self._handlers.get(method.path)
        if handler is None:
            raise unimplemented_error(method.path)

        def answer(request: Any, *more: Any) -> Any:
            if method.kind == "unary_unary":
                listing.check_read_mask(request)
                validation.check_encryption(request)
            response = handler(request, *more)
            if method.kind == "unary_unary":
                listing.apply_read_mask(request, response)
            return response

        def call_handler(request: Any, *more: Any) -> Any:
            return self._authorizer.perform(_build_call(method, request), lambda: answer(request, *more))

        return call_handler

    def normalise_names(self, request: Any) -> Any:
        """Replace project numbers by project ids in the resource names of a request."""
        for field, value in request.ListFields():
            if isinstance(value, str) and value.startswith("projects/"):
                setattr(request, field.name, self.context.resolve_name(value))
        return request


def _build_call(method: RpcMethod, request: Any) -> Call:
    fields = request.ListFields() if hasattr(request, "ListFields") else ()  # a stream of requests has none
    texts = [value for _, value in fields if isinstance(value, str)]
    texts += [value for field, values in fields if field.name == "resource_names" for value in values]
    resource = next((text for text in texts if text.startswith("projects/")), "")
    return Call(get_api(method), get_method_names(method), get_permission(method), resource)


def unauthenticated_error() -> ApiError:
    """Return an UNAUTHENTICATED error that tells where the token is."""
    return ApiError(
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials: the rehearsal's token is needed, which is in the file "
        f"{TOKEN_FILE} in its directory; vertex-rehearsal status --json says how clients pass it.",
    )
