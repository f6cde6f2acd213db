"""Price estimates of jobs: the hourly price from the table of machines, and the expected hours."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tagline.gcp import machines
from tagline.spec import Spec, Vertex

REDUCTION_MACHINE = "n1-highcpu-16"
STARTING_HOURS = 0.1
"""Start-up time of a machine: pulling the image, fetching the data, a first batch."""
PARAMETERS = {
    "minilm": 11e6, "bert-base": 86e6, "bert-large": 303e6, "roberta-base": 86e6, "roberta-large": 303e6,
    "distilbert": 43e6, "distilroberta": 43e6, "deberta-v3-base": 86e6, "deberta-v3-small": 43e6,
    "deberta-v3-large": 304e6, "modernbert-base": 111e6, "modernbert-large": 344e6, "mpnet-base": 86e6,
    "xlm-roberta-base": 86e6, "xlm-roberta-large": 303e6,
}  # fmt: skip
"""Weights of an encoder's layers, without its embeddings, by a part of its name."""
DEFAULT_PARAMETERS = 86e6
DEFAULT_EPOCHS = 4
"""Assumed where training.epochs is "auto"."""
FLOPS = {
    "NVIDIA_TESLA_P4": 2e12, "NVIDIA_TESLA_T4": 15e12, "NVIDIA_TESLA_V100": 40e12, "NVIDIA_L4": 35e12,
    "NVIDIA_TESLA_A100": 120e12, "NVIDIA_A100_80GB": 120e12, "NVIDIA_H100_80GB": 250e12,
}  # fmt: skip
"""FLOP/s that fine-tuning reaches: a third to a half of the peak that the manufacturers state."""
PROCESSOR_FLOPS = 1.5e10
"""The same for one virtual processor."""
STEP_S = 0.02
"""Least duration of a training step on a GPU, however small: the overhead of launching and synchronising it."""
OTHER_FAMILIES_S = 4e-3
"""Seconds a row and epoch of a family without a pretrained encoder; a conservative assumption."""


@dataclass(frozen=True)
class Rate:
    """The measured training rate of a run, and its hardware."""

    rows_per_s: float
    """Training rows a second, evaluations and checkpoints included."""
    flops: float
    """FLOP/s of its hardware by the tables above; only `rows_per_s` is measured."""
    run: str
    machine: str


@dataclass(frozen=True)
class Price:
    """The price of a job in US dollars: an hour of all its machines, the expected hours, and the maximum."""

    per_hour: float | None
    hours: float | None
    max_hours: float
    assumption: str
    parts: tuple[tuple[str, float | None], ...]
    remark: str = ""
    """What is unknown about the price."""

    @property
    def expected(self) -> float | None:
        """The price of the expected hours; None where price or hours are not known."""
        return None if self.per_hour is None or self.hours is None else self.per_hour * self.hours

    @property
    def most(self) -> float | None:
        """The price if the job runs until max_hours end it."""
        return None if self.per_hour is None else self.per_hour * self.max_hours

    def to_dict(self) -> dict[str, Any]:
        """Return the price as JSON."""
        return {
            "currency": "USD",
            "per_hour": _round_figure(self.per_hour),
            "hours": _round_figure(self.hours),
            "expected": _round_figure(self.expected),
            "max_hours": self.max_hours,
            "most": _round_figure(self.most),
            "parts": {name: _round_figure(price) for name, price in self.parts},
            "assumption": self.assumption,
            "remark": self.remark,
            "is_estimate": True,
            "date": machines.PRICES_OF,
            "region": machines.PRICED_REGION,
        }

    def sentence(self) -> str:
        """Return the price as a sentence, for the user to confirm."""
        remark = f"; {self.remark}" if self.remark else ""
        basis = f"an estimate, from {machines.PRICED_REGION}'s prices of {machines.PRICES_OF}{remark}"
        if self.per_hour is None:
            unknown = ", ".join(name for name, price in self.parts if price is None)
            reason = self.remark or f"the price of {unknown} is not known here"
            return f"{reason}: see cloud.google.com/vertex-ai/pricing"
        most = f"at most ${self.per_hour * self.max_hours:,.2f} in {self.max_hours:g} hours"
        if self.expected is None:
            return f"${self.per_hour:,.2f} an hour, {most} ({basis})"
        expected = f"about ${self.expected:,.2f} for {_format_hours(self.hours or 0)} at ${self.per_hour:,.2f} an hour"
        return f"{expected}, {most} ({basis}; the hours from {self.assumption})"


