"""The table of emulated methods: each service of Google's APIs and the classes that implement it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from vertex_rehearsal.api.methods import RpcMethod, load_methods
from vertex_rehearsal.context import Context
from vertex_rehearsal.protocol.lookups import create_handler, is_lookup

VERTEX = "google.cloud.aiplatform.v1"
PARTS = (
    (f"{VERTEX}.JobService", "training.service:CustomJobs"),
    (f"{VERTEX}.JobService", "tuning.service:TuningJobs"),
    (f"{VERTEX}.JobService", "prediction.batch_service:BatchPredictions"),
    (f"{VERTEX}.ModelService", "prediction.model_service:Models"),
    (f"{VERTEX}.ModelService", "prediction.evaluations:ModelEvaluations"),
    (f"{VERTEX}.EndpointService", "prediction.endpoints:Endpoints"),
    (f"{VERTEX}.PredictionService", "prediction.service:PredictionService"),
    (f"{VERTEX}.PipelineService", "training.training_pipelines:TrainingPipelines"),
    (f"{VERTEX}.PipelineService", "pipelines.service:PipelineJobs"),
    (f"{VERTEX}.MetadataService", "metadata.service:Experiments"),
    (f"{VERTEX}.MetadataService", "metadata.schemas:MetadataSchemas"),
    (f"{VERTEX}.TensorboardService", "metadata.tensorboards:Tensorboards"),
    ("google.logging.v2.LoggingServiceV2", "logging.service:LoggingService"),
    ("google.longrunning.Operations", "operations:Operations"),
    ("google.cloud.location.Locations", "project.locations:Locations"),
)
"""Services and the classes that implement them: `create_custom_job` implements CreateCustomJob. LIMITS describe what a
method lacks, RULES add HTTP rules that no library has, LOOKUPS name resources with generic Get and List methods, and
`resume` is called after a start."""


@dataclass(frozen=True)
class EmulatedMethod:
    """A method, the class that implements it, and what it lacks."""

    method: RpcMethod
    part: str = ""
    limit: str = ""

    @property
    def extent(self) -> str:
        """How far the method is emulated: `played`, `partly` or `not`."""
        return "not" if not self.part else "partly" if self.limit else "played"


def to_snake_case(name: str) -> str:
    """Convert CamelCase to snake_case: CreateCustomJob -> create_custom_job."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def part_of(kind: type) -> str:
    """Return the name of a class in the table."""
    return f"{kind.__module__.removeprefix('vertex_rehearsal.')}:{kind.__name__}"


def load_service(part: str) -> Any:
    """Import the class that a name in the table refers to."""
    module, _, name = part.partition(":")
    return getattr(import_module(f"vertex_rehearsal.{module}"), name)


def build_method_table() -> Mapping[str, EmulatedMethod]:
    """Return every known method by its path, with how far it is emulated."""
    table = {path: EmulatedMethod(method) for path, method in load_methods().items()}
    for service, part in PARTS:
        implementation = load_service(part)
        rules, limits = getattr(implementation, "RULES", {}), getattr(implementation, "LIMITS", {})
        for path, known in table.items():
            if known.method.service != service:
                continue
            method, name = known.method, known.method.name
            if name in rules:
                method = replace(method, rules=rules[name])
            if hasattr(implementation, to_snake_case(name)) or is_lookup(implementation, name):
                table[path] = EmulatedMethod(method, part, limits.get(name, ""))
    return table


def list_methods(played: Mapping[str, EmulatedMethod] | None = None) -> list[tuple[str, str, str]]:
    """Return every method with how far it is emulated and what it lacks; Cloud Storage and other services last."""
    from vertex_rehearsal.cloud_storage.methods import list_storage_methods
    from vertex_rehearsal.other_services import routes

    known = (build_method_table() if played is None else played).values()
    rows = [(entry.method.path, entry.extent, entry.limit) for entry in known]
    rows += [(method.id, method.extent, method.limit) for method in list_storage_methods()]
    return rows + [(method.id, method.extent, method.limit) for method in routes.methods()]


def list_fault_targets(played: Mapping[str, EmulatedMethod]) -> set[str]:
    """Return the names for which faults can be injected: methods, services and APIs, including Cloud Storage."""
    from vertex_rehearsal.other_services import routes
    from vertex_rehearsal.project.permissions import get_method_names
    from vertex_rehearsal.project.storage_authorization import PERMISSIONS

    names = {name for known in played.values() if known.part for name in get_method_names(known.method)}
    return names | {"storage", *PERMISSIONS, *routes.SERVICE_CLASSES, *(method.id for method in routes.methods())}


def bind_handlers(
    played: Mapping[str, EmulatedMethod], parts: Mapping[str, Any], context: Context
) -> Mapping[str, Callable[..., Any]]:
    """Return the handler of each emulated method by the method's path."""
    handlers: dict[str, Callable[..., Any]] = {}
    for path, known in played.items():
        if not known.part:
            continue
        service = parts[known.part]
        handler = getattr(service, to_snake_case(known.method.name), None)
        handlers[path] = handler or create_handler(type(service), known.method, context)
    return handlers
