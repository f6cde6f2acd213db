"""The API of online predictions: requests routed to an endpoint's models by its traffic split."""

import json
import random
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import as_dict, fill_message, message_class, v1
from vertex_rehearsal.prediction.deployments import Deployments
from vertex_rehearsal.prediction.servers import ServerResponse

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

LARGEST_BYTES = 1_572_864
"""The limit of shared endpoints: 1.5 MB."""
LARGEST_DEDICATED_BYTES = 10 * 2**20
LONGEST_S = 60.0
LONGEST_MESSAGE = 4000
CODES = {
    401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED", 429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
"""A server's HTTP status and the code that clients get; other statuses are FAILED_PRECONDITION below 500 and INTERNAL
from 500 on."""


def build_server_error(answer: ServerResponse) -> ApiError:
    """Return an error with a server's own message."""
    fallback = "FAILED_PRECONDITION" if answer.status < 500 else "INTERNAL"
    text = answer.content.decode("utf-8", "replace")[:LONGEST_MESSAGE]
    return ApiError(CODES.get(answer.status, fallback), text or f"The model's server answered {answer.status}.")


def parse_predictions(answer: ServerResponse) -> dict[str, Any]:
    """Parse a server's JSON response; raise ApiError if it is an error or has no list of `predictions`."""
    if answer.status != 200:
        raise build_server_error(answer)
    try:
        content = json.loads(answer.content, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise ApiError("INTERNAL", f"The model's server did not answer with JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("predictions"), list):
        excerpt = answer.content.decode("utf-8", "replace")[:200]
        raise ApiError("INTERNAL", f'The model\'s server answered without a list "predictions": {excerpt}')
    return content


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class PredictionService:
    """The RPCs of google.cloud.aiplatform.v1.PredictionService about models of one's own."""

    LIMITS = {  # noqa: RUF012
        "Predict": "Endpoints of one's own, no publishers' models; explanations and request logging are not played.",
        "RawPredict": "The server's own path is never changed; an error has Google's form and the server's text.",
    }

    def __init__(self, context: "Context", deployments: Deployments) -> None:
        self._context = context
        self._deployments = deployments

    def predict(self, request: Any) -> Any:
        """Send instances and parameters to a model's server and return its predictions."""
        endpoint = self._get_endpoint(request.endpoint)
        if not request.instances:
            raise invalid_argument("instances", "Required field is not set: instances.")
        fields = as_dict(request)
        body = json.dumps({key: fields[key] for key in ("instances", "parameters") if key in fields}).encode()
        _check_size(endpoint, len(body))
        deployed = self._choose_model(endpoint)
        content = parse_predictions(self._send_to_server(endpoint, deployed, body, "application/json"))
        model = self._context.database.get(f"{deployed.model}@{deployed.model_version_id}")
        response = v1.PredictResponse(
            deployed_model_id=deployed.id,
            model=deployed.model,
            model_version_id=deployed.model_version_id,
            model_display_name=model.display_name,
        )
        return fill_message(response, {key: content[key] for key in ("predictions", "metadata") if key in content})

    def raw_predict(self, request: Any) -> Any:
        """Send any body to a model's server and return its response unchanged."""
        endpoint = self._get_endpoint(request.endpoint)
        body = request.http_body
        _check_size(endpoint, len(body.data))
        answer = self._send_to_server(
            endpoint, self._choose_model(endpoint), body.data, body.content_type or "application/json"
        )
        if answer.status != 200:
            raise build_server_error(answer)
        return message_class("google.api.HttpBody")(content_type=answer.content_type, data=answer.content)

    def _get_endpoint(self, name: str) -> Any:
        if "/publishers/" in name:
            raise ApiError("UNIMPLEMENTED", f"{name} is not played by this rehearsal: publishers' models are not here.")
        return self._context.database.get(name)

    def _choose_model(self, endpoint: Any) -> Any:
        """Choose a deployed model at random, weighted by the traffic split."""
        if not endpoint.deployed_models:
            raise ApiError("FAILED_PRECONDITION", f"The Endpoint {endpoint.name} has no deployed models.")
        shares = {key: share for key, share in endpoint.traffic_split.items() if share}
        if not shares:
            raise ApiError(
                "FAILED_PRECONDITION", f"The Endpoint {endpoint.name} gives no traffic to any of its models."
            )
        chosen = random.choices(list(shares), list(shares.values()))[0]  # noqa: S311
        return next(deployed for deployed in endpoint.deployed_models if deployed.id == chosen)

    def _send_to_server(self, endpoint: Any, deployed: Any, body: bytes, content_type: str) -> ServerResponse:
        servers = self._deployments.find(endpoint.name, deployed.id)
        return servers.send_request(servers.server_spec.predict_route, body, content_type, timeout_s=LONGEST_S)


def _check_size(endpoint: Any, size: int) -> None:
    most = LARGEST_DEDICATED_BYTES if endpoint.dedicated_endpoint_enabled else LARGEST_BYTES
    if size > most:
        raise ApiError("INVALID_ARGUMENT", f"Request payload size exceeds the limit: {most} bytes.")
