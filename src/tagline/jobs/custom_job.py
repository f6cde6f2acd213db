"""A run as a custom job of Vertex AI: the request, as the REST API takes it, and the same for gcloud."""

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
"""The spec of a run that is only planned so far, in JSON and without defaults: by it a job makes the run itself."""
RUN_LABEL, SUBMISSION_LABEL, VERSION_LABEL = "tagline-run", "tagline-submission", "tagline-version"


@dataclass(frozen=True)
class Code:
    """How the code gets there: an image that holds it, or a package for one of Google's images."""

    image: str
    package: str = ""
    """The address of a Python package, for an image that lacks it."""
    own_wheels: tuple[str, ...] = ()
    """Addresses of wheels that are installed beside it."""
    is_ours: bool = True
    """Whether the image was made by Tagline, and starts it by itself."""


def apply_fallback(place: Vertex, other: Fallback) -> Vertex:
    """The place with what a fallback names in its stead."""
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
    """The custom job that does a run: every worker goes on with it, from wherever it stands.

    Where the run is not there yet, the job can make it, whoever submits it.
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
    shown = display_name or f"tagline-{name}"
    return {"displayName": shown, "labels": _build_labels(place, name, submission), "jobSpec": job}


def format_gcloud_command(job: Mapping[str, Any], *, project: str, region: str) -> str:
    """The command that does the same; what its flags cannot say goes in as a file."""
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


def _build_task(spec: Spec, code: Code, arguments: list[str], more: Mapping[str, str]) -> dict[str, Any]:
    place = spec.vertex
    # The job is told, because its run's spec may name another machine than a fallback does.
    asked = {cluster.ACCELERATORS: str(place.accelerators)} if place.accelerators else {}
    variables = {**asked, **place.environment, **more}
    if place.secrets:
        variables[gcp.SECRETS] = json.dumps(place.secrets, sort_keys=True)
    if code.package:
        variables = {"USE_TORCH_XLA": "0", **variables}  # which is in Google's images, and takes training over
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
    found: dict[str, Any] = {"timeout": f"{round(3600 * place.max_hours)}s"}
    if place.spot:
        found["strategy"] = "SPOT"
    if place.flex_start:
        found |= {"strategy": "FLEX_START", "maxWaitDuration": f"{round(3600 * place.max_wait_hours)}s"}
    if place.workers > 1:
        found["restartJobOnWorkerRestart"] = True  # workers only go on together
    return found


def _build_labels(place: Vertex, name: str, submission: str) -> dict[str, str]:
    version = re.sub(r"[^a-z0-9_-]", "-", __version__.lower())
    ours = {RUN_LABEL: name, SUBMISSION_LABEL: submission or name, VERSION_LABEL: version}
    for key, value in place.labels.items():
        if key in ours or not all(re.fullmatch(r"[a-z0-9_-]{0,63}", text) for text in (key, value)) or not key:
            hint = "lowercase letters, digits, _ and -, at most 63 of them"
            raise SpecError(f'vertex.labels: "{key}" = "{value}" is no label', hint=hint)
    return {**place.labels, **ours}
