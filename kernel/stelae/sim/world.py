"""The state that the invariants know: log, term and vote of every node, as observed from outside.

The taps report what happens at the contracts: consensus core, log engine, store, network and clients. The world records
these facts. The invariants judge them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from stelae.host.superblock import Superblock
from stelae.sim.agreed_writes import AgreedWrites
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.spi.consensus import HardState, LogView, Ready, Role, Status
from stelae.spi.ids import ZERO, LogId, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import MemberType, TabletConfig, decode_config

INITIAL_HARD_STATE = HardState()
NO_NODE = NodeId("")


@dataclass(slots=True)
class ObservedNode:
    """The observed state of one node.

    Attributes:
        position: position among the nodes of the run.
        node_id: its node id.
        base: op id before ``log``.
        log: op ids of the core's log above ``base``, durable or not, in order.
        durable: op ids above ``base`` that the log engine has reported durable, in order.
        hard_state: hard state of the newest Ready that had one.
        saved: newest hard state that is durable in the consensus metadata.
        exposed: highest hard state that a sent message depended on.
        configs: configs in the log, ascending.
        committed_config: the last committed config, or the restored one.
        saved_config: op id of the config in the durable consensus metadata.
        commit: highest index that the core has reported committed since it started.
        clock_ahead_us_max: longest time by which the node's wall clock was ever ahead of true time.
        starts: number of the process that runs, or ran last.
        status: newest status of the core; ``None`` while the node is down.
        applied: highest index that any store of this node was ever asked to apply.
        flushed: flushed op id of the newest durable superblock.
        floor: highest history floor that was set in the running store.
        floor_max: highest history floor that was ever set in a store of this node.
        edits: number of durable superblocks with an edit of the store.
        given_up: true once the replica is lost permanently.
        rows_damaged: true while a fault has damaged the stored rows, until the replica is set aside.
        on_disk: how much of a replica is durable on the node.
        log_only: true if the replica has no rows, as that of a witness.
        log_id: the log of the replica.
        block: the newest durable superblock that was written while the node ran.
    """

    position: int
    node_id: NodeId = NO_NODE
    base: OpId = ZERO
    log: list[OpId] = field(default_factory=list)
    durable: list[OpId] = field(default_factory=list)
    hard_state: HardState = INITIAL_HARD_STATE
    saved: HardState = INITIAL_HARD_STATE
    exposed: HardState = INITIAL_HARD_STATE
    configs: list[TabletConfig] = field(default_factory=list)
    committed_config: TabletConfig | None = None
    saved_config: OpId = ZERO
    commit: int = 0
    clock_ahead_us_max: int = 0
    starts: int = 0
    status: Status | None = None
    applied: int = 0
    flushed: OpId = ZERO
    floor: int = 0
    floor_max: int = 0
    edits: int = 0
    given_up: bool = False
    rows_damaged: bool = False
    on_disk: ReplicaOnDisk = ReplicaOnDisk.WHOLE
    log_only: bool = False
    log_id: LogId | None = None
    block: Superblock | None = None

    def op_id_at(self, index: int) -> OpId | None:
        """Return the op id of the core's log at an index, or ``None``."""
        return _at(self.base, self.log, index)

    def durable_at(self, index: int) -> OpId | None:
        """Return the durable op id at an index, or ``None``."""
        return _at(self.base, self.durable, index)

    def op_id_after(self, ready: Ready, index: int) -> OpId | None:
        """Return the op id that the core's log has at an index once ``ready`` is carried out, or ``None``."""
        append = ready.append
        if append is not None and append.entries:
            offset = index - append.entries[0].op_id.index
            if offset >= 0:
                return append.entries[offset].op_id if offset < len(append.entries) else None
        return self.op_id_at(index)

    def last(self) -> OpId:
        """Return the op id of the last entry of the core's log."""
        return self.log[-1] if self.log else self.base

    def last_durable(self) -> OpId:
        """Return the op id of the last durable entry."""
        return self.durable[-1] if self.durable else self.base

    def last_after(self, ready: Ready) -> OpId:
        """Return the op id of the last entry that the core's log has once ``ready`` is carried out."""
        append = ready.append
        if append is None:
            return self.last()
        if append.entries:
            return append.entries[-1].op_id
        return self.op_id_at((append.replace_from or 1) - 1) or self.base

    def restore(self, hard_state: HardState, log: LogView, config: TabletConfig) -> None:
        """Reset the state to what a start of the node has read back from its disk."""
        self.base = log.base
        self.log_only = log.log_only
        self.log = _unroll(log)
        self.durable = list(self.log)
        self.hard_state = self.saved = hard_state
        self.configs = list(log.configs)
        self.committed_config = config
        self.saved_config = config.op_id
        self.commit = 0

    def apply_ready(self, ready: Ready, configs: Sequence[TabletConfig]) -> None:
        """Update term, vote, log and configs from a Ready."""
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.append is not None:
            if ready.append.replace_from is not None:
                self.truncate_log(ready.append.replace_from)
            self.log.extend(entry.op_id for entry in ready.append.entries)
            self.configs.extend(configs)
        if ready.committed_config is not None:
            self.committed_config = ready.committed_config

    def truncate_log(self, from_index: int) -> None:
        """Remove the entries at and above an index from the core's log."""
        del self.log[max(0, from_index - self.base.index - 1) :]
        self.configs = [c for c in self.configs if c.op_id.index < from_index]

    def expose(self, hard_state: HardState) -> None:
        """Record that a message which depends on a hard state was sent."""
        before = self.exposed
        if hard_state.term > before.term or (hard_state.term == before.term and before.voted_for is None):
            self.exposed = hard_state

    def persisted(self, replace_from: int | None, entries: Sequence[Entry]) -> None:
        """Record that the log engine reported an append durable."""
        if replace_from is not None:
            del self.durable[max(0, replace_from - self.base.index - 1) :]
        self.durable.extend(entry.op_id for entry in entries)


