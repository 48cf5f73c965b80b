"""Chooses the time at which a replica may serve a page of a scan (``durability.md`` rule 14).

The timestamps of a tablet's entries rise strictly with their index, also across changes of the leader. A replica may
serve a read at time T in two cases only:

1. *Settled*: the replica has applied an entry at or above T. Then it has applied every entry below T, because applied
   entries are committed, and later entries have later timestamps. Any replica may serve such a read, even a follower
   that is cut off from the others.
2. *Led*: T is above the timestamp of the last applied entry, as on a tablet without writes. Then only the leader may
   serve the read, and only after four steps:

   1. It takes a timestamp above T from its clock, so that all of its later entries are above T.
   2. It notes the index of the last entry of its log.
   3. A majority confirms that it still leads. The messages carry the leader's clock, so the clock of the next leader
      is above T, too.
   4. It waits until the noted entry is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stelae.host.hybrid_clock import ClockSettings, physical_us
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.protocol.tablet_messages import ScanRequest
from stelae.spi.errors import CallerError, ClockError, StelaeError, Unavailable

CONFIRMATIONS_MAX = 64
"""The most rounds of confirmation for one read while it waits for entries to be applied. A round takes one round
trip."""

Chosen = Callable[[int | StelaeError], None]
"""Gets the hybrid timestamp at which a page may be read, or the error."""


class NodeTime(Protocol):
    """Gives hybrid timestamps (``HybridClock``)."""

    def now(self) -> int:
        """Return a timestamp above all that this node has issued or received.

        Raises:
            ClockError: the clock cannot issue one.
        """
        ...


class SnapshotLimits(Protocol):
    """The settings that a read needs."""

    @property
    def clock(self) -> ClockSettings:
        """Section ``[clock]``."""
        ...


class ReadNode(Protocol):
    """The parts of a node that a read needs."""

    @property
    def time(self) -> NodeTime:
        """The node's clock."""
        ...

    @property
    def config(self) -> SnapshotLimits:
        """The node's settings."""
        ...


_NOT_SERVING = (ReplicaState.FAILED, ReplicaState.STOPPING)


def choose_time(node: ReadNode, replica: Replica, scan: ScanRequest, done: Chosen) -> None:
    """Give ``done`` the time at which this replica may serve a page, or the error.

    ``done`` may be called before this function returns.
    A scan without ``at`` gets a time at which it is linearizable, unless the replica has applied its ``at_least``."""
    at = settled(scan, replica)
    if at is not None:
        done(at)
    elif scan.at is None:
        replica.read_index(done)
    else:
        confirm_as_leader(node, replica, scan.at, done)


def settled(scan: ScanRequest, replica: Replica) -> int | None:
    """Return the time at which this replica may serve a page without a message to others; ``None``: there is none."""
    if replica.state in _NOT_SERVING:
        return None
    applied = replica.applier.timestamp
    if scan.at is not None:
        return scan.at if scan.at <= applied else None
    # The timestamp is 0 while this replica has applied no entry.
    return applied if scan.at_least is not None and 0 < applied >= scan.at_least else None


def confirm_as_leader(node: ReadNode, replica: Replica, at: int, done: Chosen) -> None:
    """Give ``done`` the time ``at`` once this replica, as the leader, may serve it: case 2 of the module.

    Otherwise ``done`` gets an error: ``NotLeader``; ``Unavailable`` if ``at`` is ahead of this node's clock by at most
    the clock error that is allowed; ``CallerError`` if it is further ahead."""
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
            replica.read_index(confirmed, by_lease=False)
        else:
            done(Unavailable("the entries below the snapshot are not applied yet; try again"))

    # A lease does not do: its holder sends nothing, so a later leader might stamp entries below ``at``.
    replica.read_index(confirmed, by_lease=False)


def _ahead(at: int, now: int, error_ms_max: int) -> StelaeError:
    ahead_ms = (physical_us(at) - physical_us(now)) // 1000
    if ahead_ms > error_ms_max:
        return CallerError(f"snapshot {at} is {ahead_ms} ms ahead of this node's clock; read at a time in the past")
    return Unavailable(f"snapshot {at} is {ahead_ms} ms ahead of this node's clock; try again after that time")
