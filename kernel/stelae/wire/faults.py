"""The fault seam: it sits where messages enter and leave. A one-way partition needs one process; no rules cost one
attribute test. ``stelae.chaos`` has the rules."""

from enum import StrEnum
from typing import Protocol

from stelae.spi.ids import NodeId


class Direction(StrEnum):
    """Which way a message goes, seen from this process."""

    INBOUND = "INBOUND"
    OUTBOUND = "OUTBOUND"


class FaultSeam(Protocol):
    """Decides what becomes of messages."""

    @property
    def active(self) -> bool:
        """Whether anybody's messages are touched at all."""

    def judge(self, peer: NodeId, direction: Direction) -> tuple[int, ...]:
        """Return the delay in ms of each copy that is to be delivered; empty means lost."""
