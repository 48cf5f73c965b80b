"""The fault seam: the place where tests can lose, delay or repeat packets as they enter or leave a process.

It acts on one side of a connection, so a one-way partition needs rules in one process only. Without rules it costs one
attribute test for each packet. The rules are in ``stelae.local.chaos``."""

from enum import StrEnum
from typing import Protocol

from stelae.spi.ids import NodeId


class Direction(StrEnum):
    """The direction of a packet, as this process sees it."""

    INBOUND = "INBOUND"
    OUTBOUND = "OUTBOUND"


class FaultSeam(Protocol):
    """Decides whether a packet is delivered, delayed, repeated or lost."""

    @property
    def active(self) -> bool:
        """Whether there are any rules."""

    def judge(self, peer: NodeId, direction: Direction) -> tuple[int, ...]:
        """Return the delay in milliseconds of each copy to deliver. An empty tuple means that the packet is lost."""
