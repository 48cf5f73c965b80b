"""Decides whether a new cluster may begin: all of its masters must answer, and name the same masters.

Two different lists may have two majorities, and each majority would make a catalog of its own. Once the cluster is on
record, the log has the members of the system tablet, and the files of the masters are not compared again."""

from __future__ import annotations

from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import CompareMasters, Effect, MastersCompared, Refuse
from stelae.spi.errors import Unavailable

COMPARE_US = 250_000
"""The interval at which the other masters are asked until they agree, in microseconds."""


class ClusterBootstrap:
    """The comparison for which the leader of an empty catalog waits.

    Attributes:
        obstacle: why the cluster may not begin yet; empty if it may.
        due_us: when to ask the other masters again.
    """

    def __init__(self) -> None:
        self.obstacle = "the other masters have not been asked yet"
        self.due_us = 0

    def is_over(self, catalog: Catalog) -> bool:
        """Return whether a leader of this catalog may serve."""
        return catalog.cluster is not None or not self.obstacle

    def ask(self, now_us: int) -> list[Effect]:
        """Ask the other masters if the interval has passed."""
        if now_us < self.due_us:
            return []
        self.due_us = now_us + COMPARE_US
        return [CompareMasters()]

    def compared(self, event: MastersCompared) -> None:
        """Note the result of the comparison."""
        self.obstacle = event.obstacle

    def refusal(self, token: int) -> Refuse:
        """Return the error of a change or a read that arrives before the cluster has begun."""
        error = Unavailable(f"the cluster has not begun: {self.obstacle}")
        return Refuse(token=token, code=error.code, detail=str(error), retryable=True)
