"""Carries consensus messages and heartbeats between nodes, as frames over the virtual network.

Production's traffic module encodes, decodes and routes the messages. This module replaces the messenger below it. As
with the real messenger, every message carries the sender's hybrid timestamp. A message whose timestamp is too far ahead
is refused before it is decoded. The refusal has the timestamp of the node that refuses: so the sender learns the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stelae.host.hybrid_clock import HybridClock
from stelae.host.new_replica import NewReplica
from stelae.host.peer_traffic import BEAT, BEAT_ACK, CONSENSUS, REMOVED, PeerTraffic
from stelae.host.start_copy import CancelCopy, StartCopy
from stelae.sim.coverage import Coverage
from stelae.sim.fact_feed import FactFeed
from stelae.sim.network import Network
from stelae.sim.process import Process
from stelae.sim.tap_core import CoreTap, VoterTap
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Outbound
from stelae.spi.errors import ClockError, PeerError
from stelae.spi.ids import IncarnationId, NodeId, TabletId
from stelae.spi.log import Entry
from stelae.spi.services import Buffer

LOST_NOTICE_EVERY = 8
"""The number of messages that cannot be sent until the node notices that its link is down."""

REFUSED = "refused"
"""Kind of the answer to a message that the clock refused."""


class NodeLink:
    """The links of one node to all other nodes, for one run of its process.

    Args:
        arrive: delivers a message to the process that runs at a position, if any.
    """

    def __init__(
        self,
        *,
        position: int,
        node_ids: Sequence[NodeId],
        incarnation_id: IncarnationId,
        process: Process,
        network: Network,
        clock: HybridClock,
        coverage: Coverage,
        arrive: Callable[[int, FramesInFlight], None],
    ) -> None:
        self._position = position
        self._positions = {node_id: place for place, node_id in enumerate(node_ids)}
        self._node_ids = node_ids
        self.incarnation_id = incarnation_id
        self._process = process
        self._network = network
        self._clock = clock
        self._coverage = coverage
        self._arrive = arrive
        self._unsent = 0
        self._handlers: dict[str, Callable[[FramesInFlight], None]] = {}
        self._counters: dict[str, Callable[[], None]] = {}
        self.traffic: PeerTraffic | None = None

    def on_message(self, kind: str, handler: Callable[[FramesInFlight], None]) -> None:
        """Register the handler of a message that is not one between replicas."""
        self._handlers[kind] = handler

    def count(self, kind: str, arrived: Callable[[], None]) -> None:
        """Call ``arrived`` before the handler of each such message."""
        self._counters[kind] = arrived

    def knows(self, node_id: NodeId) -> bool:
        """Return whether there is such a node."""
        return node_id in self._positions

    def send(self, to: NodeId, kind: str, frames: Sequence[Buffer]) -> bool:
        """Send one message (``Link``). Return false if the clock has no timestamp for it."""
        target = self._positions.get(to)
        if target is None:
            return False  # A member that was added and does not exist.
        try:
            stamp = self._clock.now()
        except ClockError:
            self._coverage.hit("clock.exhausted")
            return False
        link = (self._position, target)
        if self._network.is_cut(link):
            self._note_lost(to)
        body = tuple(bytes(frame) for frame in frames)
        message = FramesInFlight(self._node_ids[self._position], self.incarnation_id, kind, body, stamp)
        label = f"{self._position}>{target}.{kind}"
        self._network.send(link, label, lambda: self._arrive(target, message), message)
        return True

    def receive(self, message: FramesInFlight) -> None:
        """Process a message that has arrived. Runs as a turn of the process."""
        traffic = self.traffic
        if traffic is None:
            return
        try:
            self._clock.observe(message.stamp)
        except ClockError:
            self._coverage.hit("clock.refused")
            if message.kind != REFUSED:
                self.send(message.sender, REFUSED, ())
            return
        try:
            if message.kind == CONSENSUS:
                traffic.consensus_arrived(message.sender, message.incarnation_id, message.frames)
            elif message.kind == BEAT:
                traffic.beat_arrived(message.sender, message.incarnation_id, message.frames)
            elif message.kind == BEAT_ACK:
                traffic.beat_ack_arrived(message.sender, message.incarnation_id, message.frames)
            elif message.kind == REMOVED:
                traffic.removed_arrived(message.sender, message.frames)
            elif (handler := self._handlers.get(message.kind)) is not None:
                if (counter := self._counters.get(message.kind)) is not None:
                    counter()
                handler(message)
        except PeerError:
            self._coverage.hit("network.refused")

    def _note_lost(self, peer: NodeId) -> None:
        self._unsent += 1
        if self._unsent % LOST_NOTICE_EVERY == 0 and self.traffic is not None:
            traffic = self.traffic
            self._coverage.hit("network.peer_lost")
            self._process.schedule(0, "peer_lost", lambda: traffic.peer_lost(peer))


class FramesInFlight:
    """One message between nodes on the network."""

    __slots__ = ("frames", "incarnation_id", "kind", "sender", "stamp")

    def __init__(
        self, sender: NodeId, incarnation_id: IncarnationId, kind: str, frames: tuple[bytes, ...], stamp: int
    ) -> None:
        self.sender = sender
        self.incarnation_id = incarnation_id
        self.kind = kind
        self.frames = frames
        self.stamp = stamp

    @property
    def body(self) -> tuple[bytes, ...]:
        """The frames, by the name that services use."""
        return self.frames


class ObservedNetwork:
    """The ``PeerNetwork`` of a replica. It reports each message to the invariants before the message is encoded."""

    def __init__(
        self,
        traffic: PeerTraffic,
        node: ObservedNode,
        facts: FactFeed,
        cores: Sequence[CoreTap | VoterTap],
        create_replica: Callable[[NodeId, NewReplica], None],
        start_copy: Callable[[NodeId, StartCopy], None],
    ) -> None:
        self._traffic = traffic
        self._create_replica = create_replica
        self._start_copy = start_copy
        self._node = node
        self._facts = facts
        self._cores = cores

    def send(self, tablet_id: TabletId, outbound: Outbound, entries: Sequence[Entry]) -> None:
        """Report the message, then send it."""
        needs = self._cores[-1].needs_of(outbound.message)
        self._facts.sent(self._node, outbound, needs)
        self._traffic.send(tablet_id, outbound, entries)

    def create_replica(self, to: NodeId, new: NewReplica) -> None:
        """Report the message, then send it."""
        self._facts.replica_asked(self._node, new)
        self._create_replica(to, new)

    def cancel_copy(self, to: NodeId, cancelled: CancelCopy) -> None:
        """Count the message, then forward it to the network."""
        self._facts.coverage.hit("message.CancelCopy")
        self._traffic.cancel_copy(to, cancelled)

    def start_copy(self, to: NodeId, asked: StartCopy) -> None:
        """Report the message, then send it."""
        self._facts.copy_asked(self._node, asked)
        self._start_copy(to, asked)


class ObservedTraffic(PeerTraffic):
    """The traffic of a node. It reports the messages of its tombstone, which sends without an ``ObservedNetwork``."""

    voter_sends: Callable[[Outbound], None]

    def send(self, tablet_id: TabletId, outbound: Outbound, entries: Sequence[Entry]) -> None:
        """Report the message of a tombstone, and send as ``PeerTraffic`` does."""
        if tablet_id not in self.replicas:
            self.voter_sends(outbound)
        super().send(tablet_id, outbound, entries)


class KnownNodes:
    """The ``PeerLinks`` of a simulated node: its network knows every node."""

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Do nothing."""

    def remove_peer(self, node_id: NodeId) -> None:
        """Do nothing."""

    def learn_peer(self, node_id: NodeId, address: str = "") -> bool:
        """Do nothing: every node has its link already."""
        return False

    def forget_peer(self, node_id: NodeId) -> None:
        """Do nothing."""
