"""The API of model evaluations: imported results, stored with the model version they belong to."""

from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import invalid_argument, not_found_error
from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.prediction.models import find_version, get_model_name
from vertex_rehearsal.training import validation

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

AT = "model_evaluation"
VERSION = "version"
"""The note that holds the model version of an evaluation."""


def delete_evaluations(context: "Context", model: Any) -> None:
    """Delete the evaluations of a model version, since a later version may reuse its number."""
    for evaluation in context.database.list_all(v1.ModelEvaluation.DESCRIPTOR.full_name):
        is_of_model = evaluation.name.startswith(f"{get_model_name(model)}/evaluations/")
        if is_of_model and context.database.get_notes(evaluation.name).get(VERSION) == model.version_id:
            context.database.remove(evaluation.name)


class ModelEvaluations:
    """The RPCs of google.cloud.aiplatform.v1.ModelService about evaluations."""

    LIMITS = {  # noqa: RUF012
        "ImportModelEvaluation": "Metrics are kept as they come: no schema is read, and explanations have no effect.",
    }

    def __init__(self, context: "Context") -> None:
        self._context = context

    def import_model_evaluation(self, request: Any) -> Any:
        """Store the evaluation of a model version; of the default version unless another is named."""
        model = find_version(self._context, request.parent, "parent")
        imported = request.model_evaluation
        if not imported.metrics.ByteSize():
            raise invalid_argument(f"{AT}.metrics", "Required field is not set: metrics.")
        if imported.metrics_schema_uri:
            validation.check_output(imported.metrics_schema_uri, f"{AT}.metrics_schema_uri")
        evaluation = v1.ModelEvaluation()
        evaluation.CopyFrom(imported)
        evaluation.name = f"{get_model_name(model)}/evaluations/{new_id()}"
        evaluation.create_time.GetCurrentTime()
        self._context.database.add(evaluation)
        self._context.database.add_note(evaluation.name, VERSION, model.version_id)
        return evaluation

    def get_model_evaluation(self, request: Any) -> Any:
        """Return an evaluation, by the name of its model with or without the version."""
        parent, _, number = request.name.rpartition("/evaluations/")
        if not parent:
            raise not_found_error(request.name)
        model = find_version(self._context, parent)
        name = f"{get_model_name(model)}/evaluations/{number}"
        evaluation = self._context.database.get(name)
        if "@" in parent and self._context.database.get_notes(name).get(VERSION) != model.version_id:
            raise not_found_error(request.name)
        return evaluation

    def list_model_evaluations(self, request: Any) -> Any:
        """Return a page of the evaluations of a model version, newest first."""
        model = find_version(self._context, request.parent, "parent")
        page, token = self._context.database.list_page(
            f"{get_model_name(model)}/evaluations",
            request,
            keep=lambda one: self._context.database.get_notes(one.name).get(VERSION) == model.version_id,
        )
        return v1.ListModelEvaluationsResponse(model_evaluations=page, next_page_token=token)
