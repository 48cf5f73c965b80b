"""The spans of a trace: roles, member types and faults over time."""

from __future__ import annotations

import pytest

from stelae.sim.fault_plan import LEADER, Fault, FaultKind
from stelae.sim.node_change import NodeChange
from stelae.sim.trace.bands import Band, fault_spans, member_bands, role_bands
from tests.unit.sim.trace_samples import END_US, changed, config, role, trace_of


def fault(kind: FaultKind, at_us: int = 100, victim: int = LEADER, duration_us: int = 50) -> Fault:
    return Fault(number=4, kind=kind, at_us=at_us, victim=victim, duration_us=duration_us, amount=0)


def of_node(bands: list[Band], node: int) -> list[tuple[int, int, str, int]]:
    return [(band.from_us, band.to_us, band.state, band.term) for band in bands if band.node == node]


def test_the_role_bands_of_a_node_cover_the_whole_run() -> None:
    trace = trace_of(role(5, "FOLLOWER", 1), role(9, "LEADER", 2), changed(20, NodeChange.KILLED))
    bands = role_bands(trace)
    assert of_node(bands, 0) == [
        (0, 5, "DOWN", 0),
        (5, 9, "FOLLOWER", 1),
        (9, 20, "LEADER", 2),
        (20, END_US, "DOWN", 0),
    ]
    assert of_node(bands, 2) == [(0, END_US, "DOWN", 0)]


def test_a_role_of_no_duration_has_no_band() -> None:
    bands = role_bands(trace_of(role(0, "FOLLOWER", 1), role(9, "CANDIDATE", 2), role(9, "LEADER", 2)))
    assert [state for _, _, state, _ in of_node(bands, 0)] == ["FOLLOWER", "LEADER"]


def test_a_member_type_counts_from_the_first_replica_that_knows_it_committed() -> None:
    trace = trace_of(
        config(0, 1, "VOTER", "VOTER"),
        config(10, 2, "VOTER", "VOTER", "PRE_VOTER", committed=False),
        config(30, 2, "VOTER", "VOTER", "PRE_VOTER"),
        config(40, 1, "VOTER", "VOTER", node=1),
        config(50, 3, "VOTER", "", "VOTER"),
    )
    bands = member_bands(trace)
    assert of_node(bands, 0) == [(0, END_US, "VOTER", 0)]
    assert of_node(bands, 1) == [(0, 50, "VOTER", 0), (50, END_US, "OUTSIDE", 0)]
    assert of_node(bands, 2) == [(0, 30, "OUTSIDE", 0), (30, 50, "PRE_VOTER", 0), (50, END_US, "VOTER", 0)]


@pytest.mark.parametrize(
    ("kind", "victim", "node"),
    [
        (FaultKind.PAUSE, 2, 2),
        (FaultKind.PAUSE, LEADER, 1),
        (FaultKind.LOSSY, LEADER, None),
        (FaultKind.SLOW_LINKS, 2, None),
    ],
)
def test_the_span_of_a_fault_is_in_the_lane_of_its_victim(kind: FaultKind, victim: int, node: int | None) -> None:
    roles = [role(1, "LEADER", 3), role(90, "LEADER", 4, node=1)]
    trace = trace_of(*roles, plan=(fault(kind, victim=victim),))
    [span] = fault_spans(trace, role_bands(trace))
    assert (span.node, span.from_us, span.to_us) == (node, 100, 150)


def test_a_fault_of_the_leader_without_a_leader_strikes_the_node_of_its_number() -> None:
    [span] = fault_spans(trace_of(plan=(fault(FaultKind.CRASH),)), [])
    assert span.node == 4 % 3


def test_no_span_is_longer_than_the_faults_of_the_run() -> None:
    plan = (fault(FaultKind.PAUSE, duration_us=END_US), fault(FaultKind.PAUSE, at_us=END_US))
    [span] = fault_spans(trace_of(plan=plan), [])
    assert span.to_us == END_US - 1
