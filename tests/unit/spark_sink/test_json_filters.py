"""Filters as JSON: the values of a filter come back as the values of its column."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stelae.client.filters import BadFilter, predicates
from stelae.spi.schema import Column, Schema
from stelae_spark_sink.json_filters import to_json, with_values

NAMES = {
    "id": "int64",
    "b": "bool",
    "d": "double",
    "price": "decimal(12,2)",
    "s": "string",
    "bin": "binary",
    "day": "date",
    "at": "timestamp",
}
COLUMNS = [Column(id=n, name=name, type=kind, nullable=n > 1) for n, (name, kind) in enumerate(NAMES.items(), 1)]
SCHEMA = Schema(1, tuple(COLUMNS), (1,))


@pytest.mark.parametrize(
    "where",
    [
        ("id", "=", 2**62 + 1),
        ("b", "=", True),
        ("d", "<", float("inf")),
        ("d", "=", 0.1),
        ("price", ">", Decimal("9999999999.99")),
        ("s", "starts with", '"\U0001f300\\'),
        ("s", "=", "2026-06-01"),
        ("s", "=", "AP8="),
        ("at", "=", datetime(1880, 6, 1, 12, tzinfo=timezone(timedelta(minutes=19, seconds=32)))),
        ("bin", "=", b"\x00\xff"),
        ("day", ">=", date(1, 1, 1)),
        ("at", "<=", datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ("at", "=", datetime(2026, 6, 1, 12, 0, 0, 1, UTC)),
        ("price", "in", [Decimal("1.50"), Decimal("-2")]),
        ("day", "in", (date(2026, 6, 1), date(9999, 12, 31))),
        ("s", "is null"),
        ("id", "=", np.int64(5)),
        ("id", "in", np.array([1, 2])),
        ("id", "in", pd.Series([1, 2])),
        ("at", "<", np.datetime64("2021-01-01T00:00:00.000001", "ns")),
        ("at", "<", np.datetime64("2021-01-01", "s")),
        ("at", "=", pd.Timestamp("2020-01-01 12:00", tz="Europe/Oslo")),
        ("at", "in", pd.Series([datetime(2021, 1, 1)]).astype("datetime64[ns]").to_numpy()),
        ("at", "=", date(2020, 1, 1)),
        ("day", "=", datetime(2020, 1, 1)),
        ("day", "=", datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))),
        ("day", "in", [np.datetime64("2020-01-01")]),
        ("price", "=", 2),
        ("b", "=", np.bool_(True)),
        [("id", ">", 1), ("bin", "!=", b"")],
    ],
)
def test_a_filter_means_the_same_after_its_way_through_the_option(where: Any) -> None:
    again = with_values(SCHEMA, [tuple(one) for one in json.loads(to_json(where))])
    assert predicates(SCHEMA, again) == predicates(SCHEMA, where)


@pytest.mark.parametrize(
    "where", [("bin", "=", "abcd"), ("s", "=", b"abcd"), ("s", "in", [date(2026, 6, 1)]), ("s", "=", Decimal(1))]
)
def test_a_value_of_another_type_is_refused_as_by_the_client(where: Any) -> None:
    """The text "abcd" was taken for the base64 of three other bytes, so that an overwrite deleted other rows."""
    with pytest.raises(BadFilter):
        predicates(SCHEMA, where)
    with pytest.raises(BadFilter):
        predicates(SCHEMA, with_values(SCHEMA, [tuple(one) for one in json.loads(to_json(where))]))


def test_text_in_place_of_a_date_is_parsed_as_in_the_option() -> None:
    again = with_values(SCHEMA, [tuple(one) for one in json.loads(to_json(("day", "=", "2026-06-01")))])
    assert again == [("day", "=", date(2026, 6, 1))]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (("id", "=", {"bytes": "AP8"}), "is no value; a value is a number, a text, or one of text, decimal, bytes"),
        (("id", "=", {}), "is no value"),
        (("gone", "=", {"date": "2026-06-31"}), "column 'gone': .* is no value"),
        (("price", "in", [{"decimal": "x"}]), "is no value"),
        (("id", "=", {"date": 5}), "is no value"),
        (("price", "=", "much"), "in a filter, column 'price': expected decimal"),
        (("day", "in", ["2026-06-31"]), "column 'day': expected date"),
        (("bin", "=", "!"), "column 'bin'"),
        (("at", "<", 1609459200000000000), "column 'at': expected timestamp as text, got 16094592"),
        (("day", "in", [18262]), "column 'day': expected date as text, got 18262"),
        (("bin", "=", True), "column 'bin': expected binary as text, got True"),
        (("day", "=", "2020-01-01T12:00:00"), "column 'day': expected date, got '2020-01-01T12:00:00'"),
    ],
)
def test_a_text_that_is_no_value_of_its_column_is_refused(where: Any, message: str) -> None:
    with pytest.raises(BadFilter, match=message):
        with_values(SCHEMA, [where])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "cannot have a value of type object"),
        (np.timedelta64(1, "ns"), "cannot have a value of type timedelta64"),
        (np.datetime64("2021-01-01T00:00:00.000000001", "ns"), "whole microseconds in the years 1 to 9999"),
        (pd.Timestamp("2021-01-01T00:00:00.000000001"), "whole microseconds"),
        (np.datetime64("20000-01-01", "us"), "the time 20000-01-01T00:00:00.000000: give whole microseconds"),
    ],
)
def test_a_value_that_no_column_has_is_refused(value: Any, message: str) -> None:
    with pytest.raises(BadFilter, match=message):
        to_json(("at", "=", value))


@pytest.mark.parametrize("value", [pd.NaT, np.datetime64("NaT"), None])
def test_a_time_that_is_missing_is_refused_as_null(value: Any) -> None:
    with pytest.raises(BadFilter, match="for rows without a value, use"):
        predicates(SCHEMA, with_values(SCHEMA, [tuple(one) for one in json.loads(to_json([("at", "=", value)]))]))


def test_an_unknown_column_is_left_to_the_client() -> None:
    assert with_values(SCHEMA, [("gone", "=", "1")]) == [("gone", "=", "1")]
