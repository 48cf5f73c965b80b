"""Reads of counters: too low, too high, and back."""

from __future__ import annotations

from stelae_chaos.counter_check import CountedRow, check_counted, check_counters
from stelae_chaos.operations import CounterRead, Increment
from tests.unit.chaos.histories import DONE, REFUSED, UNKNOWN, counted, increment


def facts(increments: list[Increment], reads: list[CounterRead]) -> list[str]:
    return [finding.fact for finding in check_counters(increments, reads)]


def test_a_count_is_between_the_acknowledged_and_the_possible_increments() -> None:
    increments = [increment(1, 2), increment(3, 4, UNKNOWN), increment(5, 6, REFUSED)]
    assert facts(increments, [counted(7, 8, 1), counted(7, 8, 2)]) == []


def test_an_increment_that_overlaps_a_read_may_count() -> None:
    assert facts([increment(1, 4)], [counted(2, 3, 0), counted(2, 3, 1)]) == []


def test_a_lost_increment_is_found() -> None:
    (fact,) = facts([increment(1, 2), increment(3, 4)], [counted(5, 6, 1)])
    assert "counted 1; 2 were acknowledged" in fact


def test_a_refused_increment_that_counts_is_found() -> None:
    (fact,) = facts([increment(1, 2, REFUSED)], [counted(5, 6, 1)])
    assert "at most 0" in fact


def test_a_counter_that_goes_back_is_found_though_both_counts_are_possible() -> None:
    (fact,) = facts([increment(1, 9)], [counted(2, 3, 1), counted(4, 5, 0)])
    assert fact == "the counter went back from 1 to 0"


def test_two_reads_at_the_same_time_have_no_order() -> None:
    assert facts([increment(1, 9)], [counted(2, 5, 1), counted(3, 4, 0)]) == []


def test_an_increment_whose_row_exists_took_effect_twice() -> None:
    """Its row counts, so the count is no finding of its own."""
    (fact,) = facts([increment(1, 2, DONE, "ALREADY_PRESENT")], [counted(3, 4, 1)])
    assert "twice" in fact


def counted_rows(*numbers: int) -> list[CountedRow]:
    return [CountedRow(3, 0, number) for number in numbers]


def test_an_increment_that_is_lost_beside_one_of_unknown_outcome_is_found_in_the_rows() -> None:
    """The count alone is possible: one increment was acknowledged, and one row is there."""
    increments = [increment(1, 2), increment(3, 4, UNKNOWN)]
    assert facts(increments, [counted(5, 6, 1)]) == []
    (finding,) = check_counted(increments, counted_rows(30))
    assert (finding.key, finding.fact) == ("counter 3", "the acknowledged increment 0/10 is lost")
    assert check_counted(increments, counted_rows(10)) == check_counted(increments, counted_rows(10, 30)) == []


def test_a_row_that_is_doubled_refused_or_from_nowhere_is_found() -> None:
    increments = [increment(1, 2), increment(3, 4, REFUSED)]
    rows = [*counted_rows(10, 10, 30), CountedRow(4, 0, 10)]
    assert [finding.fact for finding in check_counted(increments, rows)] == [
        "the row of increment 0/10 is there 2 times",
        "the row of increment 0/30 is there although it was refused",
        "no client inserted the row 0/10",
    ]
