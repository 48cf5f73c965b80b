"""Heartbeats of many tablets in one message per pair of nodes (``durability.md`` rule 15).

A leader's node names a *versioned set* of (tablet, term) to each peer; once the peer has
acknowledged a version, later beats carry the version alone. The peer answers with that version
and with every exception: a tablet that it does not know, that has failed, or whose term differs.

A pure core, one per node: no clock, no socket. Times are monotonic microseconds handed in."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from stelae.spi.consensus import BeatException, Beats, Event, LeaderAlive, PeerAlive, PeerUnreachable
from stelae.spi.ids import IncarnationId, NodeId, TabletId


class Beat(msgspec.Struct, frozen=True, array_like=True):
    """From a leader's node: "I lead these". ``tablets`` is left out once it is acknowledged."""

    version: int
    tablets: tuple[tuple[TabletId, int], ...] | None


class BeatRefusal(msgspec.Struct, frozen=True, array_like=True):
    """One exception: the tablet, the answering replica's term (0 if none), and the reason."""

    tablet_id: TabletId
    term: int
    reason: str


class BeatAck(msgspec.Struct, frozen=True, array_like=True):
    """Answer to a ``Beat``. ``version`` 0 asks for the whole set again."""

    version: int
    refusals: tuple[BeatRefusal, ...]


class LocalTablets(Protocol):
    """What the service asks about this node's replicas."""

    def beat_state(self, tablet_id: TabletId, leader: NodeId) -> tuple[int, str]:
        """Return (term or 0, reason): ``""`` if it follows, else ``"unknown"`` or ``"failed"``."""


@dataclass(slots=True)
class _Outgoing:
    """What this node says to one peer."""

    tablets: dict[TabletId, tuple[int, int]] = field(default_factory=dict)  #: Term; version that named it first.
    version: int = 1
    acked_version: int = 0
    heard_at_us: int = 0
    incarnation_id: IncarnationId | None = None  #: Of the peer, when it answered last.
    refused: dict[TabletId, BeatRefusal] = field(default_factory=dict)


@dataclass(slots=True)
class _Incoming:
    """What one peer said last."""

    incarnation_id: IncarnationId
    version: int
    tablets: dict[TabletId, int]
    heard_at_us: int


class HeartbeatService:
    """Both ends of the heartbeats of one node; ``deliver`` takes an event for a tablet's core."""

    def __init__(self, local: LocalTablets, deliver: Callable[[TabletId, Event], None]) -> None:
        self._local = local
        self._deliver = deliver
        self._out: dict[NodeId, _Outgoing] = {}
        self._in: dict[NodeId, _Incoming] = {}

    # -- leading ---------------------------------------------------------------------------------

    def set_beats(self, tablet_id: TabletId, beats: Beats) -> None:
        """Say whom a local replica keeps alive from now on, and in which term."""
        for peer in beats.peers:
            out = self._out.setdefault(peer, _Outgoing())
            if out.tablets.get(tablet_id, (0, 0))[0] != beats.term:
                self._changed(out, tablet_id)
                out.tablets[tablet_id] = (beats.term, out.version)
        for peer, out in self._out.items():
            if peer not in beats.peers and out.tablets.pop(tablet_id, None) is not None:
                self._changed(out, tablet_id)

    def beats_due(self) -> list[tuple[NodeId, Beat]]:
        """One message for each peer that this node keeps alive, in order of node id."""
        due = []
        for peer in sorted(self._out):
            out = self._out[peer]
            if not out.tablets:
                continue
            known = out.acked_version == out.version
            tablets = None if known else tuple((name, out.tablets[name][0]) for name in sorted(out.tablets))
            due.append((peer, Beat(out.version, tablets)))
        return due

    def acknowledged(self, peer: NodeId, incarnation_id: IncarnationId, ack: BeatAck, now_us: int) -> None:
        """Take a peer's answer. One to an older version speaks for the tablets that have not changed since: elections
        change a set faster than answers come, and the leaders of all others would be deposed for want of a newer."""
        if (out := self._out.get(peer)) is None:
            return
        if out.incarnation_id not in (None, incarnation_id):  # It runs anew: what was under way to it is lost.
            for tablet_id in out.tablets:
                self._deliver(tablet_id, PeerUnreachable(peer))
        out.incarnation_id = incarnation_id
        if ack.version == 0:
            out.acked_version = 0
        if not 0 < ack.version <= out.version or ack.version < out.acked_version:
            return
        out.acked_version, out.heard_at_us = ack.version, now_us
        out.refused = {refusal.tablet_id: refusal for refusal in ack.refusals}
        for refusal in ack.refusals:
            if 0 < out.tablets.get(refusal.tablet_id, (0, 0))[1] <= ack.version:
                self._deliver(refusal.tablet_id, BeatException(peer, refusal.term, refusal.reason))

    def peers_alive(self, tablet_id: TabletId, term: int) -> list[PeerAlive]:
        """What a leader should know before its deadline: who acknowledged it, and when."""
        alive = []
        for peer in sorted(self._out):
            out = self._out[peer]
            named_term, since = out.tablets.get(tablet_id, (0, 0))
            if named_term == term and since <= out.acked_version and tablet_id not in out.refused:
                alive.append(PeerAlive(peer, term, out.heard_at_us))
        return alive

    # -- following -------------------------------------------------------------------------------

    def received(self, leader: NodeId, incarnation_id: IncarnationId, beat: Beat, now_us: int) -> BeatAck:
        """Take a leader node's beat and return the answer to it."""
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
        """When the leader last spoke; without a known one, the member that names the highest term: a stranger may name
        any."""
        best: LeaderAlive | None = None
        for node in (leader,) if leader is not None else sorted(self._in.keys() & set(members)):
            said = self._in.get(node)
            term = said.tablets.get(tablet_id) if said is not None else None
            if said is None or term is None:
                continue
            if best is None or term > best.term:
                best = LeaderAlive(node, term, said.heard_at_us)
        return best

    def _refusals(self, leader: NodeId, said: _Incoming) -> list[BeatRefusal]:
        refusals = []
        for tablet_id, term in said.tablets.items():
            local_term, reason = self._local.beat_state(tablet_id, leader)
            if reason or local_term != term:
                refusals.append(BeatRefusal(tablet_id, local_term, reason or "term"))
        return refusals

    @staticmethod
    def _changed(out: _Outgoing, tablet_id: TabletId) -> None:
        out.version += 1
        out.refused.pop(tablet_id, None)
