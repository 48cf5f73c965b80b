"""The report and the picture of a run."""

from __future__ import annotations

from xml.etree import ElementTree

from stelae_chaos.availability import SLOT_US, longest_gap_ms, percentile_ms, slots
from stelae_chaos.operations import ChaosFinding
from stelae_chaos.report import ChaosReport
from stelae_chaos.spans import FaultSpan, LeaderSpan
from stelae_chaos.timeline import timeline
from tests.unit.chaos.histories import UNKNOWN, append, counted, increment, read, snapshot, write


def report() -> ChaosReport:
    made = ChaosReport(seed=7, left_out={"skew-clocks": "no rules"}, end_us=10_000_000)
    made.history.add([write(1, 2, "a"), write(3, 6, "b", UNKNOWN), read(3, 4, "a"), append(1), append(2, UNKNOWN)])
    made.spans = [FaultSpan(kind="kill-one", detail="SIGKILL of <a>", begun_us=1_000_000, ended_us=2_000_000)]
    made.leaders = [LeaderSpan(what="sums", leader="tserver-1", begun_us=0, ended_us=9_000_000)]
    return made


def test_slots_count_operations_by_their_end() -> None:
    found = slots([append(1), append(2, UNKNOWN), append(100)], 4 * SLOT_US + 1_000_000)
    assert [(slot.answered, slot.unanswered) for slot in found] == [(0, 0)] * 3 + [(1, 0), (0, 0), (0, 1)]
    assert found[3].p50_ms == 500
    assert found[0].p50_ms is None


def test_percentiles_of_nothing_are_unknown() -> None:
    assert percentile_ms([], 0.5) is None
    assert percentile_ms([1000, 2000, 9000], 0.99) == 9


def test_the_longest_gap_counts_from_the_first_fault_to_the_end() -> None:
    assert longest_gap_ms([append(1), append(2, UNKNOWN)], 1_000_000, 10_000_000) == 8500
    assert longest_gap_ms([append(7)], 1_000_000, 10_000_000) == 6500
    assert longest_gap_ms([], 1_000_000, 10_000_000) == 9000


def test_the_document_counts_writes_by_what_clients_know() -> None:
    document = report().document()
    assert document["faults"] == {"kill-one": 1}
    assert document["workloads"]["registers"] == {"acknowledged": 1, "refused": 0, "unknown": 1, "reads": 1}
    assert document["story"] == ["1.000 s  kill-one: SIGKILL of <a>"]


def test_a_workload_without_an_acknowledged_write_is_a_finding() -> None:
    made = report()
    made.history.add([increment(1, 2, UNKNOWN), counted(1, 2, 0), snapshot(5, [])])
    made.require_load()
    assert [finding.check for finding in made.findings] == ["counters", "snapshot sums"]
    assert not made.clean


def test_the_picture_is_well_formed_and_shows_faults_leaders_and_the_verdict() -> None:
    made = report()
    made.findings.append(ChaosFinding(check="appends", key="row 0/1", fact="the acknowledged row is lost"))
    texts = [element.text for element in ElementTree.fromstring(timeline(made)).iter() if element.text]
    assert "stelae chaos, seed 7, 10 s" in texts
    assert "kill-one: SIGKILL of <a>" in texts
    assert "sums: tserver-1" in texts
    assert "1 findings, the first: appends, row 0/1: the acknowledged row is lost" in texts


def test_the_picture_of_a_run_that_was_over_at_once_is_well_formed() -> None:
    ElementTree.fromstring(timeline(ChaosReport(seed=1, left_out={})))
