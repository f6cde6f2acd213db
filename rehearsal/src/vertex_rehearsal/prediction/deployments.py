"""Starts, restarts and ends the servers of deployed models."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.logging.store import parse_line
from vertex_rehearsal.prediction import models
from vertex_rehearsal.prediction.servers import ModelServerPool, ModelServerSpec, WriteLog

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

LOG = "aiplatform.googleapis.com%2Fprediction_container"
RESOURCE = "aiplatform.googleapis.com/Endpoint"


class Deployments:
    """The running servers of all endpoints."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._lock = threading.Lock()
        self._servers: dict[tuple[str, str], ModelServerPool] = {}
        """Keyed by the endpoint's name and the deployed model's id."""
        self._closed = False

    def start(self, endpoint: str, deployed: Any) -> ModelServerPool:
        """Start the servers of a deployed model."""
        model = models.find_version(self._context, f"{deployed.model}@{deployed.model_version_id}")
        resources = deployed.dedicated_resources
        count = resources.min_replica_count or deployed.automatic_resources.min_replica_count or 1
        endpoint_id = endpoint.rpartition("/")[2]
        spec = ModelServerSpec(
            endpoint,
            deployed.id,
            model,
            models.get_storage_uri(self._context, model),
            count,
            resources.machine_spec,
            self._context.settings.directory / "endpoints" / endpoint_id,
            self._context.settings,
        )
        with self._lock:
            if self._closed:
                raise ApiError("UNAVAILABLE", "The rehearsal is being stopped.")
            if (endpoint, deployed.id) in self._servers:
                raise ApiError("ALREADY_EXISTS", f"The DeployedModel {deployed.id} of {endpoint} is there already.")
            servers = ModelServerPool(spec, self._context, self._make_log_writer(endpoint, deployed.id))
            self._servers[endpoint, deployed.id] = servers
        return servers

    def end(self, endpoint: str, deployed_id: str) -> None:
        """End the servers of a deployed model, if there are any."""
        with self._lock:
            servers = self._servers.pop((endpoint, deployed_id), None)
        if servers:
            servers.end()

    def find(self, endpoint: str, deployed_id: str) -> ModelServerPool:
        """Return the servers of a deployed model; raise UNAVAILABLE if none run."""
        with self._lock:
            servers = self._servers.get((endpoint, deployed_id))
        if servers is None:
            raise ApiError("UNAVAILABLE", f"No server of the deployed model {deployed_id} runs.")
        return servers

    def list_holders(self, model: str) -> list[str]:
        """Return the endpoints where servers of a model version run or are being started."""
        with self._lock:
            return [
                servers.server_spec.holder
                for servers in self._servers.values()
                if servers.server_spec.model.name == model
            ]

    def resume(self) -> None:
        """Start the servers of all models that were deployed when the emulator stopped."""
        for endpoint in self._context.database.list_all(v1.Endpoint.DESCRIPTOR.full_name):
            for deployed in endpoint.deployed_models:
                try:
                    servers = self.start(endpoint.name, deployed)
                except ApiError as problem:
                    self._log_failure(endpoint.name, deployed.id, problem)
                else:
                    threading.Thread(target=self._await_ready, args=(servers,), daemon=True).start()

    def _await_ready(self, servers: ModelServerPool) -> None:
        try:
            servers.wait_until_ready()
        except ApiError as problem:
            if not self._closed:
                self._log_failure(servers.server_spec.holder, servers.server_spec.id, problem)

    def _log_failure(self, endpoint: str, deployed_id: str, problem: ApiError) -> None:
        self._make_log_writer(endpoint, deployed_id)(
            [f"It could not be started again. {problem.message}"], "ERROR", "service"
        )

    def close(self) -> None:
        """End every server."""
        with self._lock:
            self._closed = True
            servers = list(self._servers.values())
            self._servers.clear()
        threads = [threading.Thread(target=pool.end, daemon=True) for pool in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _make_log_writer(self, endpoint: str, deployed_id: str) -> WriteLog:
        _, project, _, region, _, endpoint_id = endpoint.split("/")
        resource = {
            "type": RESOURCE,
            "labels": {
                "endpoint_id": endpoint_id,
                "location": region,
                "resource_container": self._context.project_number(project),
            },
        }

        def write(lines: Sequence[str], severity: str, replica: str) -> None:
            labels = {"deployed_model_id": deployed_id, "replica_id": replica}
            heading = {"logName": f"projects/{project}/logs/{LOG}", "resource": resource, "labels": labels}
            self._context.logs.write([heading | parse_line(line, severity) for line in lines])

        return write
