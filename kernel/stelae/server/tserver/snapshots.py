"""At which time a page of a scan may be read, and by whom (``durability.md`` rule 14).

Timestamps of a tablet's entries rise strictly with their index, over changes of leader too. So two cases are safe, and
there is no third:

1. *Settled*: this replica has applied an entry at or above T. Then it has applied all below T, for good: what is
   applied is committed, and what comes later has a later time. Any replica may serve it, leader or not, cut off or not.
2. *Led*: T is above what is applied, as on a tablet that nobody writes to. The leader first takes a timestamp above T,
   so that none of its later entries is below; then notes the last entry of its log; then has a majority confirm that it
   leads, by messages that carry its clock, so that the clock of whoever leads next is above T; and then waits until
   the noted entry is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stelae.host.hybrid_clock import ClockSettings, physical_us
from stelae.host.replica import Replica, ReplicaState
from stelae.protocol.tablet_messages import ScanRequest
from stelae.spi.errors import CallerError, ClockError, StelaeError, Unavailable

CONFIRMATIONS_MAX = 64
"""Rounds of a majority that a read waits for entries to be applied; each is a round trip long."""

Chosen = Callable[[int | StelaeError], None]
"""Gets the time at which a page may be read, or why it may not."""


class NodeTime(Protocol):
    """Gives hybrid timestamps (``HybridClock``)."""

    def now(self) -> int:
        """Return a timestamp above all that this node has given out or seen; ``ClockError``: it cannot."""
        ...


class SnapshotLimits(Protocol):
    """The settings that a read looks at."""

    @property
    def clock(self) -> ClockSettings:
        """Section ``[clock]``."""
        ...


class ReadNode(Protocol):
    """What a read uses of its node."""

    @property
    def time(self) -> NodeTime:
        """The node's clock."""
        ...

    @property
    def config(self) -> SnapshotLimits:
        """The node's settings."""
        ...


_SERVES_NOBODY = (ReplicaState.FAILED, ReplicaState.STOPPING)


def choose_time(node: ReadNode, replica: Replica, scan: ScanRequest, done: Chosen) -> None:
    """Give ``done`` the time at which this replica may serve a page, perhaps before this returns, or an error.

    A scan that names no time and no ``at_least``, and one whose ``at_least`` is not applied here yet, gets a time at
    which it is linearizable."""
    at = settled(scan, replica)
    if at is not None:
        done(at)
    elif scan.at is None:
        replica.read_index(done)
    else:
        lead_up_to(node, replica, scan.at, done)


def settled(scan: ScanRequest, replica: Replica) -> int | None:
    """Return the time at which this replica may serve a page without asking anybody, or ``None``."""
    if replica.state in _SERVES_NOBODY:
        return None
    applied = replica.applier.timestamp
    if scan.at is not None:
        return scan.at if scan.at <= applied else None
    # 0: this replica has applied nothing at all yet.
    return applied if scan.at_least is not None and 0 < applied >= scan.at_least else None


def lead_up_to(node: ReadNode, replica: Replica, at: int, done: Chosen) -> None:
    """Give ``done`` the time ``at`` once a leader may serve it: the second case of the module.

    Otherwise an error: ``NotLeader``; ``Unavailable``, for a time a little ahead of this node's clock;
    ``CallerError`` for one further ahead."""
    try:
        now = node.time.now()
    except ClockError as error:
        done(Unavailable(str(error)))
        return
    if at > now:
        done(_ahead(at, now, node.config.clock.clock_error_ms_max))
        return
    last = replica.core.status().last.index
    left = CONFIRMATIONS_MAX

    def confirmed(result: int | StelaeError) -> None:
        nonlocal left
        left -= 1
        if isinstance(result, StelaeError):
            done(result)
        elif replica.applier.applied.index >= last:
            done(at)
        elif left:
            replica.read_index(confirmed)
        else:
            done(Unavailable("entries below the snapshot are not applied yet"))

    replica.read_index(confirmed)


def _ahead(at: int, now: int, error_ms_max: int) -> StelaeError:
    ahead_ms = (physical_us(at) - physical_us(now)) // 1000
    if ahead_ms > error_ms_max:
        return CallerError(f"snapshot {at} is {ahead_ms} ms ahead of this node's clock; read at a time that has been")
    return Unavailable(f"snapshot {at} is {ahead_ms} ms ahead of this node's clock; wait for it")
