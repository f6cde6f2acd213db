"""Vertex AI's quotas of custom training: the metric of each accelerator, and what a job asks of it."""

import re
from collections import Counter
from typing import Any

from tagline.rehearsal.messages import v1

SERVICE = "aiplatform.googleapis.com"
ACCELERATORS = {
    "NVIDIA_TESLA_P4": "nvidia_p4", "NVIDIA_TESLA_T4": "nvidia_t4", "NVIDIA_TESLA_V100": "nvidia_v100",
    "NVIDIA_L4": "nvidia_l4", "NVIDIA_TESLA_A100": "nvidia_a100", "NVIDIA_A100_80GB": "nvidia_a100_80gb",
    "NVIDIA_H100_80GB": "nvidia_h100", "NVIDIA_H100_MEGA_80GB": "nvidia_h100_mega",
    "NVIDIA_H200_141GB": "nvidia_h200", "NVIDIA_B200": "nvidia_b200",
}  # fmt: skip
"""Each accelerator, and what quotas call it."""
PREEMPTIBLE = ("SPOT", "FLEX_START")
"""The strategies whose machines count against quotas of their own."""
GENEROUS = {"gpus": 1_000, "cpus": 100_000}
"""The limit in every region where nobody has said another."""
CPUS = re.compile(r"(?:n1|e2)-[a-z]+-(\d+)")


def metric(kind: str, *, preemptible: bool) -> str:
    """The metric of an accelerator, or of `cpus`, without the service's name."""
    counted = "cpus" if kind == "cpus" else f"{ACCELERATORS[kind]}_gpus"
    return f"custom_model_training_{'preemptible_' if preemptible else ''}{counted}"


METRICS = tuple(
    metric(kind, preemptible=preemptible) for preemptible in (False, True) for kind in ("cpus", *ACCELERATORS)
)
"""Every metric that is played."""


def generous(name: str) -> int:
    """The limit of a metric where nobody has said another."""
    return GENEROUS[name.rpartition("_")[2]]


def demand(spec: Any) -> Counter[str]:
    """How much of each metric a job asks for. Of processors, those of N1 and E2 machines are counted."""
    preemptible = v1.Scheduling.Strategy.Name(spec.scheduling.strategy) in PREEMPTIBLE
    asked: Counter[str] = Counter()
    for pool in spec.worker_pool_specs:
        kind = v1.AcceleratorType.Name(pool.machine_spec.accelerator_type)
        if kind in ACCELERATORS:
            count = pool.machine_spec.accelerator_count * pool.replica_count
            asked[metric(kind, preemptible=preemptible)] += count
        if size := CPUS.fullmatch(pool.machine_spec.machine_type):
            asked[metric("cpus", preemptible=preemptible)] += int(size[1]) * pool.replica_count
    return asked
