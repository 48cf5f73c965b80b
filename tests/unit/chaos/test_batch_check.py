"""Snapshots of accounts: whole batches, of the right time, the same each time."""

from __future__ import annotations

from stelae_chaos.batch_check import ACCOUNTS, check_batches
from stelae_chaos.operations import BatchWrite, SnapshotRead, SnapshotRow
from tests.unit.chaos.histories import REFUSED, UNKNOWN, batch, rows, snapshot


def facts(writes: list[BatchWrite], *reads: SnapshotRead) -> list[str]:
    return [finding.fact for finding in check_batches(writes, reads)]


def test_a_snapshot_shows_the_newest_batch_up_to_its_time() -> None:
    writes = [batch(1, 100), batch(2, 200)]
    assert facts(writes, snapshot(99, []), snapshot(150, rows(1)), snapshot(200, rows(2))) == []


def test_a_torn_batch_is_found() -> None:
    torn = [*rows(1)[:3], *rows(2)[3:]]
    (fact,) = facts([batch(1, 100), batch(2, 200)], snapshot(200, torn))
    assert fact == f"the snapshot is torn: {ACCOUNTS} of {ACCOUNTS} rows, of the batches 0/1, 0/2"
    (fact,) = facts([batch(1, 100)], snapshot(200, rows(1)[1:]))
    assert "torn" in fact


def test_a_wrong_sum_is_found() -> None:
    wrong = [SnapshotRow(0, "0/1", 1), *rows(1)[1:]]
    (fact,) = facts([batch(1, 100)], snapshot(200, wrong))
    assert "the sum is" in fact


def test_a_snapshot_without_an_acknowledged_batch_is_stale() -> None:
    assert "batch 0/2 is newer" in facts([batch(1, 100), batch(2, 200)], snapshot(200, rows(1)))[0]
    assert "empty" in facts([batch(1, 100)], snapshot(150, []))[0]


def test_a_batch_after_the_time_of_the_snapshot_is_found() -> None:
    assert "after the time" in facts([batch(1, 100)], snapshot(50, rows(1)))[0]


def test_a_batch_of_unknown_outcome_may_show_and_a_refused_one_may_not() -> None:
    assert facts([batch(1, 100), batch(2, 0, UNKNOWN)], snapshot(150, rows(1)), snapshot(160, rows(2))) == []
    assert "refused" in facts([batch(2, 0, REFUSED)], snapshot(150, rows(2)))[0]
    assert "no client" in facts([], snapshot(150, rows(2)))[0]


def test_two_different_snapshots_as_of_one_time_are_found() -> None:
    writes = [batch(1, 100), batch(2, 0, UNKNOWN)]
    (fact,) = facts(writes, snapshot(150, rows(1)), snapshot(150, rows(2), begun_s=60))
    assert fact == "two snapshots as of one time differ"


def test_a_batch_that_is_lost_under_one_of_unknown_outcome_is_found() -> None:
    """The batch of unknown outcome was seen before the lost one took effect, so it cannot be the newer one."""
    writes = [batch(1, 100), batch(2, 0, UNKNOWN), batch(3, 200)]
    assert facts(writes, snapshot(150, rows(2)), snapshot(250, rows(3))) == []
    (fact,) = facts(writes, snapshot(250, rows(2)), snapshot(150, rows(2)))
    assert fact == "the snapshot shows batch 0/2, which batch 0/3 had replaced by the time 200"


def test_a_batch_that_is_shown_and_then_gone_is_found_though_it_has_no_answer() -> None:
    writes = [batch(1, 100), batch(2, 0, UNKNOWN), batch(3, 0, UNKNOWN)]
    (fact,) = facts(writes, snapshot(150, rows(2)), snapshot(160, rows(1)))
    assert "shows batch 0/1, which batch 0/2 had replaced by the time 150" in fact
    (fact,) = facts(writes, snapshot(150, rows(2)), snapshot(160, rows(3)), snapshot(170, rows(2)))
    assert "shows batch 0/2, which batch 0/3 had replaced by the time 160" in fact
    (fact,) = facts(writes[1:], snapshot(150, rows(2)), snapshot(160, []))
    assert "shows no batch, which batch 0/2 had replaced by the time 150" in fact


def test_batches_of_one_log_entry_have_one_time_and_the_last_of_them_is_shown() -> None:
    """A snapshot with the batch that was the last in the entry was a finding if it was listed before the other one."""
    writes = [batch(1, 100), batch(2, 100), batch(3, 0, UNKNOWN)]
    for last in (1, 2, 3):
        assert facts(writes, snapshot(100, rows(last)), snapshot(150, rows(last), begun_s=60)) == []
    (fact,) = facts(writes, snapshot(100, rows(1)), snapshot(150, rows(2), begun_s=60))
    assert fact == "the snapshot shows batch 0/2, which batch 0/1 had replaced by the time 100"
    assert "is newer" in facts([*writes, batch(4, 200)], snapshot(250, rows(1)))[0]
