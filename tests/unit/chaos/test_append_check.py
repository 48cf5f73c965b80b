"""Rows with new keys: lost, doubled, refused and unknown ones."""

from __future__ import annotations

import pytest

from stelae_chaos.append_check import AppendedRow, check_appends, text_of
from stelae_chaos.operations import AppendCall
from tests.unit.chaos.histories import DONE, REFUSED, UNKNOWN, append


def row(number: int) -> AppendedRow:
    return AppendedRow(0, number, text_of(0, number))


def test_acknowledged_rows_are_there_and_those_of_unknown_outcome_may_be() -> None:
    asked = [append(1), append(2, UNKNOWN), append(3, UNKNOWN), append(4, REFUSED)]
    assert check_appends(asked, [row(1), row(2)]) == []


@pytest.mark.parametrize(
    ("asked", "rows", "fact"),
    [
        (append(1), [], "lost"),
        (append(1), [row(1), row(1)], "2 times"),
        (append(1, DONE, "ALREADY_PRESENT"), [row(1)], "took effect twice"),
        (append(1, REFUSED, "OVERLOADED"), [row(1)], "although its insert was refused"),
        (append(1, UNKNOWN), [row(1), row(2)], "no client inserted"),
        (append(1), [AppendedRow(0, 1, "other")], "was not sent"),
    ],
    ids=["lost", "twice", "doubled insert", "refused", "from nowhere", "other text"],
)
def test_a_wrong_row_is_found(asked: AppendCall, rows: list[AppendedRow], fact: str) -> None:
    (finding,) = check_appends([asked], rows)
    assert fact in finding.fact
    assert finding.key.startswith("row 0/")
