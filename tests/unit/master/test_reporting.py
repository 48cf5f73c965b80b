"""The reporter of a tablet server: to all masters, everything once in a leadership, changes until acknowledged."""

from __future__ import annotations

import pytest

from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply, ReplicaStatus, ReportedDataState, ServerReport
from stelae.server.master.core.servers import Servers
from stelae.server.master.settings import MasterSettings
from stelae.server.tserver.reporting import CHANGES_MAX, SILENT_US, Reporter, ServerFacts
from stelae.spi.ids import IncarnationId, NodeId, TabletId
from tests.unit.master.master_with_servers import ME, OTHER, SERVERS

FACTS = ServerFacts(address="host-1:7051")


def reporter() -> Reporter:
    made = Reporter(SERVERS[0], IncarnationId("1" * 16), [ME, OTHER])
    for name in ("a", "b"):
        made.replica_changed(replica(name))
    return made


def replica(name: str, term: int = 1, state: ReportedDataState = ReportedDataState.READY) -> ReplicaStatus:
    return ReplicaStatus(tablet_id=TabletId(name), data_state=state, term=term)


def beats(one: Reporter, now_us: int = 0) -> dict[NodeId, Heartbeat]:
    return dict(one.heartbeats(FACTS, now_us))


def told(one: Reporter) -> ServerReport | None:
    return beats(one)[ME].report


def led(one: Reporter, term: int, acknowledged: int = 0, *, wants_full: bool = False, by: NodeId = ME) -> bool:
    return one.replied(by, HeartbeatReply(term=term, leader=by, wants_full=wants_full, acknowledged=acknowledged))


def names(report: ServerReport | None) -> list[str]:
    assert report is not None
    return [status.tablet_id for status in report.replicas]


def test_every_master_gets_a_sign_of_life_and_who_does_not_lead_no_report() -> None:
    one = reporter()
    assert {master: heartbeat.report for master, heartbeat in beats(one).items()} == {ME: None, OTHER: None}
    assert not one.replied(OTHER, HeartbeatReply(term=0, leader=ME))
    led(one, 3)
    found = beats(one)
    assert found[ME].report is not None and found[OTHER].report is None


def test_sequences_to_one_master_rise() -> None:
    one = reporter()
    assert [beats(one)[ME].sequence for _ in range(3)] == [1, 2, 3]


def test_sequences_to_a_master_that_was_removed_and_added_again_go_on_rising() -> None:
    """It had kept running, and took each heartbeat that was counted from 1 again for one that was overtaken: no report
    was taken for as many heartbeats as it had got before."""
    one, there = reporter(), Servers(MasterSettings(), 0)
    for _ in range(3):
        there.heard(beats(one)[OTHER], 0)
    one.masters_changed([ME])
    one.masters_changed([ME, OTHER])
    led(one, 3, by=OTHER)
    heartbeat = beats(one)[OTHER]
    assert heartbeat.sequence == 4 and there.heard(heartbeat, 1)
    assert heartbeat.report is not None and heartbeat.report.full
    assert not there.take(SERVERS[0], heartbeat.report).wants_full


def test_a_new_leader_gets_everything_at_once_and_again_until_it_has_it() -> None:
    one = reporter()
    assert led(one, 3)
    for _ in range(2):
        report = told(one)
        assert report is not None and report.full and names(report) == ["a", "b"]
    led(one, 3, acknowledged=2)
    assert told(one) is None


def test_what_changes_is_told_until_it_is_acknowledged() -> None:
    one = reporter()
    led(one, 3)
    led(one, 3, acknowledged=2)
    one.replica_changed(replica("a", term=2))
    for _ in range(3):
        report = told(one)
        assert report is not None and not report.full
        assert (report.since, report.upto, names(report)) == (2, 3, ["a"])
    one.replica_changed(replica("b", term=2))
    led(one, 3, acknowledged=3)
    assert names(told(one)) == ["b"]
    led(one, 3, acknowledged=4)
    assert told(one) is None


