"""Makes a tablet server's heartbeats to the masters from the states of its replicas. This is a pure core.

Every change of a replica increments one counter, the *version*. For each master, the reporter remembers the master's
leadership and the version that the master has acknowledged in it. A report contains every change above that version.
If a report or its answer is lost, the next report repeats the changes, so no change is reported only once (KUDU-1374).
A master that has become leader first gets a full report. A master that does not lead gets heartbeats without a report
(KUDU-1358). One that has not replied for long counts as one that does not lead: it may be down for weeks, and the
tombstones that it has not acknowledged would stay as long. If it leads when it replies again, it gets a full report."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stelae.lifecycle.masters_file import StoredMasters
from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply, ReplicaStatus, ReportedDataState, ServerReport
from stelae.spi.ids import IncarnationId, NodeId, TabletId

CHANGES_MAX = 4096
"""The most replicas of one incremental report. The replicas that changed first are in it. The next heartbeat has the
rest."""

SILENT_US = 60_000_000
"""After this time without a reply, a master counts as one that does not lead. It is longer than the deadline of a full
report, because a new leader is busy with those of all servers."""


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a heartbeat about the server itself."""

    address: str
    location: str = ""
    free_bytes: int = 0
    load_ops_per_s: float = 0.0


class _Master:
    """The state of one master, as its replies show it."""

    def __init__(self) -> None:
        self.replied_us = 0
        self.begin(0)

    def begin(self, term: int) -> None:
        """Begin with a leadership of which nothing is known. Term 0: it is not known to lead."""
        self.term = term
        self.wants_full = True  #: Whether the next report must be full.
        self.acknowledged = 0  #: The version that it has acknowledged in this leadership.


class Reporter:
    """Makes the heartbeats of one tablet server during one run of its process.

    Args:
        masters: all masters of the cluster; each gets heartbeats.
        silent_us: see ``SILENT_US``.
    """

    def __init__(
        self, node_id: NodeId, incarnation: IncarnationId, masters: Iterable[NodeId], silent_us: int = SILENT_US
    ) -> None:
        self._node_id = node_id
        self._incarnation = incarnation
        self._masters = {master: _Master() for master in masters}
        self._known: StoredMasters | None = None
        self._silent_us = silent_us
        self._now_us = 0  #: The time of the last heartbeats.
        self._sequence = 0  #: Of the last heartbeats: those of one round have the same.
        self._version = 0
        self._replicas: dict[TabletId, ReplicaStatus] = {}
        self._changed: dict[TabletId, int] = {}  #: Version of each replica's last change, ascending.

    @property
    def leader(self) -> NodeId | None:
        """The master with the newest known leadership, or ``None``. A server sends its own requests there."""
        leading = [(master.term, name) for name, master in self._masters.items() if master.term]
        return max(leading)[1] if leading else None

    def replica_changed(self, status: ReplicaStatus) -> None:
        """Record the state of a replica. A state that is not new has no effect."""
        if self._replicas.get(status.tablet_id) == status:
            return
        self._version += 1
        self._replicas[status.tablet_id] = status
        self._changed.pop(status.tablet_id, None)
        self._changed[status.tablet_id] = self._version

    def masters_changed(self, masters: Iterable[NodeId], known: StoredMasters | None = None) -> None:
        """Replace the list of masters. The state of masters that stay in the list is kept.

        The sequence goes on for one that returns: if it has kept running, it remembers the last one that it got.
        ``known`` is the config that lists them, or ``None`` without one. Heartbeats name it."""
        self._known = known
        self._masters = {master: self._masters.get(master) or _Master() for master in masters}

    def heartbeats(self, facts: ServerFacts, now_us: int) -> list[tuple[NodeId, Heartbeat]]:
        """Return the next heartbeat to each master; called at least once in each report interval."""
        self._sequence += 1
        self._now_us = now_us
        for master in self._masters.values():
            if master.term and now_us - master.replied_us > self._silent_us:
                master.begin(0)
        return [(name, self._heartbeat(master, facts)) for name, master in self._masters.items()]

    def replied(self, master: NodeId, reply: HeartbeatReply) -> bool:
        """Record a master's reply; return whether the next heartbeat to it should not wait for the interval."""
        known = self._masters.get(master)
        if known is None or 0 < reply.term < known.term:
            return False
        known.replied_us = self._now_us
        if reply.term != known.term:
            known.begin(reply.term)
            return bool(reply.term)
        if reply.term:
            known.wants_full = reply.wants_full
            known.acknowledged = max(known.acknowledged, reply.acknowledged)
            self._forget_tombstones()
        return reply.wants_full

    def _heartbeat(self, master: _Master, facts: ServerFacts) -> Heartbeat:
        return Heartbeat(
            node_id=self._node_id,
            incarnation=self._incarnation,
            sequence=self._sequence,
            address=facts.address,
            location=facts.location,
            free_bytes=facts.free_bytes,
            load_ops_per_s=facts.load_ops_per_s,
            report=self._report(master) if master.term else None,
            masters=None if self._known is None else self._known.config.op_id,
            cluster_created_us=0 if self._known is None else self._known.cluster_created_us,
        )

    def _report(self, master: _Master) -> ServerReport | None:
        if master.wants_full:
            replicas = tuple(
                status for status in self._replicas.values() if status.data_state is not ReportedDataState.DELETED
            )
            return ServerReport(full=True, since=0, upto=self._version, replicas=replicas)
        changed = [(t, version) for t, version in self._changed.items() if version > master.acknowledged]
        oldest = changed[:CHANGES_MAX]
        if not oldest:
            return None
        replicas = tuple(self._replicas[tablet_id] for tablet_id, _ in oldest)
        return ServerReport(full=False, since=master.acknowledged, upto=oldest[-1][1], replicas=replicas)

    def _forget_tombstones(self) -> None:
        """Remove the tombstones that every leading master has acknowledged. A full report does not need them."""
        known = min((m.acknowledged for m in self._masters.values() if m.term and not m.wants_full), default=0)
        for tablet_id in [t for t, version in self._changed.items() if version <= known]:
            if self._replicas[tablet_id].data_state is ReportedDataState.DELETED:
                del self._replicas[tablet_id], self._changed[tablet_id]
