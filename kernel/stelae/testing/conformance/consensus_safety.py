"""Raft's safety properties, checked after each step of the conformance cluster."""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Applied
from stelae.spi.ids import NodeId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import MemberType
from stelae.spi.recovery_epoch import recovery_epoch
from stelae.testing.conformance.consensus_nodes import ClusterNode


class RaftSafety:
    """What the nodes of a cluster have done so far, and the checks of it.

    Attributes:
        committed: the committed entries by index.
        leaders: the number of the leader of each term.
        epoch: the recovery epoch of the tablet.
    """

    def __init__(self) -> None:
        self.committed: dict[int, Entry] = {}
        self.leaders: dict[int, int] = {}
        self.epoch = 0
        self._terms: dict[int, int] = {}
        self._votes: dict[tuple[int, int], NodeId] = {}

    def committed_to(self, node: ClusterNode, commit: int) -> None:
        """Check state-machine safety: no two nodes ever apply different entries at one index."""
        base = node.disk.base.index
        for entry in node.log[: commit - base] if not self._left_behind(node) else ():
            known = self.committed.setdefault(entry.op_id.index, entry)
            assert known == entry, f"two entries committed at {entry.op_id.index}"
        node.running.step([Applied(commit)])
        assert node.status.applied >= commit, "the core does not know what is applied"

    def recovered(self, epoch: int, index: int) -> None:
        """Note that an operator gives up the committed entries above an index, because no survivor has them.

        Replicas that have not heard of the recovery epoch may go on among themselves. What they do does not count."""
        self.epoch = epoch
        for lost in [known for known in self.committed if known > index]:
            del self.committed[lost]

    def observe(self, node: ClusterNode) -> None:
        """Check election safety, one pending change of config, and that terms and votes never go back."""
        if node.core is None or node.fatal is not None:
            return
        if node.disk.log_only:
            self._check_without_rows(node)
        if node.status.role is Role.LEADER:
            self._check_leader(node)
        durable = node.disk.hard_state
        assert durable.term >= self._terms.get(node.number, 0), "the durable term went back"
        self._terms[node.number] = durable.term
        if durable.voted_for is not None:
            key = (node.number, durable.term)
            vote = self._votes.setdefault(key, durable.voted_for)
            assert vote == durable.voted_for, f"two votes in term {durable.term}"

    def _left_behind(self, node: ClusterNode) -> bool:
        return recovery_epoch(node.status.term) < self.epoch

    def _check_without_rows(self, node: ClusterNode) -> None:
        """Check that a replica without rows neither serves nor is one of those that the tablet's rows depend on."""
        status = node.status
        assert status.role is not Role.LEADER or not status.serving, "a leader without rows serves"
        member = status.config.member(status.node_id)
        is_voter = member is not None and member.member_type is MemberType.VOTER
        assert not is_voter, "a replica without rows became a VOTER"

    def _check_leader(self, node: ClusterNode) -> None:
        status = node.status
        if status.term not in self.leaders and not self._left_behind(node):
            self._check_leader_completeness(node)
        other = self.leaders.setdefault(status.term, node.number)
        assert other == node.number, f"two leaders in term {status.term}"
        committed = status.committed_config.op_id.index
        pending = [e.op_id for e in node.log if e.kind is EntryKind.CONFIG and e.op_id.index > committed]
        assert len(pending) <= 1 or not status.serving, f"configs {pending} are pending at the same time"

    def _check_leader_completeness(self, node: ClusterNode) -> None:
        """Check that a new leader has every entry that was committed before."""
        held = {entry.op_id.index: entry for entry in node.log}
        for index, entry in self.committed.items():
            if index > node.disk.base.index:
                assert held.get(index) == entry, f"the leader lacks committed entry {index}"
