"""What a tablet server tells the masters, as a pure core: told how replicas stand, it makes the heartbeats.

Every change of a replica raises one counter, the *version*. To each master the reporter remembers which version that
has acknowledged, in which leadership, and each report tells everything above it. So a report that is lost, or whose
answer is, costs nothing but time, and nothing is reported "once" (KUDU-1374). A master that has become leader gets
a full report first; one that does not lead gets no report at all, only a sign of life (KUDU-1358)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply, ReplicaStatus, ReportedDataState, ServerReport
from stelae.spi.ids import IncarnationId, NodeId, TabletId

CHANGES_MAX = 4096
"""Replicas of one incremental report; those that changed first go first, the rest follows with the next heartbeat."""


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a heartbeat says of the server itself."""

    address: str
    location: str = ""
    free_bytes: int = 0
    load_ops_per_s: float = 0.0


class _Master:
    """What is known of one master: its leadership, and what it has acknowledged in it."""

    def __init__(self) -> None:
        self.sequence = 0
        self.term = 0  #: Of its leadership; 0: it does not lead, as far as is known.
        self.wants_full = True
        self.acknowledged = 0


class Reporter:
    """Reports of one run of one tablet server.

    Args:
        masters: to whom it heartbeats: all of them.
    """

    def __init__(self, node_id: NodeId, incarnation: IncarnationId, masters: Iterable[NodeId]) -> None:
        self._node_id = node_id
        self._incarnation = incarnation
        self._masters = {master: _Master() for master in masters}
        self._version = 0
        self._replicas: dict[TabletId, ReplicaStatus] = {}
        self._changed: dict[TabletId, int] = {}  #: Version of each one's last change, ascending.

    @property
    def leader(self) -> NodeId | None:
        """The master that led last, as far as is known; where a server's own questions go."""
        leading = [(master.term, name) for name, master in self._masters.items() if master.term]
        return max(leading)[1] if leading else None

    def replica_changed(self, status: ReplicaStatus) -> None:
        """Take how a replica stands; nothing happens if it stood so before."""
        if self._replicas.get(status.tablet_id) == status:
            return
        self._version += 1
        self._replicas[status.tablet_id] = status
        self._changed.pop(status.tablet_id, None)
        self._changed[status.tablet_id] = self._version

    def masters_changed(self, masters: Iterable[NodeId]) -> None:
        """Heartbeat to these from now on; what is known of those that stay, stays."""
        self._masters = {master: self._masters.get(master) or _Master() for master in masters}

    def heartbeats(self, facts: ServerFacts) -> list[tuple[NodeId, Heartbeat]]:
        """Return the next heartbeat to each master; called once in each report interval."""
        return [(name, self._heartbeat(master, facts)) for name, master in self._masters.items()]

    def replied(self, master: NodeId, reply: HeartbeatReply) -> bool:
        """Take a master's answer; true if the next heartbeat to it should not wait for the interval."""
        known = self._masters.get(master)
        if known is None or 0 < reply.term < known.term:
            return False
        if reply.term != known.term:
            known.term, known.wants_full, known.acknowledged = reply.term, True, 0
            return bool(reply.term)
        if reply.term:
            known.wants_full = reply.wants_full
            known.acknowledged = max(known.acknowledged, reply.acknowledged)
            self._forget_tombstones()
        return reply.wants_full

    def _heartbeat(self, master: _Master, facts: ServerFacts) -> Heartbeat:
        master.sequence += 1
        return Heartbeat(
            node_id=self._node_id,
            incarnation=self._incarnation,
            sequence=master.sequence,
            address=facts.address,
            location=facts.location,
            free_bytes=facts.free_bytes,
            load_ops_per_s=facts.load_ops_per_s,
            report=self._report(master) if master.term else None,
        )

    def _report(self, master: _Master) -> ServerReport | None:
        if master.wants_full:
            held = tuple(
                status for status in self._replicas.values() if status.data_state is not ReportedDataState.DELETED
            )
            return ServerReport(full=True, since=0, upto=self._version, replicas=held)
        changed = [(t, version) for t, version in self._changed.items() if version > master.acknowledged]
        told = changed[:CHANGES_MAX]
        if not told:
            return None
        replicas = tuple(self._replicas[tablet_id] for tablet_id, _ in told)
        return ServerReport(full=False, since=master.acknowledged, upto=told[-1][1], replicas=replicas)

    def _forget_tombstones(self) -> None:
        """A tombstone that every leading master knows of need not be kept in memory: a full report leaves it out."""
        told = min((m.acknowledged for m in self._masters.values() if m.term and not m.wants_full), default=0)
        for tablet_id in [t for t, version in self._changed.items() if version <= told]:
            if self._replicas[tablet_id].data_state is ReportedDataState.DELETED:
                del self._replicas[tablet_id], self._changed[tablet_id]