@dataclass(frozen=True, slots=True)
class Needs:
    """What must be durable before a message is sent: term and vote, and the log up to ``last``."""

    hard_state: HardState
    last: OpId = ZERO


@dataclass(slots=True)
class World:
    """All nodes, and what the replicas of the tablet have agreed on.

    Attributes:
        now_us: returns the true time in microseconds since the start of the run.
        committed: op ids that some core has reported committed, in order from index 1.
        entries: every entry that a log engine has reported or recovered, by op id.
        agreed: the rows that the applied entries produce.
        copies: whether replicas are copied in the run.
        election_timeout_us: the election timeout of the consensus engine.
        member_join_timeout_us: how long a member that joins may be silent before its leader removes it.
    """

    nodes: list[ObservedNode]
    now_us: Callable[[], int]
    initial_config: TabletConfig
    committed: list[OpId] = field(default_factory=list)
    entries: dict[OpId, Entry] = field(default_factory=dict)
    agreed: AgreedWrites = field(default_factory=AgreedWrites)
    copies: bool = False
    election_timeout_us: int = 1_000_000
    member_join_timeout_us: int = 60_000_000

    def on_majority(self, op_id: OpId, config: TabletConfig) -> bool:
        """Return true if an entry is durable on a majority of the voters of a config."""
        voters = config.voters()
        copies = sum(node.node_id in voters and self.holds(node, op_id) for node in self.nodes)
        return copies > len(voters) // 2

    def newest_config(self, node: ObservedNode) -> TabletConfig:
        """Return the config in force on a node: that of the newest config entry in its log."""
        known = node.committed_config
        newest = node.configs[-1] if node.configs else None
        if newest is not None and (known is None or newest.op_id >= known.op_id):
            return newest
        return known if known is not None else self.initial_config

    def appended_by_leader(self, node: ObservedNode, ready: Ready) -> Iterator[tuple[TabletConfig, TabletConfig]]:
        """Return the configs that a leader appends with a Ready, each after the config that was in force before it.

        The configs that a follower appends are in its leader's log already, and have a timestamp."""
        if ready.append is None or ready.append.replace_from is not None:
            return
        before = self.newest_config(node)
        for entry in ready.append.entries:
            if entry.kind is EntryKind.CONFIG and not entry.timestamp:
                config = decode_config(entry)
                yield before, config
                before = config

    def newest_config_before(self, node: ObservedNode, term: int) -> TabletConfig:
        """Return the config with which a node campaigned for ``term``: the newest one of an earlier term in its log."""
        found = [c for c in node.configs if c.op_id.term < term]
        known = node.committed_config or self.initial_config
        return max((*found, known), key=lambda c: c.op_id) if known.op_id.term < term else found[-1]

    def committed_config(self) -> TabletConfig:
        """Return the newest config whose entry is committed."""
        known = [self.newest_committed_on(node) for node in self.nodes]
        return max((config for config in known if config.members), key=lambda config: config.op_id)

    def newest_committed_on(self, node: ObservedNode) -> TabletConfig:
        """Return the newest config on a node whose entry is committed, as some core has reported."""
        found = [c for c in node.configs if self.is_committed(c.op_id)]
        return found[-1] if found else node.committed_config or self.initial_config

    def committed_config_below(self, index: int) -> OpId:
        """Return the op id of the newest committed config entry at or below an index; 0.0 if there is none."""
        for op_id in reversed(self.committed[:index]):
            entry = self.entries.get(op_id)
            if entry is not None and entry.kind is EntryKind.CONFIG:
                return op_id
        return ZERO

    def is_committed(self, op_id: OpId) -> bool:
        """Return true if some core has reported an entry as committed."""
        return op_id.index <= len(self.committed) and self.committed[op_id.index - 1] == op_id

    def possible_configs(self) -> list[TabletConfig]:
        """Return the newest committed config, and the configs in the logs of leaders that are not committed."""
        found = [self.committed_config()]
        for node in self.leaders():
            found += [c for c in node.configs if c.op_id > found[0].op_id]
        return found

    def bears_loss_of(self, position: int) -> bool:
        """Return true if every config that may be in force has a majority without a node."""
        node_id = self.nodes[position].node_id
        voters = [config.voters() for config in self.possible_configs()]
        return all(len(voting) > 2 or node_id not in voting for voting in voters)

    def leaders(self) -> list[ObservedNode]:
        """Return the live nodes that lead, each in its own term."""
        return [node for node in self.nodes if node.status is not None and node.status.role is Role.LEADER]

    def leader(self) -> int | None:
        """Return the position of the live leader with the highest term, if any node leads."""
        leading = [(node.status.term, node.position) for node in self.leaders() if node.status is not None]
        return max(leading)[1] if leading else None

    def members(self) -> list[ObservedNode]:
        """Return the nodes that are members in the newest committed config."""
        config = self.committed_config()
        return [node for node in self.nodes if config.member(node.node_id) is not None]

    def witnesses(self) -> list[int]:
        """Return the positions of the witnesses in the newest committed config that have no rows."""
        members = self.committed_config().members
        found = {member.node_id for member in members if member.member_type is MemberType.WITNESS}
        return [node.position for node in self.nodes if node.node_id in found and node.log_only]

    def voters_that_follow(self) -> list[int]:
        """Return the positions of the voters in the newest committed config that do not lead."""
        voters, leader = self.committed_config().voters(), self.leader()
        return [node.position for node in self.nodes if node.node_id in voters and node.position != leader]

    def is_voter_copied(self) -> bool:
        """Return true if the replica of a voter in the newest committed config is a tombstone now."""
        voters = self.committed_config().voters()
        return any(node.on_disk is ReplicaOnDisk.TOMBSTONE and node.node_id in voters for node in self.nodes)

    def holds(self, node: ObservedNode, op_id: OpId) -> bool:
        """Return true if an entry is durable on a node, in its log or in the flushed data of its store."""
        if op_id.index > node.base.index:
            return node.durable_at(op_id.index) == op_id
        return self.is_committed(op_id)

    def settled_index(self) -> int:
        """Return the index up to which the committed entries are durable on all members that are not given up."""
        ends = [self.settled_on(node) for node in self.members() if not node.given_up]
        return min(ends, default=0)

    def settled_on(self, node: ObservedNode) -> int:
        """Return the index up to which the committed entries are durable on a node."""
        end = min(node.base.index + len(node.durable), len(self.committed))
        while end > node.base.index and node.durable_at(end) != self.committed[end - 1]:
            end -= 1
        return end

    def learn_commit(self, node: ObservedNode, index: int) -> None:
        """Record that a core has reported everything up to ``index`` committed."""
        for position in range(len(self.committed) + 1, index + 1):
            op_id = node.op_id_at(position)
            if op_id is None:
                return
            self.committed.append(op_id)


def _at(base: OpId, op_ids: list[OpId], index: int) -> OpId | None:
    offset = index - base.index - 1
    return op_ids[offset] if 0 <= offset < len(op_ids) else None


def _unroll(log: LogView) -> list[OpId]:
    """Return the op ids of a log whose terms are given as term runs."""
    op_ids: list[OpId] = []
    end = log.last.index + 1
    for first, term in reversed(log.term_runs):
        op_ids[:0] = [OpId(term, index) for index in range(first, end)]
        end = first
    return op_ids
