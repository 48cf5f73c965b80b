"""Heartbeats between nodes: one message per pair of nodes for many tablets (``durability.md`` rule 15).

A leader's node sends each peer a *versioned set* of (tablet, term). Once the peer has acknowledged a version, later
heartbeats contain only the version. The peer answers with that version and with every exception: a tablet that it does
not know, that has failed, or whose term differs.

This module is pure. There is one service per node. Times are monotonic microseconds, given by the caller."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from stelae.spi.consensus import Beats
from stelae.spi.consensus_events import BeatException, Event, LeaderAlive, PeerAlive, PeerUnreachable
from stelae.spi.ids import IncarnationId, NodeId, TabletId


class Beat(msgspec.Struct, frozen=True, array_like=True):
    """A heartbeat of a node to a peer: the tablets that the node leads."""

    version: int  #: Of the set.
    tablets: (
        tuple[tuple[TabletId, int], ...] | None
    )  #: Tablets and terms; ``None`` once the peer has acknowledged them.


class BeatRefusal(msgspec.Struct, frozen=True, array_like=True):
    """One exception in the answer to a heartbeat."""

    tablet_id: TabletId
    term: int  #: Of the answering replica; 0 if there is none.
    reason: str  #: As in ``BeatException``.


class BeatAck(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``Beat``."""

    version: int  #: The acknowledged version; 0 asks for the whole set again.
    refusals: tuple[BeatRefusal, ...]


class LocalTablets(Protocol):
    """The replicas of this node, as the service sees them."""

    def beat_state(self, tablet_id: TabletId, leader: NodeId) -> tuple[int, str]:
        """Return the term of a replica (0 if there is none), and ``""`` or why it refuses, as in ``BeatException``."""


@dataclass(slots=True)
class _Outgoing:
    """The heartbeats of this node to one peer."""

    #: For each tablet: its term, and the first version of the set with this term.
    tablets: dict[TabletId, tuple[int, int]] = field(default_factory=dict)
    version: int = 1
    acked_version: int = 0
    heard_at_us: int = 0  #: When the last acknowledgement arrived.
    incarnation_id: IncarnationId | None = None  #: Of the peer, in its last answer, or in the message before the first.
    refused: dict[TabletId, BeatRefusal] = field(default_factory=dict)


@dataclass(slots=True)
class _Incoming:
    """The last heartbeat from one peer."""

    incarnation_id: IncarnationId
    version: int
    tablets: dict[TabletId, int]
    heard_at_us: int


