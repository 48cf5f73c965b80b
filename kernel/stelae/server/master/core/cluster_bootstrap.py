"""Whether a new cluster may begin: only once all of its masters, each asked, name the same masters.

Two lists that overlap hold two majorities, and each would keep a catalog of its own. Once the cluster is on record the
members of the system tablet are in its log, and no file is asked again."""

from __future__ import annotations

from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import CompareMasters, Effect, MastersCompared, Refuse
from stelae.spi.errors import Unavailable

COMPARE_US = 250_000
"""How often the other masters are asked, as long as they do not agree."""


class ClusterBootstrap:
    """What the leader of an empty catalog waits for.

    Attributes:
        objection: why the cluster may not begin yet.
        due_us: when to ask the other masters again.
    """

    def __init__(self) -> None:
        self.objection = "the other masters have not been asked yet"
        self.due_us = 0

    def is_over(self, catalog: Catalog) -> bool:
        """Whether a leader of this catalog may serve."""
        return catalog.cluster is not None or not self.objection

    def ask(self, now_us: int) -> list[Effect]:
        """Ask the other masters, if it is time."""
        if now_us < self.due_us:
            return []
        self.due_us = now_us + COMPARE_US
        return [CompareMasters()]

    def compared(self, event: MastersCompared) -> None:
        """Take what they say."""
        self.objection = event.objection

    def refusal(self, token: int) -> Refuse:
        """Tell a client why nothing can be changed yet."""
        error = Unavailable(f"the cluster has not begun: {self.objection}")
        return Refuse(token=token, code=error.code, detail=str(error), retryable=True)
