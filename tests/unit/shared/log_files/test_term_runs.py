"""Terms by runs: what a log of replaced suffixes says of the term of each index."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stelae_shared.log_files.term_runs import TermRuns


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), max_size=12))
def test_terms_by_runs_are_terms_by_index(replacements: list[tuple[int, int]]) -> None:
    runs, expected = TermRuns(), dict[int, int]()
    for term, (start, count) in enumerate(replacements, start=1):
        first = min(start, len(expected) + 1)
        runs.cut(first)
        expected = {index: known for index, known in expected.items() if index < first}
        for index in range(first, first + count):
            runs.add(index, term)
            expected[index] = term
        assert {index: runs.term_at(index) for index in expected} == expected
        assert list(TermRuns(list(runs))) == list(runs)
        assert len(runs) == len(set(expected.values()))
    below = len(expected) // 2
    runs.forget_below(below + 1)
    assert all(runs.term_at(i) == known for i, known in expected.items() if i > below)


def test_equal_terms_of_two_parts_make_one_run() -> None:
    runs = TermRuns([(1, 1), (4, 2)])
    runs.extend(TermRuns([(6, 2), (8, 3)]))
    assert list(runs) == [(1, 1), (4, 2), (8, 3)]


def test_only_runs_that_end_below_an_index_are_forgotten() -> None:
    runs = TermRuns([(1, 1), (4, 2), (8, 3)])
    runs.forget_below(7)
    assert list(runs) == [(4, 2), (8, 3)]
    runs.forget_below(8)
    assert list(runs) == [(8, 3)]
