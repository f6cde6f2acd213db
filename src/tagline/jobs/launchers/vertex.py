"""The launcher for Vertex AI: a run as a custom job, on Vertex AI itself and at a rehearsal."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from tagline import gcp
from tagline import spec as specs
from tagline.errors import NameTaken, PlaceError, RunError
from tagline.gcp import cloud_storage
from tagline.images import dockerfiles, google_images, sdist, wheels
from tagline.images.sdist import SourcePackage
from tagline.jobs import custom_job, prices, uploads
from tagline.jobs.custom_job import Code
from tagline.jobs.diagnosis.log import Line, parse_entry
from tagline.jobs.launchers import Job, JobDescription, JobState, StateName
from tagline.runs import lock
from tagline.runs.run import Run
from tagline.spec import Spec
from tagline.storage import addresses

STATES: dict[str, StateName] = {
    "QUEUED": "waiting", "PENDING": "waiting", "PAUSED": "waiting", "RUNNING": "running", "UPDATING": "running",
    "CANCELLING": "running", "SUCCEEDED": "succeeded", "PARTIALLY_SUCCEEDED": "failed", "FAILED": "failed",
    "EXPIRED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip
CLIENT = "JobServiceClient"
CONSOLE = "https://console.cloud.google.com/agent-platform"
POLL_S, REHEARSED_POLL_S = 5.0, 0.3
MAX_LOG_DELAY = timedelta(seconds=20)
"""Longest expected delay between an entry's timestamp and its appearance in Cloud Logging."""
ATTEMPTS = 4


