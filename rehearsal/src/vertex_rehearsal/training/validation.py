"""Validates requests as Vertex AI does; each error names the invalid field."""

import re
from typing import Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.machines import REGIONS, find_misfit
from vertex_rehearsal.project.project import Project

PARENT = re.compile(r"projects/([^/]+)/locations/([^/]+)")
IMAGE = re.compile(
    r"""(?:(?:[a-z0-9-]+\.)*gcr\.io|[a-z0-9-]+-docker\.pkg\.dev)   # Container Registry or Artifact Registry
    (?:/[a-z0-9._:-]+)*/[a-z0-9._-]+(?::[\w.-]{1,128})?(?:@sha256:[0-9a-f]{64})?""",
    re.X,
)
ACCOUNT = re.compile(r"[a-z0-9][a-z0-9-]*@([a-z0-9.:-]+\.)?gserviceaccount\.com")
"""A user's or one of Google's, such as NUMBER-compute@developer.gserviceaccount.com."""
KEY = re.compile(r"projects/[^/]+/locations/([^/]+)/keyRings/[\w-]{1,63}/cryptoKeys/[\w-]{1,63}")
DISKS = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
DISK_GB = (100, 64_000)
MOST_POOLS = 4
MOST_PACKAGES = 100
MOST_VARIABLES = 100
MOST_ARGUMENT_CHARACTERS = 100_000
MOST_LABELS = 64
LONGEST_NAME = 128
LONGEST_RUN_S = 28 * 24 * 3600


def check_parent(parent: str) -> tuple[str, str]:
    """Return the project and region of a parent; raise INVALID_ARGUMENT unless Vertex AI has the region."""
    match = PARENT.fullmatch(parent)
    if not match:
        raise invalid_argument(
            "parent", f'Invalid resource name "{parent}": it should be projects/PROJECT/locations/REGION.'
        )
    if match[2] not in REGIONS:
        raise ApiError("INVALID_ARGUMENT", f'Unsupported region for Vertex AI: "{match[2]}".', "parent")
    return match[1], match[2]


def check_name_and_labels(resource: Any, at: str) -> None:
    """Check that a display name has 1 to 128 characters and that the labels are valid."""
    name = resource.display_name
    if not name:
        raise invalid_argument(f"{at}.display_name", "Required field is not set: display_name.")
    if len(name) > LONGEST_NAME:
        raise invalid_argument(
            f"{at}.display_name", f"display_name has {len(name)} characters; the most is {LONGEST_NAME}."
        )
    if len(resource.labels) > MOST_LABELS:
        raise invalid_argument(f"{at}.labels", f"There are {len(resource.labels)} labels; the most is {MOST_LABELS}.")
    for key, value in resource.labels.items():
        for text, lowest in ((key, 1), (value, 0)):
            if not lowest <= len(text) <= 63 or text != text.lower() or not re.fullmatch(r"[\w-]*", text):
                raise invalid_argument(
                    f"{at}.labels",
                    f'Label "{key}": "{value}" is invalid: lowercase letters, digits, _ and -, at most 63 of them.',
                )


def check_etag(changes: Any, stored: Any) -> None:
    """Raise ABORTED if the etag is outdated (optimistic concurrency); an update without an etag always passes."""
    if changes.etag and changes.etag != stored.etag:
        raise ApiError(
            "ABORTED",
            f"Specified {stored.DESCRIPTOR.name} `etag`: `{changes.etag}` does not match "
            f"server `etag`: `{stored.etag}`",
        )


def check_account(email: str, project: Project, at: str) -> None:
    """Check that a service account exists and the caller may act as it; like Vertex AI, one error for both."""
    if email and not ACCOUNT.fullmatch(email):
        text = f'"{email}" is no service account: NAME@PROJECT.iam.gserviceaccount.com is expected.'
        raise invalid_argument(at, text)
    if email and not (project.has_permission("iam.serviceAccounts.actAs") and email not in project.missing_accounts):
        text = f"You do not have permission to act as service_account: {email}. (or it may not exist)."
        raise ApiError("INVALID_ARGUMENT", text)


def check_encryption(request: Any) -> None:
    """Check that the encryption keys in a request have valid Cloud KMS names and are in the resource's region."""
    region = PARENT.match(getattr(request, "parent", ""))
    holders = [("", request)]
    holders += [
        (f"{field.name}.", value)
        for field, value in request.ListFields()
        if field.message_type is not None and not field.is_repeated
    ]
    for at, holder in holders:
        if region is None or "encryption_spec" not in holder.DESCRIPTOR.fields_by_name:
            continue
        if not holder.HasField("encryption_spec"):
            continue
        name, field = holder.encryption_spec.kms_key_name, f"{at}encryption_spec.kms_key_name"
        if not name:
            raise invalid_argument(field, "Required field is not set: kms_key_name.")
        if not (key := KEY.fullmatch(name)):
            form = "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY"
            raise invalid_argument(field, f'"{name}" is no name of a key: {form} is expected.')
        if key[1] != region[2]:
            raise invalid_argument(field, f"The key is in {key[1]}, and must be in {region[2]}, where the resource is.")


def _check_disk(disk: Any, at: str) -> None:
    if disk.boot_disk_type and disk.boot_disk_type not in DISKS:
        text = f'"{disk.boot_disk_type}" is no type of boot disk: {", ".join(DISKS)} are.'
        raise invalid_argument(f"{at}.boot_disk_type", text)
    least, most = DISK_GB
    if disk.boot_disk_size_gb and not least <= disk.boot_disk_size_gb <= most:
        text = f"boot_disk_size_gb must be from {least} to {most:,}, not {disk.boot_disk_size_gb}."
        raise invalid_argument(f"{at}.boot_disk_size_gb", text)


