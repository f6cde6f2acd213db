"""The CustomJob of a run: the request of Vertex AI's REST API, and the same as a gcloud command."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tagline import __version__, gcp
from tagline.errors import SpecError
from tagline.jobs import prices
from tagline.spec import Fallback, Spec, Vertex
from tagline.training import cluster

REDUCTION_IMAGE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
SPEC = "TAGLINE_SPEC"
"""The spec of a run that does not exist yet, as JSON without defaults, from which the job creates the run."""
RUN_LABEL, SUBMISSION_LABEL, VERSION_LABEL = "tagline-run", "tagline-submission", "tagline-version"


@dataclass(frozen=True)
class Code:
    """How the code is delivered: as an image that contains it, or as a package for one of Google's images."""

    image: str
    package: str = ""
    """The address of a Python package to install into the image."""
    own_wheels: tuple[str, ...] = ()
    """Addresses of wheels that are installed with the package."""
    is_ours: bool = True
    """Whether the image was built by Tagline, with Tagline as its entry point."""


def apply_fallback(place: Vertex, other: Fallback) -> Vertex:
    """Return the place with the settings of a fallback applied."""
    named = {key: value for key, value in other.model_dump().items() if value not in ("", -1)}
    return place.model_copy(update=named)


def build_request(
    spec: Spec,
    *,
    run: str,
    name: str,
    submission: str,
    code: Code,
    display_name: str = "",
    is_there: bool = False,
) -> dict[str, Any]:
    """Return the CustomJob of a run, in which every worker resumes the run from its last checkpoint.

    Unless the run `is_there`, the request carries the spec, so that the job can create the run itself.
    """
    place = spec.vertex
    task = _build_task(
        spec, code, ["train", "--resume", run], {} if is_there else {SPEC: json.dumps(spec.without_defaults())}
    )
    pools: list[dict[str, Any]] = [{**_build_pool(place, 1), **task}]
    if place.workers > 1:
        pools.append({**_build_pool(place, place.workers - 1), **task})
    if place.reduction_servers:
        pools += [{}] * (2 - len(pools))
        pools.append(
            {
                "machineSpec": {"machineType": prices.REDUCTION_MACHINE},
                "replicaCount": place.reduction_servers,
                "diskSpec": _build_disk(place),
                "containerSpec": {"imageUri": REDUCTION_IMAGE},
            }
        )
    job: dict[str, Any] = {"workerPoolSpecs": pools, "scheduling": _build_scheduling(place)}
    if place.service_account:
        job["serviceAccount"] = place.service_account
    if place.network:
        job["network"] = place.network
    job["baseOutputDirectory"] = {"outputUriPrefix": run}
    shown_name = display_name or f"tagline-{name}"
    return {"displayName": shown_name, "labels": _build_labels(place, name, submission), "jobSpec": job}


def format_gcloud_command(job: Mapping[str, Any], *, project: str, region: str) -> str:
    """Return the equivalent gcloud command; settings without a flag are passed as a file."""
    labels = ",".join(f"{key}={value}" for key, value in job["labels"].items())
    words = [
        "gcloud",
        "ai",
        "custom-jobs",
        "create",
        f"--project={project}",
        f"--region={region}",
        f"--display-name={job['displayName']}",
        f"--labels={labels}",
        "--config=/dev/stdin",
    ]
    return f"{shlex.join(words)} <<'JSON'\n{json.dumps(job['jobSpec'], indent=2, ensure_ascii=False)}\nJSON"


def _build_task(spec: Spec, code: Code, arguments: list[str], extra: Mapping[str, str]) -> dict[str, Any]:
    place = spec.vertex
    # Passed explicitly: after a fallback the machine differs from the one in the run's spec.
    counts = {cluster.ACCELERATORS: str(place.accelerators)} if place.accelerators else {}
    variables = {**counts, **place.environment, **extra}
    if place.secrets:
        variables[gcp.SECRETS] = json.dumps(place.secrets, sort_keys=True)
    if code.package:
        variables = {"USE_TORCH_XLA": "0", **variables}  # torch_xla is in Google's images, and takes training over
    env = [{"name": key, "value": value} for key, value in variables.items()]
    if code.package:
        task: dict[str, Any] = {
            "executorImageUri": code.image,
            "packageUris": [code.package, *code.own_wheels],
            "pythonModule": "tagline",
            "args": arguments,
        }
    elif code.is_ours:
        task = {"imageUri": code.image, "args": arguments}
    else:
        task = {"imageUri": code.image, "command": ["python3", "-m", "tagline"], "args": arguments}
    if env:
        task["env"] = env
    return {"pythonPackageSpec" if code.package else "containerSpec": task}


def _build_pool(place: Vertex, count: int) -> dict[str, Any]:
    machine: dict[str, Any] = {"machineType": place.machine}
    if place.accelerators:
        machine |= {"acceleratorType": place.accelerator, "acceleratorCount": place.accelerators}
    return {"machineSpec": machine, "replicaCount": count, "diskSpec": _build_disk(place)}


def _build_disk(place: Vertex) -> dict[str, Any]:
    return {"bootDiskType": "pd-ssd", "bootDiskSizeGb": place.disk_gb}


def _build_scheduling(place: Vertex) -> dict[str, Any]:
    scheduling: dict[str, Any] = {"timeout": f"{round(3600 * place.max_hours)}s"}
    if place.spot:
        scheduling["strategy"] = "SPOT"
    if place.flex_start:
        scheduling |= {"strategy": "FLEX_START", "maxWaitDuration": f"{round(3600 * place.max_wait_hours)}s"}
    if place.workers > 1:
        scheduling["restartJobOnWorkerRestart"] = True  # one worker cannot continue without the others
    return scheduling


def _build_labels(place: Vertex, name: str, submission: str) -> dict[str, str]:
    version = re.sub(r"[^a-z0-9_-]", "-", __version__.lower())
    own_labels = {RUN_LABEL: name, SUBMISSION_LABEL: submission or name, VERSION_LABEL: version}
    for key, value in place.labels.items():
        if key in own_labels or not all(re.fullmatch(r"[a-z0-9_-]{0,63}", text) for text in (key, value)) or not key:
            hint = "lowercase letters, digits, _ and -, at most 63 of them"
            raise SpecError(f'vertex.labels: "{key}" = "{value}" is no label', hint=hint)
    return {**place.labels, **own_labels}