class HeartbeatService:
    """Sends and receives the heartbeats of one node. ``deliver`` delivers an event to a tablet's core."""

    def __init__(self, local: LocalTablets, deliver: Callable[[TabletId, Event], None]) -> None:
        self._local = local
        self._deliver = deliver
        self._out: dict[NodeId, _Outgoing] = {}
        self._dropped_version = 0  # The highest version of the peers in ``_out`` that were dropped.
        self._in: dict[NodeId, _Incoming] = {}

    # -- leading ---------------------------------------------------------------------------------

    def set_beats(self, tablet_id: TabletId, beats: Beats) -> None:
        """Set the peers to which heartbeats of a tablet are sent, and its term."""
        for peer in beats.peers:
            out = self._out.setdefault(peer, _Outgoing(version=self._dropped_version + 1))
            if out.tablets.get(tablet_id, (0, 0))[0] != beats.term:
                self._changed(out, tablet_id)
                out.tablets[tablet_id] = (beats.term, out.version)
        for peer, out in list(self._out.items()):
            if peer not in beats.peers and out.tablets.pop(tablet_id, None) is not None:
                self._changed(out, tablet_id)
                if not out.tablets:  # A number is never used twice: the peer knows the sets of old ones.
                    self._dropped_version = max(self._dropped_version, out.version)
                    del self._out[peer]

    def beats_due(self) -> list[tuple[NodeId, Beat]]:
        """Return the heartbeat for each peer that must get one, in order of node ids."""
        due = []
        for peer in sorted(self._out):
            out = self._out[peer]
            known = out.acked_version == out.version
            tablets = None if known else tuple((name, out.tablets[name][0]) for name in sorted(out.tablets))
            due.append((peer, Beat(out.version, tablets)))
        return due

    def heard(self, peer: NodeId, incarnation_id: IncarnationId) -> None:
        """Note the incarnation of a peer that has sent another message than an answer.

        A peer may acknowledge entries and restart before it answers its first heartbeat. The first answer is of its
        next incarnation then, and only this note shows the restart."""
        if (out := self._out.get(peer)) is not None and out.incarnation_id is None:
            out.incarnation_id = incarnation_id

    def acknowledged(self, peer: NodeId, incarnation_id: IncarnationId, ack: BeatAck, now_us: int) -> None:
        """Handle the answer of a peer.

        An answer to an older version counts for the tablets that have not changed since that version. Elections may
        change the set faster than answers arrive; without this rule the leaders of all other tablets would step
        down."""
        if (out := self._out.get(peer)) is None:
            return
        if out.incarnation_id not in (None, incarnation_id):  # The peer has restarted: messages in flight are lost.
            for tablet_id in out.tablets:
                self._deliver(tablet_id, PeerUnreachable(peer))
        out.incarnation_id = incarnation_id
        if ack.version == 0:
            out.acked_version = 0
        if not 0 < ack.version <= out.version or ack.version < out.acked_version:
            return
        out.acked_version, out.heard_at_us = ack.version, now_us
        before, out.refused = out.refused, {refusal.tablet_id: refusal for refusal in ack.refusals}
        for tablet_id in before:
            term, since = out.tablets.get(tablet_id, (0, 0))
            if tablet_id not in out.refused and 0 < since <= ack.version:  # For example because its copy is complete.
                self._deliver(tablet_id, PeerAlive(peer, term, now_us))
        for refusal in ack.refusals:
            if 0 < out.tablets.get(refusal.tablet_id, (0, 0))[1] <= ack.version:
                self._deliver(refusal.tablet_id, BeatException(peer, refusal.term, refusal.reason))

    def peers_alive(self, tablet_id: TabletId, term: int) -> list[PeerAlive]:
        """Return which peers have acknowledged a leader in its term, and when. Called before a leader's deadline."""
        alive = []
        for peer in sorted(self._out):
            out = self._out[peer]
            named_term, since = out.tablets.get(tablet_id, (0, 0))
            if named_term == term and since <= out.acked_version and tablet_id not in out.refused:
                alive.append(PeerAlive(peer, term, out.heard_at_us))
        return alive

    # -- following -------------------------------------------------------------------------------

    def received(self, leader: NodeId, incarnation_id: IncarnationId, beat: Beat, now_us: int) -> BeatAck:
        """Handle a heartbeat from a leader's node, and return the answer."""
        known = self._in.get(leader)
        if beat.tablets is not None:
            known = _Incoming(incarnation_id, beat.version, dict(beat.tablets), now_us)
            self._in[leader] = known
        elif known is None or known.incarnation_id != incarnation_id or known.version != beat.version:
            return BeatAck(0, ())
        known.heard_at_us = now_us
        return BeatAck(known.version, tuple(self._refusals(leader, known)))

    def leader_alive(
        self, tablet_id: TabletId, leader: NodeId | None, members: Collection[NodeId]
    ) -> LeaderAlive | None:
        """Return when the leader of a tablet was last heard, or ``None``.

        If no leader is known, it is the member with the highest term for this tablet in its last heartbeat. Nodes that
        are not members are ignored, because they could name any term."""
        best: LeaderAlive | None = None
        for node in (leader,) if leader is not None else sorted(self._in.keys() & set(members)):
            incoming = self._in.get(node)
            term = incoming.tablets.get(tablet_id) if incoming is not None else None
            if incoming is None or term is None:
                continue
            if best is None or term > best.term:
                best = LeaderAlive(node, term, incoming.heard_at_us)
        return best

    def _refusals(self, leader: NodeId, incoming: _Incoming) -> list[BeatRefusal]:
        refusals = []
        for tablet_id, term in incoming.tablets.items():
            local_term, reason = self._local.beat_state(tablet_id, leader)
            if reason or local_term != term:
                refusals.append(BeatRefusal(tablet_id, local_term, reason or "term"))
        return refusals

    @staticmethod
    def _changed(out: _Outgoing, tablet_id: TabletId) -> None:
        out.version += 1
        out.refused.pop(tablet_id, None)