class VertexLauncher:
    """Plans, submits and watches custom jobs; reports its progress, such as uploads, to `say`."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say

    def plan(self, job: Job) -> dict[str, Any]:
        """Return the request, the same as a gcloud command, its price, and everything that it needs first."""
        place = job.spec.vertex
        project = job.project or place.project
        code = _locate_code(job.spec, project)
        display_name = job.name if job.is_named else ""
        request = custom_job.build_request(
            job.spec,
            run=job.run,
            name=job.name,
            submission=job.submission,
            code=code,
            display_name=display_name,
            is_there=job.is_resumed,
        )
        price = prices.estimate_price(job.spec, training_rows=job.training_rows, rate=job.rate)
        return {
            "job": request,
            "gcloud": custom_job.format_gcloud_command(request, project=project, region=place.region),
            "price": price.to_dict(),
            "parent": f"projects/{project}/locations/{place.region}",
            "uploads": [{"from": each.source, "to": each.address} for each in job.uploads],
            "code": {"package": code.package} if code.package else {"image": code.image},
            **({"packages": list(place.packages)} if place.packages else {}),
            "run": {
                "address": job.run,
                "name": job.name,
                "spec": specs.to_toml(job.spec),
                "command": job.command,
                "is_there": job.is_resumed,
            },
        }

    def submit(self, plan: Mapping[str, Any]) -> str:
        """Build the image or package, upload the inputs, create the run and then the job, exactly once."""
        run = plan["run"]
        spec = specs.loads(run["spec"], where=run["address"])
        for each in plan["uploads"]:
            if uploads.upload_if_missing(uploads.Upload(each["from"], each["to"])):
                self._say(f"uploaded {each['from']} to {each['to']}")
        self._deliver_code(plan, spec)
        if not run["is_there"]:
            runs = run["address"].rpartition("/")[0]
            try:
                Run.create(runs, spec, lock.lock_before_start(spec, command=run["command"]), name=run["name"])
            except NameTaken as error:
                if found := self._find_job(plan):  # this very plan was submitted before
                    return found
                raise NameTaken(error.message, hint="nothing was submitted; try again, under another name") from error
        try:
            return self._create_job(plan)
        except PlaceError as error:
            if not gcp.is_transient(error):  # after a transient error the job may exist
                Run.open(run["address"]).set_state("failed", reason=error.message)
            raise

    def state(self, handle: str) -> JobState:
        """Return the job's state from the service."""
        client = gcp.vertex_client(CLIENT, _parse_region(handle))
        return _parse_state(gcp.with_retries(handle, lambda: client.get_custom_job(name=handle)))

    def page(self, handle: str) -> str:
        """Return the job's address in the Cloud console, as Google's own client forms it, or in the rehearsal."""
        region, (_, project, *_, number) = _parse_region(handle), handle.split("/")
        if address := gcp.find_rehearsal():
            return f"{address}/#resource?name={quote(handle, safe='')}"
        return f"{CONSOLE}/locations/{region}/training/{number}?project={project}"

    def describe(self, handle: str) -> JobDescription:
        """Return the job's description from the service, priced by the table."""
        client = gcp.vertex_client(CLIENT, _parse_region(handle))
        return _describe_job(gcp.with_retries(handle, lambda: client.get_custom_job(name=handle)))

    def logs(self, handle: str) -> Iterator[Line | None]:
        """Poll Cloud Logging until the job has ended and no further entry comes."""
        project, number = handle.split("/")[1], handle.rpartition("/")[2]
        seen: dict[str, datetime] = {}
        since = ""
        has_ended = False
        while True:
            query = f'resource.type="ml_job" AND resource.labels.job_id="{number}"'
            query += f' AND timestamp>="{since}"' if since else ""
            for entry in gcp.log_entries(project, query):
                if entry["insertId"] in seen:
                    continue
                moment = datetime.fromisoformat(entry["timestamp"])
                seen[entry["insertId"]] = moment
                yield parse_entry(entry)
            if seen:
                newest = max(seen.values())
                seen = {key: moment for key, moment in seen.items() if moment >= newest - MAX_LOG_DELAY}
                since = (newest - MAX_LOG_DELAY).isoformat()
            if has_ended:
                return
            has_ended = self.state(handle).has_ended
            yield None
            time.sleep(REHEARSED_POLL_S if gcp.find_rehearsal() else POLL_S)

    def cancel(self, handle: str) -> None:
        """Cancel the job, which saves a checkpoint first."""
        client = gcp.vertex_client(CLIENT, _parse_region(handle))
        gcp.with_retries(handle, lambda: client.cancel_custom_job(name=handle))

    def list(self, project: str, region: str) -> list[tuple[str, str, JobState]]:
        """Return the jobs with Tagline's label, newest first."""
        parent = f"projects/{project}/locations/{region}"
        request = {"parent": parent, "filter": f"labels.{custom_job.RUN_LABEL}:*"}
        client = gcp.vertex_client(CLIENT, region)
        jobs = gcp.with_retries(parent, lambda: list(client.list_custom_jobs(request=request)))
        return [(job.name, job.labels[custom_job.RUN_LABEL], _parse_state(job)) for job in jobs]

    def _deliver_code(self, plan: Mapping[str, Any], spec: Spec) -> None:
        """Upload the package, or build and push the image, unless it is already where the job expects it."""
        _, project, _, region = plan["parent"].split("/")
        package = _build_package(spec, project)
        if isinstance(package, SourcePackage):
            own_wheels = _read_own_wheels(spec)
            for address, content in {plan["code"]["package"]: package.content, **own_wheels}.items():
                if cloud_storage.object_at(address) is None:
                    addresses.write_bytes(content, address)
        elif isinstance(package, dockerfiles.BuildContext):
            dockerfiles.deliver_image(
                package,
                project=project,
                region=region,
                bucket=spec.vertex.bucket,
                builder=spec.vertex.builder,
                say=self._say,
            )

    def _create_job(self, plan: Mapping[str, Any]) -> str:
        """Create the job exactly once: before each attempt, look for the job of an earlier one that got no answer."""
        region = plan["parent"].rpartition("/")[2]
        problem: PlaceError | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(2.0**attempt if not gcp.find_rehearsal() else 0.1)
            try:
                if earlier := self._find_job(plan):
                    return earlier
                with gcp.translate_errors("Vertex AI"):
                    job = gcp.build_message("CustomJob", plan["job"])
                    created = gcp.vertex_client(CLIENT, region).create_custom_job(
                        parent=plan["parent"], custom_job=job, timeout=gcp.PATIENCE_S
                    )
                    return str(created.name)
            except PlaceError as error:
                if not gcp.is_transient(error):
                    raise
                problem = error
        assert problem is not None
        command = f"tagline train --resume {plan['run']['address']} --on {gcp.find_place()}"
        hint = f"is there a job all the same? tagline jobs list --on {gcp.find_place()}; then: {command}"
        raise PlaceError(problem.message, hint=hint) from problem.__cause__

    def _find_job(self, plan: Mapping[str, Any]) -> str:
        """Return the job that an earlier request has created from this plan; "" if there is none."""
        region = plan["parent"].rpartition("/")[2]
        label = custom_job.SUBMISSION_LABEL
        request = {"parent": plan["parent"], "filter": f'labels.{label}="{plan["job"]["labels"][label]}"'}
        with gcp.translate_errors(plan["parent"]):
            return next(
                (str(job.name) for job in gcp.vertex_client(CLIENT, region).list_custom_jobs(request=request)), ""
            )