def estimate_price(spec: Spec, *, training_rows: int | None = None, rate: Rate | None = None) -> Price:
    """Estimate the price of a spec's job; hours are estimated only where the rows are known, preferably by a rate."""
    place = spec.vertex
    machine = place.machine + (f" with {place.accelerators} {place.accelerator}" if place.accelerators else "")
    machine_price = machines.hourly_price(place.machine, place.accelerator, place.accelerators, spot=place.spot)
    parts = [
        (
            f"{place.workers} x {machine}{', spot' if place.spot else ''}",
            machine_price and machine_price * place.workers,
        )
    ]
    if place.reduction_servers:
        server = machines.hourly_price(REDUCTION_MACHINE, "", 0)
        parts.append((f"{place.reduction_servers} x {REDUCTION_MACHINE}", server and server * place.reduction_servers))
    total = None if any(price is None for _, price in parts) else sum(price or 0.0 for _, price in parts)
    hours, assumption = (
        (None, "the rows are not known here") if training_rows is None else _estimate_hours(spec, training_rows, rate)
    )
    remark = machines.spot_remark(place.machine, place.accelerator, place.accelerators) if place.spot else ""
    return Price(total, hours and min(hours, place.max_hours), place.max_hours, assumption, tuple(parts), remark)


def hourly_price_of_pools(pools: Iterable[tuple[str, str, int, int]], *, spot: bool) -> tuple[float | None, str]:
    """Return US dollars an hour for pools of machines, and what is unknown about the price.

    A pool is a machine type, its accelerator, their number, and the number of machines. The price is None where the
    table has none.
    """
    total: float | None = 0.0
    remarks: dict[str, None] = {}
    for machine, accelerator, accelerators, count in pools:
        price = machines.hourly_price(machine, accelerator, accelerators, spot=spot)
        total = None if total is None or price is None else total + price * count
        remark = machines.spot_remark(machine, accelerator, accelerators) if spot else ""
        if remark or price is None:
            remarks[remark or f"the price of {machine} is not known here"] = None
    return total, "; ".join(remarks)


def estimate_flops(place: Vertex) -> float:
    """Return the FLOP/s that fine-tuning reaches on all machines of a job."""
    one = FLOPS.get(place.accelerator, 0.0) * place.accelerators
    return place.workers * (one or estimate_processor_flops(machines.count_processors(place.machine)))


def estimate_processor_flops(count: int) -> float:
    """Return the FLOP/s of a number of virtual processors."""
    return PROCESSOR_FLOPS * max(1, count)


def estimate_gpu_flops(name: str) -> float:
    """Return the FLOP/s of a GPU by its name in the driver; 0 where the table has no such GPU."""
    words = re.findall(r"[A-Z]+\d+", name.upper())
    return next((flops for known, flops in FLOPS.items() if set(words) & set(known.split("_"))), 0.0)


def _estimate_hours(spec: Spec, rows: int, rate: Rate | None) -> tuple[float, str]:
    """Estimate the hours of a training; returns them with the assumption behind them."""
    place = spec.vertex
    epochs = DEFAULT_EPOCHS if spec.training.epochs == "auto" else spec.training.epochs
    seconds, assumption = _scale_measured_rate(place, rate) if rate else _assume_rate(spec)
    minimum = STEP_S / spec.training.batch_size if place.accelerators else 0.0
    if minimum > seconds:
        seconds, assumption = minimum, f"{assumption}, at least {1000 * STEP_S:g} ms a step"
    return STARTING_HOURS + rows * epochs * seconds / 3600, f"{rows:,} rows, {epochs} epochs, {assumption}"


def _scale_measured_rate(place: Vertex, rate: Rate) -> tuple[float, str]:
    """Scale a measured rate to the place's hardware, in proportion to FLOP/s; returns seconds a row."""
    flops = estimate_flops(place)
    assumption = (
        f"the {rate.rows_per_s:,.3g} rows/s of run {rate.run} on {rate.machine}, "
        f"assumed to come to {rate.flops / 1e12:g} TFLOP/s, and {flops / 1e12:g} TFLOP/s in all there"
    )
    return rate.flops / (flops * rate.rows_per_s), assumption


def _assume_rate(spec: Spec) -> tuple[float, str]:
    """Return seconds a row from assumptions alone."""
    model = spec.model
    tokens = getattr(model, "max_tokens", 0)
    if model.family not in ("encoder", "fewshot") or not tokens:
        return OTHER_FAMILIES_S, f"an assumed {1000 * OTHER_FAMILIES_S:g} ms a row"
    name = str(getattr(model, "pretrained", "")).lower()
    longest_first = sorted(PARAMETERS, key=len, reverse=True)
    weights = next((PARAMETERS[known] for known in longest_first if known in name), DEFAULT_PARAMETERS)
    flops, length = estimate_flops(spec.vertex), min(tokens, 128)
    assumption = (
        f"an assumed {length} tokens a row, {weights / 1e6:.0f} million weights, {flops / 1e12:g} TFLOP/s in all"
    )
    return 6 * weights * length / flops, assumption


def check_budget(place: Vertex, price: Price) -> str:
    """Return a problem if max_hours may cost more than the budget; "" otherwise."""
    if not place.budget:
        return ""
    if price.most is None:
        return "vertex.budget is set, and the price of these machines is not known here"
    if price.most <= place.budget:
        return ""
    allowed = place.budget / (price.per_hour or 1.0)
    return f"{place.max_hours:g} hours may cost ${price.most:,.2f}: vertex.budget allows vertex.max_hours={allowed:.1f}"


def _round_figure(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _format_hours(hours: float) -> str:
    return f"{60 * hours:.0f} minutes" if hours < 1 else f"{hours:.1f} hours"
