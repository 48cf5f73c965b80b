"""Answers that contradict each other are asked for again before they are reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stelae.check import cluster_check
from stelae.check.cluster_check import check
from stelae.check.cluster_state import ClusterState
from stelae.check.health import NodeFacts, TabletVerdict
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.ids import NodeId, OpId

A, B, C = (NodeId(letter * 32) for letter in "abc")
MASTERS = ((A, "a:1"), (B, "b:1"), (C, "c:1"))


def state(*views: tuple[int, NodeId | None] | None) -> ClusterState:
    """The masters' tablet as A, B and C see it: the term and the leader of each; ``None``: it does not answer."""
    nodes = {}
    for (node, address), view in zip(MASTERS, views, strict=True):
        if view is None:
            nodes[node] = NodeFacts(node_id=node, address=address, problem="does not answer")
            continue
        term, leader = view
        report = ReplicaReport(
            node_id=node,
            tablet_id=SYSTEM_TABLET,
            role="LEADER" if leader == node else "FOLLOWER",
            term=term,
            leader=leader,
            state="RUNNING" if leader else "CONFIGURING",
            last=OpId(term, 1),
            durable_index=1,
            commit=1,
            applied=1,
        )
        nodes[node] = NodeFacts(node_id=node, address=address, reports={SYSTEM_TABLET: report})
    return ClusterState(masters=MASTERS, nodes=nodes)


class Looks:
    """Successive states of a cluster; the last one stays."""

    def __init__(self, *states: ClusterState) -> None:
        self.states = list(states)
        self.count = 0

    async def collect(self, *arguments: Any, **options: Any) -> ClusterState:
        self.count += 1
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def checked(monkeypatch: pytest.MonkeyPatch, *states: ClusterState) -> tuple[TabletVerdict, int]:
    """Return the verdict on the masters' tablet, and how often the nodes were asked."""
    looks = Looks(*states)
    monkeypatch.setattr(cluster_check, "collect_state", looks.collect)
    monkeypatch.setattr(cluster_check, "PAUSE_S", 0)
    nothing: Any = None
    report = asyncio.run(check(nothing, nothing))
    return report.masters.verdict, looks.count


AGREED = state((5, A), (5, A), (5, A))
BETWEEN_TWO_LEADERS = state((5, A), (6, B), (6, B))
NEW_LEADER_ANSWERED_BEFORE_IT_LED = state((6, None), (5, None), (6, A))


@pytest.mark.parametrize("between", [BETWEEN_TWO_LEADERS, NEW_LEADER_ANSWERED_BEFORE_IT_LED])
def test_a_leader_that_changes_between_two_answers_is_no_problem(
    monkeypatch: pytest.MonkeyPatch, between: ClusterState
) -> None:
    """The check said CONSENSUS_MISMATCH, or that none leads, of a cluster in which nothing was wrong."""
    assert checked(monkeypatch, between, AGREED) == (TabletVerdict.HEALTHY, 2)


def test_what_lasts_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch, BETWEEN_TWO_LEADERS)
    assert found == (TabletVerdict.CONSENSUS_MISMATCH, cluster_check.LOOKS_MAX)


def test_a_lost_majority_needs_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(monkeypatch, state((5, None), None, None)) == (TabletVerdict.UNAVAILABLE, 1)