def _build_package(spec: Spec, project: str) -> SourcePackage | dockerfiles.BuildContext | None:
    """Package the code that runs here as an sdist or an image; None where the user's own image contains it."""
    place = spec.vertex
    family = spec.model.family
    extras = wheels.choose_extras(family=family, trackers=spec.tracking.to)
    if place.image and not google_images.is_prebuilt(place.image):
        sdist.refuse_packages(place.packages, place.image)
        return None
    extra = sdist.ExtraPackages.read(place.packages)
    if place.image:
        return sdist.build_sdist(extras, requirements=extra.requirements)
    return dockerfiles.create_training_context(
        dockerfiles.repository_path(project, place.region),
        extras=extras,
        accelerator=place.accelerator if place.accelerators else "",
        reduction_server=bool(place.reduction_servers),
        extra=extra,
    )


def _read_own_wheels(spec: Spec) -> dict[str, bytes]:
    """Return the local wheels in vertex.packages by their addresses for a job on one of Google's images."""
    top = f"{uploads.bucket_folder(spec.vertex.bucket)}/packages"
    own_wheels = sdist.ExtraPackages.read(spec.vertex.packages).wheels
    return {f"{top}/{hashlib.sha256(content).hexdigest()[:16]}/{name}": content for name, content in own_wheels}


def _locate_code(spec: Spec, project: str) -> Code:
    place = spec.vertex
    built = _build_package(spec, project)
    if isinstance(built, SourcePackage):
        package = f"{uploads.bucket_folder(place.bucket)}/packages/{built.file}"
        return Code(place.image, package, own_wheels=tuple(_read_own_wheels(spec)))
    return Code(place.image, is_ours=False) if built is None else Code(built.image)


def _parse_region(handle: str) -> str:
    parts = handle.split("/")
    if len(parts) != 6 or parts[0] != "projects" or parts[4] != "customJobs":
        hint = "projects/PROJECT/locations/REGION/customJobs/NUMBER, or a run's name"
        raise RunError(f"{handle} is no job of Vertex AI", hint=hint)
    return parts[3]


def _describe_job(job: Any) -> JobDescription:
    """Return the description of a CustomJob."""
    pools = [pool for pool in job.job_spec.worker_pool_specs if pool.machine_spec.machine_type]
    facts = []
    for pool in pools:
        machine = pool.machine_spec
        accelerator = machine.accelerator_type.name if machine.accelerator_count else ""
        facts.append((machine.machine_type, accelerator, machine.accelerator_count, pool.replica_count))
    spot = job.job_spec.scheduling.strategy.name == "SPOT"
    per_hour, remark = prices.hourly_price_of_pools(facts, spot=spot)
    descriptions = [
        f"{count} x {machine}{f' with {number} {accelerator}' if number else ''}{', spot' if spot else ''}"
        for machine, accelerator, number, count in facts
    ]
    first = pools[0]
    package = first.python_package_spec
    image = package.executor_image_uri or first.container_spec.image_uri
    arguments = package.args if package.executor_image_uri else first.container_spec.args
    return JobDescription(tuple(descriptions), tuple(arguments), image, per_hour, remark)


def _parse_state(job: Any) -> JobState:
    detail = job.state.name.removeprefix("JOB_STATE_")
    started, ended = (moment.isoformat() if moment else "" for moment in (job.start_time, job.end_time))
    return JobState(STATES.get(detail, "waiting"), detail, job.error.message, started, ended)
