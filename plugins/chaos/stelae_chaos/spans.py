"""What happened to a cluster during a run: faults, and who led. Times are microseconds since the start of the run."""

from __future__ import annotations

import msgspec


class FaultSpan(msgspec.Struct, kw_only=True):
    """A fault that was injected. ``ended_us`` is 0 while it lasts."""

    kind: str
    detail: str
    begun_us: int
    ended_us: int = 0

    def __str__(self) -> str:
        return f"{self.begun_us / 1e6:8.3f} s  {self.kind}: {self.detail}"


class LeaderSpan(msgspec.Struct, kw_only=True):
    """A time in which a node was seen to lead."""

    what: str  #: Name of the tablet.
    leader: str  #: Name of the node.
    begun_us: int
    ended_us: int
