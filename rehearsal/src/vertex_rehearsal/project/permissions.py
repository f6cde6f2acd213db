"""Derives the IAM permission that a method requires: API, resource, verb."""

import re
from functools import cache

from vertex_rehearsal.api.methods import RpcMethod

VERBS = ("Create", "Get", "List", "Update", "Delete", "Cancel")
OTHERS = {
    "UploadModel": "aiplatform.models.upload", "MergeVersionAliases": "aiplatform.models.update",
    "ListModelVersions": "aiplatform.models.list", "DeleteModelVersion": "aiplatform.models.delete",
    "DeployModel": "aiplatform.endpoints.deploy", "UndeployModel": "aiplatform.endpoints.undeploy",
    "MutateDeployedModel": "aiplatform.endpoints.update", "Predict": "aiplatform.endpoints.predict",
    "RawPredict": "aiplatform.endpoints.predict", "WriteLogEntries": "logging.logEntries.create",
    "ListLogEntries": "logging.logEntries.list", "TailLogEntries": "logging.logEntries.list",
    "ListLogs": "logging.logs.list", "DeleteLog": "logging.logs.delete",
}  # fmt: skip
"""Permissions that do not follow from the method's name."""
APIS = {"google.cloud.aiplatform.v1.": "aiplatform", "google.logging.v2.": "logging"}


@cache
def get_api(method: RpcMethod) -> str:
    """Return the API that a method belongs to; services shared by all APIs count as Vertex AI's."""
    return next((api for package, api in APIS.items() if method.service.startswith(package)), "aiplatform")


@cache
def get_method_names(method: RpcMethod) -> tuple[str, ...]:
    """Return the names for which faults of a method can be planned: CreateCustomJob, JobService, aiplatform."""
    return method.name, method.service.rpartition(".")[2], get_api(method)


@cache
def get_permission(method: RpcMethod) -> str:
    """Return the required permission: CreateCustomJob -> aiplatform.customJobs.create; "" if none is known."""
    if method.name in OTHERS:
        return OTHERS[method.name]
    verb = next((verb for verb in VERBS if re.match(rf"{verb}[A-Z]", method.name)), None)
    if verb is None or not method.service.startswith("google.cloud.aiplatform.v1."):
        return ""
    noun = method.name.removeprefix(verb)
    noun = noun[0].lower() + noun[1:]
    plural = noun if verb == "List" else re.sub(r"([^aeiou])y$", r"\1ie", noun) + "s"
    return f"aiplatform.{plural}.{verb.lower()}"
