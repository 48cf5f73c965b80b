"""Epochs of sources: a later epoch shuts out the earlier ones, on every replica alike, for seven days."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.host import source_epochs as module
from stelae.host.exactly_once_results import ResultsTable
from stelae.host.source_epochs import ENDED_AGE_MAX, SOURCE_AGE_MAX, SourceEpochs
from stelae.spi.errors import BadIdentifier, CallerError
from stelae.spi.ids import ClientId, SourceId
from stelae.spi.payload import PayloadClient, PayloadSequenceRange, WritePayload, decode_payload, encode_payload
from stelae.spi.write import EPOCH_LAST, OpResult, SourceFence, checked_fence

JOB = SourceId("nightly load")


def fence(epoch: int, source: str = JOB) -> SourceFence:
    return SourceFence(SourceId(source), epoch)


def entry(*operations: tuple[int, SourceFence | None]) -> WritePayload:
    """One entry of one client: operations as (sequence, fence), each a range of its own."""
    ranges = tuple(PayloadSequenceRange(0, sequence, (0,), (sequence,), (), found) for sequence, found in operations)
    return WritePayload(1, (PayloadClient(ClientId("c"), 1),), ranges, ())


def applied(table: ResultsTable, payload: WritePayload, timestamp: int) -> tuple[set[int], list[OpResult]]:
    admission = table.admit(payload, timestamp)
    answers = table.record(admission, [])
    return set(admission.skip), [answer.result for run in answers for answer in run for _ in range(answer.count)]


def test_a_later_epoch_shuts_out_the_earlier_ones_and_no_other_source() -> None:
    table = ResultsTable()
    assert applied(table, entry((1, fence(4)), (2, fence(5))), 10)[0] == set()
    skip, answers = applied(table, entry((3, fence(4)), (4, fence(5)), (5, fence(1, "other")), (6, None)), 20)
    assert skip == {0}
    assert [answer.refusal for answer in answers] == ["STALE_EPOCH", "", "", ""]
    assert f"the epoch of source {JOB!r} is over" in answers[0].detail


def test_operations_of_one_entry_are_judged_in_their_order() -> None:
    table = ResultsTable()
    skip, _ = applied(table, entry((1, fence(4)), (2, fence(5)), (3, fence(4))), 10)
    assert skip == {2}


def test_a_retry_gets_its_first_answer_although_its_epoch_is_over() -> None:
    table = ResultsTable()
    applied(table, entry((1, fence(4))), 10)
    applied(table, entry((2, fence(5))), 20)
    assert applied(table, entry((1, fence(4))), 30) == ({0}, [OpResult(10)])


def test_an_operation_that_is_refused_for_its_schema_begins_no_epoch() -> None:
    table = ResultsTable()
    admission = table.admit(entry((1, fence(5))), 10, OpResult(0, (), "SCHEMA_MISMATCH"))
    table.record(admission, [])
    assert table.sources.epoch_of(JOB) is None
    assert applied(table, entry((2, fence(4))), 20)[0] == set()


def test_epochs_are_saved_with_the_results() -> None:
    table = ResultsTable()
    applied(table, entry((1, fence(4)), (2, fence(7, "other"))), 10)
    loaded = ResultsTable.load(table.dump())
    assert [loaded.sources.epoch_of(SourceId(name)) for name in (JOB, "other", "none")] == [4, 7, None]
    assert loaded.dump() == table.dump()
    assert applied(loaded, entry((3, fence(3))), 20)[0] == {0}


def test_a_source_is_forgotten_seven_days_after_its_last_entry_and_not_before() -> None:
    sources = SourceEpochs()
    sources.admit(fence(4), 10)
    sources.admit(fence(1, "other"), 20)
    sources.admit(fence(4), 30)
    sources.admit(fence(2, "other"), 30 + SOURCE_AGE_MAX)
    assert (sources.epoch_of(JOB), sources.epoch_of(SourceId("other"))) == (4, 2)
    sources.admit(fence(2, "other"), 31 + SOURCE_AGE_MAX)
    assert sources.epoch_of(JOB) is None
    assert sources.admit(fence(0), 32 + SOURCE_AGE_MAX) is None


def test_more_sources_than_a_tablet_remembers_are_refused_until_one_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SOURCES_MAX", 2)
    sources = SourceEpochs()
    sources.admit(fence(1, "a"), 10)
    assert sources.have_room_for([fence(1, "new")], lambda: 11)
    sources.admit(fence(1, "b"), 11)
    assert not sources.have_room_for([fence(1, "new")], lambda: 12)
    assert sources.have_room_for([None, fence(2, "a")], lambda: 12)
    assert sources.have_room_for([fence(1, "new")], lambda: 11 + SOURCE_AGE_MAX)


def test_a_source_that_has_ended_is_forgotten_a_day_later_and_not_before() -> None:
    sources = SourceEpochs()
    sources.admit(fence(4), 10)
    sources.admit(fence(EPOCH_LAST), 20)
    sources.admit(fence(1, "other"), 20 + ENDED_AGE_MAX)
    assert sources.admit(fence(5), 20 + ENDED_AGE_MAX) is not None, "no epoch follows the last one"
    sources.admit(fence(1, "other"), 21 + ENDED_AGE_MAX)
    assert (sources.epoch_of(JOB), sources.epoch_of(SourceId("other"))) == (None, 1)


def test_sources_that_have_ended_make_room_a_day_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCES_MAX", 2)
    sources = SourceEpochs()
    sources.admit(fence(1, "a"), 10)
    sources.admit(fence(EPOCH_LAST, "b"), 11)
    assert sources.have_room_for([fence(EPOCH_LAST, "b")], lambda: 12)
    assert not sources.have_room_for([fence(1, "new")], lambda: 11 + ENDED_AGE_MAX)
    assert sources.have_room_for([fence(1, "new")], lambda: 12 + ENDED_AGE_MAX)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from([0, 1, 2, 3, EPOCH_LAST]),
            st.sampled_from([0, 1, ENDED_AGE_MAX // 2, ENDED_AGE_MAX, SOURCE_AGE_MAX // 2, SOURCE_AGE_MAX]),
        ),
        max_size=30,
    ),
    st.integers(0, 30),
)
def test_a_replica_that_starts_again_anywhere_decides_as_one_that_does_not(
    steps: list[tuple[str, int, int]], restart: int
) -> None:
    lasting, restarted = SourceEpochs(), SourceEpochs()
    now = 0
    for number, (source, epoch, later) in enumerate(steps):
        now += later
        if number == restart:
            restarted = SourceEpochs.load(restarted.dump())
        assert lasting.admit(fence(epoch, source), now) == restarted.admit(fence(epoch, source), now)
    assert lasting.dump() == restarted.dump()


def test_the_fence_of_an_operation_is_in_its_log_entry() -> None:
    payload = entry((1, fence(4)), (2, None))
    assert decode_payload(encode_payload(payload)).sequences == payload.sequences


@pytest.mark.parametrize("epoch", [-1, 1 << 63, True, 1.0, "1", None])
def test_an_epoch_that_is_no_number_is_refused(epoch: object) -> None:
    with pytest.raises(CallerError, match="an epoch is an integer from 0 to"):
        checked_fence(JOB, epoch)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["", "a\nb", "x" * 201, "\0"])
def test_a_source_that_cannot_be_printed_is_refused(source: str) -> None:
    with pytest.raises(BadIdentifier, match="1 to 200 printable characters"):
        checked_fence(source, 1)
