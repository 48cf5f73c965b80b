"""A recorded run is the same run, and its trace shows what the run did."""

from __future__ import annotations

from collections import Counter

import pytest

from stelae.sim.run import record_seed, run_seed
from stelae.sim.run_scope import RunScope
from stelae.sim.trace.records import MessageSent, NodeChanged, NodeStarted, RunTrace, TraceKind
from stelae.sim.trace.selection import kind_of
from tests.sim.mutants import MUTANTS
from tests.sim.planting import planted

SEED = 8
"""A short run with crashes, cut links and elections."""


@pytest.fixture(scope="module")
def trace() -> RunTrace:
    return record_seed(SEED)


def test_a_recorded_run_is_the_same_run(trace: RunTrace) -> None:
    assert trace.result == run_seed(SEED)


def test_the_trace_counts_what_the_run_counted(trace: RunTrace) -> None:
    coverage = trace.result.coverage
    messages = [record for record in trace.records if isinstance(record, MessageSent)]
    assert sum(len(message.lost_us) for message in messages) == coverage["network.lost"]
    changes = Counter(record.change.value for record in trace.records if isinstance(record, NodeChanged))
    assert changes["paused"] == coverage["fault.pause"]
    assert changes["killed"] >= coverage["fault.kill"] + coverage["restart.idle"]
    ends = changes["killed"] + changes["crashed"] - changes["start_failed"]
    assert sum(isinstance(record, NodeStarted) for record in trace.records) >= trace.nodes + ends


def test_records_are_in_order_of_time_and_of_every_kind_of_a_run_without_violation(trace: RunTrace) -> None:
    times = [record.at_us for record in trace.records]
    assert times == sorted(times)
    rare = {TraceKind.VIOLATION, TraceKind.MESSAGE}
    assert {kind_of(record) for record in trace.records} >= set(TraceKind) - rare


def test_the_trace_of_a_run_with_a_planted_bug_ends_with_the_violation() -> None:
    with planted(MUTANTS[0]):
        trace = record_seed(1, scope=RunScope(faults=frozenset(), operations_max=4))
    assert kind_of(trace.records[-1]) is TraceKind.VIOLATION
    assert trace.result.violation is not None
    assert trace.records[-1].at_us == trace.result.violation.at_us
