"""Carries consensus messages and heartbeats between simulated masters, over the simulated network.

As with the real messenger, every message carries the sender's hybrid timestamp. A message whose timestamp is too far
ahead is refused before it is decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from stelae.host.hybrid_clock import HybridClock
from stelae.host.peer_traffic import BEAT, BEAT_ACK, CONSENSUS, REMOVED, PeerTraffic
from stelae.sim.masters.process_endpoint import ProcessEndpoint
from stelae.sim.masters.world import MastersWorld
from stelae.sim.node_links import FramesInFlight
from stelae.sim.process import Process
from stelae.spi.errors import ClockError, PeerError
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer

OneWay: TypeAlias = Callable[[FramesInFlight], None]

LOST_NOTICE_EVERY = 8
"""The number of messages that cannot be sent until the node notices that its link is down."""


class PeerMaster(Protocol):
    """The receiving end of another master."""

    endpoint: ProcessEndpoint

    def receive_message(self, message: FramesInFlight) -> None:
        """Process a message that has arrived, as a turn of the process that runs there."""


class PeerMasters(Protocol):
    """All masters of a run."""

    def get(self, node_id: NodeId, /) -> PeerMaster | None: ...


class MasterLink:
    """The links of one master to all others, for one run of its process."""

    def __init__(
        self,
        node_id: NodeId,
        incarnation_id: IncarnationId,
        endpoint: ProcessEndpoint,
        process: Process,
        world: MastersWorld,
        peers: PeerMasters,
    ) -> None:
        self._node_id = node_id
        self.incarnation_id = incarnation_id
        self._endpoint = endpoint
        self._process = process
        self._world = world
        self._peers = peers
        self._traffic: PeerTraffic | None = None
        self._clock: HybridClock | None = None
        self._others: dict[str, OneWay] = {}
        self._unsent = 0

    def begin(self, traffic: PeerTraffic, clock: HybridClock, others: dict[str, OneWay]) -> None:
        """Deliver arriving messages to ``traffic`` from now on, and those of other kinds to ``others``."""
        self._traffic, self._clock, self._others = traffic, clock, others

    def on_message(self, kind: str, handler: OneWay) -> None:
        """Register the handler of a kind of message, after ``begin``."""
        self._others[kind] = handler

    def knows(self, node_id: NodeId) -> bool:
        """Return whether there is such a master."""
        return self._peers.get(node_id) is not None

    def send(self, to: NodeId, kind: str, frames: Sequence[Buffer]) -> bool:
        """Send one message (``stelae.host.peer_traffic.Link``). Return false if the clock has no timestamp for it."""
        peer, network = self._peers.get(to), self._world.network
        assert self._clock is not None
        if peer is None:
            return False
        try:
            stamp = self._clock.now()
        except ClockError:
            return False
        if not network.connected(self._endpoint.name, peer.endpoint.name):
            self._note_lost(to)
        message = FramesInFlight(
            self._node_id, self.incarnation_id, kind, tuple(bytes(frame) for frame in frames), stamp
        )
        self._endpoint.emit(
            lambda: network.send(self._endpoint.name, peer.endpoint, kind, lambda: peer.receive_message(message))
        )
        return True

    def receive(self, message: FramesInFlight) -> None:
        """Process a message that has arrived."""
        traffic, clock = self._traffic, self._clock
        if traffic is None or clock is None:
            return
        try:
            clock.observe(message.stamp)
            if message.kind == CONSENSUS:
                traffic.consensus_arrived(message.sender, message.incarnation_id, message.frames)
            elif message.kind == BEAT:
                traffic.beat_arrived(message.sender, message.incarnation_id, message.frames)
            elif message.kind == BEAT_ACK:
                traffic.beat_ack_arrived(message.sender, message.incarnation_id, message.frames)
            elif message.kind == REMOVED:
                traffic.removed_arrived(message.sender, message.frames)
            elif (handler := self._others.get(message.kind)) is not None:
                handler(message)
        except (ClockError, PeerError):
            self._world.coverage.hit("network.refused")

    def _note_lost(self, peer: NodeId) -> None:
        self._unsent += 1
        traffic = self._traffic
        if self._unsent % LOST_NOTICE_EVERY == 0 and traffic is not None:
            self._process.schedule(0, "peer lost", lambda: traffic.peer_lost(peer))
