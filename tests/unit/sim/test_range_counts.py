"""Which writes share a request, and what is counted about their sequence ranges."""

from __future__ import annotations

import random

from stelae.sim.coverage import Coverage
from stelae.sim.history import AnswerKind, ClientAction, ClientOperation, HistoryRow
from stelae.sim.range_counts import count_answered, count_applied, count_sent
from stelae.sim.request_grouping import REACH_MAX, neighbours
from stelae.spi.ids import ClientId
from stelae.spi.payload import PayloadClient, PayloadSequenceRange, WritePayload
from stelae.spi.write import OpKind, SequenceRange


def writes(*sequences: int) -> dict[int, ClientOperation]:
    return {
        n: ClientOperation(client="c", sequence=n, action=ClientAction.UPSERT, rows=(HistoryRow(1, "v"),))
        for n in sequences
    }


def run_of(first: int, count: int) -> SequenceRange:
    return SequenceRange(first, OpKind.UPSERT, None, [None] * count)  # type: ignore[list-item]


def payload(*counts: int) -> WritePayload:
    runs = [PayloadSequenceRange(0, 1 + 10 * n, (1,) * count, (0,) * count) for n, count in enumerate(counts)]
    return WritePayload(1, (PayloadClient(ClientId("c"), 1),), tuple(runs), ())


def test_neighbours_are_consecutive_and_stop_at_a_gap() -> None:
    known = writes(1, 3, 4, 5, 6, 8, 9)
    seen = set()
    for seed in range(200):
        found = [operation.sequence for operation in neighbours(known, known[5], random.Random(seed))]
        assert found == list(range(found[0], found[-1] + 1))
        assert 5 in found
        seen.add((found[0], found[-1]))
    assert seen == {(first, last) for first in (3, 4, 5) for last in (5, 6)}


def test_neighbours_reach_only_so_far() -> None:
    known = writes(*range(1, 40))
    lengths = {len(neighbours(known, known[20], random.Random(seed))) for seed in range(300)}
    assert lengths == set(range(1, 2 * REACH_MAX + 2))


def test_an_operation_with_another_payload_replaces_the_one_with_its_identity() -> None:
    known, imposed = writes(1, 2, 3), writes(2)[2]
    for seed in range(20):
        batch = neighbours(known, imposed, random.Random(seed))
        assert imposed in batch
        assert known[2] not in batch


def test_a_range_counts_as_regrouped_if_one_of_its_operations_was_sent_in_another_range_before() -> None:
    coverage, known = Coverage(), writes(1, 2, 3)
    count_sent(coverage, [known[1], known[2]], [run_of(1, 2)])
    count_sent(coverage, [known[1], known[2]], [run_of(1, 2)])
    assert coverage.as_dict() == {}
    count_sent(coverage, [*known.values()], [run_of(1, 3)])
    count_sent(coverage, [known[2]], [run_of(2, 1)])
    assert coverage.as_dict() == {"range.regrouped": 2}


def test_only_ranges_of_several_operations_count_as_partly_known_or_faulty() -> None:
    coverage = Coverage()
    count_applied(coverage, payload(1, 1), frozenset({0}), frozenset({1}))
    assert coverage.as_dict() == {}
    count_applied(coverage, payload(1, 2), frozenset({1, 2}), frozenset({1, 2}))
    assert coverage.as_dict() == {"range.several": 1}
    count_applied(coverage, payload(2, 3), frozenset({0, 1, 4}), frozenset({1}))
    assert coverage.as_dict() == {"range.fault_within": 1, "range.partly_known": 1, "range.several": 3}


def test_a_range_is_partly_stale_if_some_but_not_all_answers_are_stale() -> None:
    coverage = Coverage()
    stale, done = AnswerKind.STALE, AnswerKind.DONE
    count_answered(coverage, [run_of(1, 2)], {1: stale, 2: stale})
    count_answered(coverage, [run_of(1, 2), run_of(3, 1)], {1: done, 2: done, 3: stale})
    assert coverage.as_dict() == {}
    count_answered(coverage, [run_of(1, 2)], {1: stale, 2: done})
    assert coverage.as_dict() == {"range.partly_stale": 1}
