"""The API of endpoints: created, updated, deleted, and models deployed to them with a traffic split."""

import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import protobuf, v1
from vertex_rehearsal.listing import get_base_model_name
from vertex_rehearsal.machines import find_misfit
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.prediction import models
from vertex_rehearsal.prediction.deployments import Deployments
from vertex_rehearsal.training import validation

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?|[1-9][0-9]{0,8}")
NAME = re.compile(r"projects/[^/]+/locations/[^/]+/endpoints/[^/]+")
DEPLOYED_ID = re.compile(r"[0-9]{1,10}")
BEING_DEPLOYED = "0"
"""The key of the model being deployed in the traffic split of a DeployModel request."""
SERVING_ONLY = frozenset(("n1-standard-2", "n1-highcpu-2", "n1-highcpu-4", "n1-highcpu-8"))
"""Machine types for serving only, not for training."""
CHANGEABLE = ("display_name", "description", "labels", "traffic_split")
MOST_REPLICAS = 100
METRICS = "aiplatform.googleapis.com/prediction/online/"
MOST_TARGETS = {"accelerator/duty_cycle": 100, "cpu/utilization": 100, "request_count": 2**31 - 1}
"""Highest target of each autoscaling metric: two in percent, and requests per minute."""
DEFAULT_TARGET = 60


def check_machine(machine: Any, at: str) -> None:
    """Raise INVALID_ARGUMENT unless Vertex AI serves on the machine type with these accelerators."""
    if not machine.machine_type:
        raise invalid_argument(f"{at}.machine_type", "Required field is not set: machine_type.")
    if machine.machine_type in SERVING_ONLY and not machine.accelerator_count:
        return
    kind = v1.AcceleratorType.Name(machine.accelerator_type)
    field, reason = find_misfit(machine.machine_type, kind, machine.accelerator_count)
    if reason:
        raise invalid_argument(f"{at}.{field}", reason)


def check_autoscaling(specs: Any, at: str) -> None:
    """Raise INVALID_ARGUMENT if an autoscaling metric is unknown, repeated or has a target out of range."""
    seen: set[str] = set()
    for number, spec in enumerate(specs):
        name = spec.metric_name.removeprefix(METRICS)
        if name not in MOST_TARGETS or name == spec.metric_name:
            known = ", ".join(f"{METRICS}{metric}" for metric in MOST_TARGETS)
            text = f'"{spec.metric_name}" is no metric to scale by: {known}.'
            raise invalid_argument(f"{at}[{number}].metric_name", text)
        if name in seen:
            raise invalid_argument(f"{at}[{number}].metric_name", f"The metric {spec.metric_name} is there twice.")
        seen.add(name)
        spec.target = spec.target or DEFAULT_TARGET
        if not 1 <= spec.target <= MOST_TARGETS[name]:
            text = f"The target of {spec.metric_name} must be from 1 to {MOST_TARGETS[name]}, not {spec.target}."
            raise invalid_argument(f"{at}[{number}].target", text)


