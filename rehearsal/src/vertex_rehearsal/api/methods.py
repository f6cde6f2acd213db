"""The RPCs of the emulated APIs with their messages and HTTP rules, read from the installed client libraries."""

import base64
import importlib
import inspect
import json
import os
import pkgutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from vertex_rehearsal.api.messages import parse_descriptors, register_files

LIBRARIES = {
    "google.cloud.aiplatform_v1": "google.cloud.aiplatform.v1",
    "google.cloud.logging_v2": "google.logging.v2",
}
"""The client libraries and the API of each."""
DISTRIBUTIONS = ("google-cloud-aiplatform", "google-cloud-logging", "protobuf", "proto-plus")
MIXINS = {
    "google.longrunning.operations_pb2": "Operations",
    "google.cloud.location.locations_pb2": "Locations",
    "google.iam.v1.iam_policy_pb2": "IAMPolicy",
}
"""Services shared by all Google APIs: the modules that define them and their names."""
ALSO = ("google.rpc.error_details_pb2", "google.protobuf.empty_pb2")
"""Messages that no method refers to."""
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


@dataclass(frozen=True)
class HttpRule:
    """An HTTP binding of a method."""

    verb: str
    uri: str
    body: str = ""


@dataclass(frozen=True)
class RpcMethod:
    """An RPC with the full names of its messages."""

    path: str
    """The gRPC path: /google.cloud.aiplatform.v1.JobService/CreateCustomJob."""
    request: str
    response: str
    kind: str = "unary_unary"
    rules: tuple[HttpRule, ...] = ()

    @property
    def service(self) -> str:
        """The service: google.cloud.aiplatform.v1.JobService."""
        return self.path.split("/")[1]

    @property
    def name(self) -> str:
        """The method's name: CreateCustomJob."""
        return self.path.split("/")[2]

    @property
    def answers_stream(self) -> bool:
        """Whether the response is a stream of messages."""
        return self.kind.endswith("_stream")


@cache
def load_methods() -> Mapping[str, RpcMethod]:
    """Return all methods by their paths and register their messages."""
    kept = _get_cache_path()
    try:
        found = json.loads(kept.read_text())
        methods = [RpcMethod(**m | {"rules": tuple(HttpRule(**rule) for rule in m["rules"])}) for m in found["methods"]]
        files = parse_descriptors(base64.b64decode(found["files"]))
    except (OSError, ValueError, KeyError, TypeError, DecodeError):  # the cache is missing or unusable
        methods = list(_read_methods())
        files = _collect_files(methods)
        _write_cache(kept, methods, files)
    register_files(files)
    return {method.path: method for method in methods}


def _get_cache_path() -> Path:
    """Return the cache's path, named by all it depends on; the cache saves two seconds of importing libraries."""
    cache_directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    versions = "-".join(version(name) for name in DISTRIBUTIONS)
    reader = zlib.crc32(Path(__file__).read_bytes())  # this file defines what is read and the cache's format
    return cache_directory / "vertex-rehearsal" / f"rpc-table-{versions}-{reader:08x}.json"


def _write_cache(path: Path, methods: list[RpcMethod], files: list[Any]) -> None:
    content = {
        "methods": [asdict(method) for method in methods],
        "files": base64.b64encode(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()).decode(),
    }
    with suppress(OSError):  # without a writable home directory there is no cache
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(content, file)
        Path(file.name).replace(path)


def _collect_files(methods: list[RpcMethod]) -> list[Any]:
    """Return the file descriptors of all messages, each after its dependencies."""
    seen: dict[str, Any] = {}

    def visit(file: Any) -> None:
        if file.name not in seen:
            for needed in file.dependencies:
                visit(needed)
            seen[file.name] = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)

    for method in methods:
        for name in (method.request, method.response):
            visit(descriptor_pool.Default().FindMessageTypeByName(name).file)
    for module in ALSO:
        visit(importlib.import_module(module).DESCRIPTOR)
    return list(seen.values())


def _read_methods() -> Iterator[RpcMethod]:
    """Build the method table from the libraries: the stubs of each gRPC transport and the HTTP rules."""
    mixins: dict[str, list[HttpRule]] = {}
    for library, api in LIBRARIES.items():
        services = importlib.import_module(f"{library}.services")
        for found in pkgutil.iter_modules(services.__path__):
            transports = f"{services.__name__}.{found.name}.transports"
            rules = _read_http_rules(transports)
            for path, kind, request, response in _stubs(importlib.import_module(f"{transports}.grpc")):
                service, name = path.strip("/").split("/")
                if service.startswith(api):
                    yield RpcMethod(path, request, response, kind, tuple(rules.get(name, ())))
            for name, found_rules in rules.items():
                mixins.setdefault(name, []).extend(found_rules)
    for module, service in MIXINS.items():
        description = importlib.import_module(module).DESCRIPTOR.services_by_name[service]
        for method in description.methods:
            yield RpcMethod(
                f"/{description.full_name}/{method.name}",
                method.input_type.full_name,
                method.output_type.full_name,
                rules=tuple(dict.fromkeys(mixins.get(method.name, ()))),
            )


class _RecordingChannel:
    """A fake channel that records the stubs that a transport creates."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, Any]] = []

    def __getattr__(self, kind: str) -> Any:
        if kind not in KINDS:
            raise AttributeError(kind)

        def record_stub(path: str, *, request_serializer: Any, response_deserializer: Any, **_: Any) -> None:
            self.asked.append((kind, path, request_serializer, response_deserializer))

        return record_stub


def _stubs(module: Any) -> Iterator[tuple[str, str, str, str]]:
    """Return path, kind, request and response of each method of a transport."""
    own = (kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__)
    transport = next(kind for kind in own if kind.__name__.endswith("GrpcTransport"))
    channel, instance = _RecordingChannel(), transport.__new__(transport)
    instance.__dict__.update(_stubs={}, _logged_channel=channel, _grpc_channel=channel, _operations_client=None)
    for name, value in inspect.getmembers(transport, lambda member: isinstance(member, property)):
        if name not in ("operations_client", "grpc_channel", "kind", "host"):
            value.fget(instance)
    for kind, path, request, response in channel.asked:
        if getattr(request, "__self__", None) is not None:  # the mixins' serializers belong to no class
            yield path, kind, _get_full_name(request.__self__), _get_full_name(response.__self__)


def _get_full_name(message: Any) -> str:
    described = message.pb() if hasattr(message, "pb") else message  # proto-plus wraps protobuf's class
    return str(described.DESCRIPTOR.full_name)


def _read_http_rules(transports: str) -> dict[str, list[HttpRule]]:
    """Return the HTTP rules of a service's methods by name; none if the library supports only gRPC."""
    try:
        module = importlib.import_module(f"{transports}.rest_base")
    except ModuleNotFoundError:
        return {}
    rules = {}
    for name, kind in vars(module).items():
        if not (inspect.isclass(kind) and name.startswith("_Base") and name.endswith("RestTransport")):
            continue
        for method, options in vars(kind).items():
            if hasattr(options, "_get_http_options"):
                rules[method.removeprefix("_Base")] = [
                    HttpRule(rule["method"].upper(), rule["uri"], rule.get("body", ""))
                    for rule in options._get_http_options()
                ]
    return rules
