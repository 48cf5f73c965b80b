"""What failed reads say of a replica: damage at once, a failing disk after some tries, anything else nothing."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from stelae.host.leadership_transfers import PendingTransfers
from stelae.host.read_faults import READ_ERRORS_MAX, NotedReader, ReadFaults
from stelae.host.replica_state import ReplicaState
from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Transfer
from stelae.spi.errors import CallerError, ClockError, Compacted, Corrupt, Full, StorageError, Unavailable
from stelae.spi.rejections import Rejection, RejectReason
from tests.unit.host.test_replica_failure import LOG
from tests.unit.host.test_replica_turns import Turns

EIO = StorageError("cannot read: Input/output error", path="/d/a.parquet", offset=4096)
PASSING = [
    Full("no handle", path="/d/a"),
    Compacted((1, 5)),
    ClockError("the ceiling"),
    Corrupt("not a record batch, as a client sent it"),
    Unavailable("not now"),
    CallerError("no such column"),
]


def judged(*results: object) -> list[str]:
    reasons: list[str] = []
    faults = ReadFaults(reasons.append, reasons.append)
    for result in results:
        faults.note(result)
    return reasons


def test_damage_in_a_file_condemns_at_once_and_names_file_and_offset() -> None:
    (reason,) = judged(Corrupt("a column chunk fails its checksum", path="/d/1.parquet", offset=4096))
    assert "/d/1.parquet@4096" in reason and "damage" in reason


def test_damage_is_told_from_a_disk_that_fails() -> None:
    """A copy in its place replaces what is damaged. On a disk that fails, the copy would fail as well."""
    for results, damaged in (([Corrupt("a bad page", path="/d/1.parquet", offset=1)], True), ([EIO] * 20, False)):
        reasons: list[str] = []
        faults = ReadFaults(reasons.append, reasons.append)
        for result in results:
            faults.note(result)
        assert faults.explain(reasons[-1]) is damaged
        assert not faults.explain("") and not faults.explain("the log cannot be synced"), "it has failed before"


def test_damage_in_the_log_is_no_damage_in_the_rows() -> None:
    reasons: list[str] = []
    faults = ReadFaults(reasons.append, reasons.append)
    bad = Corrupt("a bad group", path="/wals/1.seg", offset=512)
    reader = MagicMock(read=lambda *arguments: arguments[-1](bad))
    NotedReader(reader, faults).read(LOG, 1, 2, 100, lambda _result: None)
    assert len(reasons) == 1 and not faults.explain(reasons[0])


def test_a_store_that_fails_because_of_damage_is_told_from_one_that_fails_otherwise() -> None:
    """Merges and flushes read rows, too. Only with damage does a leader hand over first."""
    handed_over: list[str] = []
    at_once: list[str] = []
    faults = ReadFaults(handed_over.append, at_once.append)
    faults.store_failed("the store cannot flush: a bad page", Corrupt("a bad page", path="/d/1.parquet", offset=1))
    faults.store_failed("the store cannot flush: an error", EIO)
    faults.store_failed("the superblock cannot be saved", None)
    assert handed_over == ["the store cannot flush: a bad page"]
    assert at_once == ["the store cannot flush: an error", "the superblock cannot be saved"]
    assert [faults.explain(reason) for reason in (*handed_over, *at_once)] == [True, False, False]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_errors_that_say_nothing_of_what_is_stored_condemn_nobody(error: Exception) -> None:
    assert judged(*[error] * 100) == []


def test_reads_that_fail_are_no_damage_until_so_many_fail_in_a_row() -> None:
    assert judged(*[EIO] * (READ_ERRORS_MAX - 1)) == []
    assert judged(*[EIO] * (READ_ERRORS_MAX - 1), [b"rows"], *[EIO] * (READ_ERRORS_MAX - 1)) == []
    (reason,) = judged(*[EIO] * READ_ERRORS_MAX)
    assert "/d/a.parquet@4096" in reason and "Input/output error" in reason


def test_a_refused_request_between_two_failed_reads_does_not_make_the_disk_well() -> None:
    assert len(judged(*[EIO, PASSING[0]] * READ_ERRORS_MAX)) == 1


def test_results_of_a_log_reader_are_noted_before_they_are_handed_on() -> None:
    order: list[object] = []
    reader = MagicMock()
    reader.read.side_effect = lambda _log, _first, _end, _bytes, done: done(
        Corrupt("bad", path="/wals/1.seg", offset=1)
    )
    NotedReader(reader, ReadFaults(order.append, order.append)).read(LOG, 1, 2, 3, order.append)
    assert isinstance(order[0], str) and isinstance(order[1], Corrupt)


def test_a_condemned_leader_refuses_clients_at_once_hands_over_and_then_fails() -> None:
    turns = Turns()
    replica = turns.replica
    replica.transfers = transfers = PendingTransfers(iter(range(1, 9)))
    replica.fail_after_handover("damage found: /d/1.parquet@4096")
    assert replica.state is ReplicaState.FAILED and not replica.failure
    answers: list[object] = []
    replica.write(MagicMock(), answers.append)
    replica.read_index(answers.append)
    assert all("/d/1.parquet@4096" in str(answer) for answer in answers) and len(answers) == 2
    (stepped,) = turns.run()
    assert Transfer(1, None) in stepped
    assert transfers.ended(1)
    turns.run()
    assert replica.failure == "damage found: /d/1.parquet@4096"
    replica._ports.heartbeats.set_beats.assert_called()


def test_a_condemned_leader_without_a_successor_fails_all_the_same() -> None:
    turns = Turns()
    turns.replica.transfers = PendingTransfers(iter(range(1, 9)))
    turns.replica.fail_after_handover("damage found")
    turns.run()
    turns.replica.reads = MagicMock(failed=lambda _token, _error: False)
    turns.replica.rejected(Rejection(1, RejectReason.NO_SUCCESSOR))
    turns.run()
    assert turns.replica.failure == "damage found"


def test_a_condemned_follower_fails_at_once() -> None:
    turns = Turns()
    turns.follow()
    assert turns.replica.status.role is Role.FOLLOWER
    turns.replica.fail_after_handover("damage found")
    assert turns.replica.failure == "damage found"
