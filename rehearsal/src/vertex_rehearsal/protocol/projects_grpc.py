"""Cloud Resource Manager over gRPC, which Vertex AI's SDK calls at Google's host name to get a project."""

from typing import Any

import grpc
from google.protobuf import descriptor_pb2

from vertex_rehearsal.access import has_token
from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import message_class, register_files
from vertex_rehearsal.other_services.routes import OtherServices
from vertex_rehearsal.protocol.dispatch import unauthenticated_error
from vertex_rehearsal.protocol.grpc import GrpcErrorContext

PACKAGE = "google.cloud.resourcemanager.v3"
GET_PROJECT = f"/{PACKAGE}.Projects/GetProject"
PROJECT_FIELDS = {"name": 1, "parent": 2, "project_id": 3, "display_name": 5}
STATE, ACTIVE = 4, 1
"""The number of a project's state field, and the state of an existing project."""


class ProjectsHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers GetProject; other methods get gRPC's UNIMPLEMENTED."""

    def __init__(self, other_services: OtherServices, token: str) -> None:
        self._other_services = other_services
        self._token = token
        _describe_messages()

    def service(self, call: Any) -> Any:
        """Return the gRPC handler of a call; None for other methods."""
        if call.method != GET_PROJECT:
            return None
        authorization = dict(call.invocation_metadata).get("authorization", "")
        is_authenticated = not self._token or has_token(authorization, self._token)

        def answer(request: Any, context: Any) -> Any:
            with GrpcErrorContext(context):
                if not is_authenticated:
                    raise unauthenticated_error()
                return self._get_project(request.name)

        parse = message_class(f"{PACKAGE}.GetProjectRequest").FromString
        return grpc.unary_unary_rpc_method_handler(answer, parse, lambda message: message.SerializeToString())

    def _get_project(self, name: str) -> Any:
        collection, _, project = name.partition("/")
        if collection != "projects" or not project or "/" in project:
            raise ApiError("INVALID_ARGUMENT", f'"{name}" is no name of a project: projects/ID.', "name")
        content = self._other_services.perform("cloudresourcemanager", "GET", f"v3/projects/{project}")
        return message_class(f"{PACKAGE}.Project")(
            name=content["name"],
            project_id=content["projectId"],
            display_name=content["displayName"],
            state=ACTIVE,
        )


def _describe_messages() -> None:
    """Register the emulated fields of the two messages; importing Google's package for them takes a second."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="vertex_rehearsal/projects.proto", package=PACKAGE, syntax="proto3")
    request, project = file.message_type.add(name="GetProjectRequest"), file.message_type.add(name="Project")
    fields = [(request, "name", 1), *((project, name, number) for name, number in PROJECT_FIELDS.items())]
    for message, name, number in fields:
        message.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    project.field.add(name="state", number=STATE, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    register_files([file])
