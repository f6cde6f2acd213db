"""Request and response bodies in the forms that are understood: Vertex AI's, Hugging Face's and AutoML's."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tagline.models import Prediction
from tagline.storage import inputs

if TYPE_CHECKING:
    from tagline.data.texts import Text

Form = Literal["tagline", "automl", "inputs"]
PARAMETERS = {"instances": ("sets", "format"), "inputs": ("sets", "top_k")}
FORMATS = ("tagline", "automl")


@dataclass(frozen=True)
class Limits:
    """Limits of a request."""

    body_bytes: int = 2 * 2**20
    instances: int = 1000
    characters: int = 100_000


class RefusedRequest(Exception):
    """A request is refused, with an HTTP status and one sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class PredictRequest:
    """A parsed request."""

    texts: "list[Text]"
    form: Form = "tagline"
    sets: float | None = None
    top_k: int | None = None
    """Number of labels to return, in the form `inputs`."""


def parse_json(body: bytes | str) -> dict[str, Any]:
    """Parse a body as JSON."""
    try:
        found = json.loads(body)
    except UnicodeDecodeError as error:
        raise RefusedRequest(400, "the body is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(400, f"the body is not JSON: {str(error) or 'too deep'}"[:200]) from error
    if not isinstance(found, dict):
        raise RefusedRequest(400, 'the body must be an object: {"instances": [...]}')
    return found


def parse_request(body: bytes, *, pair: bool, limits: Limits) -> PredictRequest:
    """Parse and check a body; raises RefusedRequest."""
    return read_request(parse_json(body), pair=pair, limits=limits)


def read_request(document: Mapping[str, Any], *, pair: bool, limits: Limits) -> PredictRequest:
    """Parse a body that is JSON."""
    if "instances" in document:
        key, given = "instances", document["instances"]
        if not isinstance(given, list):
            raise RefusedRequest(400, "instances must be a list")
    elif "inputs" in document:
        key, given = "inputs", document["inputs"]
        is_pair = pair and isinstance(given, list) and len(given) == 2 and all(isinstance(t, str) for t in given)
        given = [given] if is_pair or not isinstance(given, list) else given
    else:
        raise RefusedRequest(400, 'give {"instances": [...]}, or {"inputs": ...}')
    if len(given) > limits.instances:
        raise RefusedRequest(413, f"{len(given):,} {key}; at most {limits.instances:,} in one request")
    parameters = _read_parameters(document, PARAMETERS[key])
    form: Form = "inputs" if key == "inputs" else _read_format(parameters)
    texts = [_read_text(each, f"{key}[{number}]", pair=pair, limits=limits) for number, each in enumerate(given)]
    return PredictRequest(texts, form, _read_sets(parameters), _read_top_k(parameters))


def format_answer(asked: PredictRequest, predictions: Sequence[Prediction]) -> Any:
    """Format the response body in the form of the request."""
    match asked.form:
        case "inputs":
            return [_rank_labels(prediction)[: asked.top_k] for prediction in predictions]
        case "automl":
            return {"predictions": [_format_automl(prediction) for prediction in predictions]}
        case _:
            return {"predictions": [prediction.to_dict() for prediction in predictions]}


def _read_parameters(document: Mapping[str, Any], known: Sequence[str]) -> Mapping[str, Any]:
    parameters = document.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RefusedRequest(400, "parameters must be an object")
    if unknown := [name for name in parameters if name not in known]:
        raise RefusedRequest(400, f'no parameter "{unknown[0]}"; there are: {", ".join(known)}'[:200])
    return parameters


def _read_format(parameters: Mapping[str, Any]) -> Any:
    form = parameters.get("format", "tagline")
    if form not in FORMATS:
        raise RefusedRequest(400, f"parameters.format must be one of: {', '.join(FORMATS)}")
    return form


def _read_sets(parameters: Mapping[str, Any]) -> float | None:
    sets = parameters.get("sets")
    if sets is None:
        return None
    if isinstance(sets, bool) or not isinstance(sets, int | float) or not 0 < sets < 1:
        raise RefusedRequest(400, "parameters.sets must be a share such as 0.95")
    return float(sets)


def _read_top_k(parameters: Mapping[str, Any]) -> int | None:
    top_k = parameters.get("top_k")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise RefusedRequest(400, "parameters.top_k must be a number of labels")
    return top_k


def _read_text(instance: Any, where: str, *, pair: bool, limits: Limits) -> "Text":
    """Parse a string, a list of two strings, or an object with `text` (or AutoML's `content`) and `text_pair`."""
    given: list[Any]
    if isinstance(instance, dict):
        second = instance.get("text_pair")
        given = [instance.get("text", instance.get("content")), *([] if second is None else [second])]
    else:
        given = instance if isinstance(instance, list) else [instance]
    parts = [part for part in given if isinstance(part, str)]
    if len(parts) != len(given) or not 1 <= len(parts) <= 2:
        raise RefusedRequest(400, f'{where} must be a text, two texts, or {{"text": ..., "text_pair": ...}}')
    if len(parts) != (2 if pair else 1):
        wanted = "two texts: this bundle reads pairs" if pair else "one text: this bundle reads no pairs"
        raise RefusedRequest(400, f"{where} must be {wanted}")
    size = sum(len(part) for part in parts)
    if size > limits.characters:
        raise RefusedRequest(413, f"{where} has {size:,} characters; at most {limits.characters:,}")
    if not all(map(inputs.is_utf8, parts)):
        raise RefusedRequest(400, f"{where} holds half a character (a lone surrogate)")
    return (parts[0], parts[1]) if pair else parts[0]


def _rank_labels(prediction: Prediction) -> list[dict[str, Any]]:
    """Format as Hugging Face's servers do: every label with its score, the likeliest first."""
    ranked = sorted(prediction.scores.items(), key=lambda item: -item[1])
    return [{"label": label, "score": score} for label, score in ranked]


def _format_automl(prediction: Prediction) -> dict[str, Any]:
    """Format as AutoML Text did: labels and confidences side by side, a label's index as its id."""
    places = {label: str(number) for number, label in enumerate(prediction.scores)}
    ranked = _rank_labels(prediction)
    return {
        "ids": [places[each["label"]] for each in ranked],
        "displayNames": [each["label"] for each in ranked],
        "confidences": [each["score"] for each in ranked],
    }


def text_schema(*, pair: bool) -> dict[str, Any]:
    """Return the OpenAPI schema of an instance."""
    string = {"type": "string"}
    second = string if pair else {"type": "null"}
    listed = {"type": "array", "items": string, "minItems": 1 + pair, "maxItems": 1 + pair}
    named = {
        "type": "object",
        "properties": {"text": string, "text_pair": second},
        "required": ["text", "text_pair"] if pair else ["text"],
    }
    return {"anyOf": [listed, named] if pair else [string, listed, named]}


def request_schema(limits: Limits, *, pair: bool) -> dict[str, Any]:
    """Return the OpenAPI schema of a request."""
    text = text_schema(pair=pair)
    most = f"at most {limits.instances:,}, each of at most {limits.characters:,} characters"
    texts = {"type": "array", "items": text, "description": most}
    # Without pairs, a list is one of several texts.
    one = text if pair else {"anyOf": [kind for kind in text["anyOf"] if kind["type"] != "array"]}
    known = {
        "sets": {
            "type": ["number", "null"],
            "minimum": 0.5,
            "maximum": 0.99,
            "description": "add sets of labels that hold the truth with this probability",
        },
        "format": {"type": "string", "enum": list(FORMATS)},
        "top_k": {"type": ["integer", "null"], "minimum": 1, "description": "name so many labels; else all of them"},
    }
    by_key = {
        key: {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": {name: known[name] for name in names},
        }
        for key, names in PARAMETERS.items()
    }
    return {
        "anyOf": [
            {
                "type": "object",
                "required": ["instances"],
                "properties": {"instances": texts, "parameters": by_key["instances"]},
            },
            {
                "type": "object",
                "required": ["inputs"],
                "not": {"required": ["instances"]},
                "properties": {"inputs": {"anyOf": [one, texts]}, "parameters": by_key["inputs"]},
            },
        ]
    }


def answer_schema(labels: Sequence[str], *, task: str) -> dict[str, Any]:
    """Return the OpenAPI schema of the response to `instances`."""
    scores = {"type": "object", "additionalProperties": {"type": "number"}}
    label = {"type": "string", "enum": list(labels)}
    answer = (
        {"label": label, "score": {"type": "number"}}
        if task == "single"
        else {"labels": {"type": "array", "items": label}}
    )
    properties = {
        **answer,
        "scores": scores,
        "abstained": {"type": "boolean"},
        "set": {"type": "array", "items": label},
    }
    prediction = {"type": "object", "properties": properties, "required": ["scores", *answer]}
    strings, numbers = ({"type": "array", "items": {"type": kind}} for kind in ("string", "number"))
    automl = {
        "type": "object",
        "properties": {"ids": strings, "displayNames": strings, "confidences": numbers},
        "required": ["ids", "displayNames", "confidences"],
    }
    predictions = {"type": "array", "items": {"anyOf": [prediction, automl]}}
    return {"type": "object", "properties": {"predictions": predictions}, "required": ["predictions"]}
