"""Records the trace of a run. An observer: it changes nothing in the run.

It listens to the fact feed and to the network. Consensus messages are decoded from the frames on the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stelae.host.peer_codec import PeerCodec
from stelae.host.peer_traffic import CONSENSUS
from stelae.sim.history import ClientAnswer, ClientOperation
from stelae.sim.invariants import AppliedRequest, FactListener
from stelae.sim.network import NetworkLink
from stelae.sim.node_change import NodeChange
from stelae.sim.node_links import FramesInFlight
from stelae.sim.trace.message_kinds import fields_of, kind_of_consensus, kind_of_transport
from stelae.sim.trace.records import (
    CommitIndexRaised,
    LinksChanged,
    LogWritten,
    MessageSent,
    NodeChanged,
    NodeStarted,
    OperationAnswered,
    OperationBegun,
    ReplicaAppliedEntry,
    ReplicaConfigChanged,
    RoleChanged,
    TermSaved,
    TraceMember,
    TraceRecord,
)
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import HardState, LogView, Ready, Status
from stelae.spi.ids import NodeId, OpId
from stelae.spi.wal import Append, Durable, Outcome


class TraceRecorder(FactListener):
    """Implements the hooks of the fact feed, and ``network.NetworkObserver``.

    Args:
        now_us: returns the virtual time.
        codec: decodes the messages of the consensus engine of the run.
        node_ids: node ids in the order of their positions.
    """

    def __init__(self, now_us: Callable[[], int], codec: PeerCodec, node_ids: Sequence[NodeId]) -> None:
        self._now_us = now_us
        self._codec = codec
        self._positions = {node_id: position for position, node_id in enumerate(node_ids)}
        self._roles: dict[int, RoleChanged] = {}
        self._commits: dict[int, int] = {}
        self._configs: dict[int, OpId] = {}
        self._committed_config: OpId | None = None
        self._jumped: set[int] = set()
        self.records: list[TraceRecord] = []

    # -- FactListener ----------------------------------------------------------------------------

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Record a start with what was read back. The role and the commit index are unknown again."""
        self._roles.pop(node.position, None)
        self._commits.pop(node.position, None)
        self.records.append(
            NodeStarted(
                at_us=self._now_us(),
                node=node.position,
                term=hard_state.term,
                voted_for=self._position(hard_state.voted_for),
                base=log.base,
                last=log.last,
                commit=commit,
            )
        )

    def on_node(self, node: ObservedNode, change: NodeChange) -> None:
        """Record the change of a node. A clock that was right cannot be corrected."""
        if change is NodeChange.CLOCK_JUMPED:
            self._jumped.add(node.position)
        elif change is NodeChange.CLOCK_CORRECTED:
            if node.position not in self._jumped:
                return
            self._jumped.remove(node.position)
        self.records.append(NodeChanged(at_us=self._now_us(), node=node.position, change=change))

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Record the role and the config of a node if they have changed."""
        self._record_role(node, status)
        self._record_config(node, status)

    def _record_role(self, node: ObservedNode, status: Status) -> None:
        new = RoleChanged(
            at_us=self._now_us(),
            node=node.position,
            role=status.role.value,
            term=status.term,
            leader=self._position(status.leader),
            serving=status.serving,
        )
        old = self._roles.get(node.position)
        if old is None or _without_time(old) != _without_time(new):
            self._roles[node.position] = new
            self.records.append(new)

    def _record_config(self, node: ObservedNode, status: Status) -> None:
        op_id = status.config.op_id
        committed = op_id == status.committed_config.op_id
        is_new = self._configs.get(node.position) != op_id
        is_first = committed and (self._committed_config is None or op_id > self._committed_config)
        if not (is_new or is_first):
            return
        self._configs[node.position] = op_id
        if is_first:
            self._committed_config = op_id
        members = tuple(
            TraceMember(node=self._position(member.node_id), member_type=member.member_type.value)
            for member in status.config.members
        )
        self.records.append(
            ReplicaConfigChanged(
                at_us=self._now_us(), node=node.position, op_id=op_id, committed=committed, members=members
            )
        )

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Record a higher commit index."""
        if ready.commit is not None and ready.commit > self._commits.get(node.position, 0):
            self._commits[node.position] = ready.commit
            self.records.append(CommitIndexRaised(at_us=self._now_us(), node=node.position, index=ready.commit))

    def on_hard_state_saved(self, node: ObservedNode, hard_state: HardState) -> None:
        """Record a durable term and vote."""
        voted_for = self._position(hard_state.voted_for)
        self.records.append(
            TermSaved(at_us=self._now_us(), node=node.position, term=hard_state.term, voted_for=voted_for)
        )

    def on_wal(self, node: ObservedNode, append: Append, outcome: Outcome) -> None:
        """Record the outcome of an append to the log."""
        entries = append.entries
        self.records.append(
            LogWritten(
                at_us=self._now_us(),
                node=node.position,
                replace_from=append.replace_from,
                first=entries[0].op_id if entries else None,
                last=entries[-1].op_id if entries else None,
                error="" if isinstance(outcome, Durable) else type(outcome).__name__,
            )
        )

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Record an applied entry."""
        self.records.append(ReplicaAppliedEntry(at_us=self._now_us(), node=node.position, op_id=op_id))

    def on_invoked(self, operation: ClientOperation) -> None:
        """Record the start of an operation."""
        self.records.append(
            OperationBegun(
                at_us=self._now_us(),
                client=operation.client,
                sequence=operation.sequence,
                action=operation.action.value,
                keys=tuple(row.key for row in operation.rows),
            )
        )

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """Record an answer to an operation."""
        self.records.append(
            OperationAnswered(
                at_us=self._now_us(),
                client=operation.client,
                sequence=operation.sequence,
                action=operation.action.value,
                node=answer.node,
                answer=answer.kind.value,
            )
        )

    # -- NetworkObserver -------------------------------------------------------------------------

    def sent(self, link: NetworkLink, label: str, message: object) -> MessageInFlight:
        """Record a message. Its outcome is recorded when it is known."""
        record = self._sent(link, label, message)
        self.records.append(record)
        return MessageInFlight(record, self._now_us)

    def links_changed(self, links: Sequence[NetworkLink], *, cut: bool) -> None:
        """Record that links were cut or mended."""
        self.records.append(LinksChanged(at_us=self._now_us(), links=tuple(links), cut=cut))

    def _sent(self, link: NetworkLink, label: str, message: object) -> MessageSent:
        at_us, (sender, receiver) = self._now_us(), link
        if not isinstance(message, FramesInFlight):
            return MessageSent(at_us=at_us, sender=sender, receiver=receiver, name=label, kind=kind_of_transport(label))
        if message.kind != CONSENSUS:
            kind = kind_of_transport(message.kind)
            return MessageSent(at_us=at_us, sender=sender, receiver=receiver, name=message.kind, kind=kind)
        decoded = self._codec.decode(message.frames)
        entries = decoded.entries
        return MessageSent(
            at_us=at_us,
            sender=sender,
            receiver=receiver,
            name=decoded.kind,
            kind=kind_of_consensus(decoded.kind, decoded.message, len(entries)),
            fields=fields_of(decoded.message),
            first=entries[0].op_id if entries else None,
            last=entries[-1].op_id if entries else None,
        )

    def _position(self, node_id: NodeId | None) -> int | None:
        return None if node_id is None else self._positions.get(node_id)


class MessageInFlight:
    """One recorded message on the network. Implements ``network.Flight``."""

    __slots__ = ("_now_us", "_record")

    def __init__(self, record: MessageSent, now_us: Callable[[], int]) -> None:
        self._record = record
        self._now_us = now_us

    def arrived(self) -> None:
        """Record an arrival."""
        self._record.arrived_us.append(self._now_us())

    def lost(self) -> None:
        """Record a loss."""
        self._record.lost_us.append(self._now_us())


def _without_time(record: RoleChanged) -> tuple[object, ...]:
    return record.role, record.term, record.leader, record.serving
