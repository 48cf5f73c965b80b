"""Writes of one replica: who is answered, with what, and when."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest

from stelae.host import exactly_once_results, source_epochs
from stelae.host.apply import EntryAnswers
from stelae.host.exactly_once_results import ResultsTable
from stelae.host.writes import WritePath
from stelae.rows.batcher import Batcher
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, ClockError, NotLeader, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import ClientId, OpId, SourceId, TabletId
from stelae.spi.payload import PayloadClient, WritePayload, decode_payload
from stelae.spi.store import RowFault
from stelae.spi.write import OpKind, OpResult, RowCode, RowError, SequenceRange, SourceFence, WriteReply, WriteRequest

PLAIN = {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}


class World:
    """A write path, the results that its replica has, and a log that applies on demand."""

    def __init__(self) -> None:
        self.results = ResultsTable()
        self.replies: list[WriteReply | StelaeError] = []
        self.index = 0
        self.now = 0
        self.start(version=1)

    def start(self, version: int) -> None:
        schema = schema_from_plain({**PLAIN, "version": version})
        self.path = WritePath(Batcher(schema), count(1), self.results, lambda: self.now)

    def write(
        self, *operations: tuple[int, Any], version: int = 1, client: str = "c", epoch: int | None = None
    ) -> None:
        fence = None if epoch is None else SourceFence(SourceId("job"), epoch)
        runs = sequence_ranges_of((n, operation(OpKind.INSERT, [(key,)], None, fence)) for n, key in operations)
        request = WriteRequest(TabletId("t"), ClientId(client), 1, version, runs)
        self.path.add(request, self.replies.append)

    def append(self) -> list[tuple[OpId, bytes]]:
        """Put what this turn brought into the log; return the entries."""
        propose = self.path.take_proposals()
        entries = []
        for proposal in propose.proposals if propose else ():
            self.index += 1
            op_id = OpId(1, self.index)
            self.path.accepted(proposal.token, op_id)
            entries.append((op_id, proposal.body))
        return entries

    def apply(self, entries: list[tuple[OpId, bytes]], faults: tuple[RowFault, ...] = ()) -> None:
        for op_id, body in entries:
            payload = decode_payload(body)
            admission = self.results.admit(payload, 100 + op_id.index)
            self.path.answered(EntryAnswers(op_id, self.results.record(admission, faults)))

    def answers(self) -> list[tuple[int, OpResult]]:
        """The answers of the one reply that has come."""
        (reply,) = self.replies
        self.replies.clear()
        assert isinstance(reply, WriteReply)
        return sorted(
            ((a.first_sequence + n, a.result) for a in reply.answers for n in range(a.count)), key=lambda pair: pair[0]
        )


@pytest.fixture
def world() -> World:
    return World()


def test_an_operation_is_answered_when_its_entry_is_applied(world: World) -> None:
    world.write((1, 10), (2, 20))
    entries = world.append()
    assert len(entries) == 1 and world.replies == [] and world.path.pending == 1
    world.apply(entries)
    assert world.answers() == [(1, OpResult(101)), (2, OpResult(101))]
    assert world.path.pending == 0


def test_a_retry_of_an_applied_operation_gets_its_first_answer_without_the_log(world: World) -> None:
    world.write((1, 10))
    world.apply(world.append(), (RowFault(0, RowCode.ALREADY_PRESENT),))
    first = world.answers()
    assert first == [(1, OpResult(101, (RowError(0, RowCode.ALREADY_PRESENT),)))]
    world.write((1, 10))
    assert world.answers() == first
    assert world.path.take_proposals() is None


def test_a_retry_gets_its_first_answer_also_after_a_change_of_schema(world: World) -> None:
    world.write((1, 10))
    world.apply(world.append())
    first = world.answers()
    world.start(version=2)
    world.write((1, 10), (2, 20), version=1)
    (retried, (number, late)) = world.answers()
    assert (retried, number, late.refusal) == (first[0], 2, "SCHEMA_MISMATCH")
    assert "version 1" in late.detail and "version 2" in late.detail
    assert world.path.take_proposals() is None


def test_an_epoch_that_is_over_is_refused_without_the_log_and_its_retries_are_not(world: World) -> None:
    world.write((1, 10), epoch=4)
    world.apply(world.append())
    first = world.answers()
    world.write((2, 20), epoch=5)
    world.apply(world.append())
    world.replies.clear()
    world.write((1, 10), (3, 30), epoch=4)
    (retried, (number, late)) = world.answers()
    assert (retried, number, late.refusal) == (first[0], 3, "STALE_EPOCH")
    assert world.path.take_proposals() is None


def test_a_retry_of_an_operation_that_is_being_applied_is_not_refused_for_its_epoch(world: World) -> None:
    world.write((1, 10), epoch=4)
    world.write((2, 20), epoch=5)
    ((op_id, body),) = world.append()
    admission = world.results.admit(decode_payload(body), 101)
    world.replies.clear()
    world.write((1, 10), epoch=4)
    assert world.replies == [], "the operation takes effect, so a refusal would be wrong"
    again = world.append()
    world.path.answered(EntryAnswers(op_id, world.results.record(admission, ())))
    world.replies.clear()
    world.apply(again)
    assert world.answers() == [(1, OpResult(101))]


def test_a_tablet_that_remembers_all_the_sources_it_can_pushes_a_new_one_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_epochs, "SOURCES_MAX", 1)
    world.results.sources.admit(SourceFence(SourceId("another"), 1), 10)
    world.write((1, 10), epoch=4)
    (error,) = world.replies
    assert isinstance(error, Overloaded) and "sources have written to this tablet" in str(error)
    world.replies.clear()
    world.write((1, 10))
    assert world.append(), "operations without a source are taken"


def test_a_request_may_mix_retries_and_new_operations(world: World) -> None:
    world.write((1, 10))
    world.apply(world.append())
    world.replies.clear()
    world.write((1, 10), (2, 20))
    assert world.replies == []
    ((op_id, body),) = entries = world.append()
    assert [r.first_sequence for r in decode_payload(body).sequences] == [2]
    world.apply(entries)
    assert world.answers() == [(1, OpResult(101)), (2, OpResult(100 + op_id.index))]


def test_a_retry_of_an_operation_under_way_shares_its_one_effect_and_answer(world: World) -> None:
    world.write((1, 10))
    first = world.append()
    world.write((1, 10))
    second = world.append()
    world.apply(first)
    assert world.answers() == [(1, OpResult(101))]
    world.apply(second)
    assert world.answers() == [(1, OpResult(101))]


def test_another_operation_under_a_number_that_was_used_is_refused_at_once(world: World) -> None:
    world.write((1, 10))
    world.apply(world.append())
    world.replies.clear()
    world.write((1, 11))
    ((_, answer),) = world.answers()
    assert answer.refusal == "PAYLOAD_MISMATCH"
    assert world.path.take_proposals() is None


def test_an_operation_that_cannot_be_taken_is_refused_and_the_others_stand(world: World) -> None:
    request = WriteRequest(
        TabletId("t"),
        ClientId("c"),
        1,
        1,
        [SequenceRange(1, OpKind.INSERT, None, [msgspec.Raw(b"\xc0"), operation(OpKind.INSERT, [(1,)]).rows])],
    )
    world.path.add(request, world.replies.append)
    world.apply(world.append())
    ((_, refused), (_, fine)) = world.answers()
    assert (refused.refusal, fine) == ("BAD_REQUEST", OpResult(101))


def test_what_the_operations_of_a_run_share_is_refused_once_for_all_of_them(world: World) -> None:
    runs = sequence_ranges_of((n, operation(OpKind.INSERT, [(n,)])) for n in range(1, 9))
    world.start(version=2)
    world.path.add(WriteRequest(TabletId("t"), ClientId("c"), 1, 1, runs), world.replies.append)
    (reply,) = world.replies
    assert isinstance(reply, WriteReply)
    assert [(a.first_sequence, a.count, a.result.refusal) for a in reply.answers] == [(1, 8, "SCHEMA_MISMATCH")]


def test_rows_of_a_newer_schema_than_is_applied_here_are_tried_again(world: World) -> None:
    """A new leader that had not applied the schema change yet told clients that their write has no effect, while it was
    in its log behind the change, from the leader before."""
    world.write((1, 10), version=2)
    (error,) = world.replies
    assert isinstance(error, Unavailable) and "version 2" in str(error) and "version 1" in str(error)
    assert world.append() == []


def test_a_schema_that_does_not_follow_what_is_applied_here_yet_is_tried_again(world: World) -> None:
    world.path.change_schema(schema_from_plain({**PLAIN, "version": 3}), world.replies.append)
    (error,) = world.replies
    assert isinstance(error, Unavailable) and world.append() == []


def test_a_request_without_operations_is_the_callers_error(world: World) -> None:
    world.write()
    (error,) = world.replies
    assert isinstance(error, CallerError)


def test_a_replaced_entry_tells_its_callers_to_retry_and_earlier_ones_wait_on(world: World) -> None:
    world.write((1, 10))
    first = world.append()
    world.write((2, 20))
    world.append()
    world.path.replaced(2, Unavailable("replaced"))
    (error,) = world.replies
    assert isinstance(error, Unavailable)
    world.replies.clear()
    world.apply(first)
    assert world.answers() == [(1, OpResult(101))]


def test_callers_of_an_entry_that_another_leader_replaced_are_told_to_retry(world: World) -> None:
    world.write((1, 10))
    ((op_id, body),) = world.append()
    world.apply([(OpId(op_id.term + 1, op_id.index), body)])
    (reply,) = world.replies
    assert isinstance(reply, NotLeader)


def test_every_caller_hears_once_when_the_replica_stops(world: World) -> None:
    world.write((1, 10))
    world.append()
    world.write((2, 20))
    world.path.take_proposals()
    world.path.fail_all(Unavailable("stopping"))
    world.path.fail_all(Unavailable("stopping"))
    assert len(world.replies) == 2


def test_a_write_that_no_turn_has_proposed_yet_is_answered_when_the_replica_fails(world: World) -> None:
    world.write((1, 10))
    world.path.fail_all(Unavailable("the disk failed"))
    assert [type(reply) for reply in world.replies] == [Unavailable]


def test_a_new_client_is_pushed_back_while_every_known_one_may_still_retry(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once_results, "CLIENTS_MAX", 1)
    world.write((1, 10))
    world.apply(world.append())
    assert [result.refusal for _, result in world.answers()] == [""]
    world.write((1, 20), client="new")
    assert [type(reply) for reply in world.replies] == [Overloaded] and not world.append()
    world.replies.clear()
    world.now = 101 + exactly_once_results.RESULT_AGE_MAX + 1
    world.write((1, 20), client="new")
    assert not world.replies and len(world.append()) == 1


def test_a_clock_that_cannot_go_on_makes_a_new_client_retry_when_the_table_is_full(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck() -> int:
        raise ClockError("the clock's ceiling cannot be raised")

    monkeypatch.setattr(exactly_once_results, "CLIENTS_MAX", 0)
    monkeypatch.setattr(world.path, "_now", stuck)
    world.results.admit(WritePayload(1, (PayloadClient(ClientId("old"), 1),), (), ()), 100)
    world.write((1, 10))
    assert [type(reply) for reply in world.replies] == [Unavailable]
