"""Model evaluations: measured elsewhere, imported, and kept with the version of the model that they are about."""

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
"""What is noted of an evaluation: the model's version."""


def delete_evaluations(context: "Context", model: Any) -> None:
    """Forget the evaluations of a version, whose number another may have one day."""
    for one in context.database.list_all(v1.ModelEvaluation.DESCRIPTOR.full_name):
        is_its = one.name.startswith(f"{get_model_name(model)}/evaluations/")
        if is_its and context.database.get_notes(one.name).get(VERSION) == model.version_id:
            context.database.remove(one.name)


class ModelEvaluations:
    """The RPCs of google.cloud.aiplatform.v1.ModelService about evaluations."""

    LIMITS = {  # noqa: RUF012
        "ImportModelEvaluation": "Metrics are kept as they come: no schema is read, and explanations have no effect.",
    }

    def __init__(self, context: "Context") -> None:
        self._context = context

    def import_model_evaluation(self, request: Any) -> Any:
        """Keep what was measured of a version of a model; of the default one, unless another is named."""
        model = find_version(self._context, request.parent, "parent")
        given = request.model_evaluation
        if not given.metrics.ByteSize():
            raise invalid_argument(f"{AT}.metrics", "Required field is not set: metrics.")
        if given.metrics_schema_uri:
            validation.check_output(given.metrics_schema_uri, f"{AT}.metrics_schema_uri")
        made = v1.ModelEvaluation()
        made.CopyFrom(given)
        made.name = f"{get_model_name(model)}/evaluations/{new_id()}"
        made.create_time.GetCurrentTime()
        self._context.database.add(made)
        self._context.database.add_note(made.name, VERSION, model.version_id)
        return made

    def get_model_evaluation(self, request: Any) -> Any:
        """An evaluation, by the name of its model with or without the version."""
        parent, _, number = request.name.rpartition("/evaluations/")
        if not parent:
            raise not_found_error(request.name)
        model = find_version(self._context, parent)
        name = f"{get_model_name(model)}/evaluations/{number}"
        found = self._context.database.get(name)
        if "@" in parent and self._context.database.get_notes(name).get(VERSION) != model.version_id:
            raise not_found_error(request.name)
        return found

    def list_model_evaluations(self, request: Any) -> Any:
        """A page of the evaluations of a version of a model, newest first."""
        model = find_version(self._context, request.parent, "parent")
        found, token = self._context.database.list_page(
            f"{get_model_name(model)}/evaluations",
            request,
            keep=lambda one: self._context.database.get_notes(one.name).get(VERSION) == model.version_id,
        )
        return v1.ListModelEvaluationsResponse(model_evaluations=found, next_page_token=token)
