"""Machine types, accelerators, regions and prices of Vertex AI, each as documented on its date."""

import re

REGIONS = frozenset((
    "africa-south1", "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3", "asia-south1",
    "asia-southeast1", "asia-southeast2", "australia-southeast1", "australia-southeast2", "europe-central2",
    "europe-north1", "europe-southwest1", "europe-west1", "europe-west2", "europe-west3", "europe-west4",
    "europe-west6", "europe-west8", "europe-west9", "europe-west12", "me-central1", "me-central2", "me-west1",
    "northamerica-northeast1", "northamerica-northeast2", "southamerica-east1", "southamerica-west1", "us-central1",
    "us-east1", "us-east4", "us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4",
))  # fmt: skip


def _expand_sizes(family: str, kinds: str, sizes: str) -> list[str]:
    return [f"{family}-{kind}-{size}" for kind in kinds.split() for size in sizes.split()]


_P4_T4 = ("NVIDIA_TESLA_P4", "NVIDIA_TESLA_T4")
_V100 = ("NVIDIA_TESLA_V100",)


def _list_n1_machines() -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the N1 machine types with the accelerators that can be attached, in counts that depend on the size."""
    numbers = {
        "2": ((1, 2, 4), (1, 2, 4, 8)),
        "4": ((1, 2, 4), (1, 2, 4, 8)),
        "8": ((1, 2, 4), (1, 2, 4, 8)),
        "16": ((1, 2, 4), (2, 4, 8)),
        "32": ((2, 4), (4, 8)),
        "64": ((4,), (8,)),
        "96": ((4,), (8,)),
    }
    names = [*_expand_sizes("n1", "standard highmem highcpu", "4 8 16 32 64 96"), "n1-highmem-2"]
    return {
        name: {
            **dict.fromkeys(_P4_T4, numbers[name.rpartition("-")[2]][0]),
            **dict.fromkeys(_V100, numbers[name.rpartition("-")[2]][1]),
        }
        for name in names
        if not name.startswith("n1-highcpu-") or name.rpartition("-")[2] in ("16", "32", "64", "96")
    }


WITH_CHOICE = _list_n1_machines()
"""Machine types to which accelerators can be attached: each with the accelerators and their possible counts."""
WITH_THEIR_OWN = {
    **{f"g2-standard-{size}": ("NVIDIA_L4", count) for count, sizes in (
        (1, (4, 8, 12, 16, 32)), (2, (24,)), (4, (48,)), (8, (96,)),
    ) for size in sizes},
    **{f"a2-highgpu-{count}g": ("NVIDIA_TESLA_A100", count) for count in (1, 2, 4, 8)},
    "a2-megagpu-16g": ("NVIDIA_TESLA_A100", 16),
    **{f"a2-ultragpu-{count}g": ("NVIDIA_A100_80GB", count) for count in (1, 2, 4, 8)},
    **{f"a3-highgpu-{count}g": ("NVIDIA_H100_80GB", count) for count in (1, 2, 4, 8)},
    "a3-megagpu-8g": ("NVIDIA_H100_MEGA_80GB", 8),
    "a3-ultragpu-8g": ("NVIDIA_H200_141GB", 8),
    "a4-highgpu-8g": ("NVIDIA_B200", 8),
}  # fmt: skip
"""Machine types that include accelerators: which, and how many."""
WITHOUT = frozenset(
    [
        *_expand_sizes("e2", "standard highmem", "2 4 8 16"),
        "e2-standard-32",
        *_expand_sizes("e2", "highcpu", "2 4 8 16 32"),
        *_expand_sizes("n2", "standard highmem", "2 4 8 16 32 48 64 80"),
        *_expand_sizes("n2", "highcpu", "2 4 8 16 32 48 64 80"),
        *_expand_sizes("n2d", "standard", "2 4 8 16 32 48 64 80 96 128 224"),
        *_expand_sizes("n2d", "highmem", "2 4 8 16 32 48 64 80 96"),
        *_expand_sizes("n2d", "highcpu", "2 4 8 16 32 48 64 80 96 128 224"),
        *_expand_sizes("c2", "standard", "4 8 16 30 60"),
        *_expand_sizes("c2d", "standard highcpu highmem", "2 4 8 16 32 56 112"),
        *_expand_sizes("c3", "highcpu", "4 8 22 44 88 176"),
        *_expand_sizes("m1", "ultramem", "40 80 160"),
        "m1-megamem-96",
        "cloud-tpu",
        *(f"ct5lp-hightpu-{chips}t" for chips in (1, 4, 8)),
    ]
)
"""Machine types that take no GPU."""
GONE = frozenset(("NVIDIA_TESLA_K80", "NVIDIA_TESLA_P100"))
"""Accelerators that the API still lists but no longer offers."""


def find_misfit(machine: str, accelerator: str, count: int) -> tuple[str, str]:
    """Return what is wrong with a machine and its accelerators: the field and a sentence, both empty if nothing is."""
    has_accelerator = accelerator not in ("", "ACCELERATOR_TYPE_UNSPECIFIED")
    if machine not in WITH_CHOICE and machine not in WITH_THEIR_OWN and machine not in WITHOUT:
        return "machine_type", f'Machine type "{machine}" is not supported.'
    if has_accelerator and accelerator in GONE:
        return "accelerator_type", f"Accelerator type {accelerator} is no longer available."
    if not has_accelerator:
        if count:
            return "accelerator_count", f"accelerator_count is {count}, but accelerator_type is not set."
        if machine in WITH_THEIR_OWN:
            kind, needed = WITH_THEIR_OWN[machine]
            return "accelerator_type", f'Machine type "{machine}" needs accelerator type {kind}, {needed} of them.'
        return "", ""
    if count <= 0:
        return "accelerator_count", f"accelerator_type is {accelerator}, but accelerator_count is {count}."
    if machine in WITH_THEIR_OWN:
        fits = WITH_THEIR_OWN[machine] == (accelerator, count)
        kind, needed = WITH_THEIR_OWN[machine]
        wrong = f'Machine type "{machine}" has accelerator type {kind}, {needed} of them; not {accelerator}, {count}.'
        return ("", "") if fits else ("accelerator_type", wrong)
    if machine == "cloud-tpu" and accelerator.startswith("TPU_"):
        return "", ""
    numbers = WITH_CHOICE.get(machine, {}).get(accelerator, ())
    if not numbers:
        return "accelerator_type", f'Accelerator "{accelerator}" is not supported for machine type "{machine}".'
    if count not in numbers:
        listed = ", ".join(map(str, numbers))
        return "accelerator_count", f'Machine type "{machine}" takes {listed} of {accelerator}, not {count}.'
    return "", ""


PRICES_OF = "2026-08-21"
"""The date of the prices below, which are in US dollars per hour in us-central1."""
PRICED_REGION = "us-central1"
SURCHARGE = 1.15
"""The price factor of training on Vertex AI over the same machine on Compute Engine."""
BY_SIZE = {"n1": (0.031611, 0.004237), "n2": (0.031611, 0.004237), "e2": (0.021811, 0.002923)}
"""Compute Engine prices by machine series: one vCPU, and one GiB of memory."""
MEMORY_GIB = {
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9}, "n2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "e2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
}  # fmt: skip
"""GiB of memory per vCPU."""
ACCELERATORS = {
    "NVIDIA_TESLA_T4": 0.4025, "NVIDIA_TESLA_V100": 2.852, "NVIDIA_L4": 0.644, "NVIDIA_TESLA_A100": 3.374,
    "NVIDIA_A100_80GB": 4.517, "NVIDIA_H100_80GB": 11.266,
}  # fmt: skip
G2_PROCESSOR = 0.04225
"""The price of one vCPU of a G2 machine, including its memory, without its L4 GPUs."""
WHOLE = {
    **{f"a2-highgpu-{count}g": 4.224 * count for count in (1, 2, 4, 8)},
    **{f"a2-ultragpu-{count}g": 5.782 * count for count in (1, 2, 4, 8)},
}
"""Prices of whole machines, accelerators included."""
SPOT_PROCESSOR = 0.089 / 4
"""The spot price of one vCPU of an n1-standard machine, on Compute Engine."""
SPOT_ACCELERATORS = {"NVIDIA_TESLA_T4": 0.1905, "NVIDIA_L4": 0.336, "NVIDIA_TESLA_A100": 1.694}
"""Spot prices on Compute Engine."""


def hourly_price(machine: str, accelerator: str, count: int, *, spot: bool = False) -> float | None:
    """Return the US dollars per hour for a machine with its accelerators; None if the table has no price.

    A spot machine whose vCPUs have no spot price in the table counts them at their full price, which is more than
    they cost: `spot_remark` says so.

    """
    if spot:
        return _spot_price(machine, accelerator, count)
    if machine in WHOLE:
        return WHOLE[machine]
    if count and accelerator not in ACCELERATORS:
        return None
    bare = _bare_price(machine)
    return None if bare is None else bare + (ACCELERATORS[accelerator] * count if count else 0.0)


def _bare_price(machine: str) -> float | None:
    """Return the price of the machine alone, without accelerators."""
    if match := re.fullmatch(r"a2-highgpu-(\d+)g", machine):
        return WHOLE[machine] - int(match[1]) * ACCELERATORS["NVIDIA_TESLA_A100"] if machine in WHOLE else None
    if match := re.fullmatch(r"g2-standard-(\d+)", machine):
        return int(match[1]) * G2_PROCESSOR
    match = re.fullmatch(r"(n1|n2|e2)-(standard|highmem|highcpu)-(\d+)", machine)
    if not match:
        return None
    processor, gib = BY_SIZE[match[1]]
    return SURCHARGE * int(match[3]) * (processor + gib * MEMORY_GIB[match[1]][match[2]])


def _spot_price(machine: str, accelerator: str, count: int) -> float | None:
    if count and accelerator not in SPOT_ACCELERATORS:
        return None
    match = re.fullmatch(r"n1-standard-(\d+)", machine)
    bare = SURCHARGE * int(match[1]) * SPOT_PROCESSOR if match else _bare_price(machine)
    return None if bare is None else bare + (SURCHARGE * SPOT_ACCELERATORS[accelerator] * count if count else 0.0)


def spot_remark(machine: str, accelerator: str, count: int) -> str:
    """Return a sentence on what the price of a spot machine leaves open; "" if it is fully known."""
    if count and accelerator not in SPOT_ACCELERATORS:
        return f"the spot price of {accelerator} is not known here"
    if machine.startswith("n1-standard-"):
        return ""
    if _bare_price(machine) is None:
        return f"the spot price of {machine} is not known here"
    return f"the spot price of {machine}'s processors is not known here: they count in full, so that it will be less"


def count_processors(machine: str) -> int:
    """Return the vCPUs of a machine type according to its name; 0 if the name does not tell."""
    match = re.search(r"-(\d+)$", machine)
    return int(match[1]) if match else 0


QUOTA_KINDS = {"NVIDIA_H100_80GB": "h100", "NVIDIA_H100_MEGA_80GB": "h100_mega", "NVIDIA_H200_141GB": "h200"}
"""Accelerators whose name in quotas differs from the usual form."""


def quota_metric(accelerator: str, *, spot: bool = False) -> str:
    """Return the quota metric that a training job's accelerators count against; "" if there is none."""
    kind = QUOTA_KINDS.get(accelerator) or accelerator.lower().removeprefix("nvidia_").removeprefix("tesla_")
    if not kind:
        return ""
    start = "custom_model_training_preemptible_nvidia" if spot else "custom_model_training_nvidia"
    return f"aiplatform.googleapis.com/{start}_{kind}_gpus"
