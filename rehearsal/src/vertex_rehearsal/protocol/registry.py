"""The table of what is played: each service of Google's APIs, and the classes that play its methods."""

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
"""A class plays the RPCs that its methods are named for: `create_custom_job` is CreateCustomJob. Its LIMITS say what is
missing from a method, its RULES add HTTP rules that no library holds, its LOOKUPS name resources whose Get and List
only look them up, its `resume` is called after a start."""


@dataclass(frozen=True)
class EmulatedMethod:
    """A method, who plays it, and what is missing."""

    method: RpcMethod
    part: str = ""
    limit: str = ""

    @property
    def extent(self) -> str:
        """played, partly or not."""
        return "not" if not self.part else "partly" if self.limit else "played"


def to_snake_case(name: str) -> str:
    """CreateCustomJob -> create_custom_job."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def part_of(kind: type) -> str:
    """The name of a class in the table."""
    return f"{kind.__module__.removeprefix('vertex_rehearsal.')}:{kind.__name__}"


def load_service(part: str) -> Any:
    """The class of a part."""
    module, _, name = part.partition(":")
    return getattr(import_module(f"vertex_rehearsal.{module}"), name)


def build_method_table() -> Mapping[str, EmulatedMethod]:
    """Every known method by its path, with what is played of it."""
    found = {path: EmulatedMethod(method) for path, method in load_methods().items()}
    for service, part in PARTS:
        player = load_service(part)
        rules, limits = getattr(player, "RULES", {}), getattr(player, "LIMITS", {})
        for path, known in found.items():
            if known.method.service != service:
                continue
            method, name = known.method, known.method.name
            if name in rules:
                method = replace(method, rules=rules[name])
            if hasattr(player, to_snake_case(name)) or is_lookup(player, name):
                found[path] = EmulatedMethod(method, part, limits.get(name, ""))
    return found


def list_methods(played: Mapping[str, EmulatedMethod] | None = None) -> list[tuple[str, str, str]]:
    """Every method with how far it is played and what is missing, those of Cloud Storage and of neighbours last."""
    from vertex_rehearsal.cloud_storage.methods import list_storage_methods
    from vertex_rehearsal.other_services import routes

    known = (build_method_table() if played is None else played).values()
    rows = [(one.method.path, one.extent, one.limit) for one in known]
    rows += [(method.id, method.extent, method.limit) for method in list_storage_methods()]
    return rows + [(method.id, method.extent, method.limit) for method in routes.methods()]


def list_fault_targets(played: Mapping[str, EmulatedMethod]) -> set[str]:
    """By which faults may be asked for: methods, services and APIs, those of Cloud Storage and neighbours too."""
    from vertex_rehearsal.other_services import routes
    from vertex_rehearsal.project.permissions import get_method_names
    from vertex_rehearsal.project.storage_authorization import PERMISSIONS

    names = {name for known in played.values() if known.part for name in get_method_names(known.method)}
    return names | {"storage", *PERMISSIONS, *routes.SERVICE_CLASSES, *(method.id for method in routes.methods())}


def bind_handlers(
    played: Mapping[str, EmulatedMethod], parts: Mapping[str, Any], context: Context
) -> Mapping[str, Callable[..., Any]]:
    """Who answers each method that is played, by the method's path."""
    found: dict[str, Callable[..., Any]] = {}
    for path, known in played.items():
        if not known.part:
            continue
        service = parts[known.part]
        own = getattr(service, to_snake_case(known.method.name), None)
        found[path] = own or create_handler(type(service), known.method, context)
    return found
