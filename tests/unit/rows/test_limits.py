"""What schemas are held to, and the range of dates and times."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from stelae.rows.limits import RANGES, LimitSettings, out_of_range
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import to_array
from stelae.spi.schema import Column, Schema

LIMITS = LimitSettings(columns_max=3, cell_bytes_max=100)


def schema(*more: dict[str, Any]) -> Schema:
    return schema_from_plain({"columns": [{"name": "k", "type": "int64"}, *more], "key": ["k"]})


def empty(count: int) -> list[dict[str, Any]]:
    return [{"name": f"c{n}", "type": "string", "nullable": True} for n in range(count)]


def test_a_schema_of_too_many_columns_is_refused_with_both_numbers() -> None:
    LIMITS.check_schema(schema(*empty(2)))
    with pytest.raises(
        SchemaMismatch, match=r"^the schema has 4 columns; at most 3 are accepted \(columns_max in .*: use fewer"
    ):
        LIMITS.check_schema(schema(*empty(3)))


def test_what_was_let_in_under_another_limit_may_change_but_not_grow() -> None:
    wide = schema(*empty(5))
    LIMITS.check_schema(wide, wide)
    LIMITS.check_schema(schema(*empty(4)), wide)
    with pytest.raises(SchemaMismatch, match=r"^the schema has 7 columns; at most 3"):
        LIMITS.check_schema(schema(*empty(6)), wide)


BAD_DEFAULTS = [
    ("int8", 300),
    ("int64", 1 << 63),
    ("float", 1e300),
    ("decimal(4,2)", "abc"),
    ("decimal(4,2)", "1.234"),
    ("date", 1 << 30),
    ("date", 1 << 40),
    ("timestamp", RANGES["timestamp"][1] + 1),
    ("string", "\u00e9" * 51),
    ("string", "\ud800"),
    ("binary", bytes(101)),
]


@pytest.mark.parametrize(("kind", "default"), BAD_DEFAULTS, ids=lambda value: repr(value)[:20])
def test_a_default_that_no_row_could_have_is_refused_before_a_row_needs_it(kind: str, default: Any) -> None:
    """It was taken, logged and acknowledged; the first row without a value then failed the tablet for good."""
    wrong = schema({"name": "c", "type": kind, "default": default})
    with pytest.raises(SchemaMismatch, match="column 'c'"):
        LIMITS.check_schema(wrong)
    LIMITS.check_schema(wrong, wrong)


@pytest.mark.parametrize(
    ("kind", "default"),
    [("int8", -128), ("double", 1), ("decimal(4,2)", "-99.99"), ("date", 0), ("string", "x" * 100), ("bool", False)],
)
def test_a_default_that_a_row_could_have_is_taken(kind: str, default: Any) -> None:
    LIMITS.check_schema(schema({"name": "c", "type": kind, "default": default}))


def test_the_range_of_dates_and_times_is_that_of_python() -> None:
    at, day = Column(id=1, name="at", type="timestamp"), Column(id=1, name="day", type="date")
    ends = to_array(at, [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
    assert tuple(ends.view(pa.int64()).to_pylist()) == RANGES["timestamp"]
    days = to_array(day, [date.min, date.max])
    assert tuple(days.view(pa.int32()).to_pylist()) == RANGES["date"]
    assert out_of_range(at, ends) == out_of_range(day, days) == []


def test_values_out_of_range_are_found_among_nulls_and_in_a_slice() -> None:
    day, at = Column(id=1, name="day", type="date", nullable=True), Column(id=1, name="at", type="timestamp")
    values = pa.array([1 << 30, None, 0, 1 << 30, -(1 << 30)], pa.date32())
    assert out_of_range(day, values) == [0, 3, 4]
    assert out_of_range(day, values.slice(2, 2)) == [1]
    assert out_of_range(day, values.slice(1, 1)) == out_of_range(at, pa.array([], pa.timestamp("us"))) == []
    assert out_of_range(Column(id=1, name="n", type="int64"), pa.array([1 << 62])) == []
