"""The state of each node over time: its role, or that it is down or paused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from stelae.sim.node_change import NodeChange
from stelae.sim.trace.records import NodeChanged, RoleChanged, TraceRecord

_ENDS: Final = (NodeChange.CRASHED, NodeChange.KILLED, NodeChange.GIVEN_UP)


class LifelineState(StrEnum):
    """What a node does, beside the roles of consensus."""

    DOWN = "DOWN"
    PAUSED = "PAUSED"


class LifelineChange(NamedTuple):
    """From ``at_us`` on, a node is in this state and term. ``term`` is 0 while the node is down."""

    at_us: int
    node: int
    state: str
    term: int


def lifelines(records: Sequence[TraceRecord]) -> Iterator[LifelineChange]:
    """Yield every change of state of every node, in order of time. All nodes are down at first."""
    roles: dict[int, LifelineChange] = {}
    for record in records:
        if isinstance(record, RoleChanged):
            before = roles.get(record.node)
            roles[record.node] = LifelineChange(record.at_us, record.node, record.role, record.term)
            if before is None or before[2:] != roles[record.node][2:]:
                yield roles[record.node]
        elif isinstance(record, NodeChanged):
            yield from _changed(record, roles)


def _changed(record: NodeChanged, roles: dict[int, LifelineChange]) -> Iterator[LifelineChange]:
    at_us, node = record.at_us, record.node
    if record.change in _ENDS:
        roles.pop(node, None)
        yield LifelineChange(at_us, node, LifelineState.DOWN, 0)
    elif record.change is NodeChange.PAUSED and node in roles:
        yield LifelineChange(at_us, node, LifelineState.PAUSED, roles[node].term)
    elif record.change is NodeChange.RESUMED and node in roles:
        yield roles[node]._replace(at_us=at_us)
