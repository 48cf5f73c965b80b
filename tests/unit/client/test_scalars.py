"""Single values of numpy, pandas and pyarrow, as every ``frame.iloc[0]`` gives them: wherever a value is handed in,
they are taken like a frame's column of them, and refused, named, where something of them would be lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from stelae.client.definition import definition, plain_defaults, range_of
from stelae.client.filters import BadFilter, predicates
from stelae.client.times import hybrid
from stelae.partition.schema import BadPartitioning, PartitionSchema
from stelae.protocol.master_messages import AddColumn, SetDefault
from stelae.rows.batch_building import describe_misfit
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.schema import Column, Schema
from tests.unit.client.tablets import MemoryTable, one_column
from tests.unit.client.test_bad_input import written

NOON = datetime(2026, 6, 1, 12, 30, 15, 123_456)
DAY = date(2026, 6, 1)
MIDNIGHT = datetime(2026, 6, 1)

TAKEN: list[tuple[str, Any, Any]] = [
    ("int64", np.int64(5), 5),
    ("int8", np.uint8(5), 5),
    ("int64", np.float64(5), 5),  # ``frame.iloc[0]`` makes one type of all columns
    ("int64", 5.0, 5),
    ("int32", pa.scalar(5), 5),
    ("double", np.float64(0.1), 0.1),
    ("double", np.float32(0.5), 0.5),
    ("double", np.int16(2), 2.0),
    ("float", np.float16(0.5), 0.5),
    ("bool", np.bool_(True), True),
    ("string", np.str_("text"), "text"),
    ("binary", np.bytes_(b"raw"), b"raw"),
    ("decimal(12,2)", np.int64(7), Decimal("7.00")),
    ("decimal(12,2)", pa.scalar(Decimal("1.25")), Decimal("1.25")),
    ("timestamp", np.datetime64(NOON), NOON),
    ("timestamp", np.datetime64("2026-06-01T12:30:15.123456000"), NOON),
    ("timestamp", np.datetime64("2026-06-01"), MIDNIGHT),
    ("timestamp", pd.Timestamp(NOON), NOON),
    ("timestamp", pd.Timestamp(NOON).as_unit("ns"), NOON),
    ("timestamp", pd.Timestamp(NOON, tz="UTC").tz_convert("Europe/Oslo"), NOON),
    ("timestamp", pa.scalar(NOON), NOON),
    ("timestamp", DAY, MIDNIGHT),
    ("date", pd.Timestamp(MIDNIGHT), DAY),
    ("date", np.datetime64("2026-06-01"), DAY),
    ("date", np.datetime64("2026-06-01T00:00:00.000000000"), DAY),
    ("date", MIDNIGHT, DAY),
    ("date", MIDNIGHT.replace(tzinfo=UTC), DAY),
    ("date", pa.scalar(DAY), DAY),
]
NULLS = [pd.NaT, pd.NA, np.datetime64("NaT"), pa.scalar(None, pa.int64())]
EAST = timezone(timedelta(hours=2))
REFUSED: list[tuple[str, Any]] = [
    ("int64", np.float64(5.5)),
    ("int64", np.float64("inf")),
    ("int64", np.float64("nan")),
    ("int8", np.int64(300)),
    ("int64", np.uint64(2**63)),
    ("int64", np.bool_(True)),
    ("int64", np.timedelta64(5, "ns")),
    ("int64", pd.Timedelta(5)),
    ("int64", np.datetime64("2026-06-01")),
    ("int64", np.str_("5")),
    ("int64", np.array([5])),
    ("bool", np.int64(1)),
    ("double", np.longdouble("0.1")),
    ("double", np.int64(2**53 + 1)),
    ("double", np.complex128(1)),
    ("decimal(12,2)", np.float64(1.5)),
    ("string", np.bytes_(b"raw")),
    ("timestamp", pd.Timestamp(1)),
    ("timestamp", np.datetime64("2026-06-01T00:00:00.000000001")),
    ("timestamp", pa.scalar(1, pa.timestamp("ns"))),
    ("timestamp", np.datetime64(2**62, "D")),
    ("timestamp", np.datetime64("10000-01-01")),
    ("date", pd.Timestamp(NOON)),
    ("date", NOON),
    ("date", datetime(2026, 6, 1, tzinfo=EAST)),
    ("date", np.datetime64("10000-01-01")),
]


def bound(kind: str, value: Any) -> Any:
    """A range bound of a table by one key column."""
    scheme = {"range": {"columns": ["id"], "bounds": [value]}}
    return definition("t", [{"name": "id", "type": kind}], "id", scheme, 1).partition_schema


def default(kind: str, value: Any) -> Any:
    columns = [{"name": "id", "type": "int64"}, {"name": "v", "type": kind, "default": value}]
    return Schema.from_bytes(definition("t", columns, "id", None, 1).schema).by_name["v"].default


@pytest.mark.parametrize(("kind", "value", "plain"), TAKEN, ids=repr)
def test_a_scalar_is_a_value_of_a_row(kind: str, value: Any, plain: Any) -> None:
    for row in ({"id": np.int64(1), "value": value}, (1, value)):
        result, rows = written(one_column("value", kind), [row, {"id": 2, "value": plain}])
        assert not result.failures
        assert rows[0]["value"] == rows[1]["value"] == plain


@pytest.mark.parametrize(("kind", "value", "plain"), TAKEN, ids=repr)
def test_a_scalar_is_a_key_a_bound_a_filter_and_a_default(kind: str, value: Any, plain: Any) -> None:
    async def run() -> None:
        table = MemoryTable(one_column("value", "string", key_type=kind)).table
        await table.insert({"id": plain, "value": "here"})
        found = {"id": plain, "value": "here"}
        assert await table.get(value) == await table.get((value,)) == await table.get({"id": value}) == found
        assert await table.get_many([value, plain]) == [found, found]
        for scan in (
            table.scan(where=("id", "=", value)),
            table.scan(where=("id", "in", [value])),
            table.scan(start=value),
        ):
            assert await scan.to_pylist() == [found]
        assert await table.scan(end=value).to_pylist() == []
        await table.delete((value,))
        assert await table.get(plain) is None

    asyncio.run(run())
    assert bound(kind, value) == bound(kind, plain)
    made, wanted = default(kind, value), default(kind, plain)
    assert made == wanted is not None or Decimal(made) == plain


@pytest.mark.parametrize("null", NULLS, ids=repr)
@pytest.mark.parametrize("kind", ["int64", "string", "double", "timestamp", "date"])
def test_what_stands_for_a_missing_value_is_null_and_no_key(kind: str, null: Any) -> None:
    result, rows = written(one_column("value", kind), [(1, null)])
    assert not result.failures and rows == [{"id": 1, "value": None}]
    result, rows = written(one_column("value", "string", key_type=kind), [(null, "a")])
    assert [f.code for f in result.failures] == ["BAD_VALUE"] and not rows
    with pytest.raises(BadFilter, match="in a filter, column 'value': expected"):
        predicates(one_column("value", kind), ("value", "=", null))


@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=repr)
def test_a_scalar_that_would_lose_something_is_refused_with_what_came(kind: str, value: Any) -> None:
    result, rows = written(one_column("value", kind), [{"id": 1, "value": value}, {"id": 2, "value": None}])
    (failure,) = result.failures
    what = f"column 'value': expected {kind} or null, got {type(value).__name__}"
    assert failure.row == 0 and failure.reason.startswith(what) and [row["id"] for row in rows] == [2]
    keyed = one_column("value", "string", key_type=kind)
    calls: list[Callable[[], Any]] = [
        lambda: MemoryTable(keyed).table.scan(where=("id", "=", value)),
        lambda: MemoryTable(keyed).table.scan(start=value),
        lambda: asyncio.run(MemoryTable(keyed).table.get((value,))),
        lambda: asyncio.run(MemoryTable(keyed).table.get_many([(value,)])),
        lambda: default(kind, value),
        lambda: bound(kind, value),
    ]
    for call in calls if "10000" not in repr(value) else calls[4:5]:  # Beyond the calendar there are keys, and no rows.
        with pytest.raises((SchemaMismatch, BadPartitioning, CallerError)) as caught:
            call()
        assert "column 'id'" in str(caught.value) or "column 'v'" in str(caught.value)


def test_nanoseconds_are_refused_with_what_to_do() -> None:
    result, _ = written(
        one_column("value", "timestamp"), [(1, pd.Timestamp(NOON.replace(tzinfo=UTC)) + pd.Timedelta(7))]
    )
    assert "goes from" not in result.failures[0].reason
    assert "; it has nanoseconds, which no column can store: remove them first, in pandas with .floor('us')" in (
        result.failures[0].reason
    )


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("timestamp", pd.Timestamp("2020-01-01 00:00:00.000000001"), "Timestamp('2020-01-01 00:00:00.000000001')"),
        ("timestamp", Decimal("1.5"), "Decimal('1.5')"),
        ("int32", date(2026, 1, 2), "date(2026, 1, 2)"),
        ("int32", "text", "str 'text'"),
        ("int32", "str(5)", "str 'str(5)'"),
        ("int32", [1] * 100, f"list [{'1, ' * 17}1,…"),
    ],
)
def test_a_value_at_fault_is_shown_with_its_type_once(kind: str, value: Any, shown: str) -> None:
    """``got Timestamp Timestamp('2020-01-01 00:00:00.000000001 (of timestamp[ns])``, it said."""
    told = describe_misfit(Column(id=1, name="value", type=kind), value)
    assert told.startswith(f"column 'value': expected {kind}, got {shown}")
    (said,) = re.findall("got ([^;]*)", told)
    assert len(said) <= 60


def test_a_row_of_a_frame_with_one_missing_value_fails_alone_and_says_what_null_is() -> None:
    frame = pd.DataFrame({"id": [1, 2], "value": [5, None]})
    result, rows = written(one_column("value", "int32"), frame.to_dict("records"))
    assert rows == [{"id": 1, "value": 5}]
    assert "got float nan; pass None for a missing value" in result.failures[0].reason


@pytest.mark.parametrize("whole", [np.int64(1 << 40), np.uint64(1 << 40)])
def test_a_time_to_read_at_may_be_a_scalar(whole: Any) -> None:
    assert hybrid(whole) == 1 << 40
    assert hybrid(pd.Timestamp(NOON)) == hybrid(np.datetime64(NOON)) == hybrid(NOON)
    for wrong in (pd.NaT, pd.NA, np.datetime64("NaT"), np.bool_(True), np.float64(5), np.datetime64(2**62, "D")):
        with pytest.raises(CallerError, match="a time to read at is a datetime or a hybrid timestamp"):
            hybrid(wrong)
    for fine in (pd.Timestamp(NOON) + pd.Timedelta(7), np.datetime64(NOON, "ns") + np.timedelta64(7, "ns")):
        assert hybrid(fine) == hybrid(NOON), "the microsecond in which it lies is shown to its end"


def test_steps_of_an_alteration_take_scalars_and_dates_as_defaults() -> None:
    schema = one_column("value", "timestamp")
    steps = (
        AddColumn(name="n", type="int32", default=np.int64(5)),
        AddColumn(name="d", type="date", default=DAY),
        AddColumn(name="p", type="decimal(5,2)", default=Decimal("1.5")),
        SetDefault(name="value", default=pd.Timestamp(1_000)),
        SetDefault(name="value", default=DAY),
    )
    found = [step.default for step in plain_defaults(schema, steps)]
    assert found == [5, 20605, "1.5", 1, 20605 * 86_400_000_000]


def test_a_float_takes_the_nearest_number_that_it_has_and_is_found_by_what_was_written() -> None:
    async def run() -> None:
        table = MemoryTable(one_column("value", "float", key_type="float")).table
        near = 0.10000000149011612
        for number in (0.1, np.float64(0.1), np.float32(0.1)):
            await table.upsert((number, number))
            for value in (number, near):
                assert await table.get(value) == {"id": near, "value": near}
                assert await table.scan(where=[("value", "=", value), ("id", "in", [value])]).count() == 1
        assert await table.scan().count() == 1

    asyncio.run(run())


def test_a_range_of_keys_takes_scalars() -> None:
    schema = one_column("value", "string", key_type="date")
    scheme = PartitionSchema(range_columns=(1,))
    assert range_of(schema, scheme, pd.Timestamp(DAY), np.datetime64("2026-07-01")) == range_of(
        schema, scheme, DAY, date(2026, 7, 1)
    )
