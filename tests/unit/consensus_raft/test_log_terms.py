"""The log's term runs and sizes agree with the naive list of entries that they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.spi.ids import ZERO, OpId
from stelae_consensus_raft.entry_sizes import ENTRIES_KEPT_MAX, EntrySizes
from stelae_consensus_raft.log_terms import LogTerms

TERMS = st.lists(st.integers(0, 2), max_size=12)
BASES = st.sampled_from([ZERO, OpId(1, 5), OpId(3, 7)])


def built(base: OpId, steps: list[int]) -> tuple[LogTerms, list[int]]:
    log, terms, term = LogTerms(base, base), [], max(base.term, 1)
    for step in steps:
        term += step
        log.append(term)
        terms.append(term)
        log.validate()
    return log, terms


@given(BASES, TERMS)
def test_every_index_has_the_term_it_was_appended_with(base: OpId, steps: list[int]) -> None:
    log, terms = built(base, steps)
    assert [log.term_at(base.index + 1 + i) for i in range(len(terms))] == terms
    assert log.term_at(base.index) == base.term
    assert log.term_at(base.index - 1) is None
    assert log.term_at(log.last_index + 1) is None


@given(BASES, TERMS, st.integers(0, 12))
def test_collecting_forgets_exactly_what_lies_at_or_below(base: OpId, steps: list[int], count: int) -> None:
    log, terms = built(base, steps)
    count = min(count, len(terms))
    last = log.last
    log.collect(log.op_id_at(base.index + count))
    log.validate()
    assert log.last == last and log.base.index == base.index + count
    assert [log.term_at(base.index + 1 + i) for i in range(count, len(terms))] == terms[count:]
    assert log.term_at(log.base.index - 1) is None
    log.collect(base)
    assert log.base.index == base.index + count, "an older base changes nothing"
    log.append(last.term + 1)
    log.validate()


@given(BASES, TERMS, st.integers(1, 14))
def test_cutting_forgets_exactly_what_lies_at_or_above(base: OpId, steps: list[int], above_base: int) -> None:
    log, terms = built(base, steps)
    log.cut(base.index + above_base)
    log.validate()
    kept = terms[: above_base - 1]
    assert log.last == (OpId(kept[-1], base.index + len(kept)) if kept else base)
    assert LogTerms(base, log.last, log.runs()).runs() == log.runs()


@given(BASES, TERMS, st.integers(0, 25), st.integers(0, 30))
def test_agreement_is_the_last_position_not_above_in_index_and_term(
    base: OpId, steps: list[int], index: int, term: int
) -> None:
    log, terms = built(base, steps)
    positions = [base, *(OpId(t, base.index + 1 + i) for i, t in enumerate(terms))]
    fitting = [p for p in positions if p.index <= index and p.term <= term]
    assert log.agreement(index, term) == (fitting[-1] if fitting else None)


@given(st.lists(st.integers(1, 50), max_size=20), st.data())
def test_sizes_between_positions_are_sums_and_estimates(sizes: list[int], data: st.DataObject) -> None:
    log = EntrySizes(10, estimate=7)
    for size in sizes:
        log.append(size)
    known = [7] * 10 + sizes
    after = data.draw(st.integers(0, len(known)))
    last = data.draw(st.integers(after, len(known)))
    assert log.between(after, last) == sum(known[after:last])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(1, 200), st.data())
def test_a_message_takes_as_many_entries_as_fit_and_at_least_one(
    sizes: list[int], bytes_max: int, data: st.DataObject
) -> None:
    log = EntrySizes(10, estimate=7)
    for size in sizes:
        log.append(size)
    known = [7] * 10 + sizes
    after = data.draw(st.integers(0, len(known) - 1))
    end = log.last_within(after, len(known), bytes_max)
    assert after < end <= len(known)
    assert sum(known[after:end]) <= bytes_max or end == after + 1


@pytest.mark.parametrize("cut_at", [3, 11, 14, 16])
def test_sizes_can_be_cut_and_appended_again(cut_at: int) -> None:
    log = EntrySizes(10, estimate=7)
    for _ in range(5):
        log.append(100)
    log.cut(cut_at)
    log.append(1)
    assert log.between(cut_at - 1, cut_at) == 1
    assert log.between(0, cut_at - 1) == 7 * min(cut_at - 1, 10) + 100 * max(0, cut_at - 11)


def test_the_memory_of_sizes_is_bounded() -> None:
    log = EntrySizes(0, estimate=1)
    for _ in range(3 * ENTRIES_KEPT_MAX):
        log.append(2)
    last = 3 * ENTRIES_KEPT_MAX
    assert log.between(last - 10, last) == 20
    assert len(log._sums) <= 2 * ENTRIES_KEPT_MAX + 1
