"""The emulated project: its services, permissions, quotas, capacity, secrets and images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.project import quotas

SERVICES = {
    "aiplatform": "Vertex AI API", "artifactregistry": "Artifact Registry API", "cloudbuild": "Cloud Build API",
    "cloudresourcemanager": "Cloud Resource Manager API", "compute": "Compute Engine API",
    "iam": "Identity and Access Management (IAM) API", "iamcredentials": "IAM Service Account Credentials API",
    "logging": "Cloud Logging API", "monitoring": "Cloud Monitoring API", "secretmanager": "Secret Manager API",
    "serviceusage": "Service Usage API", "storage": "Cloud Storage API",
}  # fmt: skip
"""Titles of the APIs that a project can enable, by the first part of their host name."""
EVERYWHERE = "*"


@dataclass(frozen=True)
class Secret:
    """A secret's value or the file that contains it."""

    value: str = field(default="", repr=False)
    file: Path | None = None

    def read(self) -> bytes:
        """Return the value as bytes; raise OSError if the file cannot be read."""
        return self.value.encode() if self.file is None else self.file.read_bytes()


@dataclass(frozen=True)
class Project:
    """A project; by default everything is enabled and permitted, and there are no secrets or images."""

    disabled_services: frozenset[str] = frozenset()
    denied_permissions: tuple[str, ...] = ()
    quotas: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Limits by metric and region, or `*` for every region; -1 is no limit."""
    no_capacity: frozenset[str] = frozenset()
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    repositories: frozenset[str] = frozenset()
    images: tuple[str, ...] = ()
    missing_accounts: frozenset[str] = frozenset()
    """Email addresses of service accounts that do not exist; all others do."""

    def has_service(self, service: str) -> bool:
        """Whether an API, such as `aiplatform.googleapis.com`, is enabled."""
        return service not in self.disabled_services

    def has_permission(self, permission: str) -> bool:
        """Whether the caller has a permission."""
        return not any(fnmatchcase(permission, pattern) for pattern in self.denied_permissions)

    def limit(self, metric: str, region: str) -> int:
        """Return the quota of a metric in a region; -1 for no limit."""
        limits = self.quotas.get(metric, {})
        return limits.get(region, limits.get(EVERYWHERE, quotas.get_default_limit(metric)))

    def find_exceeded_metrics(self, region: str, asked: Mapping[str, int], used: Mapping[str, int]) -> list[str]:
        """The metrics of which a region has too little left."""
        limits = {metric: self.limit(metric, region) for metric in asked}
        return sorted(m for m, limit in limits.items() if 0 <= limit < asked[m] + used.get(m, 0))

    def lacks_capacity(self, region: str, spec: Any) -> bool:
        """Whether a region has no capacity for a job."""
        kinds = {
            kind
            for pool in spec.worker_pool_specs
            for kind in (pool.machine_spec.machine_type, v1.AcceleratorType.Name(pool.machine_spec.accelerator_type))
        }
        return any(f"{region}/{kind}" in self.no_capacity for kind in kinds)
