"""Counters, gauges and histograms of one node, in memory. A publisher reads them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

BITS = 48
"""The last bucket of a histogram. It counts all values above 2^47, which are more than four years in microseconds."""


@dataclass(frozen=True, slots=True)
class HistogramReading:
    """The contents of a histogram at one moment.

    Attributes:
        counts: for each bucket, how many values were at most ``2 ** bucket`` and above the bound before.
        total: the sum of all values.
    """

    counts: tuple[int, ...]
    total: int


class Histogram:
    """Counts non-negative integers by powers of two. A value costs two additions and no memory.

    One thread adds, any thread reads."""

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0] * (BITS + 1)
        self._total = 0

    def add(self, value: int) -> None:
        """Add a value."""
        self._total += value
        try:
            self._counts[value and (value - 1).bit_length()] += 1
        except IndexError:
            self._counts[BITS] += 1

    def read(self) -> HistogramReading:
        """Return what was added so far. A value that is added meanwhile may be in ``total`` and not in ``counts``."""
        return HistogramReading(tuple(self._counts), self._total)


class NodeMetrics:
    """``Metrics`` (see ``stelae.spi.services``). Callable from any thread.

    An update from another thread may be lost against a simultaneous one of the same name; figures
    are for people and never decide anything."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._gauges: dict[str, float] = {}
        self._histograms: dict[str, Histogram] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        try:
            self._counts[name] += amount
        except KeyError:
            self._counts[name] = amount

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""
        self._gauges[name] = value

    def histogram(self, name: str) -> Callable[[int], None]:
        """Return the ``add`` method of the histogram with that name, which is created on first use."""
        return self._histograms.setdefault(name, Histogram()).add

    def snapshot(self) -> dict[str, float]:
        """Every counter and gauge, by name."""
        return {**self._counts, **self._gauges}

    def counts(self) -> Mapping[str, int]:
        """Every counter, by name."""
        return self._counts.copy()

    def gauges(self) -> Mapping[str, float]:
        """Every gauge, by name."""
        return self._gauges.copy()

    def histograms(self) -> Mapping[str, HistogramReading]:
        """Every histogram, by name."""
        return {name: histogram.read() for name, histogram in self._histograms.copy().items()}
