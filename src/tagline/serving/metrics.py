"""Counters, gauges and histograms that several processes share, in the text form that Prometheus reads."""

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

Labels = Mapping[str, str]


class Slots:
    """Numbers in memory shared by forked processes: each writes its own row, and readers sum the rows."""

    def __init__(self, count: int, *, processes: int) -> None:
        memory = mmap.mmap(-1, 8 * count * processes)
        self._count = count
        self._cells = memoryview(memory).cast("d")  # one cell by itself is written faster than numpy does
        self._rows = np.frombuffer(memory, np.float64).reshape(processes, count)
        self.own = 0
        """The row of this process."""

    def add(self, slot: int, amount: float) -> None:
        """Add to a number in this process's row."""
        self._cells[self.own * self._count + slot] += amount

    def set(self, slot: int, value: float) -> None:
        """Set a number in this process's row."""
        self._cells[self.own * self._count + slot] = value

    def totals(self, first: int, count: int) -> list[float]:
        """Sum numbers over all processes."""
        found: list[float] = self._rows[:, first : first + count].sum(axis=0).tolist()
        return found


class Counter:
    """A Prometheus counter by labels, whose values are known from the start."""

    def __init__(self, name: str, about: str, kinds: Sequence[Labels]) -> None:
        self.name, self.about = name, about
        self.size = len(kinds)
        self._shown = [_format_labels(kind) for kind in kinds]
        self._place = {tuple(kind.values()): number for number, kind in enumerate(kinds)}

    def bind_slots(self, slots: Slots, first: int) -> None:
        """Allocate the numbers in shared memory."""
        self._slots, self._first = slots, first

    def add(self, *values: str) -> None:
        """Increment the counter of these label values."""
        self._slots.add(self._first + self._place[values], 1)

    def format_lines(self) -> Iterator[str]:
        """Render in Prometheus' text format; zeros are left out."""
        yield from _format_head(self.name, self.about, "counter")
        for shown, count in zip(self._shown, self._slots.totals(self._first, self.size), strict=True):
            if count:
                yield f"{self.name}{shown} {count:.0f}"


class Histogram:
    """A Prometheus histogram: counts by upper bound, the sum and the count."""

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self.name, self.about = name, about
        self.size = len(bounds) + 2
        self._bounds = bounds

    def bind_slots(self, slots: Slots, first: int) -> None:
        """Allocate the numbers in shared memory."""
        self._slots, self._first = slots, first

    def observe(self, value: float) -> None:
        """Record an observation."""
        self._slots.add(self._first + bisect_left(self._bounds, value), 1)
        self._slots.add(self._first + self.size - 1, value)

    def format_lines(self) -> Iterator[str]:
        """Render in Prometheus' text format."""
        yield from _format_head(self.name, self.about, "histogram")
        *counts, whole = self._slots.totals(self._first, self.size)
        total = 0.0
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            total += count
            yield f'{self.name}_bucket{{le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"}} {total:.0f}'
        yield f"{self.name}_sum {whole:g}"
        yield f"{self.name}_count {total:.0f}"


class Gauge:
    """A Prometheus gauge, summed over all processes."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about, self.size = name, about, 1

    def bind_slots(self, slots: Slots, first: int) -> None:
        """Allocate the number in shared memory."""
        self._slots, self._first = slots, first

    def set(self, value: float) -> None:
        """Set the value of this process."""
        self._slots.set(self._first, value)

    def format_lines(self) -> Iterator[str]:
        """Render in Prometheus' text format."""
        yield from _format_head(self.name, self.about, "gauge")
        yield f"{self.name} {self._slots.totals(self._first, 1)[0]:g}"


def allocate_slots(figures: Sequence[Counter | Histogram | Gauge], *, processes: int) -> Slots:
    """Allocate shared memory for these metrics and this number of processes."""
    slots = Slots(sum(figure.size for figure in figures), processes=processes)
    first = 0
    for figure in figures:
        figure.bind_slots(slots, first)
        first += figure.size
    return slots


def format_info(name: str, about: str, labels: Labels) -> Iterator[str]:
    """Render a metric of constant value 1 that carries information in its labels."""
    yield from _format_head(name, about, "gauge")
    yield f"{name}{_format_labels(labels)} 1"


def _format_head(name: str, about: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _format_labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape_value(value)}"' for name, value in labels.items()) + "}"


def _escape_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
