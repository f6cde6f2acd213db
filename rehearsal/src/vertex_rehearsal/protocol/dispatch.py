"""What HTTP and gRPC share: which handler answers a method, who may call it, and what is refused."""

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
"""Requests that are answered at once, by each protocol: a prediction holds its thread as long as the model takes."""


class Dispatcher:
    """The methods, who answers them, and how requests are made ready."""

    def __init__(
        self,
        context: Context,
        played: Mapping[str, EmulatedMethod],
        handlers: Mapping[str, Callable[..., Any]],
        admission: Authorizer,
    ) -> None:
        self.context = context
        self.methods = {path: known.method for path, known in played.items()}
        self._handlers = handlers
        self._admission = admission
        self.beta = v1beta1.BetaOperations()

    def find_handler(self, method: RpcMethod) -> Callable[..., Any]:
        """Who answers a method, for those who may call it; UNIMPLEMENTED with its name where nobody does."""
        found = self._handlers.get(method.path)
        if found is None:
            raise unimplemented_error(method.path)

        def answer(request: Any, *more: Any) -> Any:
            if method.kind == "unary_unary":
                listing.check_read_mask(request)
                validation.check_encryption(request)
            response = found(request, *more)
            if method.kind == "unary_unary":
                listing.apply_read_mask(request, response)
            return response

        def call_handler(request: Any, *more: Any) -> Any:
            return self._admission.perform(_build_call(method, request), lambda: answer(request, *more))

        return call_handler

    def normalise_names(self, request: Any) -> Any:
        """A request whose names hold the project's id, where they came with its number."""
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


def unauthenticated() -> ApiError:
    """UNAUTHENTICATED, with where the token is."""
    return ApiError(
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials: the rehearsal's token is needed, which is in the file "
        f"{TOKEN_FILE} in its directory; vertex-rehearsal status --json says how clients pass it.",
    )
