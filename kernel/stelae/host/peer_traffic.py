"""Sends and receives the messages between nodes: consensus messages per tablet, heartbeats per pair of nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from stelae.host.heartbeats import Beat, BeatAck, HeartbeatService
from stelae.host.member_links import IDLE_BEATS, MemberLinks
from stelae.host.new_replica import NEW_REPLICA, NewReplica
from stelae.host.peer_codec import PeerCodec, PeerMessage, PeerMessageHeader
from stelae.host.ports import Timer, Turns
from stelae.host.replica import Replica
from stelae.host.start_copy import CANCEL_COPY, START_COPY, CancelCopy, StartCopy
from stelae.host.tombstone_voter import TombstoneVoter
from stelae.spi.consensus import Outbound, Status
from stelae.spi.consensus_events import DAMAGED, FAILED, UNKNOWN, Event, PeerUnreachable, Removed
from stelae.spi.errors import PeerError
from stelae.spi.ids import IncarnationId, NodeId, OpId, TabletId
from stelae.spi.log import Entry
from stelae.spi.recovery_epoch import recovery_epoch
from stelae.spi.services import Buffer, Metrics

CONSENSUS = "consensus"
BEAT = "beat"
BEAT_ACK = "beat_ack"
REMOVED = "removed"


class RemovalNotice(msgspec.Struct, frozen=True, array_like=True):
    """Says to a node that a committed config of a tablet does not list it."""

    tablet_id: TabletId
    config_id: OpId


_Message = TypeVar("_Message", Beat, BeatAck, RemovalNotice)


class MessageSender(Protocol):
    """The part of the messenger that this module uses."""

    def send(self, to: NodeId, kind: str, frames: Sequence[Buffer]) -> bool:
        """Queue one message. Return False if it was dropped."""


class PeerTraffic:
    """The messages of the replicas of one node. It implements ``PeerNetwork`` and ``LocalTablets``.

    ``members`` keeps the links to the nodes that send and to those in the configs of the replicas."""

    def __init__(
        self, codec: PeerCodec, turns: Turns, metrics: Metrics, beat_interval_us: int, members: MemberLinks
    ) -> None:
        self._codec = codec
        self._turns = turns
        self._metrics = metrics
        self._beat_interval_us = beat_interval_us
        self.members = members
        self._replicas: dict[TabletId, Replica] = {}
        self._first_schemas: dict[TabletId, int] = {}
        self.voters: dict[TabletId, TombstoneVoter] = {}  #: Tombstones in memory.
        self.term_without_replica: Callable[[TabletId], int] = lambda _tablet: 0
        """Returns the term of a tablet without a replica, as far as memory has it, for answers to heartbeats."""
        self.wake_voter: Callable[[TabletId, Callable[[], None]], None] | None = None
        """Called with a tablet without a replica, for which a message arrived. If the tombstone of the tablet accepts
        messages, it is loaded into ``voters``, then the second argument is called. While this is not set, messages for
        such tablets are refused."""
        self.first_schema_sum: Callable[[Replica], int] = lambda replica: 0
        """Returns a number that all replicas of a tablet share, because they were created in the same way (ADR 92).

        Called once for each replica. The number is in all of its messages; 0: it is not compared."""
        self.check_first_schema: Callable[[NodeId, Replica, int], None] = lambda sender, replica, theirs: None
        """Called with the number in a message if it is another one than here. Raises ``PeerError`` to refuse it."""
        self._link: MessageSender | None = None
        self._timer: Timer | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._beats = msgspec.msgpack.Decoder(Beat)
        self._acks = msgspec.msgpack.Decoder(BeatAck)
        self._removals = msgspec.msgpack.Decoder(RemovalNotice)
        self.heartbeats = HeartbeatService(self, self._deliver)

    @property
    def replicas(self) -> Mapping[TabletId, Replica]:
        """The replicas of this node, by tablet."""
        return self._replicas

    def add(self, replica: Replica) -> None:
        """Route the messages of a tablet to a replica."""
        if (voter := self.voters.pop(replica.tablet_id, None)) is not None:
            voter.close()
        self._replicas[replica.tablet_id] = replica
        self._first_schemas[replica.tablet_id] = self.first_schema_sum(replica)

    def remove(self, tablet_id: TabletId) -> None:
        """Stop routing the messages of a tablet to its replica."""
        self._replicas.pop(tablet_id, None)
        self._first_schemas.pop(tablet_id, None)

    def start(self, link: MessageSender) -> None:
        """Start to send messages and heartbeats."""
        self._link = link
        self._beat()

    def stop(self) -> None:
        """Stop sending."""
        if self._timer is not None:
            self._timer.cancel()
        self._link = None
        for voter in self.voters.values():
            voter.close()

    # -- PeerNetwork -----------------------------------------------------------------------------

    def send(self, tablet_id: TabletId, outbound: Outbound, entries: Sequence[Entry]) -> None:
        """Queue a consensus message. It is dropped if the peer is not connected."""
        hosted = self._replicas.get(tablet_id) or self.voters.get(tablet_id)
        if self._link is None or hosted is None:
            return
        status = hosted.status
        header = PeerMessageHeader(
            tablet_id, outbound.term, status.last, status.committed_config.op_id, self._first_schemas.get(tablet_id, 0)
        )
        frames = self._codec.encode(header, outbound.message, entries)
        if not self._link.send(outbound.to, CONSENSUS, frames):
            self._metrics.count("consensus_messages_dropped")

    def create_replica(self, to: NodeId, new: NewReplica) -> None:
        """Ask a node to create an empty replica. The message is dropped if the node is not connected."""
        if self._link is not None:
            self._link.send(to, NEW_REPLICA, [self._encoder.encode(new)])

    def start_copy(self, to: NodeId, asked: StartCopy) -> None:
        """Ask a node to copy a tablet. The message is dropped if the node is not connected."""
        if self._link is not None:
            self._link.send(to, START_COPY, [self._encoder.encode(asked)])

    def cancel_copy(self, to: NodeId, cancelled: CancelCopy) -> None:
        """Tell a node to end the copy of a tablet. The message is dropped if it is not connected."""
        if self._link is not None:
            self._link.send(to, CANCEL_COPY, [self._encoder.encode(cancelled)])

    # -- arrivals --------------------------------------------------------------------------------

    def consensus_arrived(self, sender: NodeId, incarnation_id: IncarnationId, frames: Sequence[Buffer]) -> None:
        """Handle a consensus message.

        A tombstone of the tablet is loaded and gets it. If nothing of the tablet is on this node, the message has no
        effect and no answer: the leader learns it from the answer to its next heartbeat (``UNKNOWN``).

        Raises ``PeerError``, and the message has no effect, if it is malformed, or its sender is not a member of the
        tablet and does not know a newer config, or has another first schema. Also if this process serves no tombstones
        and has no replica."""
        message = self._codec.decode(frames)
        self.members.heard(sender, self._turns.now_us())
        self.heartbeats.heard(sender, incarnation_id)
        replica = self._replicas.get(message.header.tablet_id)
        if replica is None:
            self._to_voter(sender, message)
            return
        self._check_sender(sender, message, replica.status)
        if message.header.first_schema != self._first_schemas[replica.tablet_id]:
            self.check_first_schema(sender, replica, message.header.first_schema)
        self._metrics.count("consensus_messages_received")
        replica.receive(sender, message)

    def _check_sender(self, sender: NodeId, message: PeerMessage, status: Status) -> None:
        """Refuse a message of a node that is no member, unless this replica may not know it yet.

        A node whose removal is not committed here is still a member: a majority without that entry may have elected it,
        and then it replaces the entry. A lagging replica must hear members that were added since: their committed
        config is newer than its own. A node with an older config was removed, and gets that answer. Other messages are
        refused: a node that was removed would depose leaders otherwise. The config is the sender's word: nodes trust
        each other, so this keeps out nodes that are wrong about the members, and not a process that lies.

        The only voter of a config never lags behind, because other voters need its acknowledgement first, unless an
        unsafe recovery has left it out. A node with a newer config belongs to a tablet that was created separately
        under the same id. Its entries and votes do not belong to this tablet (ADR 80).

        Raises:
            PeerError: the message has no effect.
        """
        known, committed = message.header.config, status.committed_config
        if _is_member(status, sender):
            return
        alone = status.config.voters() == (status.node_id,)
        if known > committed.op_id and not (alone and recovery_epoch(known.term) <= recovery_epoch(status.term)):
            return
        tablet_id = message.header.tablet_id
        if known < committed.op_id and self._link is not None:
            self._link.send(sender, REMOVED, [self._encoder.encode(RemovalNotice(tablet_id, committed.op_id))])
        raise PeerError(f"node {sender} is not a member of tablet {tablet_id} and does not have a newer config")

    def removed_arrived(self, sender: NodeId, frames: Sequence[Buffer]) -> None:
        """Handle the word of a member that this node was removed from a tablet.

        Raises ``PeerError``, and it has no effect, if it is malformed or not of a member."""
        notice = _decode(self._removals, frames, REMOVED)
        replica = self._replicas.get(notice.tablet_id)
        if replica is None:
            return
        if not _is_member(replica.status, sender):
            raise PeerError(f"node {sender} is not a member of tablet {notice.tablet_id}")
        replica.deliver(Removed(notice.config_id))

    def _to_voter(self, sender: NodeId, message: PeerMessage) -> None:
        """Pass a message to a tombstone. The sender may be any node: a tombstone does not know the present members."""
        tablet_id = message.header.tablet_id

        def woken() -> None:
            if (voter := self.voters.get(tablet_id)) is not None:
                voter.receive(sender, message)

        if self.wake_voter is None:
            raise PeerError(f"tablet {tablet_id} is not on this node")
        else:
            self.wake_voter(tablet_id, woken)

    def beat_arrived(self, sender: NodeId, incarnation_id: IncarnationId, frames: Sequence[Buffer]) -> None:
        """Handle a heartbeat and answer it. Raises ``PeerError`` if it is malformed."""
        beat, now_us = _decode(self._beats, frames, BEAT), self._turns.now_us()
        self.members.heard(sender, now_us)
        ack = self.heartbeats.received(sender, incarnation_id, beat, now_us)
        if self._link is not None:
            self._link.send(sender, BEAT_ACK, [self._encoder.encode(ack)])

    def beat_ack_arrived(self, sender: NodeId, incarnation_id: IncarnationId, frames: Sequence[Buffer]) -> None:
        """Handle the answer to a heartbeat. Raises ``PeerError`` if it is malformed."""
        ack = _decode(self._acks, frames, BEAT_ACK)
        self.heartbeats.acknowledged(sender, incarnation_id, ack, self._turns.now_us())

    def peer_lost(self, peer: NodeId) -> None:
        """Inform the replicas that the link to a peer is down: messages in flight may be lost."""
        for replica in self._replicas.values():
            replica.deliver(PeerUnreachable(peer))

    def peer_reached(self, peer: NodeId) -> None:
        """Send a heartbeat at once to a peer whose link is up now, instead of at the next interval.

        Messages that were sent before were dropped. Only the answer to a heartbeat tells a leader that the peer, a new
        member for example, has no replica."""
        self._send_beats(beat for beat in self.heartbeats.beats_due() if beat[0] == peer)

    # -- LocalTablets ----------------------------------------------------------------------------

    def beat_state(self, tablet_id: TabletId, leader: NodeId) -> tuple[int, str]:
        """Return term and exception of a local replica for the heartbeat of a leader's node (``LocalTablets``)."""
        replica = self._replicas.get(tablet_id)
        if replica is None:
            return self.term_without_replica(tablet_id), UNKNOWN
        failure = replica.failure and (DAMAGED if replica.read_faults.explain(replica.failure) else FAILED)
        return replica.status.term, failure

    # -- beats -----------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._link is None:
            return
        self._send_beats(self.heartbeats.beats_due())
        now_us, interval_us = self._turns.now_us(), self._beat_interval_us
        self.members.close_idle(now_us - IDLE_BEATS * interval_us)
        self._timer = self._turns.call_at(now_us + interval_us, self._beat)

    def _send_beats(self, beats: Iterable[tuple[NodeId, Beat]]) -> None:
        if self._link is not None:
            for peer, beat in beats:
                self._link.send(peer, BEAT, [self._encoder.encode(beat)])

    def _deliver(self, tablet_id: TabletId, event: Event) -> None:
        replica = self._replicas.get(tablet_id)
        if replica is not None:
            replica.deliver(event)


def _is_member(status: Status, node: NodeId) -> bool:
    """Whether the config in force lists a node, or the committed one: the config in force may be rolled back."""
    return status.config.member(node) is not None or status.committed_config.member(node) is not None


def _decode(decoder: msgspec.msgpack.Decoder[_Message], frames: Sequence[Buffer], kind: str) -> _Message:
    try:
        return decoder.decode(frames[0])
    except (IndexError, ValueError, RecursionError) as error:
        raise PeerError(f"malformed {kind}: {error}") from error
