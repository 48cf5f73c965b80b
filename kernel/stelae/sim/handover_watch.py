"""Reports when a leader asks its successor to campaign."""

from __future__ import annotations

from collections.abc import Callable

from stelae.sim.invariants import FactListener
from stelae.sim.world import Needs, ObservedNode
from stelae.spi.consensus import Outbound

HANDOVER = "TimeoutNow"
"""Name of the message by which a leader asks its successor to campaign."""


class HandoverWatch(FactListener):
    """Calls ``handed_over`` with the position of each leader that asks its successor to campaign."""

    def __init__(self) -> None:
        self.handed_over: Callable[[int], None] = lambda position: None

    def on_sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """As ``FactListener``."""
        if type(outbound.message).__name__ == HANDOVER:
            self.handed_over(node.position)
