"""A fact feed over three nodes, and short functions that report facts to it."""

from __future__ import annotations

from stelae.sim.coverage import Coverage
from stelae.sim.fact_feed import FactFeed
from stelae.sim.history import AnswerKind, ClientAction, ClientAnswer, ClientOperation, HistoryRow
from stelae.sim.invariants import AppliedRequest
from stelae.sim.scheduler import Scheduler
from stelae.sim.world import ObservedNode, World
from stelae.spi.consensus import HardState, LogAppend, LogView, Ready, Role, Status
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, TabletConfig
from stelae.spi.wal import Append, Durable

NAMES = tuple(NodeId(str(number) * 32) for number in range(3))
CONFIG = TabletConfig(op_id=ZERO, members=tuple(Member(node_id=name, address="") for name in NAMES))
LOG = LogId(TabletId("t"), 1)


class Rig:
    """A fact feed over three nodes, with short methods that report facts to it."""

    def __init__(self) -> None:
        nodes = [ObservedNode(position, name) for position, name in enumerate(NAMES)]
        self.now_us = 0
        self.world = World(nodes=nodes, now_us=lambda: self.now_us, initial_config=CONFIG)
        self.facts = FactFeed(self.world, Scheduler(), Coverage())
        self._begun: set[tuple[str, int]] = set()
        for node in self.world.nodes:
            self.restart(node.position)

    def restart(self, position: int, term: int = 0, vote: int | None = None, commit: int = 0) -> None:
        node = self.world.nodes[position]
        hard_state = HardState(term, None if vote is None else NAMES[vote])
        log = LogView(base=ZERO, last=node.last(), term_runs=runs(node.log))
        self.facts.restarted(node, hard_state, log, commit, CONFIG)

    def ready(self, position: int, **effects: object) -> None:
        self.facts.ready(self.world.nodes[position], Ready(id=1, **effects))  # type: ignore[arg-type]

    def lead(self, position: int, term: int) -> None:
        self.status(position, Role.LEADER, term)

    def status(self, position: int, role: Role, term: int, config: TabletConfig = CONFIG) -> None:
        node = self.world.nodes[position]
        node.hard_state = HardState(term, None)
        if role is Role.LEADER:
            self.vote(position, term)
        self.facts.status(
            node,
            Status(
                node_id=NAMES[position],
                role=role,
                term=term,
                voted_for=None,
                leader=None,
                last=node.last(),
                durable_index=0,
                commit=0,
                applied=0,
                serving=False,
                config=config,
                committed_config=CONFIG,
            ),
        )

    def vote(self, candidate: int, term: int, *voters: int) -> None:
        """Save the votes of some nodes, or of all, unless they have saved something of this term or a later one."""
        for node in [self.world.nodes[voter] for voter in voters] or self.world.nodes:
            if node.saved.term < term:
                node.saved = HardState(term, NAMES[candidate])

    def append(self, position: int, *entries: Entry, replace_from: int | None = None) -> None:
        """Append entries in the core and on disk."""
        self.ready(position, append=LogAppend(entries=entries, replace_from=replace_from))
        append = Append(entries=entries, replace_from=replace_from)
        self.facts.wal(self.world.nodes[position], append, Durable(entries[-1].op_id))

    def apply(self, position: int, entry: Entry, *requests: AppliedRequest) -> None:
        """Apply an entry. Writes that the story has not started are started first."""
        for request in requests:
            if (request.client, request.sequence) not in self._begun:
                self.invoked(write(request.sequence))
        self.facts.applied(self.world.nodes[position], entry.op_id, requests)

    def invoked(self, operation: ClientOperation) -> None:
        self._begun.add((operation.client, operation.sequence))
        self.facts.invoked(operation)

    @property
    def violated(self) -> str | None:
        violation = self.facts.violation
        return violation.invariant if violation is not None else None


def runs(op_ids: list[OpId]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for op_id in op_ids:
        if not found or found[-1][1] != op_id.term:
            found.append((op_id.index, op_id.term))
    return tuple(found)


def entry(term: int, index: int, body: bytes = b"", timestamp: int = 0) -> Entry:
    return Entry(OpId(term, index), EntryKind.WRITE, timestamp or index, body)


def write(sequence: int = 1, action: ClientAction = ClientAction.UPSERT, value: str = "v") -> ClientOperation:
    return ClientOperation(client="c", sequence=sequence, action=action, rows=(HistoryRow(1, value),))


def applied(op_id: OpId, sequence: int = 1, *, skipped: bool = False, first_incomplete: int = 1) -> AppliedRequest:
    return AppliedRequest(op_id, 0, "c", sequence, skipped, (), first_incomplete=first_incomplete)


def done(node: int = 0, value: str | None = None, at: int = 0) -> ClientAnswer:
    return ClientAnswer(kind=AnswerKind.DONE, node=node, value=value, timestamp=at)


def committed(rig: Rig, *entries: Entry, term: int = 1) -> None:
    """Make node 0 the leader, append on all nodes, and commit on node 0."""
    rig.ready(0, hard_state=HardState(term, NAMES[0]))
    for position in range(3):
        rig.append(position, *entries)
    rig.ready(0, commit=entries[-1].op_id.index)


def begin(rig: Rig, operation: ClientOperation, moment: int) -> ClientOperation:
    operation.invoked = moment
    rig.invoked(operation)
    return operation


def history(rig: Rig) -> None:
    """Write ``a`` to key 1 at 1.1, then ``b`` at 1.2. Both writes are answered."""
    committed(rig, entry(1, 1), entry(1, 2))
    for sequence, value in ((1, "a"), (2, "b")):
        operation = begin(rig, write(sequence, value=value), sequence)
        op_id = OpId(1, sequence)
        rig.apply(0, entry(1, sequence), applied(op_id, sequence))
        rig.facts.answered(operation, done(at=sequence))
