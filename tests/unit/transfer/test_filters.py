"""Conditions, times and keys as they are typed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from time import tzset
from typing import Any

import pytest

from stelae.client.filters import BadFilter, predicates
from stelae.client.times import hybrid, to_datetime
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError
from stelae_transfer.commands.run_scan import read_at
from stelae_transfer.filters import read_key, read_time, read_where

SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "station", "type": "string"},
            {"name": "day", "type": "date"},
            {"name": "celsius", "type": "double", "nullable": True},
            {"name": "odd name", "type": "decimal(5,2)", "nullable": True},
            {"name": "raw", "type": "binary", "nullable": True},
        ],
        "key": ["station", "day"],
    }
)


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("", []),
        ("celsius > 20.5", [("celsius", ">", 20.5)]),
        ("celsius>-1 AND celsius<=3", [("celsius", ">", -1.0), ("celsius", "<=", 3.0)]),
        ("station = 'it''s, (so) and so'", [("station", "=", "it's, (so) and so")]),
        (
            "station in ('a', 'b') and day >= 2026-06-01",
            [("station", "in", ["a", "b"]), ("day", ">=", date(2026, 6, 1))],
        ),
        ("celsius is null and station IS NOT NULL", [("celsius", "is null"), ("station", "is not null")]),
        ("station starts with 'Be'", [("station", "starts with", "Be")]),
        ('"odd name" != 1.5', [("odd name", "!=", Decimal("1.50"))]),
        ("day = '2026-06-01'", [("day", "=", date(2026, 6, 1))]),
        ("raw = 'ab'", [("raw", "=", b"ab")]),
    ],
)
def test_conditions_are_read_by_the_types_of_their_columns(text: str, filters: list[Any]) -> None:
    assert read_where(SCHEMA, text) == filters
    predicates(SCHEMA, filters)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("celsus > 20", "did you mean 'celsius'"),
        ("celsius > warm", "expected double, got 'warm'"),
        ("celsius", "expected an operator at the end"),
        ("celsius >", "expected a value at the end"),
        ("celsius > 1 or celsius < 0", "use 'or' in `stelae sql`"),
        ("celsius like 'x'", "known operators: =, ==, !=, <>, <, <=, >, >=, in, is null"),
        ("station = Bergen", "put text in single quotes"),
        ("station in 'a'", "expected '\\('"),
        ("station in ('a' 'b')", "expected '\\)'"),
        ("station is 5", "expected 'null'"),
        ("station = 'a", "cannot parse"),
        ("day = 2026-02-30", "expected date, got '2026-02-30'"),
    ],
)
def test_a_condition_that_cannot_be_read_says_what_was_expected(text: str, says: str) -> None:
    with pytest.raises(BadFilter, match=says):
        read_where(SCHEMA, text)


NOW = datetime(2026, 6, 2, 12, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-06-01T12:00", datetime(2026, 6, 1, 12)),
        ("2026-06-01T12:00Z", datetime(2026, 6, 1, 12, tzinfo=UTC)),
        ("2026-06-01", datetime(2026, 6, 1)),
        ("5m", NOW - timedelta(minutes=5)),
        ("1.5h ago", NOW - timedelta(hours=1.5)),
        ("7353505807276285952", 7353505807276285952),
    ],
)
def test_times_are_read_as_they_are_typed(text: str, time: Any) -> None:
    assert read_time(text, NOW) == time


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in Central Europe: one hour ahead of UTC in winter, two in summer."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        tzset()
        yield
    tzset()


@pytest.mark.parametrize(("day", "hour_utc"), [("2026-10-24", 10), ("2026-10-25", 11), ("2026-10-27", 11)])
def test_a_time_without_a_zone_has_the_offset_that_the_clocks_had_then(
    central_europe: None, day: str, hour_utc: int
) -> None:
    """Clocks went back on the 25th. On the 27th, noon of the 24th was read with the present offset: an hour late."""
    expected = datetime.fromisoformat(f"{day}T{hour_utc}:00Z")
    assert to_datetime(hybrid(read_at(f"{day}T12:00") or 0)) == expected


@pytest.mark.parametrize("text", ["yesterday", "", "5 fortnights", "99999999d"])
def test_a_time_that_is_none_says_what_one_is(text: str) -> None:
    with pytest.raises(CallerError, match=r"cannot read the time .*; pass one such as"):
        read_time(text, NOW)


def test_a_key_is_one_word_for_each_of_its_columns() -> None:
    assert read_key(SCHEMA, ["Bergen", "2026-06-01"]) == {"station": "Bergen", "day": date(2026, 6, 1)}
    with pytest.raises(CallerError, match=r"the key is id \(int64\): pass one value, not 2"):
        read_key(schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}), ["1", "2"])
    with pytest.raises(CallerError, match=r"the key is station \(string\), day \(date\): pass 2 values, not 1"):
        read_key(SCHEMA, ["Bergen"])
    with pytest.raises(BadFilter, match="expected date, got 'soon'"):
        read_key(SCHEMA, ["Bergen", "soon"])
