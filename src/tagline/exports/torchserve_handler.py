"""The handler in an archive for TorchServe, which answers its requests with the bundle's own predictor."""

import base64
import binascii
import json
from pathlib import Path
from typing import Any

from tagline.errors import TaglineError
from tagline.models import Prediction
from tagline.prediction.predictor import Predictor
from tagline.serving import protocol
from tagline.serving.protocol import Limits, PredictRequest, RefusedRequest


class TaglineHandler:
    """Created once in each worker of TorchServe: `initialize` once, then `handle` for each batch of requests."""

    def initialize(self, context: Any) -> None:
        """Load the bundle from the directory into which TorchServe unpacked the archive."""
        self._predictor = Predictor.load(Path(context.system_properties["model_dir"]) / "bundle")

    def handle(self, requests: list[dict[str, Any]], context: Any) -> list[bytes]:
        """Return an answer for each request of a batch; a refused request does not affect the others."""
        accepted: dict[int, PredictRequest] = {}
        answers: list[Any] = [None] * len(requests)
        for number, request in enumerate(requests):
            context.set_response_content_type(number, "application/json")
            try:
                document = _decode_instances(_read_document(request))
                accepted[number] = protocol.read_request(document, pair=self._predictor.pair, limits=Limits())
            except RefusedRequest as refused:
                context.set_response_status(refused.status, "", number)
                answers[number] = {"error": refused.message}
        for sets in {each.sets for each in accepted.values()}:
            group = {number: each for number, each in accepted.items() if each.sets == sets}
            try:
                predictions = iter(
                    self._predictor.predict([t for each in group.values() for t in each.texts], sets=sets)
                )
            except TaglineError as error:  # prediction sets that the bundle cannot make
                for number in group:
                    context.set_response_status(400, "", number)
                    answers[number] = {"error": error.message}
                continue
            for number, each in group.items():
                own_predictions: list[Prediction] = [next(predictions) for _ in each.texts]
                answers[number] = protocol.format_answer(each, own_predictions)
        return [json.dumps(answer, ensure_ascii=False).encode() for answer in answers]


def _read_document(request: dict[str, Any]) -> dict[str, Any]:
    """Return the body, which TorchServe has parsed if its type is JSON; a form's field is called data."""
    body = request.get("body", request.get("data", request))
    if isinstance(body, bytes | bytearray | str):
        return protocol.parse_json(bytes(body) if isinstance(body, bytearray) else body)
    if not isinstance(body, dict):
        raise RefusedRequest(400, 'the body must be an object: {"instances": [...]}')
    return body


def _decode_instances(document: dict[str, Any]) -> dict[str, Any]:
    """Decode instances as tutorials send them to TorchServe's envelope `json`: {"data": {"b64": ...}}."""
    instances = document.get("instances")
    if not isinstance(instances, list):
        return document
    return document | {"instances": [_decode_instance(each, number) for number, each in enumerate(instances)]}


def _decode_instance(instance: Any, number: int) -> Any:
    inner = instance.get("data") if isinstance(instance, dict) and list(instance) == ["data"] else instance
    if not (isinstance(inner, dict) and list(inner) == ["b64"]):
        return inner
    try:
        return base64.b64decode(inner["b64"], validate=True).decode("utf-8")
    except (binascii.Error, TypeError, ValueError) as error:
        raise RefusedRequest(400, f"instances[{number}].b64 is not base64 of UTF-8") from error
