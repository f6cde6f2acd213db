"""Cloud Resource Manager over gRPC: Vertex AI's SDK asks it for a project, at Google's own host name."""

from typing import Any

import grpc
from google.protobuf import descriptor_pb2

from vertex_rehearsal.access import has_token
from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import message_class, register_files
from vertex_rehearsal.other_services.routes import OtherServices
from vertex_rehearsal.protocol.dispatch import unauthenticated
from vertex_rehearsal.protocol.grpc import GrpcErrorContext

PACKAGE = "google.cloud.resourcemanager.v3"
GET_PROJECT = f"/{PACKAGE}.Projects/GetProject"
PROJECT_FIELDS = {"name": 1, "parent": 2, "project_id": 3, "display_name": 5}
STATE, ACTIVE = 4, 1
"""The field of a project's state, and the state of a project that is there."""


class ProjectsHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """GetProject; the rest of the service is gRPC's own UNIMPLEMENTED."""

    def __init__(self, neighbours: OtherServices, token: str) -> None:
        self._neighbours = neighbours
        self._token = token
        _describe_messages()

    def service(self, call: Any) -> Any:
        """Who answers a call."""
        if call.method != GET_PROJECT:
            return None
        given = dict(call.invocation_metadata).get("authorization", "")
        may_ask = not self._token or has_token(given, self._token)

        def answer(request: Any, context: Any) -> Any:
            with GrpcErrorContext(context):
                if not may_ask:
                    raise unauthenticated()
                return self._get_project(request.name)

        parse = message_class(f"{PACKAGE}.GetProjectRequest").FromString
        return grpc.unary_unary_rpc_method_handler(answer, parse, lambda message: message.SerializeToString())

    def _get_project(self, name: str) -> Any:
        collection, _, project = name.partition("/")
        if collection != "projects" or not project or "/" in project:
            raise ApiError("INVALID_ARGUMENT", f'"{name}" is no name of a project: projects/ID.', "name")
        found = self._neighbours.perform("cloudresourcemanager", "GET", f"v3/projects/{project}")
        return message_class(f"{PACKAGE}.Project")(
            name=found["name"], project_id=found["projectId"], display_name=found["displayName"], state=ACTIVE
        )


def _describe_messages() -> None:
    """The two messages, as far as they are played; Google's package of them takes a second to import."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="vertex_rehearsal/projects.proto", package=PACKAGE, syntax="proto3")
    asked, project = file.message_type.add(name="GetProjectRequest"), file.message_type.add(name="Project")
    fields = [(asked, "name", 1), *((project, name, number) for name, number in PROJECT_FIELDS.items())]
    for message, name, number in fields:
        message.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    project.field.add(name="state", number=STATE, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    register_files([file])
