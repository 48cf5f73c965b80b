"""A replica without rows keeps the log and may vote. It serves no requests, and never becomes a ``VOTER``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stelae.host.new_replica import NewReplica
from stelae.sim.history import AnswerKind, ClientAnswer, ClientOperation
from stelae.sim.invariants.base import AppliedRequest, Invariant, ObservedScan
from stelae.sim.world import ObservedNode, World
from stelae.spi.consensus import HardState, LogView, Ready, Role, Status
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.log import EntryKind
from stelae.spi.members import MemberType, TabletConfig, decode_config


class WitnessLog(Invariant):
    """The log of a replica without rows begins at a committed op id, which is committed when a leader names it.

    So it needs nothing older: every later leader has all committed entries."""

    name: ClassVar[str] = "witness_log"
    source: ClassVar[str] = "durability.md rule 12; ADR 72"

    def on_replica_asked(self, node: ObservedNode, new: NewReplica) -> None:
        """Check the base that a leader names."""
        if new.log_only is not None and not self._may_begin_at(new.log_only.base):
            self.fail(f"leader {node.position} lets a log without rows begin at {new.log_only.base}, not committed yet")

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Check the base of a log."""
        if log.log_only and not self._may_begin_at(log.base):
            self.fail(f"the log of node {node.position}, which has no rows, begins at {log.base}, not committed yet")

    def _may_begin_at(self, base: OpId) -> bool:
        return base == ZERO or self.world.is_committed(base)


class NoServiceWithoutRows(Invariant):
    """A replica without rows applies nothing, takes no request, and no answer of it is accepted.

    If it leads, it is a caretaker, and so is every member of type ``WITNESS``, also with rows."""

    name: ClassVar[str] = "no_service_without_rows"
    source: ClassVar[str] = "durability.md rule 12; ADR 72"

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Check that a caretaker does not serve."""
        if status.role is Role.LEADER and status.serving and self._is_caretaker(node):
            self.fail(f"node {node.position} leads term {status.term} as a caretaker, and serves")

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check that a caretaker has accepted no request."""
        if (ready.accepted or ready.reads_ready or ready.config_changes) and self._is_caretaker(node):
            self.fail(f"node {node.position} is a caretaker, and has accepted a request")

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Check that the replica has rows."""
        if node.log_only:
            self.fail(f"node {node.position} has no rows, and applies {op_id}")

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """Check that the answer is of a replica with rows."""
        if answer.kind is AnswerKind.DONE and self.world.nodes[answer.node].log_only:
            what = f"{operation.client}/{operation.sequence or 'read'}"
            self.fail(f"{what} is answered by node {answer.node}, which has no rows")

    def on_scanned(self, node: ObservedNode, scanned: ObservedScan) -> None:
        """Check that the replica has rows."""
        if node.log_only:
            self.fail(f"node {node.position} has no rows, and serves or refuses a scan at {scanned.at}")

    def _is_caretaker(self, node: ObservedNode) -> bool:
        own = self.world.newest_config(node).member(node.node_id)
        return node.log_only or (own is not None and own.member_type is MemberType.WITNESS)


class VotersHaveRows(Invariant):
    """No leader makes a ``VOTER`` of a replica without rows.

    Such a config would count on rows that do not exist."""

    name: ClassVar[str] = "voters_have_rows"
    source: ClassVar[str] = "durability.md rule 12; ADR 72"

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check the configs that a leader appends. Those of a follower are in its leader's log already."""
        if ready.append is None or ready.append.replace_from is not None:
            return
        before = self.world.newest_config(node)
        for entry in ready.append.entries:
            if entry.kind is EntryKind.CONFIG and not entry.timestamp:  # An own entry gets its timestamp later.
                config = decode_config(entry)
                self._judge(before, config)
                before = config

    def _judge(self, before: TabletConfig, config: TabletConfig) -> None:
        without = {node.node_id: node.position for node in self.world.nodes if node.log_only}
        for member in config.members:
            known = before.member(member.node_id)
            was_voter = known is not None and known.member_type is MemberType.VOTER
            if member.member_type is MemberType.VOTER and not was_voter and member.node_id in without:
                self.fail(f"config {config.op_id} makes node {without[member.node_id]} a VOTER, which has no rows")


class WitnessRetention(Invariant):
    """A replica without rows collects only entries that every ``VOTER`` has had durably.

    It is the only other one with an entry if the voter that acknowledged it is lost, and no replica can be copied from
    it. So a bound for lagging replicas does not hold here. What a voter lacks that was set aside for a copy, it gets
    with the copy."""

    name: ClassVar[str] = "witness_retention"
    source: ClassVar[str] = "durability.md rules 4 and 12; ADR 55"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._had: dict[int, int] = {}

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Remember up to where a node had the committed entries."""
        self._had[node.position] = self._had_by(node)

    def on_collect(self, node: ObservedNode, log: LogId, upto: int) -> None:
        """Compare the collected index with the entries of each voter."""
        if not node.log_only or upto <= node.base.index:
            return
        config = self.world.committed_config()
        voters = {member.node_id for member in config.members if member.member_type is MemberType.VOTER}
        for other in self.world.nodes:
            if other is not node and other.node_id in voters and not other.given_up and self._had_by(other) < upto:
                what = f"node {node.position}, which has no rows, collects its log up to {upto}"
                self.fail(f"{what}, and voter {other.position} only ever had the entries up to {self._had_by(other)}")

    def _had_by(self, node: ObservedNode) -> int:
        return max(self._had.get(node.position, 0), self.world.settled_on(node))
