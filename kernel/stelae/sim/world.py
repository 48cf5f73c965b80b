"""What the checkers know: for every node the log, term and vote as seen from outside.

The world is fed by the taps (``stelae.sim.taps``), which sit on the contracts: consensus core, log engine, store,
network, clients. It records facts and judges nothing; judging is what the invariants do, each in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stelae.sim.agreed import Agreed
from stelae.spi.consensus import HardState, LogView, Ready, Status, TabletConfig
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry

NOTHING_SAID = HardState()


@dataclass(slots=True)
class ObservedNode:
    """One node, as its core and its log engine have shown it.

    Attributes:
        position: place among the nodes of the run.
        base: op id before ``log``.
        log: op ids of the core's log, durable or not, by position above ``base``.
        durable: op ids that the log engine has reported durable, likewise.
        hard_state: as of the newest Ready.
        saved: as of the newest save of consensus metadata that returned.
        exposed: the highest hard state that a message on the wire depended on.
        configs: configs that stand in the log, ascending.
        committed_config: as restored or last committed.
        commit: highest index that the core has called committed since it started.
        clock_ahead_us_max: furthest that the node's wall clock was ever ahead of true time.
        status: the newest snapshot; ``None`` while the node is down.
        applied: highest index that any store of this node was ever given.
        flushed: of the newest superblock whose saving returned.
        floor: highest history floor that the running store was told.
        floor_max: highest that any store of this node was ever told.
        edits: how many superblocks with an edit of the store were durable.
        given_up: the node does not come back.
    """

    position: int
    base: OpId = ZERO
    log: list[OpId] = field(default_factory=list)
    durable: list[OpId] = field(default_factory=list)
    hard_state: HardState = NOTHING_SAID
    saved: HardState = NOTHING_SAID
    exposed: HardState = NOTHING_SAID
    configs: list[TabletConfig] = field(default_factory=list)
    committed_config: TabletConfig | None = None
    commit: int = 0
    clock_ahead_us_max: int = 0
    status: Status | None = None
    applied: int = 0
    flushed: OpId = ZERO
    floor: int = 0
    floor_max: int = 0
    edits: int = 0
    given_up: bool = False

    def op_id_at(self, index: int) -> OpId | None:
        """Op id that the core's log has at an index, if it has one."""
        return _at(self.base, self.log, index)

    def durable_at(self, index: int) -> OpId | None:
        """Op id that is durable at an index, if one is."""
        return _at(self.base, self.durable, index)

    def op_id_after(self, ready: Ready, index: int) -> OpId | None:
        """Op id at an index as the log will be once ``ready`` is taken over."""
        append = ready.append
        if append is not None and append.entries:
            offset = index - append.entries[0].op_id.index
            if offset >= 0:
                return append.entries[offset].op_id if offset < len(append.entries) else None
        return self.op_id_at(index)

    def last(self) -> OpId:
        """Op id of the last entry of the core's log."""
        return self.log[-1] if self.log else self.base

    def last_after(self, ready: Ready) -> OpId:
        """Op id of the last entry as the log will be once ``ready`` is taken over."""
        append = ready.append
        if append is None:
            return self.last()
        if append.entries:
            return append.entries[-1].op_id
        return self.op_id_at((append.replace_from or 1) - 1) or self.base

    def restore(self, hard_state: HardState, log: LogView, config: TabletConfig) -> None:
        """Begin anew with what a start of the node has read back."""
        self.base = log.base
        self.log = _unroll(log)
        self.durable = list(self.log)
        self.hard_state = self.saved = hard_state
        self.configs = list(log.configs)
        self.committed_config = config
        self.commit = 0

    def follow(self, ready: Ready, configs: Sequence[TabletConfig]) -> None:
        """Take over what a Ready says of term, vote and log."""
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.append is not None:
            if ready.append.replace_from is not None:
                self.cut(ready.append.replace_from)
            self.log.extend(entry.op_id for entry in ready.append.entries)
            self.configs.extend(configs)
        if ready.committed_config is not None:
            self.committed_config = ready.committed_config

    def cut(self, from_index: int) -> None:
        """Forget the core's log at and above an index."""
        del self.log[max(0, from_index - self.base.index - 1) :]
        self.configs = [c for c in self.configs if c.op_id.index < from_index]

    def expose(self, hard_state: HardState) -> None:
        """Take over that something which depended on a hard state has left the node."""
        told = self.exposed
        if hard_state.term > told.term or (hard_state.term == told.term and told.voted_for is None):
            self.exposed = hard_state

    def persisted(self, replace_from: int | None, entries: Sequence[Entry]) -> None:
        """Take over that the log engine reported an append durable."""
        if replace_from is not None:
            del self.durable[max(0, replace_from - self.base.index - 1) :]
        self.durable.extend(entry.op_id for entry in entries)


@dataclass(frozen=True, slots=True)
class Needs:
    """What must be durable before a message leaves: term and vote, the log up to ``last``."""

    hard_state: HardState
    last: OpId = ZERO


@dataclass(slots=True)
class World:
    """All nodes, and what the whole tablet is known to have agreed on.

    Attributes:
        now_us: true time in microseconds since the start of the run.
        committed: op ids that some core has called committed, by index from 1.
        entries: every entry that ever reached a log engine, by op id.
        agreed: what the entries that replicas have applied make of the rows.
    """

    nodes: list[ObservedNode]
    now_us: Callable[[], int]
    committed: list[OpId] = field(default_factory=list)
    entries: dict[OpId, Entry] = field(default_factory=dict)
    agreed: Agreed = field(default_factory=Agreed)

    def majority(self) -> int:
        """How many nodes make a majority."""
        return len(self.nodes) // 2 + 1

    def durable_copies(self, op_id: OpId) -> int:
        """On how many nodes an entry is durable."""
        return sum(self.holds(node, op_id) for node in self.nodes)

    def holds(self, node: ObservedNode, op_id: OpId) -> bool:
        """Whether an entry is durable on a node, in its log or in what its store has flushed of it."""
        if op_id.index > node.base.index:
            return node.durable_at(op_id.index) == op_id
        return op_id.index <= len(self.committed) and self.committed[op_id.index - 1] == op_id

    def settled(self) -> int:
        """Highest index up to which every node that may come back has the committed entries durably."""
        ends = [self._settled_on(node) for node in self.nodes if not node.given_up]
        return min(ends, default=0)

    def _settled_on(self, node: ObservedNode) -> int:
        end = min(node.base.index + len(node.durable), len(self.committed))
        while end > node.base.index and node.durable_at(end) != self.committed[end - 1]:
            end -= 1
        return end

    def learn_commit(self, node: ObservedNode, index: int) -> None:
        """Record that a core calls everything up to ``index`` committed."""
        for position in range(len(self.committed) + 1, index + 1):
            op_id = node.op_id_at(position)
            if op_id is None:
                return
            self.committed.append(op_id)


def _at(base: OpId, op_ids: list[OpId], index: int) -> OpId | None:
    offset = index - base.index - 1
    return op_ids[offset] if 0 <= offset < len(op_ids) else None


def _unroll(log: LogView) -> list[OpId]:
    """Return the op ids of a log whose terms are given as runs."""
    op_ids: list[OpId] = []
    end = log.last.index + 1
    for first, term in reversed(log.term_runs):
        op_ids[:0] = [OpId(term, index) for index in range(first, end)]
        end = first
    return op_ids