def check_output(uri: str, at: str) -> None:
    """Check that a URI, unless empty, is a directory in Cloud Storage."""
    if uri and not re.fullmatch(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/.*)?", uri):
        raise invalid_argument(at, f'"{uri}" is no Cloud Storage directory: gs://BUCKET/PATH is expected.')


def check_image(uri: str, at: str) -> None:
    """Check that a URI is an image in Artifact Registry or Container Registry."""
    if not uri:
        raise invalid_argument(at, "Required field is not set: image_uri.")
    if not IMAGE.fullmatch(uri) or uri.count("/") < 2:
        raise invalid_argument(
            at,
            f'"{uri}" is no image in a registry: REGION-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE:TAG is expected.',
        )


def check_job(spec: Any, at: str) -> None:
    """Check a custom job's spec."""
    pools = spec.worker_pool_specs
    if not pools:
        raise invalid_argument(f"{at}.worker_pool_specs", "Required field is not set: worker_pool_specs.")
    if len(pools) > MOST_POOLS:
        raise invalid_argument(
            f"{at}.worker_pool_specs", f"There are {len(pools)} worker pools; the most is {MOST_POOLS}."
        )
    for number, pool in enumerate(pools):
        _check_pool(pool, number, f"{at}.worker_pool_specs[{number}]")
    check_output(spec.base_output_directory.output_uri_prefix, f"{at}.base_output_directory.output_uri_prefix")
    timeout = spec.scheduling.timeout
    if spec.scheduling.HasField("timeout") and not 0 < timeout.seconds <= LONGEST_RUN_S:
        raise invalid_argument(
            f"{at}.scheduling.timeout", f"timeout must be positive and at most 28 days: {timeout.seconds}s."
        )
    if spec.persistent_resource_id:
        where = f"{at}.persistent_resource_id"
        raise ApiError("UNIMPLEMENTED", "Persistent resources are not played by this rehearsal.", where)


def _check_pool(pool: Any, number: int, at: str) -> None:
    task = pool.WhichOneof("task")
    if number and not pool.ByteSize():
        return  # {} skips a pool
    if task is None:
        raise invalid_argument(f"{at}.container_spec", "One of container_spec and python_package_spec must be set.")
    if number == 0 and pool.replica_count != 1:
        raise invalid_argument(
            f"{at}.replica_count", f"The first worker pool must have exactly one replica, not {pool.replica_count}."
        )
    if pool.replica_count < 0 or (task and pool.replica_count == 0):
        raise invalid_argument(f"{at}.replica_count", f"replica_count must be positive: {pool.replica_count}.")
    machine = pool.machine_spec
    if not machine.machine_type:
        raise invalid_argument(f"{at}.machine_spec.machine_type", "Required field is not set: machine_type.")
    kind = v1.AcceleratorType.Name(machine.accelerator_type)
    field, reason = find_misfit(machine.machine_type, kind, machine.accelerator_count)
    if reason:
        raise invalid_argument(f"{at}.machine_spec.{field}", reason)
    _check_disk(pool.disk_spec, f"{at}.disk_spec")
    if task == "container_spec":
        check_image(pool.container_spec.image_uri, f"{at}.container_spec.image_uri")
        check_arguments(pool.container_spec, f"{at}.container_spec")
    else:
        _check_package(pool.python_package_spec, f"{at}.python_package_spec")


def _check_package(package: Any, at: str) -> None:
    check_image(package.executor_image_uri, f"{at}.executor_image_uri")
    uris = package.package_uris
    if not uris:
        raise invalid_argument(f"{at}.package_uris", "Required field is not set: package_uris.")
    if len(uris) > MOST_PACKAGES:
        raise invalid_argument(
            f"{at}.package_uris", f"There are {len(uris)} package URIs; the most is {MOST_PACKAGES}."
        )
    for uri in uris:
        if not re.fullmatch(r"gs://[^/]+/.+", uri):
            raise invalid_argument(
                f"{at}.package_uris", f'"{uri}" is no file in Cloud Storage: gs://BUCKET/FILE is expected.'
            )
    if not package.python_module:
        raise invalid_argument(f"{at}.python_module", "Required field is not set: python_module.")
    check_arguments(package, at)


def check_arguments(task: Any, at: str) -> None:
    """Check the arguments and environment variables of a container or a package."""
    for field in ("command", "args"):
        if any("\0" in word for word in getattr(task, field, ())):
            raise invalid_argument(f"{at}.{field}", f"{field} must not contain null characters.")
    length = sum(map(len, task.args))
    if length > MOST_ARGUMENT_CHARACTERS:
        raise invalid_argument(
            f"{at}.args", f"args has {length:,} characters; the most is {MOST_ARGUMENT_CHARACTERS:,}."
        )
    if len(task.env) > MOST_VARIABLES:
        raise invalid_argument(
            f"{at}.env", f"There are {len(task.env)} environment variables; the most is {MOST_VARIABLES}."
        )
    seen: set[str] = set()
    for variable in task.env:
        if not re.fullmatch(r"[A-Za-z_]\w*", variable.name):
            raise invalid_argument(f"{at}.env", f'"{variable.name}" is no name of an environment variable.')
        if variable.name in seen:
            raise invalid_argument(f"{at}.env", f"The environment variable {variable.name} is set twice.")
        if "\0" in variable.value:
            raise invalid_argument(
                f"{at}.env", f"The environment variable {variable.name} must not contain null characters."
            )
        seen.add(variable.name)
