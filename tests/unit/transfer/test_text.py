"""Text as values: what is read, and what is a misfit rather than a guess."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from stelae.client.text_values import all_fit, parse_text
from stelae.spi.schema import Column

BAD = object()


def column(kind: str) -> Column:
    return Column(id=1, name="c", type=kind, nullable=True)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int32", " 5 ", 5),
        ("int32", "130.0", 130),
        ("int32", "+7", 7),
        ("int32", "1.5", BAD),
        ("int32", "+-5", BAD),
        ("int32", "0x10", BAD),
        ("int64", "+0X1F", BAD),
        ("int8", "300", BAD),
        ("int64", "9223372036854775807", 9223372036854775807),
        ("int64", "9223372036854775808", BAD),
        ("int64", "9007199254740993.0", BAD),
        ("double", "-inf", float("-inf")),
        ("double", "+2", 2.0),
        ("int64", "1.00000000000000000001", BAD),
        ("double", "1e400", BAD),
        ("double", "1e-400", BAD),
        ("double", "0e-400", 0.0),
        ("double", "9007199254740993", BAD),
        ("double", "81234567890123456", 81234567890123456.0),
        ("double", "81234567890123460", BAD),
        ("double", "8.123456789012346e+16", 81234567890123456.0),
        ("double", "12345678901234567890", BAD),
        ("double", "1234567890123456789012345678.01", BAD),
        ("double", "0.30000000000000004", 0.1 + 0.2),
        ("double", "1.100000000000000089e+00", 1.1),
        ("double", "0.1000000000000000055511151231257827021181583404541015625", 0.1),
        ("double", "0.1000000000000000055511151231257827021181583404541015626", BAD),
        ("double", "0.1000000000000000000000000000000", 0.1),
        ("double", "5e-324", 5e-324),
        ("float", "0.12345678901234567890", 0.12345679104328156),
        ("float", "1e40", BAD),
        ("double", "warm", BAD),
        ("bool", "TRUE", True),
        ("bool", "yes", BAD),
        ("date", "2026-02-03", date(2026, 2, 3)),
        ("date", "2026-02-30", BAD),
        ("date", "99999-01-01", BAD),
        ("timestamp", "2026-06-01", datetime(2026, 6, 1)),
        ("timestamp", "2026-06-01 10:00:00.5", datetime(2026, 6, 1, 10, 0, 0, 500_000)),
        ("timestamp", "2026-06-01T10:00:00+02:00", datetime(2026, 6, 1, 8)),
        ("timestamp", "2026-06-01 10:00:00.123456000", datetime(2026, 6, 1, 10, 0, 0, 123_456)),
        ("timestamp", "2026-06-01 10:00:00.123456789", BAD),
        ("timestamp", "300000-01-01", BAD),
        ("decimal(5,2)", "1.5", Decimal("1.50")),
        ("decimal(5,2)", "1.234", BAD),
        ("decimal(5,2)", "12345", BAD),
        ("binary", "aGk=", b"hi"),
        ("binary", "hi!", BAD),
        ("string", " kept ", " kept "),
    ],
)
def test_text_is_read_exactly_or_not_at_all(kind: str, text: str, value: Any) -> None:
    found = parse_text(column(kind), pa.array([None, text.encode(), text.encode()], pa.binary()))
    assert found.array[0].as_py() is None and 0 not in found.bad
    if value is BAD:
        assert found.array[1].as_py() is None
        assert found.bad[1] == found.bad[2]
        assert found.bad[1].startswith(f"column 'c': expected {kind}, got '")
    else:
        assert not found.bad and found.array[2].as_py() == value
        assert found.array.type == column(kind).data_type.arrow()


def test_a_number_that_a_double_would_round_is_told_with_what_it_would_become() -> None:
    """12345678901234567890 and 12345678901234567891 became one key, and two rows one."""
    texts = [b"12345678901234567890", b"0.5", b"12345678901234567891"]
    found = parse_text(column("double"), pa.array(texts, pa.binary()))
    assert found.array.to_pylist() == [None, 0.5, None]
    says = "expected double, got '12345678901234567891', which a double rounds to 12345678901234567168"
    assert found.bad[2] == f"column 'c': {says}"
    assert [*found.bad] == [0, 2]


def test_nan_is_read_as_nan() -> None:
    assert str(parse_text(column("double"), pa.array([b"nan"], pa.binary())).array[0].as_py()) == "nan"


def test_bytes_that_are_no_text_are_a_misfit_of_their_place_alone() -> None:
    found = parse_text(column("string"), pa.array([b"a", b"\xff", b"b"], pa.binary()))
    assert found.array.to_pylist() == ["a", None, "b"]
    assert found.bad == {1: "column 'c': expected string, got bytes that are not UTF-8"}


def test_different_ways_to_write_a_value_may_stand_in_one_column() -> None:
    texts = [b"2026-06-01", b"2026-06-01T00:00:00Z", b"soon", b"2026-06-01 00:00:00.000000000"]
    found = parse_text(column("timestamp"), pa.array(texts, pa.binary()))
    assert found.array.to_pylist() == [datetime(2026, 6, 1), datetime(2026, 6, 1), None, datetime(2026, 6, 1)]
    assert [*found.bad] == [2]


def test_whether_all_fit_is_one_look_at_each_way() -> None:
    assert all_fit(column("int64"), pa.array([b"1", b"2"], pa.binary()))
    assert not all_fit(column("int64"), pa.array([b"1", b"x"], pa.binary()))
