"""Predicates on rows: nulls, NaN, prefixes, and what has no meaning."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.rows.predicate_filter import filter_rows
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Compare, In, IsNull, Predicate, Prefix

NAN = float("nan")
ID, NAME, SCORE = 1, 2, 3
SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "name", "type": "string", "nullable": True},
            {"name": "score", "type": "double", "nullable": True},
        ],
        "key": ["id"],
    }
)
ROWS = [(1, "ab", 1.0), (2, "b", NAN), (3, None, None), (4, "", -1.0)]
ZEROS = [(1, "", 0.0), (2, "", -0.0), (3, "", NAN), (4, None, None)]


def ids(*predicates: Predicate) -> list[int]:
    batch = RowBatch.from_equal_rows(SCHEMA.layout, ROWS)
    return [row[0] for row in filter_rows(SCHEMA, predicates, batch).to_rows()]


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        (Compare(ID, ">=", 3), [3, 4]),
        (Compare(NAME, "=", "b"), [2]),
        (Compare(NAME, "!=", "b"), [1, 4]),
        (Compare(NAME, "<", "b"), [1, 4]),
        (Compare(SCORE, "=", NAN), []),
        (Compare(SCORE, "!=", 1.0), [2, 4]),
        (Compare(SCORE, "<=", 1.0), [1, 4]),
        (Compare(SCORE, ">", -2.0), [1, 4]),
        (In(NAME, ("ab", "")), [1, 4]),
        (In(ID, ()), []),
        (In(SCORE, (NAN,)), []),
        (In(SCORE, (NAN, 1)), [1]),
        (IsNull(NAME), [3]),
        (IsNull(SCORE, negated=True), [1, 2, 4]),
        (Prefix(NAME, "a"), [1]),
        (Prefix(NAME, ""), [1, 2, 4]),
    ],
)
def test_a_predicate_keeps_the_rows_for_which_it_holds(predicate: Predicate, found: list[int]) -> None:
    assert ids(predicate) == found


@pytest.mark.parametrize("value", [0.0, -0.0, 0, NAN])
def test_a_list_holds_for_what_one_of_its_values_equals(value: float) -> None:
    """A list with zero passed over minus zero, and one with NaN held for it."""
    batch = RowBatch.from_equal_rows(SCHEMA.layout, ZEROS)
    equal = filter_rows(SCHEMA, [Compare(SCORE, "=", value)], batch).arrow
    assert filter_rows(SCHEMA, [In(SCORE, (value,))], batch).arrow.equals(equal)
    assert filter_rows(SCHEMA, [In(SCORE, (7, value))], batch).arrow.equals(equal)
    assert len(equal) == (2 if value == value else 0)


def test_all_predicates_hold_for_a_row_that_is_kept() -> None:
    assert ids() == [1, 2, 3, 4]
    assert ids(Compare(ID, ">", 1), Prefix(NAME, "")) == [2, 4]


@pytest.mark.parametrize(
    "predicate",
    [Compare(9, "=", 1), Compare(ID, "=", "1"), Compare(NAME, "=", None), In(ID, (1, None)), Prefix(ID, "1")],
)
def test_a_predicate_without_meaning_for_the_schema_is_refused(predicate: Any) -> None:
    with pytest.raises(SchemaMismatch):
        ids(predicate)
