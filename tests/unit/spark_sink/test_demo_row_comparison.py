"""What ``stelae spark demo`` finds in the rows that it reads."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.local.demo_source import DemoSource
from stelae_spark_sink.demo.row_comparison import RowComparison

ROWS = [(1, "a"), (2, "b"), (3, None)]
SOURCE = DemoSource(name="three", table="t", columns=({"name": "id"}, {"name": "text"}), key=("id",), rows=ROWS)


def test_equal_rows_in_any_order_and_in_two_steps_have_no_difference() -> None:
    comparison = RowComparison(SOURCE)
    rows = iter(reversed(ROWS))
    comparison.take(rows, 1)
    assert (comparison.read, comparison.missing) == (1, 2)
    comparison.take(rows)
    assert (comparison.read, comparison.wrong, comparison.missing, comparison.all_examples()) == (3, 0, 0, [])


@pytest.mark.parametrize(
    ("rows", "wrong", "missing", "example"),
    [
        (ROWS[:2], 0, 1, "missing: (3, None)"),
        ([*ROWS, (2, "b")], 1, 0, "read (2, 'b') where the source has None"),
        ([*ROWS, (4, "d")], 1, 0, "read (4, 'd') where the source has None"),
        ([(1, "a"), (2, "x"), (3, None)], 1, 0, "read (2, 'x') where the source has (2, 'b')"),
        ([(1, "a"), (2, "b"), (3, "")], 1, 0, "read (3, '') where the source has (3, None)"),
        ([], 0, 3, "missing: (1, 'a')"),
    ],
)
def test_a_row_that_is_lost_doubled_or_changed_is_counted_and_shown(
    rows: list[tuple[Any, ...]], wrong: int, missing: int, example: str
) -> None:
    comparison = RowComparison(SOURCE)
    comparison.take(iter(rows))
    assert (comparison.wrong, comparison.missing) == (wrong, missing)
    assert comparison.all_examples()[0] == example
