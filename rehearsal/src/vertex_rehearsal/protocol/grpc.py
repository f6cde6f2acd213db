"""The gRPC server: routes calls to handlers and reports errors with their details."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from vertex_rehearsal.access import has_token
from vertex_rehearsal.api import v1beta1
from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import message_class
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.errors import PORT_HINT, EmulatorUnavailable
from vertex_rehearsal.project.faults import ConnectionDropped
from vertex_rehearsal.protocol.dispatch import THREADS, Dispatcher, unauthenticated_error

LARGEST_MESSAGE = 64 * 2**20


class GrpcHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Routes gRPC calls to handlers by the method's path."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def service(self, call: Any) -> Any:
        """Return the gRPC handler of a call; None, gRPC's UNIMPLEMENTED, for an unknown method."""
        method, in_beta = self._dispatcher.methods.get(v1beta1.as_v1(call.method)), v1beta1.is_beta(call.method)
        if method is None:
            return None  # gRPC's own UNIMPLEMENTED, "Method not found!"
        token = self._dispatcher.context.settings.token
        authorization = dict(call.invocation_metadata).get("authorization", "")
        is_authenticated = not token or has_token(authorization, token)

        def answer_unary(request: Any, context: Any) -> Any:
            with GrpcErrorContext(context):
                if not is_authenticated:
                    raise unauthenticated_error()
                handler = self._dispatcher.find_handler(method)
                if in_beta:
                    v1beta1.check_fields(request)
                answer = handler(self._dispatcher.normalise_names(request))
                return (
                    v1beta1.rewrite_types(answer)
                    if self._dispatcher.beta.speaks_beta(answer, asked=in_beta)
                    else answer
                )

        def answer_stream(request: Any, context: Any) -> Iterator[Any]:
            with GrpcErrorContext(context):
                if not is_authenticated:
                    raise unauthenticated_error()
                handler = self._dispatcher.find_handler(method)
                prepared = request if method.kind == "stream_stream" else self._dispatcher.normalise_names(request)
                yield from handler(prepared, context.is_active)

        create = getattr(grpc, f"{method.kind}_rpc_method_handler")
        answer = answer_stream if method.answers_stream else answer_unary
        return create(answer, message_class(method.request).FromString, lambda message: message.SerializeToString())


class GrpcErrorContext:
    """A context manager that ends a gRPC call with the status and details of an ApiError raised inside."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None or isinstance(error, GeneratorExit):
            return
        if isinstance(error, ConnectionDropped):  # the status that gRPC clients report for a lost connection
            error = ApiError("UNAVAILABLE", "Socket closed")
        if not isinstance(error, ApiError):
            report_bug(error)
            error = ApiError("INTERNAL", f"{type(error).__name__}: {error}")
        if error.field or error.cause:
            self._context.set_trailing_metadata((("grpc-status-details-bin", error.status().SerializeToString()),))
        self._context.abort(getattr(grpc.StatusCode, error.code), error.message)


def add_tls_port(server: Any, certificate: tuple[bytes, bytes]) -> int:
    """Add a TLS port for tunnels to Google's host names, given a key and certificate chain; return its number."""
    port: int = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([certificate]))
    return port


def create_server(*, port: int, certificate: tuple[bytes, bytes] | None) -> tuple[Any, int]:
    """Create a server without handlers; return it and its port. `certificate` is a key and its chain, for TLS."""
    options = [
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_send_message_length", LARGEST_MESSAGE),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.server(ThreadPoolExecutor(THREADS), options=options)
    address = f"127.0.0.1:{port}"
    try:
        if certificate is None:
            return server, server.add_insecure_port(address)
        return server, server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
    except RuntimeError as error:
        raise EmulatorUnavailable(f"cannot serve gRPC on {address}", hint=PORT_HINT) from error
