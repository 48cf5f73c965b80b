"""Counters and gauges of one node, kept in memory; whoever wants to publish them reads them."""

from collections import Counter


class NodeMetrics:
    """``Metrics`` (see ``stelae.spi.services``). Callable from any thread.

    An update from another thread may be lost against a simultaneous one of the same name; figures
    are for people and never decide anything."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._gauges: dict[str, float] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self._counts[name] += amount

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge."""
        self._gauges[name] = value

    def snapshot(self) -> dict[str, float]:
        """Every counter and gauge, by name."""
        return {**dict(self._counts), **self._gauges}
