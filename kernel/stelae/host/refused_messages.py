"""Counts the messages that a core refuses, for the metrics of the node."""

from stelae.spi.consensus import ConsensusCore
from stelae.spi.services import Metrics


class RefusedMessages:
    """What one core has refused so far, as far as it is counted."""

    def __init__(self, core: ConsensusCore, metrics: Metrics) -> None:
        self._core = core
        self._metrics = metrics
        self._counted: dict[str, int] = {}

    def count(self) -> None:
        """Count what the core has refused since the last call, by what was wrong with it."""
        for flaw, count in self._core.refused.items():
            if count != (before := self._counted.get(flaw, 0)):
                self._metrics.count(f"consensus_flaw_{flaw}", count - before)
                self._counted[flaw] = count
