"""The table of what is played: each service of Google's APIs, and the classes that play its methods."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from tagline.rehearsal.methods import Method, table

VERTEX = "google.cloud.aiplatform.v1"
PARTS = (
    (f"{VERTEX}.JobService", "jobs:CustomJobs"),
    (f"{VERTEX}.JobService", "tuning:TuningJobs"),
    (f"{VERTEX}.JobService", "batch_predictions:BatchPredictions"),
    (f"{VERTEX}.ModelService", "models:Models"),
    (f"{VERTEX}.EndpointService", "endpoints:Endpoints"),
    (f"{VERTEX}.PredictionService", "prediction:Prediction"),
    (f"{VERTEX}.PipelineService", "training_pipelines:TrainingPipelines"),
    (f"{VERTEX}.PipelineService", "pipelines:PipelineJobs"),
    (f"{VERTEX}.MetadataService", "experiments:Experiments"),
    (f"{VERTEX}.TensorboardService", "tensorboards:Tensorboards"),
    ("google.logging.v2.LoggingServiceV2", "logging_service:LoggingService"),
    ("google.longrunning.Operations", "operations:Operations"),
    ("google.cloud.location.Locations", "locations:Locations"),
)
"""A class plays the RPCs that its methods are named for: `create_custom_job` is CreateCustomJob. Its LIMITS say what is
missing from a method, its RULES add HTTP rules that no library holds, its `resume` is called after a start."""


@dataclass(frozen=True)
class Played:
    """A method, who plays it, and what is missing."""

    method: Method
    part: str = ""
    limit: str = ""

    @property
    def extent(self) -> str:
        """played, partly or not."""
        return "not" if not self.part else "partly" if self.limit else "played"


def snake_case(name: str) -> str:
    """CreateCustomJob -> create_custom_job."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def load(part: str) -> Any:
    """The class of a part."""
    module, _, name = part.partition(":")
    return getattr(import_module(f"tagline.rehearsal.{module}"), name)


def programme() -> Mapping[str, Played]:
    """Every known method by its path, with what is played of it."""
    found = {path: Played(method) for path, method in table().items()}
    for service, part in PARTS:
        player = load(part)
        rules, limits = getattr(player, "RULES", {}), getattr(player, "LIMITS", {})
        for path, known in found.items():
            if known.method.service != service:
                continue
            method, name = known.method, known.method.name
            if name in rules:
                method = replace(method, rules=rules[name])
            if hasattr(player, snake_case(name)):
                found[path] = Played(method, part, limits.get(name, ""))
    return found


def listing(played: Mapping[str, Played] | None = None) -> list[tuple[str, str, str]]:
    """Every method with how far it is played and what is missing, those of neighbours last."""
    from tagline.rehearsal.neighbours import door

    known = (programme() if played is None else played).values()
    rows = [(one.method.path, one.extent, one.limit) for one in known]
    return rows + [(method.id, method.extent, method.limit) for method in door.methods()]


def callable_names(played: Mapping[str, Played]) -> set[str]:
    """By which faults may be asked for: methods, services and APIs, those of Cloud Storage and neighbours too."""
    from tagline.rehearsal.neighbours import door
    from tagline.rehearsal.permissions import names_of
    from tagline.rehearsal.storage_calls import PERMISSIONS

    names = {name for known in played.values() if known.part for name in names_of(known.method)}
    return names | {"storage", *PERMISSIONS, *door.NEIGHBOURS, *(method.id for method in door.methods())}


def handlers(played: Mapping[str, Played], parts: Mapping[str, Any]) -> Mapping[str, Callable[..., Any]]:
    """Who answers each method that is played, by the method's path."""
    return {
        path: getattr(parts[known.part], snake_case(known.method.name)) for path, known in played.items() if known.part
    }
