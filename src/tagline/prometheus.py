"""Counters, gauges and histograms in the text form that Prometheus reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

Labels = tuple[tuple[str, str], ...]


class Count:
    """How often something has happened, by labels."""

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about
        self._counts: Counter[Labels] = Counter()

    def add(self, amount: int = 1, **labels: str) -> None:
        """It has happened again."""
        self._counts[tuple(labels.items())] += amount

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        yield from _head(self.name, self.about, "counter")
        for labels, count in sorted(self._counts.items()):
            yield f"{self.name}{_shown(labels)} {count}"


class Histogram:
    """How large something has been: counts by upper bound, the sum and the number of all."""

    def __init__(self, name: str, about: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.about = about
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def see(self, value: float) -> None:
        """One more."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        yield from _head(self.name, self.about, "histogram")
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield f'{self.name}_bucket{{le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"}} {total}'
        yield f"{self.name}_sum {self._sum:g}"
        yield f"{self.name}_count {total}"


def gauge(name: str, about: str, value: float, labels: Mapping[str, str] | None = None) -> Iterator[str]:
    """Something as it is now."""
    yield from _head(name, about, "gauge")
    yield f"{name}{_shown(tuple((labels or {}).items()))} {value:g}"


def _head(name: str, about: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
