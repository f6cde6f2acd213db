"""Checks of a training and of its place, and its price, before anything is spent."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

from tagline import gcp, registry
from tagline.data.checks import SEVERITIES, Finding, Severity
from tagline.data.columns import ResolvedSpec
from tagline.data.dataset import Dataset
from tagline.errors import PlaceError, SpecError
from tagline.gcp import cloud_storage, machines
from tagline.images import google_images, sdist, wheels
from tagline.jobs import custom_job, emulator, places, plans, prices
from tagline.jobs.launchers import Job
from tagline.jobs.prices import Price
from tagline.reports import report
from tagline.spec import Spec
from tagline.training import cross_validation
from tagline.training import preflight as training_preflight
from tagline.training.preflight import Preflight

APIS = {
    "aiplatform.googleapis.com": "jobs", "storage.googleapis.com": "buckets", "logging.googleapis.com": "log lines",
}  # fmt: skip
IMAGE_APIS = {"artifactregistry.googleapis.com": "the image"}
BUILD_APIS = {"cloudbuild.googleapis.com": "building the image"}
SECRET_APIS = {"secretmanager.googleapis.com": "vertex.secrets"}
PERMISSIONS = {
    "aiplatform.customJobs.create": "roles/aiplatform.user",
    "aiplatform.customJobs.get": "roles/aiplatform.user",
    "logging.logEntries.list": "roles/logging.viewer",
}
ACT_AS = "iam.serviceAccounts.actAs"
ACCOUNTS = (
    re.compile(r"[^@]+@([a-z0-9-]+)\.iam\.gserviceaccount\.com"),
    re.compile(r"(\d+)-compute@developer\.gserviceaccount\.com"),
    re.compile(r"([^@]+)@appspot\.gserviceaccount\.com"),
)
"""E-mail addresses of service accounts, with their project: user-created ones, and those created by Google."""
BUCKET_PERMISSIONS = ("storage.objects.create", "storage.objects.get", "storage.objects.list", "storage.objects.delete")
MULTI_REGIONS = {"US": "us-", "EU": "europe-", "ASIA": "asia-"}
UNLIMITED = -1


@dataclass(frozen=True)
class CheckResult:
    """The result of the checks before a training."""

    spec: Spec
    guesses: tuple[str, ...]
    """The values of the spec that were inferred, each in a sentence."""
    data: Dataset
    findings: tuple[Finding, ...]
    price: Price | None = None
    """The estimated price; None for a training on this machine."""
    label_errors: tuple[Mapping[str, Any], ...] | None = None
    """Rows with a probable label error, the most doubtful first; None if not requested."""

    @property
    def is_ready(self) -> bool:
        """Whether no check has found an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows of each split."""
        return {name: len(split) for name, split in self.data.splits.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document that `tagline check --json` prints."""
        return {
            "ok": self.is_ready,
            "task": self.data.task,
            "labels": list(self.data.labels),
            "splits": self.rows,
            "guesses": list(self.guesses),
            **report.describe_data(self.data),
            "findings": [asdict(finding) for finding in self.findings],
            **({"label_errors": list(self.label_errors)} if self.label_errors is not None else {}),
            **({"price": self.price.to_dict()} if self.price else {}),
        }


