"""Vertex AI's quotas of custom training: metrics, default limits and the demand of a job."""

from collections import Counter
from typing import Any

from vertex_rehearsal import machines
from vertex_rehearsal.api.messages import v1

SERVICE = "aiplatform.googleapis.com"
ACCELERATORS = tuple(sorted(
    {kind for kinds in machines.WITH_CHOICE.values() for kind in kinds}
    | {kind for kind, _ in machines.WITH_THEIR_OWN.values()}
))  # fmt: skip
PREEMPTIBLE = ("SPOT", "FLEX_START")
"""Scheduling strategies whose machines count against separate quotas."""
GENEROUS = {"gpus": 1_000, "cpus": 100_000}
"""The default limits in every region."""
COUNTED = ("n1-", "e2-")
"""Machine series whose vCPUs are counted together; quotas of other series are not emulated."""


def get_metric_name(kind: str, *, preemptible: bool) -> str:
    """Return the metric of an accelerator, or of `cpus`, without the service's name."""
    if kind == "cpus":
        return f"custom_model_training_{'preemptible_' if preemptible else ''}cpus"
    return machines.quota_metric(kind, spot=preemptible).removeprefix(f"{SERVICE}/")


METRICS = tuple(
    get_metric_name(kind, preemptible=preemptible) for preemptible in (False, True) for kind in ("cpus", *ACCELERATORS)
)
"""Every emulated metric."""


def get_default_limit(name: str) -> int:
    """Return the default limit of a metric."""
    return GENEROUS[name.rpartition("_")[2]]


def compute_demand(spec: Any) -> Counter[str]:
    """Return how much of each metric a job needs."""
    preemptible = v1.Scheduling.Strategy.Name(spec.scheduling.strategy) in PREEMPTIBLE
    demand: Counter[str] = Counter()
    for pool in spec.worker_pool_specs:
        machine = pool.machine_spec
        kind = v1.AcceleratorType.Name(machine.accelerator_type)
        if kind in ACCELERATORS:
            demand[get_metric_name(kind, preemptible=preemptible)] += machine.accelerator_count * pool.replica_count
        if machine.machine_type.startswith(COUNTED):
            demand[get_metric_name("cpus", preemptible=preemptible)] += (
                machines.count_processors(machine.machine_type) * pool.replica_count
            )
    return demand
