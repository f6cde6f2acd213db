"""Vertex AI's quotas of custom training: the metric of each accelerator, and what a job asks of it."""

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
"""The strategies whose machines count against quotas of their own."""
GENEROUS = {"gpus": 1_000, "cpus": 100_000}
"""The limit in every region where nobody has said another."""
COUNTED = ("n1-", "e2-")
"""The machines whose processors are counted together; those of others have quotas that are not played."""


def get_metric_name(kind: str, *, preemptible: bool) -> str:
    """The metric of an accelerator, or of `cpus`, without the service's name."""
    if kind == "cpus":
        return f"custom_model_training_{'preemptible_' if preemptible else ''}cpus"
    return machines.quota_metric(kind, spot=preemptible).removeprefix(f"{SERVICE}/")


METRICS = tuple(
    get_metric_name(kind, preemptible=preemptible) for preemptible in (False, True) for kind in ("cpus", *ACCELERATORS)
)
"""Every metric that is played."""


def get_default_limit(name: str) -> int:
    """The limit of a metric where nobody has said another."""
    return GENEROUS[name.rpartition("_")[2]]


def compute_demand(spec: Any) -> Counter[str]:
    """How much of each metric a job asks for."""
    preemptible = v1.Scheduling.Strategy.Name(spec.scheduling.strategy) in PREEMPTIBLE
    asked: Counter[str] = Counter()
    for pool in spec.worker_pool_specs:
        machine = pool.machine_spec
        kind = v1.AcceleratorType.Name(machine.accelerator_type)
        if kind in ACCELERATORS:
            asked[get_metric_name(kind, preemptible=preemptible)] += machine.accelerator_count * pool.replica_count
        if machine.machine_type.startswith(COUNTED):
            asked[get_metric_name("cpus", preemptible=preemptible)] += (
                machines.count_processors(machine.machine_type) * pool.replica_count
            )
    return asked
