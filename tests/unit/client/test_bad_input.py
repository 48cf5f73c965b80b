"""Rows that do not fit: a typed error with row, column, what came and what was expected each; the rest stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from stelae.client import RowsFailed, WriteResult
from stelae.client.table_definition import definition
from stelae.partition.schema import BadPartitioning
from stelae.protocol.codec import encode
from stelae.protocol.master_messages import GetTable
from stelae.rows.limits import RANGES
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind
from tests.unit.client.tablets import SCHEMA, MemoryTable, one_column


def written(schema: Schema, data: Any, kind: OpKind = OpKind.INSERT) -> tuple[WriteResult, list[dict[str, Any]]]:
    """What comes of handing ``data`` in, and the rows that are there afterwards."""

    async def write() -> tuple[WriteResult, list[dict[str, Any]]]:
        table = MemoryTable(schema).table
        result = await table.write(kind, data, errors="return")
        return result, await table.scan(order="key").to_pylist()

    return asyncio.run(write())


def refused(schema: Schema, data: Any, kind: OpKind = OpKind.INSERT) -> str:
    """The error of data that is refused as a whole."""
    with pytest.raises(SchemaMismatch) as caught:
        written(schema, data, kind)
    return str(caught.value)


FORMS: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "dicts": lambda ids, values: [{"id": i, "value": v} for i, v in zip(ids, values, strict=True)],
    "tuples": lambda ids, values: list(zip(ids, values, strict=True)),
    "pandas": lambda ids, values: pd.DataFrame({"id": ids, "value": pd.Series(values, dtype=object)}),
}

FIRST_US, LAST_US = RANGES["timestamp"]
CALENDAR = "timestamp goes from 0001-01-01 00:00:00 to 9999-12-31 23:59:59.999999"
EAST = timezone(timedelta(hours=2))

UNFIT: list[tuple[str, Any, Any, str]] = [
    ("int8", 5, 300, "expected int8 or null, got int 300"),
    ("int32", 5, "five", "expected int32 or null, got str 'five'"),
    ("int64", 5, 2**63, f"expected int64 or null, got int {2**63}"),
    ("int64", 5, 1.5, "expected int64 or null, got float 1.5"),
    ("int64", 5, float("nan"), "expected int64 or null, got float nan"),
    ("int64", 5, float("inf"), "expected int64 or null, got float inf"),
    ("bool", True, 1, "expected bool or null, got int 1"),
    ("float", 1.5, 1e300, "expected float or null, got float 1e+300"),
    ("decimal(5,2)", Decimal("1.25"), Decimal("1.255"), "expected decimal(5,2) or null, got Decimal"),
    ("decimal(5,2)", Decimal("1.25"), Decimal("NaN"), "expected decimal(5,2) or null, got Decimal"),
    ("string", "text", b"raw", "expected string or null, got bytes b'raw'"),
    ("string", "text", "\ud800", "expected string or null, got str '\\ud800'"),
    ("binary", b"raw", "text", "expected binary or null, got str 'text'"),
    ("date", date(2026, 1, 1), "2026-01-01", "expected date or null, got str '2026-01-01'"),
    ("timestamp", datetime(2026, 1, 1), 2**63, f"expected timestamp or null, got int {2**63}"),
    ("timestamp", datetime(2026, 1, 1), LAST_US + 1, f"expected timestamp or null, got int {LAST_US + 1}; {CALENDAR}"),
    (
        "timestamp",
        datetime(2026, 1, 1),
        FIRST_US - 1,
        f"expected timestamp or null, got int {FIRST_US - 1}; {CALENDAR}",
    ),
    ("timestamp", datetime(2026, 1, 1), datetime(1, 1, 1, tzinfo=EAST), "expected timestamp or null, got datetime"),
    ("date", date(2026, 1, 1), 1 << 30, f"expected date or null, got int {1 << 30}; date goes from 0001-01-01 to"),
    ("timestamp", datetime(2026, 1, 1), "noon", "expected timestamp or null, got str 'noon'"),
]


@pytest.mark.parametrize("form", ["dicts", "tuples"])
@pytest.mark.parametrize(("kind", "good", "bad", "reason"), UNFIT, ids=lambda v: repr(v)[:20])
def test_a_value_that_does_not_fit_is_named_and_the_other_rows_stand(
    form: str, kind: str, good: Any, bad: Any, reason: str
) -> None:
    result, rows = written(one_column("value", kind), FORMS[form]([1, 2, 3], [good, bad, good]))
    (failure,) = result.failures
    assert (failure.row, failure.code, failure.kind, failure.table) == (1, "BAD_VALUE", "insert", "readings")
    assert f"column 'value': {reason}" in failure.reason
    assert failure.values is not None and failure.values["id"] == 2
    assert [row["id"] for row in rows] == [1, 3]


def test_a_pandas_column_of_several_kinds_of_values_is_searched_for_those_at_fault() -> None:
    result, rows = written(one_column("value", "int32"), FORMS["pandas"]([1, 2, 3, 4], [5, "five", None, 6]))
    assert [(f.row, f.reason) for f in result.failures] == [
        (1, "column 'value': expected int32 or null, got str 'five'")
    ]
    assert [row["value"] for row in rows] == [5, None, 6]


def test_the_raised_error_says_what_failed_and_that_the_rest_is_written() -> None:
    async def write() -> None:
        await MemoryTable(one_column("value", "int32")).table.insert([(1, 1), (2, "x"), (3, 3)])

    with pytest.raises(RowsFailed, match="1 of 3 rows were not written, the other 2 are written") as caught:
        asyncio.run(write())
    assert "row 1: BAD_VALUE: column 'value': expected int32 or null, got str 'x'" in str(caught.value)


@pytest.mark.parametrize("form", [*FORMS])
def test_a_null_in_the_key_fails_its_row_alone(form: str) -> None:
    result, rows = written(one_column("value", "string"), FORMS[form]([1, None, 3], ["a", "b", "c"]))
    (failure,) = result.failures
    assert failure.row == 1 and "column 'id': expected int64, got null" in failure.reason
    assert [row["id"] for row in rows] == [1, 3]


def test_nan_and_infinities_are_values_of_a_double_and_of_a_key() -> None:
    nan, infinity = float("nan"), float("inf")
    result, rows = written(
        one_column("value", "double", key_type="double"), [(nan, nan), (-infinity, infinity), (0.0, -infinity)]
    )
    assert result.written == 3
    assert repr(rows) == repr(
        [{"id": -infinity, "value": infinity}, {"id": 0.0, "value": -infinity}, {"id": nan, "value": nan}]
    )


def test_of_two_rows_with_one_key_in_a_batch_the_second_insert_fails() -> None:
    result, rows = written(one_column("value", "string"), [(1, "a"), (2, "b"), (1, "c")])
    assert [(f.row, f.code) for f in result.failures] == [(2, "ALREADY_PRESENT")]
    assert [row["value"] for row in rows] == ["a", "b"]


def test_of_two_rows_with_one_key_in_a_batch_the_later_upsert_wins() -> None:
    result, rows = written(one_column("value", "string"), [(1, "a"), (1, "b"), (1, "c")], OpKind.UPSERT)
    assert result.written == 3
    assert rows == [{"id": 1, "value": "c"}]


def test_an_unknown_column_of_a_dict_fails_its_row_with_what_there_is() -> None:
    result, rows = written(SCHEMA, [{"sensor": 1, "minute": 1}, {"sensor": 1, "minuet": 2}, {"sensor": 1, "minute": 3}])
    (failure,) = result.failures
    assert failure.row == 1
    assert failure.reason == (
        "no column 'minuet'; the table has: sensor, minute, celsius, note; did you mean 'minute'?"
    )
    assert [row["minute"] for row in rows] == [1, 3]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_an_unknown_column_of_a_frame_refuses_it(frame: Callable[[Any], Any]) -> None:
    assert "no column 'minuet'" in refused(SCHEMA, frame({"sensor": [1], "minute": [1], "minuet": [2]}))


def test_a_frame_without_a_needed_column_is_refused() -> None:
    assert "insert needs values for the columns 'minute'" in refused(SCHEMA, pa.table({"sensor": [1]}))


def test_a_frame_whose_column_is_of_another_kind_is_refused() -> None:
    frame = pd.DataFrame({"id": [1], "value": ["text"]})
    assert "column 'value': expected int32, got a column of" in refused(one_column("value", "int32"), frame)
    for kind, how in (("date", "pandas.to_datetime"), ("double", "pandas.to_numeric")):
        told = refused(one_column("value", kind), pa.table({"id": [1], "value": ["2026-06-01"]}))
        assert f"text is not parsed; convert it first, in pandas with {how}" in told


def test_rows_of_another_width_and_things_that_are_no_rows_fail_one_by_one() -> None:
    result, rows = written(one_column("value", "string"), [(1, "a"), (2,), 3, "four", (5, "e")])
    assert [f.row for f in result.failures] == [1, 2, 3]
    assert result.failures[0].reason == "expected 2 values (id, value), got 1"
    assert result.failures[1].reason == "expected a dict or a tuple, got int"
    assert [row["id"] for row in rows] == [1, 5]


@pytest.mark.parametrize("data", ["text", b"raw", 5, None, object()])
def test_what_rows_cannot_be_read_from_is_refused(data: Any) -> None:
    with pytest.raises(CallerError, match="cannot read rows from"):
        written(SCHEMA, data)


# -- Arrow -----------------------------------------------------------------------------------------


def arrow(value: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(range(len(value)), pa.int64()), "value": value})


CASTS: list[tuple[str, pa.Array, list[int], str]] = [
    ("int8", pa.array([1, 300, 2], pa.int64()), [1], "expected int8 or null, got int 300 (of int64)"),
    ("int64", pa.array([1, 2**64 - 1, 2], pa.uint64()), [1], "got int 18446744073709551615"),
    ("int64", pa.array([1.0, 1.5, float("nan"), 2.0]), [1, 2], "expected int64 or null, got float 1.5 (of double)"),
    ("float", pa.array([1.0, 1e300, float("inf")]), [1], "expected float or null, got float 1e+300"),
    ("double", pa.array([1, 2**53 + 1], pa.int64()), [1], "expected double or null, got int 9007199254740993"),
    ("decimal(5,2)", pa.array([Decimal("1.5"), Decimal("1.255")]), [1], "expected decimal(5,2) or null"),
    ("timestamp", pa.array([1000, 1001], pa.timestamp("ns")), [1], "expected timestamp or null"),
    ("timestamp", pa.array([1, 2**62], pa.timestamp("s")), [1], "expected timestamp or null"),
    ("date", pa.array([datetime(2026, 1, 1), datetime(2026, 1, 1, 1)]), [1], "expected date or null"),
    *(
        ("timestamp", pa.array([0, None, edge, 7], kind), [2], f"got int {edge} (of {kind}); {CALENDAR}")
        for kind, edge in (
            (pa.timestamp("us"), LAST_US + 1),
            (pa.timestamp("us"), FIRST_US - 1),
            (pa.timestamp("s"), LAST_US // 1_000_000 + 1),
            (pa.timestamp("ms", "Europe/Oslo"), LAST_US // 1000 + 1),
            (pa.date32(), 1 << 30),
        )
    ),
    ("date", pa.array([0, 1 << 30], pa.date32()), [1], f"got int {1 << 30} (of date32[day]); date goes from"),
    ("date", pa.array([0, 86_400 << 30], pa.timestamp("s")), [1], "(of timestamp[s]); date goes from"),
]


@pytest.mark.parametrize(("kind", "value", "bad", "reason"), CASTS, ids=lambda v: repr(v)[:20])
def test_an_arrow_value_that_a_cast_would_change_fails_its_row_alone(
    kind: str, value: pa.Array, bad: list[int], reason: str
) -> None:
    result, rows = written(one_column("value", kind), arrow(value))
    assert [failure.row for failure in result.failures] == bad
    assert reason in result.failures[0].reason
    assert [row["id"] for row in rows] == [i for i in range(len(value)) if i not in bad]


FITS: list[tuple[str, pa.Array, list[Any]]] = [
    ("int64", pa.array([1, None], pa.uint8()), [1, None]),
    ("int32", pa.array([2.0, None]), [2, None]),
    ("double", pa.array([1.5], pa.float32()), [1.5]),
    ("string", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    ("string", pa.array(["a", None], pa.large_string()), ["a", None]),
    ("string", pa.array(["a"], pa.string_view()), ["a"]),
    ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    ("decimal(9,2)", pa.array([Decimal("1.5")]), [Decimal("1.50")]),
    ("date", pa.array([datetime(2026, 1, 2)]), [date(2026, 1, 2)]),
    ("timestamp", pa.array([datetime(2026, 1, 2)], pa.timestamp("s")), [datetime(2026, 1, 2)]),
    (
        "timestamp",
        pa.array([datetime(2026, 1, 2, 2, tzinfo=timezone(timedelta(hours=2)))], pa.timestamp("us", "+02:00")),
        [datetime(2026, 1, 2)],
    ),
    ("string", pa.nulls(2), [None, None]),
]


@pytest.mark.parametrize(("kind", "value", "expected"), FITS, ids=lambda v: repr(v)[:20])
def test_an_arrow_column_that_loses_nothing_is_taken(kind: str, value: pa.Array, expected: list[Any]) -> None:
    result, rows = written(one_column("value", kind), arrow(value))
    assert not result.failures
    assert [row["value"] for row in rows] == expected


def test_a_frame_with_a_time_that_no_calendar_has_loses_that_row_alone() -> None:
    schema = one_column("value", "timestamp")
    far = pa.table({"id": [1, 2, 3], "value": pa.array([0, LAST_US + 1, None], pa.timestamp("us"))})
    wide = pd.DataFrame({"id": [1, 2, 3], "value": np.array([0, 253_402_300_800, None], "M8[s]")})
    for frame in (far, far.to_reader(), pl.from_arrow(far), wide):
        result, rows = written(schema, frame)
        assert [failure.row for failure in result.failures] == [1] and CALENDAR in result.failures[0].reason
        assert rows == [{"id": 1, "value": datetime(1970, 1, 1)}, {"id": 3, "value": None}]


def test_a_key_that_no_calendar_has_is_not_written_and_not_found() -> None:
    schema = one_column("value", "string", key_type="date")
    result, rows = written(schema, [(1 << 30, "far"), (-719_162, "first")])
    assert [failure.row for failure in result.failures] == [0]
    assert rows == [{"id": date.min, "value": "first"}]


def text_of(*raw: bytes, kind: pa.DataType | None = None) -> pa.Array:
    """A text array with any bytes in it."""
    kind = kind or pa.string()
    bytes_kind = {pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}.get(kind, pa.binary())
    return pa.Array.from_buffers(kind, len(raw), pa.array(raw, bytes_kind).buffers())


# -- pandas and polars -----------------------------------------------------------------------------


def test_a_pandas_frame_brings_missing_numbers_as_nan_and_its_named_index_as_a_key() -> None:
    frame = pd.DataFrame({"value": [1.0, None]}, index=pd.Index([7, 8], name="id"))
    result, rows = written(one_column("value", "int32"), frame)
    assert not result.failures
    assert rows == [{"id": 7, "value": 1}, {"id": 8, "value": None}]


def test_a_missing_number_of_pandas_is_nan_where_null_is_not_allowed() -> None:
    frame = pd.DataFrame({"id": [1], "value": [float("nan")]})
    _, ((row),) = written(one_column("value", "double", nullable=False), frame)
    assert repr(row["value"]) == "nan"


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"id": [1, 2, 3], "value": pd.Categorical(["a", None, "b"])}),
        pd.DataFrame({"id": [1, 2, 3], "value": pd.Series(["a", None, "b"], dtype="string").astype("category")}),
        pl.DataFrame({"id": [1, 2, 3], "value": pl.Series(["a", None, "b"], dtype=pl.Categorical)}),
        pl.DataFrame({"id": [1, 2, 3], "value": pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a"]))}),
        pl.LazyFrame({"id": [1, 2, 3], "value": pl.Series(["a", None, "b"], dtype=pl.Categorical)}),
        pl.DataFrame({"id": [1, 2, 3], "value": ["a", None, "b"]}),
    ],
    ids=["pandas", "pandas string", "polars", "polars enum", "polars lazy", "polars text"],
)
def test_categories_are_the_values_that_they_stand_for(frame: Any) -> None:
    result, rows = written(one_column("value", "string"), frame)
    assert not result.failures
    assert [row["value"] for row in rows] == ["a", None, "b"]
    result, rows = written(one_column("value", "string", nullable=False), frame)
    assert [(f.row, f.reason) for f in result.failures] == [(1, "column 'value': expected string, got null")]
    assert [row["value"] for row in rows] == ["a", "b"]


def test_categories_are_keys_and_numbers_and_dates() -> None:
    days = pd.Series(pd.to_datetime(["2026-06-01", None])).astype("category")
    result, rows = written(one_column("value", "date"), pd.DataFrame({"id": pd.Categorical([7, 8]), "value": days}))
    assert not result.failures
    assert rows == [{"id": 7, "value": date(2026, 6, 1)}, {"id": 8, "value": None}]
    frame = pl.DataFrame({"id": pl.Series(["x", "y"], dtype=pl.Categorical), "value": [1, 2]})
    result, rows = written(one_column("value", "int8", key_type="string"), frame)
    assert not result.failures and [row["id"] for row in rows] == ["x", "y"]


def test_a_stream_that_breaks_off_is_an_error_and_what_came_before_is_written() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1], "value": ["a"]})

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch
        raise pa.ArrowInvalid("the file ends here")

    async def write() -> list[dict[str, Any]]:
        table = MemoryTable(one_column("value", "string")).table
        with pytest.raises(
            CallerError, match=r"the stream of batches failed; the batches before are written: .*the file ends here"
        ):
            await table.insert(pa.RecordBatchReader.from_batches(batch.schema, broken()))
        return await table.scan().to_pylist()

    assert asyncio.run(write()) == [{"id": 1, "value": "a"}]


def test_the_rows_before_the_error_of_an_iterator_are_written() -> None:
    """Those that had been taken for the same batch were lost, though the error came behind them."""

    def broken() -> Iterator[dict[str, Any]]:
        yield from ({"id": n, "value": 1.5} for n in (1, 2, 2))
        raise ValueError("no more rows")

    async def write() -> list[int]:
        table = MemoryTable(one_column("value", "double")).table
        with pytest.raises(ValueError, match="no more rows") as caught:
            await table.insert(broken())
        assert vars(caught.value)["result"].counts == {"ALREADY_PRESENT": 1}
        return [row["id"] for row in await table.scan(order="key").to_pylist()]

    assert asyncio.run(write()) == [1, 2]


def test_the_error_of_a_later_batch_tells_the_rows_that_failed_before_it() -> None:
    """The caller saw only that a column was unknown, and took the row with the present key for written."""
    good, bad = pa.table({"id": [1, 2, 3], "value": [1.0, 2.0, 3.0]}), pa.table({"id": [4], "colour": ["red"]})

    async def write() -> list[int]:
        table = MemoryTable(one_column("value", "double"), None, "t").table
        await table.insert({"id": 2, "value": 7.0})
        with pytest.raises(SchemaMismatch) as caught:
            await table.insert([good, bad])
        result: WriteResult = vars(caught.value)["result"]
        assert (result.rows, result.failed, result.failures[0].code) == (3, 1, "ALREADY_PRESENT")
        fact, first = str(caught.value).splitlines()[-2:]
        assert fact == "1 of the 3 rows before were not written, the other 2 are written"
        assert first == "  row 1: ALREADY_PRESENT: a row with this key exists"
        with pytest.raises(SchemaMismatch) as caught:
            await table.upsert([good, bad])
        assert vars(caught.value)["result"].written == 3 and "\n" not in str(caught.value)
        return [row["id"] for row in await table.scan(order="key").to_pylist()]

    assert asyncio.run(write()) == [1, 2, 3]


def test_polars_frames_lazy_frames_and_streams_of_batches_are_taken() -> None:
    frame = pl.DataFrame({"id": [1, 2], "value": ["a", None]})
    stream = pa.RecordBatchReader.from_batches(frame.to_arrow().schema, frame.to_arrow().to_batches())
    for data in (frame, frame.lazy(), stream):
        result, rows = written(one_column("value", "string"), data)
        assert result.written == 2, data
        assert rows == [{"id": 1, "value": "a"}, {"id": 2, "value": None}]


def test_a_failure_has_the_value_that_was_handed_in_whatever_it_came_as() -> None:
    """The file of bad rows of an import is made of these: it held nulls for all that came as Arrow."""
    far = pa.table({"id": [1, 2], "value": pa.array([0, LAST_US + 1], pa.timestamp("us"))})
    for frame in (far, far.set_column(1, "value", far.column(1).dictionary_encode())):
        (failure,) = written(one_column("value", "timestamp"), frame)[0].failures
        assert failure.values == {"id": 2, "value": LAST_US + 1}
    (failure,) = written(one_column("value", "int8"), pd.DataFrame({"id": [1, 2], "value": [1, 300]}))[0].failures
    assert failure.values == {"id": 2, "value": 300}
    (failure,) = written(one_column("value", "string"), arrow(text_of(b"a", b"\xff")))[0].failures
    assert failure.values == {"id": 1, "value": b"\xff"}


def test_names_and_options_that_are_none_are_refused_as_such() -> None:
    table = MemoryTable().table
    for wrong in (
        lambda: table.scan(5),
        lambda: table.scan(where=5),
        lambda: table.scan(limit="all"),
        lambda: table.scan(limit=1 << 70),
        lambda: table.scan(limit=1.5),
        lambda: table.scan(at=datetime(1, 1, 1, tzinfo=EAST)),
        lambda: encode(GetTable(table="\ud800")),
        lambda: encode(GetTable(table=object())),
    ):
        with pytest.raises(CallerError):
            wrong()


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("text", "k"),
        (None, "k"),
        ([5], "k"),
        ({"k": 5}, "k"),
        ({"k": "int64"}, None),
        ({"k": "int64"}, 5),
        ({"\ud800": "int64"}, "\ud800"),
        ([{"name": "k", "type": "int64"}, {"name": "v", "type": "int64", "default": 1 << 70}], "k"),
        ([{"name": "k", "type": "int64"}, {"name": "v", "type": "string", "default": "\ud800"}], "k"),
        ([{"name": "k", "type": "int64"}, {"name": "v", "type": "date", "default": 1 << 30}], "k"),
    ],
    ids=repr,
)
def test_a_table_that_cannot_be_described_is_refused_as_such(columns: Any, key: Any) -> None:
    with pytest.raises(SchemaMismatch):
        definition("t", columns, key, None, 1)


@pytest.mark.parametrize("part", [{"hash": 5}, {"range": {"columns": ["id"], "bounds": 5}}])
def test_a_partitioning_whose_lists_are_none_is_refused_as_such(part: Any) -> None:
    with pytest.raises(BadPartitioning, match="must be a list, not int"):
        definition("t", {"id": "int64"}, "id", part, 1)