class Endpoints:
    """The RPCs of google.cloud.aiplatform.v1.EndpointService."""

    LOOKUPS = {"Endpoint": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateEndpoint": "Networks, private service connect, encryption and request logging have no effect; a "
        "dedicated endpoint has its larger limit and no host name of its own.",
        "DeployModel": "Dedicated resources: min_replica_count replicas, which never become more; machines and service "
        "accounts have no effect. AIP_HTTP_PORT is a free port of this machine, whose network a server shares.",
        "UpdateEndpoint": "display_name, description, labels and traffic_split.",
    }

    def __init__(self, context: "Context", deployments: Deployments) -> None:
        self._context = context
        self._deployments = deployments
        self._lock = threading.RLock()
        self._deploying: dict[str, int] = {}
        """Number of models being deployed, by endpoint."""

    def create_endpoint(self, request: Any) -> Any:
        """Create an endpoint without models."""
        validation.check_parent(request.parent)
        endpoint = v1.Endpoint()
        endpoint.CopyFrom(request.endpoint)
        validation.check_name_and_labels(endpoint, "endpoint")
        if request.endpoint_id and not ID.fullmatch(request.endpoint_id):
            form = "at most 63 of a-z, 0-9 and -, a letter first and no - last; or at most 9 digits, no 0 first"
            text = f'"{request.endpoint_id}" is no endpoint id: {form}.'
            raise invalid_argument("endpoint_id", text)
        for field in ("deployed_models", "traffic_split", "create_time", "update_time", "etag"):
            endpoint.ClearField(field)
        endpoint.name = f"{request.parent}/endpoints/{request.endpoint_id or new_id()}"
        endpoint.create_time.GetCurrentTime()
        endpoint.update_time.CopyFrom(endpoint.create_time)
        self._context.database.add(endpoint)
        return self._context.operations.done(endpoint.name, v1.CreateEndpointOperationMetadata(), lambda: endpoint)

    def update_endpoint(self, request: Any) -> Any:
        """Update the fields in the update mask."""
        changes = request.endpoint
        if not NAME.fullmatch(changes.name):
            raise invalid_argument("endpoint.name", f'"{changes.name}" is no name of an endpoint.')
        _, project, *rest = changes.name.split("/")
        name = "/".join(["projects", self._context.project_id(project), *rest])
        fields = models.check_mask(changes, request.update_mask, "endpoint", CHANGEABLE)
        with self._lock, self._context.database.change(name) as endpoint:
            validation.check_etag(changes, endpoint)
            if "traffic_split" in fields and (changes.traffic_split or endpoint.deployed_models):
                ids = {deployed.id for deployed in endpoint.deployed_models}
                _check_split(changes.traffic_split, ids, "endpoint.traffic_split", may_be_empty=True)
            for field in fields:
                models.copy_field_value(endpoint, changes, field)
        return self._context.database.get(name)

    def delete_endpoint(self, request: Any) -> Any:
        """Delete an endpoint that has no models."""
        with self._lock:
            endpoint = self._context.database.get(request.name)
            if endpoint.deployed_models or self._deploying.get(endpoint.name):
                raise ApiError(
                    "FAILED_PRECONDITION",
                    f'The Endpoint "{endpoint.name}" has deployed or being-deployed DeployedModel(s): '
                    "undeploy all models before deleting it.",
                )
            self._context.database.remove(endpoint.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def deploy_model(self, request: Any) -> Any:
        """Start a model's servers and deploy it once all of them are healthy."""
        deployed = v1.DeployedModel()
        deployed.CopyFrom(request.deployed_model)
        with self._lock:
            endpoint = self._context.database.get(request.endpoint)
            model = models.find_version(self._context, deployed.model, "deployed_model.model")
            self._check_deployable(endpoint, model, deployed)
            ids = {each.id for each in endpoint.deployed_models}
            split = dict(request.traffic_split)
            if split:
                _check_split(split, ids | {BEING_DEPLOYED}, "traffic_split")
            deployed.id = deployed.id or new_id()
            deployed.model, deployed.model_version_id = models.get_model_name(model), model.version_id
            deployed.display_name = deployed.display_name or model.display_name
            deployed.create_time.GetCurrentTime()
            servers = self._deployments.start(endpoint.name, deployed)
            self._deploying[endpoint.name] = self._deploying.get(endpoint.name, 0) + 1

        def deploy() -> Any:
            try:
                servers.wait_until_ready()
                with self._lock, self._context.database.change(endpoint.name) as current:
                    if split:
                        present = {each.id for each in current.deployed_models} | {BEING_DEPLOYED}
                        _check_split(split, present, "traffic_split")  # others may have been undeployed since
                        current.traffic_split.clear()
                        for key, share in split.items():
                            current.traffic_split[deployed.id if key == BEING_DEPLOYED else key] = share
                    current.deployed_models.append(deployed)
                    self._note_base_model(current)
            except BaseException:
                self._deployments.end(endpoint.name, deployed.id)
                raise
            finally:
                with self._lock:
                    self._deploying[endpoint.name] -= 1
            return v1.DeployModelResponse(deployed_model=deployed)

        return self._context.operations.start_operation(endpoint.name, v1.DeployModelOperationMetadata(), deploy)

    def undeploy_model(self, request: Any) -> Any:
        """Remove a model from an endpoint's traffic split and end its servers."""
        deployed_id = request.deployed_model_id
        if not deployed_id:
            raise invalid_argument("deployed_model_id", "Required field is not set: deployed_model_id.")
        with self._lock, self._context.database.change(request.endpoint) as endpoint:
            remaining = [each for each in endpoint.deployed_models if each.id != deployed_id]
            if len(remaining) == len(endpoint.deployed_models):
                raise ApiError("NOT_FOUND", f"The Endpoint {request.endpoint} has no DeployedModel {deployed_id}.")
            split = dict(request.traffic_split or endpoint.traffic_split)
            if not remaining:
                split = {}
            elif split.get(deployed_id):
                raise ApiError(
                    "FAILED_PRECONDITION",
                    f"The DeployedModel {deployed_id} has {split[deployed_id]} percent of the traffic: "
                    "give them to others by traffic_split.",
                )
            elif request.traffic_split:
                _check_split(split, {each.id for each in remaining} | {deployed_id}, "traffic_split")
            split.pop(deployed_id, None)
            endpoint.traffic_split.clear()
            endpoint.traffic_split.update(split)
            del endpoint.deployed_models[:]
            endpoint.deployed_models.extend(remaining)
            self._note_base_model(endpoint)

        def undeploy() -> Any:
            self._deployments.end(request.endpoint, deployed_id)
            return v1.UndeployModelResponse()

        operations = self._context.operations
        operation = operations.start_operation(request.endpoint, v1.UndeployModelOperationMetadata(), undeploy)
        return operations.wait_for(operation.name, models.QUICK_S)

    def _note_base_model(self, endpoint: Any) -> None:
        """Store the base model of an endpoint's models, by which lists can be filtered."""
        names = (f"{each.model}@{each.model_version_id}" for each in endpoint.deployed_models)
        base_models = {get_base_model_name(models.find_version(self._context, name)) for name in names} - {""}
        self._context.database.add_note(endpoint.name, "base_model_name", min(base_models, default=""))

    def _check_deployable(self, endpoint: Any, model: Any, deployed: Any) -> None:
        at = "deployed_model"
        if model.name.split("/")[3] != endpoint.name.split("/")[3]:
            raise invalid_argument(f"{at}.model", f"The model {model.name} is in another region than the endpoint.")
        if deployed.id and not DEPLOYED_ID.fullmatch(deployed.id):
            raise invalid_argument(f"{at}.id", f'"{deployed.id}" is no id of a deployed model: 1 to 10 digits.')
        if deployed.id in {each.id for each in endpoint.deployed_models}:
            raise ApiError("ALREADY_EXISTS", f"The Endpoint {endpoint.name} has a DeployedModel {deployed.id} already.")
        if deployed.WhichOneof("prediction_resources") != "dedicated_resources":
            message = "The model takes dedicated_resources alone, and they are not set."
            raise invalid_argument(f"{at}.dedicated_resources", message)
        resources = deployed.dedicated_resources
        check_machine(resources.machine_spec, f"{at}.dedicated_resources.machine_spec")
        least, most = resources.min_replica_count, resources.max_replica_count
        if not 0 < least <= MOST_REPLICAS:
            text = f"min_replica_count must be from 1 to {MOST_REPLICAS}, not {least}."
            raise invalid_argument(f"{at}.dedicated_resources.min_replica_count", text)
        if most and most < least:
            text = f"max_replica_count ({most}) must not be below min_replica_count ({least})."
            raise invalid_argument(f"{at}.dedicated_resources.max_replica_count", text)
        resources.max_replica_count = most or least
        check_autoscaling(resources.autoscaling_metric_specs, f"{at}.dedicated_resources.autoscaling_metric_specs")
        validation.check_account(
            deployed.service_account, self._context.project.load_current(), f"{at}.service_account"
        )


def _check_split(split: Mapping[str, int], ids: set[str], at: str, *, may_be_empty: bool = False) -> None:
    if not split and may_be_empty:
        return
    for key, share in split.items():
        if key not in ids:
            raise invalid_argument(at, f'The traffic split names "{key}", which is no DeployedModel of the endpoint.')
        if not 0 <= share <= 100:
            raise invalid_argument(at, f"The traffic of {key} is {share} percent.")
    if sum(split.values()) != 100:
        raise invalid_argument(at, f"The traffic split must add up to 100 percent, not {sum(split.values())}.")
