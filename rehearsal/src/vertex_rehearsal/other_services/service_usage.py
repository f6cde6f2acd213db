"""Service Usage: the enabled APIs of a project, and its quotas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vertex_rehearsal.api.errors import ApiError, ErrorCause, invalid_argument
from vertex_rehearsal.machines import REGIONS
from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest
from vertex_rehearsal.project import quotas
from vertex_rehearsal.project.project import EVERYWHERE, SERVICES, Project

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

MOST_NAMES = 30
UNIT = "1/{project}/{region}"
VIEWS = ("QUOTA_VIEW_UNSPECIFIED", "BASIC", "FULL")


class ServiceUsage:
    """The methods of serviceusage.googleapis.com that a launcher calls."""

    METHODS: Sequence[RestMethod] = (
        RestMethod("serviceusage.services.get", "GET", "v1/projects/{project}/services/{service}", "get_service",
               "serviceusage.services.get"),
        RestMethod("serviceusage.services.batchGet", "GET", "v1/projects/{project}/services:batchGet", "batch_get",
               "serviceusage.services.get"),
        RestMethod("serviceusage.services.consumerQuotaMetrics.list", "GET",
               "v1beta1/projects/{project}/services/{service}/consumerQuotaMetrics", "list_quotas",
               "serviceusage.quotas.get", "The quotas of Vertex AI's custom training."),
        RestMethod("serviceusage.services.consumerQuotaMetrics.get", "GET",
               "v1beta1/projects/{project}/services/{service}/consumerQuotaMetrics/{metric=**}", "get_quota",
               "serviceusage.quotas.get", "The quotas of Vertex AI's custom training."),
    )  # fmt: skip

    def __init__(self, context: "Context") -> None:
        self._context = context

    def get_service(self, request: ServiceRequest) -> Any:
        """Return an API and whether it is enabled."""
        return self._describe_service(request["project"], request["service"])

    def batch_get(self, request: ServiceRequest) -> Any:
        """Return several APIs."""
        names = request.query.get("names", ())
        if not 0 < len(names) <= MOST_NAMES:
            raise invalid_argument("names", f"1 to {MOST_NAMES} names are expected, not {len(names)}.")
        services = []
        for name in names:
            words = name.split("/")
            if len(words) != 4 or words[0] != "projects" or words[2] != "services":
                raise invalid_argument("names", f'"{name}" is no service: projects/PROJECT/services/SERVICE.')
            services.append(self._describe_service(words[1], words[3]))
        return {"services": services}

    def _describe_service(self, project: str, service: str) -> dict[str, Any]:
        short = service.removesuffix(".googleapis.com")
        if short not in SERVICES or short == service:
            domain = "serviceusage.googleapis.com"
            raise ApiError(
                "PERMISSION_DENIED",
                f"Not found or permission denied for service(s): {service}.",
                cause=ErrorCause("SERVICE_CONFIG_NOT_FOUND_OR_PERMISSION_DENIED", domain, {"services": service}),
            )
        number = self._context.project_number(project)
        state = "ENABLED" if self._context.project.load_current().has_service(service) else "DISABLED"
        return {
            "name": f"projects/{number}/services/{service}",
            "parent": f"projects/{number}",
            "state": state,
            "config": {"name": service, "title": SERVICES[short]},
        }

    def list_quotas(self, request: ServiceRequest) -> Any:
        """Return a page of an API's quotas by metric."""
        is_full = _is_full(request)
        metrics = (
            []
            if request["service"] != quotas.SERVICE
            else [self._describe_metric(request["project"], metric, is_full) for metric in quotas.METRICS]
        )
        return request.build_page(metrics, "metrics")

    def get_quota(self, request: ServiceRequest) -> Any:
        """Return the quotas of one metric."""
        service, _, metric = request["metric"].partition("/")
        if service != request["service"] or service != quotas.SERVICE or metric not in quotas.METRICS:
            raise ApiError("NOT_FOUND", f"Quota metric {request['metric']} not found for service {request['service']}.")
        return self._describe_metric(request["project"], metric, _is_full(request))

    def _describe_metric(self, project: str, metric: str, is_full: bool) -> dict[str, Any]:
        full = f"{quotas.SERVICE}/{metric}"
        number = self._context.project_number(project)
        name = f"projects/{number}/services/{quotas.SERVICE}/consumerQuotaMetrics/{quote(full, safe='')}"
        limit = {
            "name": f"{name}/limits/%2Fproject%2Fregion",
            "metric": full,
            "unit": UNIT,
            "isPrecise": True,
            "quotaBuckets": _build_buckets(self._context.project.load_current(), metric, is_full),
            "supportedLocations": sorted(REGIONS),
        }
        return {
            "name": name,
            "metric": full,
            "displayName": metric.replace("_", " "),
            "unit": "1",
            "consumerQuotaLimits": [limit],
        }


def _is_full(request: ServiceRequest) -> bool:
    view = request.get_parameter("view", "BASIC")
    if view not in VIEWS:
        raise invalid_argument("view", f'view must be one of {", ".join(VIEWS)}, not "{view}".')
    return view == "FULL"


def _build_buckets(project: Project, metric: str, is_full: bool) -> list[dict[str, Any]]:
    """Return the default limit and those of single regions; in the basic view only of regions with their own."""
    limits = project.quotas.get(metric, {})
    regions = sorted(REGIONS) if is_full else sorted(set(limits) - {EVERYWHERE})
    return [
        _build_bucket(project.limit(metric, region or EVERYWHERE), quotas.get_default_limit(metric))
        | ({"dimensions": {"region": region}} if region else {})
        for region in ("", *regions)
    ]


def _build_bucket(effective: int, default: int) -> dict[str, Any]:
    """Return a limit as in Google's JSON, with integers as strings and without zeros."""
    numbers = {"effectiveLimit": effective, "defaultLimit": default}
    return {name: str(number) for name, number in numbers.items() if number}
