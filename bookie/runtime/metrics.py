"""What servers count, and Prometheus' text of it.

Counting only adds to plain numbers; prometheus_client, imported at the first scrape, turns
them into text. A Histogram is its owner's: one thread at a time adds to it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric

BOUNDS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip


class Histogram:
    """How often something took how long."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self, units_per_s: float = 1.0) -> tuple[list[tuple[str, float]], float]:
        """Return (upper bound, count up to it) and the sum, as add_metric() takes them."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip(BOUNDS_S, self.counts, strict=False):
            total += count
            found.append((f"{bound * units_per_s:g}", total))
        found.append(("+Inf", total + self.counts[-1]))
        return found, self.total_s * units_per_s


class _Collector:
    def __init__(self, families: "Callable[[], Iterable[Metric]]") -> None:
        self._families = families

    def collect(self) -> "Iterator[Metric]":
        yield from self._families()


def exposition(families: "Callable[[], Iterable[Metric]]") -> bytes:
    """Return families as Prometheus' text format; ImportError without prometheus_client."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))  # pyright: ignore[reportArgumentType] - a duck
    return generate_latest(registry)
