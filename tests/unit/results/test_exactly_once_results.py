"""Exactly-once results: one effect, the first answer, the same on every replica (rule 16, C17)."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.host import exactly_once_results as module
from stelae.host.exactly_once_results import CLIENT_AGE_MAX, RESULT_AGE_MAX, ResultsTable
from stelae.spi.errors import Corrupt, PluginError
from stelae.spi.ids import ClientId
from stelae.spi.payload import PayloadClient, PayloadSequenceRange, WritePayload
from stelae.spi.store import RowFault
from stelae.spi.write import Answer, OpResult, RowCode, RowError


def payload(*requests: tuple[str, int, int], first: dict[str, int] | None = None, rows: int = 1) -> WritePayload:
    """Operations as (client, sequence, digest), each a run of its own, of this many rows."""
    names = list(dict.fromkeys(client for client, _, _ in requests))
    return WritePayload(
        1,
        tuple(PayloadClient(ClientId(name), (first or {}).get(name, 1)) for name in names),
        tuple(PayloadSequenceRange(names.index(c), s, (rows,), (d,)) for c, s, d in requests),
        (),
    )


def applied(
    table: ResultsTable, entry: WritePayload, timestamp: int, *faults: RowFault
) -> tuple[set[int], list[OpResult]]:
    admission = table.admit(entry, timestamp)
    return set(admission.skip), flat(table.record(admission, faults))


def flat(answers: list[list[Answer]]) -> list[OpResult]:
    """One result for each operation."""
    return [answer.result for run in answers for answer in run for _ in range(answer.count)]


def run(first: int, digests: Sequence[int], client: str = "a", first_incomplete: int = 1) -> WritePayload:
    """One run of operations of one row each."""
    asked = PayloadSequenceRange(0, first, (1,) * len(digests), tuple(digests))
    return WritePayload(1, (PayloadClient(ClientId(client), first_incomplete),), (asked,), ())


def refusals(answers: Sequence[OpResult]) -> list[str]:
    return [answer.refusal for answer in answers]


def test_a_retry_is_skipped_and_gets_the_first_answer() -> None:
    table = ResultsTable()
    fault = RowFault(1, RowCode.NOT_FOUND)
    skip, first = applied(table, payload(("a", 1, 7), ("b", 1, 8)), 10, fault)
    assert skip == set()
    assert first == [OpResult(10), OpResult(10, (RowError(0, RowCode.NOT_FOUND),))]
    for timestamp in (20, 30):
        retry = payload(("b", 1, 8), ("a", 1, 7))
        assert applied(table, retry, timestamp) == ({0, 1}, first[::-1])


def test_a_retry_within_one_entry_or_one_group_shares_the_answer() -> None:
    table = ResultsTable()
    one = table.admit(payload(("a", 1, 7), ("a", 1, 7)), 10)
    two = table.admit(payload(("a", 1, 7), ("a", 2, 9)), 20)
    assert (set(one.skip), set(two.skip)) == ({1}, {0})
    wrong = OpResult(10, (RowError(0, RowCode.ALREADY_PRESENT),))
    assert flat(table.record(one, [RowFault(0, RowCode.ALREADY_PRESENT)])) == [wrong, wrong]
    assert flat(table.record(two, [])) == [wrong, OpResult(20)]


def test_another_payload_under_a_taken_id_is_an_error_and_not_applied() -> None:
    table = ResultsTable()
    applied(table, payload(("a", 1, 7)), 10)
    skip, answers = applied(table, payload(("a", 1, 8), ("a", 2, 9)), 20)
    assert skip == {0}
    assert refusals(answers) == ["PAYLOAD_MISMATCH", ""]
    assert applied(table, payload(("a", 1, 7)), 30)[1] == [OpResult(10)]


def test_a_sequence_that_its_client_has_moved_past_is_stale_and_never_applied_again() -> None:
    table = ResultsTable()
    applied(table, payload(("a", 1, 7), ("a", 2, 7)), 10)
    applied(table, payload(("a", 5, 7), first={"a": 3}), 20)
    skip, answers = applied(table, payload(("a", 1, 7), ("a", 2, 8), ("a", 3, 9)), 30)
    assert skip == {0, 1}
    assert refusals(answers) == ["STALE_SEQUENCE", "STALE_SEQUENCE", ""]


def test_moving_past_a_sequence_that_never_came_makes_it_stale() -> None:
    table = ResultsTable()
    skip, answers = applied(table, payload(("a", 1, 7), ("a", 4, 7), first={"a": 4}), 10)
    assert (skip, refusals(answers)) == ({0}, ["STALE_SEQUENCE", ""])


def test_a_client_that_jumps_far_ahead_costs_no_walk() -> None:
    table = ResultsTable()
    applied(table, payload(("a", 1, 7), ("a", 2**62, 7)), 10)
    skip, answers = applied(table, payload(("a", 2, 7), ("a", 2**62, 7), first={"a": 2**62}), 20)
    assert skip == {0, 1}
    assert refusals(answers) == ["STALE_SEQUENCE", ""]
    assert answers[1] == OpResult(10)


def test_sequences_may_arrive_in_any_order() -> None:
    table = ResultsTable()
    for sequence in (5, 2, 9, 1):
        assert applied(table, payload(("a", sequence, sequence)), 10)[0] == set()
    assert applied(table, payload(("a", 3, 3)), 10)[0] == set()
    assert applied(table, payload(("a", 9, 9)), 10)[0] == {0}


def test_clients_do_not_share_sequences() -> None:
    table = ResultsTable()
    applied(table, payload(("a", 1, 7)), 10)
    assert applied(table, payload(("b", 1, 8)), 20) == (set(), [OpResult(20)])


def test_faults_go_to_the_rows_as_their_client_sent_them() -> None:
    table = ResultsTable()
    bad = (RowError(0, RowCode.BAD_VALUE, "x"), RowError(2, RowCode.BAD_VALUE, "y"))
    entry = WritePayload(
        1,
        (PayloadClient(ClientId("a"), 1),),
        (
            PayloadSequenceRange(0, 1, (2, 0), (0, 0), ((1, bad[0]),)),
            PayloadSequenceRange(0, 3, (3,), (0,), tuple((0, error) for error in bad)),
            PayloadSequenceRange(0, 4, (1,), (0,)),
        ),
        (),
    )
    missing = RowCode.NOT_FOUND
    faults = [RowFault(row, missing) for row in (1, 2, 4, 5)]
    _, answers = applied(table, entry, 10, *faults)
    assert [[(e.row, e.code) for e in a.errors] for a in answers] == [
        [(1, missing)],
        [(0, RowCode.BAD_VALUE)],
        [(0, RowCode.BAD_VALUE), (1, missing), (2, RowCode.BAD_VALUE), (4, missing)],
        [(0, missing)],
    ]
    assert applied(table, entry, 20) == ({0, 1, 2, 3}, answers)


def test_results_expire_by_the_timestamps_of_entries_and_are_stale_then() -> None:
    table = ResultsTable()
    applied(table, payload(("a", 2, 7)), 1000)
    at_the_age = 1000 + RESULT_AGE_MAX
    assert applied(table, payload(("a", 2, 7)), at_the_age) == ({0}, [OpResult(1000)])
    skip, answers = applied(table, payload(("a", 2, 7), ("a", 3, 7)), at_the_age + 1)
    assert (skip, refusals(answers)) == ({0}, ["STALE_SEQUENCE", ""])


def test_silent_clients_are_forgotten_and_busy_ones_are_not() -> None:
    table = ResultsTable()
    applied(table, payload(("silent", 1, 7), ("busy", 1, 7)), 0)
    for step in range(1, 8):
        applied(table, payload(("busy", 1 + step, 7)), step * CLIENT_AGE_MAX // 6)
    assert b"silent" not in table.dump()
    assert b"busy" in table.dump()
    assert applied(table, payload(("busy", 8, 7)), 2 * CLIENT_AGE_MAX - 9)[0] == {0}


def test_too_many_results_of_one_client_push_out_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESULTS_PER_CLIENT_MAX", 8)
    table = ResultsTable()
    for sequence in range(1, 10):
        applied(table, payload(("a", sequence, 7)), sequence)
    _, answers = applied(table, payload(*(("a", s, 7) for s in range(1, 10))), 20)
    assert refusals(answers) == ["STALE_SEQUENCE"] * 2 + [""] * 7


def test_too_many_clients_push_out_one_that_is_silent_too_long_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 2)
    table = ResultsTable()
    for place, name in enumerate(("a", "b", "a", "c")):
        applied(table, payload((name, place + 1, 7)), place)
    assert [name in table.dump() for name in (b"a", b"b", b"c")] == [True, True, True]
    applied(table, payload(("a", 9, 7)), RESULT_AGE_MAX + 2)
    assert [name in table.dump() for name in (b"a", b"b", b"c")] == [True, False, True]


def test_a_leader_has_no_room_for_a_new_client_while_every_known_one_may_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 2)
    table = ResultsTable()
    for place, name in enumerate(("a", "b")):
        assert table.has_room_for(ClientId(name), lambda: 0)
        applied(table, payload((name, 1, 7)), place)
    assert table.has_room_for(ClientId("a"), lambda: 5)
    assert not table.has_room_for(ClientId("c"), lambda: RESULT_AGE_MAX)
    assert table.has_room_for(ClientId("c"), lambda: RESULT_AGE_MAX + 1)


def test_a_leader_answers_what_is_known_and_nothing_that_is_not_recorded_yet() -> None:
    table = ResultsTable()
    client = ClientId("a")
    assert table.answer(client, 1, 7) is None
    admission = table.admit(payload(("a", 1, 7), first={"a": 1}), 10)
    assert table.answer(client, 1, 7) is None
    table.record(admission, [RowFault(0, RowCode.NOT_FOUND)])
    assert table.answer(client, 1, 7) == OpResult(10, (RowError(0, RowCode.NOT_FOUND),))
    assert table.answer(client, 2, 7) is None
    found = [table.answer(client, 1, 8)]
    applied(table, payload(("a", 3, 7), first={"a": 3}), 20)
    found.append(table.answer(client, 1, 7))
    assert [f.refusal for f in found if f is not None] == ["PAYLOAD_MISMATCH", "STALE_SEQUENCE"]


def test_a_run_is_answered_as_one_where_its_operations_share_a_result() -> None:
    table = ResultsTable()
    fine = table.admit(run(1, [7] * 5), 10)
    assert table.record(fine, []) == [[Answer(1, 5, OpResult(10))]]
    faulty = table.admit(run(6, [7] * 4), 20)
    wrong = OpResult(20, (RowError(0, RowCode.NOT_FOUND),))
    told = [Answer(6, 2, OpResult(20)), Answer(8, 1, wrong), Answer(9, 1, OpResult(20))]
    assert table.record(faulty, [RowFault(2, RowCode.NOT_FOUND)]) == [told]
    again = table.admit(run(6, [7] * 4), 30)
    assert (set(again.skip), table.record(again, [])) == ({0, 1, 2, 3}, [told])


def test_many_faults_of_one_operation_cost_as_much_each_as_few() -> None:
    def handled(rows: int) -> tuple[int, list[OpResult]]:
        table = ResultsTable()
        bad = tuple((0, RowError(row, RowCode.BAD_VALUE)) for row in range(0, 2 * rows, 2))
        asked = PayloadSequenceRange(0, 1, (rows,), (7,), bad)
        entry = WritePayload(1, (PayloadClient(ClientId("a"), 1),), (asked,), ())
        admission = table.admit(entry, 10)
        steps = 0

        def count(*_: object) -> None:
            nonlocal steps
            steps += 1

        sys.settrace(lambda *_: (count(), lambda *_: count())[1])
        try:
            answers = table.record(admission, [RowFault(row, RowCode.NOT_FOUND) for row in range(rows)])
        finally:
            sys.settrace(None)
        return steps, flat(answers)

    (few, _), (many, (answer,)) = handled(200), handled(2000)
    assert many < 15 * few, "ten times the rows, and not a hundred times the work"
    assert [(error.row, error.code.name) for error in answer.errors[:3]] == [
        (0, "BAD_VALUE"),
        (1, "NOT_FOUND"),
        (2, "BAD_VALUE"),
    ]
    assert [error.row for error in answer.errors] == list(range(4000))


@pytest.mark.parametrize("rows", [[2], [1, 0], [-1]])
def test_faults_that_no_operation_owns_are_the_stores_defect(rows: list[int]) -> None:
    table = ResultsTable()
    admission = table.admit(run(1, [7, 7]), 10)
    with pytest.raises(PluginError, match="not a row of the entry"):
        table.record(admission, [RowFault(row, RowCode.NOT_FOUND) for row in rows])


def test_of_a_run_that_was_taken_in_part_the_rest_is_taken() -> None:
    table = ResultsTable()
    table.record(table.admit(run(2, [7, 7]), 10), [])
    mixed = table.admit(run(1, [7, 7, 8, 7]), 20)
    assert set(mixed.skip) == {1, 2}
    answers = flat(table.record(mixed, [RowFault(3, RowCode.NOT_FOUND)]))
    assert refusals(answers) == ["", "", "PAYLOAD_MISMATCH", ""]
    assert [answer.timestamp for answer in answers] == [20, 10, 0, 20]
    assert [len(answer.errors) for answer in answers] == [0, 0, 0, 1]


def test_a_run_that_begins_below_what_its_client_has_seen_is_stale_up_to_there() -> None:
    table = ResultsTable()
    skip, answers = applied(table, run(1, [7] * 4, first_incomplete=3), 10)
    assert (skip, refusals(answers)) == ({0, 1}, ["STALE_SEQUENCE"] * 2 + [""] * 2)


def test_a_leader_knows_a_run_when_it_knows_any_of_it() -> None:
    table = ResultsTable()
    client = ClientId("a")
    assert not table.knows(client, range(1, 9))
    table.record(table.admit(run(4, [7, 7]), 10), [])
    assert [table.knows(client, range(*ends)) for ends in ((1, 4), (1, 5), (5, 9), (6, 9))] == [
        False,
        True,
        True,
        False,
    ]
    table.record(table.admit(run(6, [7], first_incomplete=6), 20), [])
    assert table.knows(client, range(5, 6)) and not table.knows(ClientId("b"), range(1, 9))


def test_an_open_admission_cannot_be_dumped() -> None:
    table = ResultsTable()
    admission = table.admit(payload(("a", 1, 7)), 10)
    with pytest.raises(RuntimeError, match="not recorded"):
        table.dump()
    table.record(admission, [])
    assert table.dump()


def random_history(seed: int, count: int = 60) -> list[tuple[WritePayload, int]]:
    rng = random.Random(seed)
    history, now = [], 0
    for _ in range(count):
        now += int(rng.random() ** 4 * RESULT_AGE_MAX)
        requests = [
            (f"c{int(rng.random() * 4)}", 1 + int(rng.random() * 20), int(rng.random() * 2))
            for _ in range(1 + int(rng.random() * 5))
        ]
        first = {f"c{n}": 1 + int(rng.random() ** 3 * 20) for n in range(4)}
        if rng.random() < 0.5:
            history.append((payload(*requests, first=first), now))
        else:
            digests = [int(rng.random() * 2) for _ in range(1 + int(rng.random() * 6))]
            history.append((run(requests[0][1], digests, requests[0][0], first[requests[0][0]]), now))
    return history


@given(st.integers(0, 10_000), st.integers(0, 60))
def test_equal_histories_give_equal_bytes_wherever_they_were_cut_and_loaded(seed: int, cut: int) -> None:
    whole, parts = ResultsTable(), ResultsTable()
    for place, (entry, timestamp) in enumerate(random_history(seed)):
        if place == cut:
            parts = ResultsTable.load(parts.dump())
        assert applied(whole, entry, timestamp) == applied(parts, entry, timestamp)
        assert whole.dump() == parts.dump()


@given(st.integers(0, 10_000))
def test_groups_of_any_size_leave_the_same_table(seed: int) -> None:
    single, grouped = ResultsTable(), ResultsTable()
    history = random_history(seed)
    for entry, timestamp in history:
        applied(single, entry, timestamp, *([RowFault(0, RowCode.NOT_FOUND)]))
    for start in range(0, len(history), 7):
        group = [grouped.admit(entry, timestamp) for entry, timestamp in history[start : start + 7]]
        for admission in group:
            grouped.record(admission, [RowFault(0, RowCode.NOT_FOUND)])
    assert single.dump() == grouped.dump()


@given(st.integers(0, 10_000))
def test_no_id_is_ever_applied_twice(seed: int) -> None:
    table = ResultsTable()
    taken: set[tuple[str, int]] = set()
    for entry, timestamp in random_history(seed):
        if timestamp > CLIENT_AGE_MAX:
            break
        admission = table.admit(entry, timestamp)
        named = [
            (entry.clients[asked.client].client_id, asked.first_sequence + place)
            for asked in entry.sequences
            for place in range(len(asked.digests))
        ]
        for number, identity in enumerate(named):
            if number not in admission.skip:
                assert identity not in taken
                taken.add(identity)
        table.record(admission, [])


def test_equal_bytes_under_another_hash_seed() -> None:
    script = (
        "from tests.unit.results.test_exactly_once_results import *\n"
        "table = ResultsTable()\n"
        "for entry, timestamp in random_history(3):\n"
        "    applied(table, entry, timestamp)\n"
        "print(table.dump().hex())"
    )
    outputs = set()
    for hash_seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
        outputs.add(
            subprocess.run(
                [sys.executable, "-c", script], env=environment, check=True, capture_output=True, timeout=60
            ).stdout
        )
    assert len(outputs) == 1


@pytest.mark.parametrize("data", [b"\xc0", b"\x92\x02\x90", b"\x92\x01\x91\xc0", b"x" * 30])
def test_bytes_that_are_no_dump_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        ResultsTable.load(data)


def test_no_bytes_are_an_empty_table() -> None:
    assert ResultsTable.load(b"").dump() == ResultsTable().dump()