def examine(
    resolved: ResolvedSpec,
    *,
    on: str = places.LOCAL,
    runs: str = "runs",
    label_errors: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> CheckResult:
    """Check the data, the model, the settings and the place of a training, and estimate its price."""
    places.check_place(on)
    spec, is_here = resolved.spec, on == places.LOCAL
    checked = training_preflight.examine(spec, runs=runs, is_here=is_here)
    price, of_place = (None, ()) if is_here else _examine_elsewhere(checked, on=on, runs=runs, say=say)
    result = CheckResult(spec, resolved.guesses, checked.data, (*checked.findings, *of_place), price)
    if not label_errors:
        return result
    return replace(result, label_errors=tuple(_find_label_errors(spec, checked.data, say)) if result.is_ready else ())


def _examine_elsewhere(
    checked: Preflight, *, on: str, runs: str, say: Callable[[str], None]
) -> tuple[Price, tuple[Finding, ...]]:
    """Return the price of a training in a place, and the findings about the place."""
    with places.enter(on, say=say):
        rows = checked.training_rows
        job = plans.make_job(checked.spec, name="NAME", on=on, rows=rows, runs=runs, is_for_real=True)
        return plans.price_of(job), tuple(examine_place(job))


def _find_label_errors(spec: Spec, data: Dataset, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Find rows with a probable label error by out-of-fold scores."""
    parts = []
    for number, part in enumerate(cross_validation.score_folds(spec, data), start=1):
        say(f"part {number} of {cross_validation.FOLDS}: {len(part.rows):,} rows looked at")
        parts.append(part)
    return cross_validation.find_label_errors(data, parts)


def examine_place(job: Job) -> list[Finding]:
    """Return the findings about a job's place, which has been entered."""
    place = job.spec.vertex
    findings = check_offline(job.spec, plans.price_of(job), today=datetime.now(UTC).date())
    if gcp.find_rehearsal():
        cloud_storage.make_bucket(place.bucket, project=job.project, region=place.region)
        findings += _find_unrunnable_image(place.image)
    return [*findings, *check_online(job.spec, project=job.project)]


def _find_unrunnable_image(image: str) -> list[Finding]:
    """Return a finding if the emulator cannot run an image of the user's own."""
    if not image or google_images.is_prebuilt(image) or not (reason := emulator.explain_unrunnable(image)):
        return []
    advice = "install podman or docker, or rehearse with the image that Tagline makes: vertex.image="
    return [Finding("image", "error", f"vertex.image: {reason}", advice)]


def check_offline(spec: Spec, price: Price, *, today: date) -> list[Finding]:
    """Return the findings that need no network."""
    return _sort_findings(finding for check in OFFLINE_CHECKS for finding in check(spec, price, today))


def check_online(spec: Spec, *, project: str) -> Iterator[Finding]:
    """Yield the findings about project, permissions, bucket and quotas; a check that gets no answer is a warning."""
    try:
        gcp.sign_in()
    except PlaceError as error:
        yield Finding("credentials", "error", error.message, error.hint)
        return
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("the APIs that are enabled", partial(_check_apis, spec, project)),
        ("the permissions", partial(_check_permissions, project)),
        ("the service account", partial(_check_account, spec, project)),
        ("the secrets", partial(_check_secrets, spec)),
        ("the bucket", partial(_check_bucket, spec)),
        ("the quota", partial(_check_quota, spec, project)),
        ("the packages", partial(_check_installable, spec)),
    ]
    for subject, check in checks:
        try:
            yield from check()
        except PlaceError as error:
            yield Finding("unanswered", "warning", f"{subject}: {error.message}", error.hint or "it is not known")


def _sort_findings(findings: Iterator[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _check_machine(spec: Spec, _price: Price, _today: date) -> Iterator[Finding]:
    place = spec.vertex
    if place.region not in machines.REGIONS:
        yield Finding(
            "region", "error", f'vertex.region: Vertex AI has no region "{place.region}"', "us-central1 has most"
        )
    accelerator = place.accelerator if place.accelerators else ""
    _, misfit = machines.find_misfit(place.machine, accelerator, place.accelerators)
    if misfit:
        yield Finding(
            "machine", "error", f"vertex.machine: {misfit}", _suggest_machine(place.machine, place.accelerator)
        )
    for number, other in enumerate(place.fallbacks, 1):
        moved = custom_job.apply_fallback(place, other)
        accelerator = moved.accelerator if moved.accelerators else ""
        _, misfit = machines.find_misfit(moved.machine, accelerator, moved.accelerators)
        if misfit or moved.region not in machines.REGIONS:
            problem = misfit or f'Vertex AI has no region "{moved.region}"'
            yield Finding("fallback", "error", f"vertex.fallbacks, number {number}: {problem}", "mend or remove it")


def _suggest_machine(machine: str, accelerator: str) -> str:
    """Return a setting by which machine and accelerator fit together."""
    with_own = next((name for name, (kind, _) in machines.WITH_THEIR_OWN.items() if kind == accelerator), "")
    if with_own:
        count = machines.WITH_THEIR_OWN[with_own][1]
        return f"vertex.machine={with_own} vertex.accelerators={count}"
    if machine in machines.WITHOUT:
        return f"vertex.accelerators=0 for {machine}, or vertex.machine=n1-standard-8 for a T4"
    numbers = machines.WITH_CHOICE.get(machine, {}).get(accelerator, ())
    return (
        f"vertex.accelerators={numbers[0]}"
        if numbers
        else "vertex.machine=n1-standard-8 vertex.accelerator=NVIDIA_TESLA_T4"
    )


def _check_workers(spec: Spec, _price: Price, _today: date) -> Iterator[Finding]:
    place = spec.vertex
    if place.workers > 1 and not training_preflight.can_share(spec):
        family = spec.model.family
        problem = f"vertex.workers: family {family} learns in one process"
        yield Finding("workers", "error", problem, "vertex.workers=1")
    if place.reduction_servers and (place.workers < 2 or not place.accelerators):
        problem = "vertex.reduction_servers add up the gradients of several machines with GPUs"
        yield Finding("reduction", "error", problem, "vertex.reduction_servers=0, or more vertex.workers")


def _check_image(spec: Spec, _price: Price, today: date) -> Iterator[Finding]:
    image = spec.vertex.image
    if not google_images.is_prebuilt(image):
        return
    # Only a warning at a rehearsal, which runs the package with this machine's Python.
    severity: Severity = "warning" if gcp.find_rehearsal() else "error"
    for misfit in google_images.find_misfits(image, today, gpu=bool(spec.vertex.accelerators)):
        yield Finding("image", severity, f"vertex.image: {misfit}", google_images.INSTEAD)


def _check_budget(spec: Spec, price: Price, _today: date) -> Iterator[Finding]:
    if problem := prices.check_budget(spec.vertex, price):
        yield Finding("budget", "error", problem, "lower vertex.max_hours, or raise vertex.budget")
    if price.hours and price.hours >= spec.vertex.max_hours:
        message = f"the training may take longer than vertex.max_hours = {spec.vertex.max_hours:g} ({price.assumption})"
        yield Finding("hours", "warning", message, "raise it, or take a faster machine; what is saved can be resumed")


def _check_wandb_key(spec: Spec, _price: Price, _today: date) -> Iterator[Finding]:
    place = spec.vertex
    has_key = "WANDB_API_KEY" in place.secrets or place.environment.get("WANDB_MODE") in ("offline", "disabled")
    if "wandb" in spec.tracking.to and not has_key:
        problem = "tracker wandb has no key there: it is asked for in vertex.secrets"
        advice = "vertex.secrets.WANDB_API_KEY=projects/PROJECT/secrets/NAME/versions/latest"
        yield Finding("wandb", "warning", problem, advice)


def _check_bucket_name(spec: Spec, _price: Price, _today: date) -> Iterator[Finding]:
    if not spec.vertex.bucket:
        yield Finding("bucket", "error", "vertex.bucket: needed, for data and run", "vertex.bucket=NAME")


def _check_device(spec: Spec, _price: Price, _today: date) -> Iterator[Finding]:
    family = spec.model.family
    if spec.vertex.accelerators and not registry.find("models", family).uses_device:
        problem = f"family {family} makes no use of {spec.vertex.accelerator}, which costs all the same"
        yield Finding("device", "warning", problem, "vertex.accelerators=0")


def _check_packages(spec: Spec, _price: Price, _today: date) -> Iterator[Finding]:
    place = spec.vertex
    try:
        if place.image and not google_images.is_prebuilt(place.image):
            sdist.refuse_packages(place.packages, place.image)
        sdist.ExtraPackages.read(place.packages)
    except SpecError as error:
        yield Finding("packages", "error", error.message, error.hint)
    if gcp.find_rehearsal() and (missing := sdist.find_missing_packages(place.packages)):
        problem = f"vertex.packages: a rehearsal has the packages of this machine, which lacks {', '.join(missing)}"
        yield Finding("packages", "warning", problem, f"pip install {' '.join(missing)}")


OFFLINE_CHECKS = (
    _check_bucket_name,
    _check_machine,
    _check_device,
    _check_workers,
    _check_image,
    _check_packages,
    _check_budget,
    _check_wandb_key,
)


def _check_apis(spec: Spec, project: str) -> Iterator[Finding]:
    place = spec.vertex
    required = dict(APIS)
    if not place.image:
        required |= IMAGE_APIS | (BUILD_APIS if place.builder in ("auto", "cloud-build") else {})
    if place.secrets:
        required |= SECRET_APIS
    for name, use in required.items():
        answer = gcp.call_rest("serviceusage", "GET", f"v1/projects/{project}/services/{name}")
        if answer.get("state") != "ENABLED":
            problem = f"{name} is not enabled in project {project}: needed for {use}"
            yield Finding("api", "error", problem, f"gcloud services enable {name} --project {project}")


def _check_permissions(project: str) -> Iterator[Finding]:
    body = {"permissions": list(PERMISSIONS)}
    answer = gcp.call_rest("cloudresourcemanager", "POST", f"v1/projects/{project}:testIamPermissions", body)
    missing = [name for name in PERMISSIONS if name not in answer.get("permissions", ())]
    for role in dict.fromkeys(PERMISSIONS[name] for name in missing):
        names = ", ".join(name for name in missing if PERMISSIONS[name] == role)
        advice = f"gcloud projects add-iam-policy-binding {project} --member=user:YOU --role={role}"
        yield Finding("permission", "error", f"you lack {names} in project {project}", advice)


def _check_account(spec: Spec, project: str) -> Iterator[Finding]:
    """Check that the job's service account exists and that the user may act as it."""
    if not (email := spec.vertex.service_account):
        return
    # For a missing account IAM answers 404 only if the path names its project; otherwise a missing permission.
    path = f"v1/projects/{_find_owner(email)}/serviceAccounts/{email}"
    body = {"permissions": [ACT_AS]}
    held = gcp.get_or_none(email, partial(gcp.call_rest, "iam", "POST", f"{path}:testIamPermissions", body))
    if held is not None and ACT_AS in held.get("permissions", ()):
        return
    try:
        is_there = held is not None and gcp.get_or_none(email, partial(gcp.call_rest, "iam", "GET", path)) is not None
    except PlaceError:  # a user who may not read it lacks the permission to act as it too
        is_there = True
    if is_there:
        problem = f"you lack {ACT_AS} on {email}, which vertex.service_account names"
        advice = (
            f"gcloud iam service-accounts add-iam-policy-binding {email} --member=user:YOU "
            f"--role=roles/iam.serviceAccountUser --project={_find_owner(email, project)}"
        )
        yield Finding("act-as", "error", problem, advice)
    else:
        advice = f"gcloud iam service-accounts list --project={_find_owner(email, project)} shows those that are there"
        yield Finding("account", "error", f"vertex.service_account: there is no account {email}", advice)


def _find_owner(email: str, default: str = "-") -> str:
    """Return the project of a service account by its e-mail address."""
    for pattern in ACCOUNTS:
        if match := pattern.fullmatch(email):
            return match[1]
    return default


def _check_secrets(spec: Spec) -> Iterator[Finding]:
    """Check that Secret Manager has each version in vertex.secrets, without reading its value."""
    for name, version in spec.vertex.secrets.items():
        _, project, _, secret, _, number = version.split("/")
        answer = gcp.get_or_none(version, partial(gcp.call_rest, "secretmanager", "GET", f"v1/{version}"))
        if answer is None:
            advice = (
                f"gcloud secrets create {secret} --project={project} --data-file=FILE, "
                f"or gcloud secrets list --project={project} shows those that are there"
            )
            yield Finding("secret", "error", f"vertex.secrets: {name}: there is no {version}", advice)
        elif (state := answer.get("state", "ENABLED")) != "ENABLED":
            advice = f"gcloud secrets versions enable {number} --secret={secret} --project={project}"
            yield Finding("secret", "error", f"vertex.secrets: {name}: {version} is {state.lower()}", advice)


def _check_bucket(spec: Spec) -> Iterator[Finding]:
    place = spec.vertex
    if not place.bucket:
        return
    if (found := cloud_storage.find_bucket(place.bucket)) is None:
        advice = f"gcloud storage buckets create gs://{place.bucket} --location={place.region}"
        yield Finding("bucket", "error", f"there is no bucket {place.bucket}", advice)
        return
    where = found.location.upper()
    prefix = MULTI_REGIONS.get(where)
    if where != place.region.upper() and not (prefix and place.region.startswith(prefix)):
        problem = (
            f"the bucket {place.bucket} is in {found.location}, the job in {place.region}: data would be slow, and cost"
        )
        yield Finding(
            "bucket-region", "warning", problem, f"a bucket in {place.region}, or vertex.region={where.lower()}"
        )
    if missing := cloud_storage.missing_permissions(place.bucket, BUCKET_PERMISSIONS):
        problem = f"you lack {', '.join(missing)} on the bucket {place.bucket}"
        advice = (
            f"gcloud storage buckets add-iam-policy-binding gs://{place.bucket} --member=user:YOU "
            "--role=roles/storage.objectUser"
        )
        yield Finding("bucket-permission", "error", problem, advice)


def _check_quota(spec: Spec, project: str) -> Iterator[Finding]:
    place = spec.vertex
    metric = machines.quota_metric(place.accelerator, spot=place.spot) if place.accelerators else ""
    if not metric:
        return
    limit = _read_quota_limit(project, metric, place.region)
    needed = place.accelerators * place.workers
    if limit is None:
        problem = f"no quota of {metric.rpartition('/')[2]} is told for {place.region}"
        yield Finding("quota", "warning", problem, "look at the page of quotas in the Cloud console")
    elif limit != UNLIMITED and limit < needed:
        problem = f"the quota of {place.accelerator} in {place.region} is {limit}; the job wants {needed}"
        advice = f"ask for more ({metric.rpartition('/')[2]}), or another vertex.region or vertex.accelerator"
        yield Finding("quota", "error", problem, advice)


def _read_quota_limit(project: str, metric: str, region: str) -> int | None:
    """Return the quota of a project in a region; -1: unlimited."""
    path = f"v1beta1/projects/{project}/services/aiplatform.googleapis.com/consumerQuotaMetrics"
    token = ""
    while True:
        page = gcp.call_rest(
            "serviceusage", "GET", path, params={"pageSize": "500", **({"pageToken": token} if token else {})}
        )
        for entry in page.get("metrics", ()):
            if entry.get("metric") == metric:
                return _select_regional_limit(entry, region)
        token = page.get("nextPageToken", "")
        if not token:
            return None


def _select_regional_limit(metric: dict[str, Any], region: str) -> int | None:
    buckets = [each for limit in metric.get("consumerQuotaLimits", ()) for each in limit.get("quotaBuckets", ())]
    regional = [each for each in buckets if each.get("dimensions", {}).get("region") == region]
    general = [each for each in buckets if not each.get("dimensions")]
    limits = [int(each.get("effectiveLimit", 0)) for each in regional or general]  # zeros are omitted in Google's JSON
    return min(limits) if limits else None


def _check_installable(spec: Spec) -> Iterator[Finding]:
    """Check with pip that the packages to be installed are compatible."""
    is_own_image = spec.vertex.image and not google_images.is_prebuilt(spec.vertex.image)
    if is_own_image or gcp.find_rehearsal():  # a rehearsal uses this machine's packages
        return
    family = spec.model.family
    extras = wheels.choose_extras(family=family, trackers=spec.tracking.to)
    for problem in sdist.find_missing_plugins(family=family, trackers=spec.tracking.to, packages=spec.vertex.packages):
        yield Finding("plug-in", "error", problem, "vertex.image=IMAGE")
    try:
        more = [name for name in spec.vertex.packages if not name.endswith(".whl")]
        answer = sdist.resolve_versions([*wheels.list_pins(*extras), *more])
    except PlaceError as error:
        yield Finding("packages", "error", error.message, error.hint)
    else:
        if answer.warning:
            yield Finding("packages", "note", answer.warning, "it is found out when the image is built")
