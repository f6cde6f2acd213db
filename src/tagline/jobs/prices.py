"""What a job would cost: by the hour from the table of machines, and how many hours it may take."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tagline.gcp import machines
from tagline.spec import Spec, Vertex

REDUCTION_MACHINE = "n1-highcpu-16"
STARTING_HOURS = 0.1
"""Until a machine that was given has the image, the data, and a first batch."""
PARAMETERS = {
    "minilm": 11e6, "bert-base": 86e6, "bert-large": 303e6, "roberta-base": 86e6, "roberta-large": 303e6,
    "distilbert": 43e6, "distilroberta": 43e6, "deberta-v3-base": 86e6, "deberta-v3-small": 43e6,
    "deberta-v3-large": 304e6, "modernbert-base": 111e6, "modernbert-large": 344e6, "mpnet-base": 86e6,
    "xlm-roberta-base": 86e6, "xlm-roberta-large": 303e6,
}  # fmt: skip
"""Weights of an encoder's layers, without its table of words; by what its name holds."""
USUAL_PARAMETERS = 86e6
USUAL_EPOCHS = 4
"""Where training.epochs is "auto"."""
FLOPS = {
    "NVIDIA_TESLA_P4": 2e12, "NVIDIA_TESLA_T4": 15e12, "NVIDIA_TESLA_V100": 40e12, "NVIDIA_L4": 35e12,
    "NVIDIA_TESLA_A100": 120e12, "NVIDIA_A100_80GB": 120e12, "NVIDIA_H100_80GB": 250e12,
}  # fmt: skip
"""Operations a second that fine-tuning may come to: a third to a half of what the makers state."""
PROCESSOR_FLOPS = 1.5e10
"""Of one virtual processor."""
STEP_S = 0.02
"""Less than this no step takes on a GPU, however small: it is started, waited for, and looked at."""
OTHER_FAMILIES_S = 4e-3
"""For a row and an epoch of a family without a pretrained encoder; an assumption on the safe side."""


@dataclass(frozen=True)
class Rate:
    """How fast a run has learned, and on what."""

    rows_per_s: float
    """Evaluations and checkpoints included."""
    flops: float
    """Operations a second that what it ran on may come to, by the tables above: measured is only the other number."""
    run: str
    machine: str


@dataclass(frozen=True)
class Price:
    """US dollars for a job: an hour of all its machines, the hours expected, and the most it can come to."""

    per_hour: float | None
    hours: float | None
    max_hours: float
    assumption: str
    parts: tuple[tuple[str, float | None], ...]
    remark: str = ""
    """What is not known of it."""

    @property
    def expected(self) -> float | None:
        """For the hours expected; None where the price or the hours are not known."""
        return None if self.per_hour is None or self.hours is None else self.per_hour * self.hours

    @property
    def most(self) -> float | None:
        """When max_hours end it."""
        return None if self.per_hour is None else self.per_hour * self.max_hours

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
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
        """For a person who is about to pay."""
        remark = f"; {self.remark}" if self.remark else ""
        dated = f"an estimate, from {machines.PRICED_REGION}'s prices of {machines.PRICES_OF}{remark}"
        if self.per_hour is None:
            unknown = ", ".join(name for name, price in self.parts if price is None)
            told = self.remark or f"the price of {unknown} is not known here"
            return f"{told}: see cloud.google.com/vertex-ai/pricing"
        most = f"at most ${self.per_hour * self.max_hours:,.2f} in {self.max_hours:g} hours"
        if self.expected is None:
            return f"${self.per_hour:,.2f} an hour, {most} ({dated})"
        expected = f"about ${self.expected:,.2f} for {_format_hours(self.hours or 0)} at ${self.per_hour:,.2f} an hour"
        return f"{expected}, {most} ({dated}; the hours from {self.assumption})"


def estimate_price(spec: Spec, *, training_rows: int | None = None, rate: Rate | None = None) -> Price:
    """What a spec's job would cost; the hours are expected only where the rows are known, best from a measured rate."""
    place = spec.vertex
    named = place.machine + (f" with {place.accelerators} {place.accelerator}" if place.accelerators else "")
    each = machines.hourly_price(place.machine, place.accelerator, place.accelerators, spot=place.spot)
    parts = [(f"{place.workers} x {named}{', spot' if place.spot else ''}", each and each * place.workers)]
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
    """US dollars an hour for pools of machines, each a type, its accelerator, their number, and the number of machines;
    None where the table does not say. And what is not known of it."""
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
    """Operations a second that fine-tuning may come to on all machines of a job."""
    one = FLOPS.get(place.accelerator, 0.0) * place.accelerators
    return place.workers * (one or estimate_processor_flops(machines.count_processors(place.machine)))


def estimate_processor_flops(count: int) -> float:
    """The same of so many virtual processors."""
    return PROCESSOR_FLOPS * max(1, count)


def estimate_gpu_flops(name: str) -> float:
    """The same of one GPU, by the name that its driver gives it; 0 where the table has no such GPU."""
    words = re.findall(r"[A-Z]+\d+", name.upper())
    return next((flops for known, flops in FLOPS.items() if set(words) & set(known.split("_"))), 0.0)


def _estimate_hours(spec: Spec, rows: int, rate: Rate | None) -> tuple[float, str]:
    """Hours that a training may take, and what that rests on."""
    place = spec.vertex
    epochs = USUAL_EPOCHS if spec.training.epochs == "auto" else spec.training.epochs
    seconds, told = _scale_measured_rate(place, rate) if rate else _assume_rate(spec)
    least = STEP_S / spec.training.batch_size if place.accelerators else 0.0
    if least > seconds:
        seconds, told = least, f"{told}, at least {1000 * STEP_S:g} ms a step"
    return STARTING_HOURS + rows * epochs * seconds / 3600, f"{rows:,} rows, {epochs} epochs, {told}"


def _scale_measured_rate(place: Vertex, rate: Rate) -> tuple[float, str]:
    """Seconds a row by what a run has measured: a machine that computes twice as much takes half as long."""
    there = estimate_flops(place)
    told = (
        f"the {rate.rows_per_s:,.3g} rows/s of run {rate.run} on {rate.machine}, "
        f"assumed to come to {rate.flops / 1e12:g} TFLOP/s, and {there / 1e12:g} TFLOP/s in all there"
    )
    return rate.flops / (there * rate.rows_per_s), told


def _assume_rate(spec: Spec) -> tuple[float, str]:
    """Seconds a row where nothing was measured."""
    model = spec.model
    tokens = getattr(model, "max_tokens", 0)
    if model.family not in ("encoder", "fewshot") or not tokens:
        return OTHER_FAMILIES_S, f"an assumed {1000 * OTHER_FAMILIES_S:g} ms a row"
    name = str(getattr(model, "pretrained", "")).lower()
    longest_first = sorted(PARAMETERS, key=len, reverse=True)
    weights = next((PARAMETERS[known] for known in longest_first if known in name), USUAL_PARAMETERS)
    there, filled = estimate_flops(spec.vertex), min(tokens, 128)
    told = f"an assumed {filled} tokens a row, {weights / 1e6:.0f} million weights, {there / 1e12:g} TFLOP/s in all"
    return 6 * weights * filled / there, told


def check_budget(place: Vertex, price: Price) -> str:
    """What is wrong if max_hours may cost more than the budget; "" if they may not."""
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
