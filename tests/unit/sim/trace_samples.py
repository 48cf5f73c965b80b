"""Short functions that make records of a trace. Times are in microseconds."""

from __future__ import annotations

from typing import Any

from stelae.sim.fault_plan import Fault
from stelae.sim.invariants import Violation
from stelae.sim.node_change import NodeChange
from stelae.sim.report import RunResult
from stelae.sim.trace.records import (
    CommitIndexRaised,
    MessageSent,
    NodeChanged,
    ReplicaConfigChanged,
    RoleChanged,
    RunTrace,
    TraceKind,
    TraceMember,
    TraceRecord,
    ViolationFound,
)
from stelae.spi.ids import OpId

END_US = 2_000_000


def role(at_us: int, name: str, term: int, node: int = 0) -> RoleChanged:
    return RoleChanged(at_us=at_us, node=node, role=name, term=term, leader=None, serving=False)


def changed(at_us: int, change: NodeChange, node: int = 0) -> NodeChanged:
    return NodeChanged(at_us=at_us, node=node, change=change)


def vote(at_us: int, *arrived_us: int, sender: int = 0, receiver: int = 1, lost: bool = False) -> MessageSent:
    return MessageSent(
        at_us=at_us,
        sender=sender,
        receiver=receiver,
        name="raft.vote",
        kind=TraceKind.VOTE,
        fields={"term": 4, "last": [3, 15]},
        arrived_us=list(arrived_us),
        lost_us=[at_us] if lost else [],
    )


def commits(count: int) -> list[TraceRecord]:
    return [CommitIndexRaised(at_us=index, node=1, index=index) for index in range(1, count + 1)]


def config(at_us: int, index: int, *types: str, node: int = 0, committed: bool = True) -> ReplicaConfigChanged:
    """The config in the entry 1.``index``: node 0 has the first type, and so on; an empty type is no member."""
    members = tuple(TraceMember(node=number, member_type=kind) for number, kind in enumerate(types) if kind)
    return ReplicaConfigChanged(at_us=at_us, node=node, op_id=OpId(1, index), committed=committed, members=members)


def trace_of(*records: TraceRecord, plan: tuple[Fault, ...] = (), invariant: str = "") -> RunTrace:
    """Return a trace of three nodes. With ``invariant``, the run ends with its violation."""
    violation = Violation(invariant=invariant, detail="why", at_us=END_US) if invariant else None
    found = [ViolationFound(at_us=END_US, invariant=invariant, detail="why")] if invariant else []
    values: dict[str, Any] = {"events": 1, "digest": "", "writes_acknowledged": 0, "coverage": {}}
    result = RunResult(seed=9, virtual_us=END_US, plan=plan, violation=violation, **values)
    return RunTrace(result=result, nodes=3, healed_us=END_US - 1, records=(*records, *found))