def test_a_replica_that_stands_as_before_is_no_change() -> None:
    one = reporter()
    led(one, 3)
    led(one, 3, acknowledged=2)
    one.replica_changed(replica("a"))
    assert told(one) is None


def test_the_same_master_in_another_term_is_a_new_leader() -> None:
    one = reporter()
    led(one, 3)
    led(one, 3, acknowledged=2)
    assert led(one, 5)
    report = told(one)
    assert report is not None and report.full


def test_a_late_answer_of_an_earlier_leadership_means_nothing() -> None:
    one = reporter()
    led(one, 5)
    led(one, 5, acknowledged=2)
    assert not led(one, 3, acknowledged=9)
    one.replica_changed(replica("a", term=2))
    assert names(told(one)) == ["a"]


def test_a_leader_that_lacks_something_gets_everything() -> None:
    one = reporter()
    led(one, 3)
    led(one, 3, acknowledged=2)
    assert led(one, 3, wants_full=True)
    report = told(one)
    assert report is not None and report.full


def test_a_tombstone_is_told_and_then_forgotten() -> None:
    one = reporter()
    led(one, 3)
    led(one, 3, acknowledged=2)
    one.replica_changed(replica("a", state=ReportedDataState.DELETED))
    assert names(told(one)) == ["a"]
    led(one, 3, acknowledged=3)
    assert set(one._replicas) == {"b"}
    led(one, 7)
    assert names(told(one)) == ["b"]


def test_a_full_report_leaves_tombstones_out() -> None:
    one = reporter()
    one.replica_changed(replica("a", state=ReportedDataState.DELETED))
    led(one, 3)
    assert names(told(one)) == ["b"]


def test_a_former_leader_that_is_down_keeps_no_tombstones_and_gets_no_reports() -> None:
    """They stayed for as long as it was down, and each heartbeat to it was a report of all changes since."""
    one = reporter()
    led(one, 3)
    led(one, 3, acknowledged=2)
    led(one, 4, by=OTHER)
    one.replica_changed(replica("a", state=ReportedDataState.DELETED))
    assert names(beats(one, SILENT_US)[ME].report) == ["a"]
    led(one, 4, acknowledged=3, by=OTHER)
    assert beats(one, SILENT_US + 1)[ME].report is None
    led(one, 4, acknowledged=3, by=OTHER)
    assert set(one._replicas) == {"b"}


@pytest.mark.parametrize("term", [3, 5])
def test_a_leader_that_replies_again_after_a_long_time_gets_everything(term: int) -> None:
    """It has perhaps missed a tombstone that was forgotten meanwhile."""
    one = reporter()
    led(one, 3)
    led(one, 3, acknowledged=2)
    beats(one, SILENT_US + 1)
    assert one.leader is None
    assert led(one, term, acknowledged=2)
    report = told(one)
    assert report is not None and report.full and names(report) == ["a", "b"]


def test_an_incremental_report_is_bounded_and_the_rest_follows() -> None:
    one = reporter()
    led(one, 3)
    led(one, 3, acknowledged=2)
    for number in range(CHANGES_MAX + 5):
        one.replica_changed(replica(f"t{number}"))
    first = told(one)
    assert first is not None and len(first.replicas) == CHANGES_MAX
    led(one, 3, acknowledged=first.upto)
    assert len(names(told(one))) == 5


def test_the_reply_of_a_node_that_is_no_master_has_no_effect() -> None:
    one = reporter()
    led(one, 3)
    assert not led(one, 9, by=NodeId("c" * 32))
    assert one.leader == ME
    assert set(beats(one)) == {ME, OTHER}


def test_the_leader_is_the_one_of_the_latest_term() -> None:
    one = reporter()
    assert one.leader is None
    led(one, 3)
    led(one, 4, by=OTHER)
    assert one.leader == OTHER
