"""SQL over tables: what is pushed down to the tablets, and that it never changes an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import dataset

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import Unavailable
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Compare, In, IsNull
from stelae_transfer.pushdown import pushed
from stelae_transfer.sql import Query, SqlFailed
from tests.at_length import times
from tests.unit.client.tablets import MemoryTable

SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "sensor", "type": "int32"},
            {"name": "minute", "type": "int64"},
            {"name": "celsius", "type": "double", "nullable": True},
            {"name": "note", "type": "string", "nullable": True},
            {"name": "taken", "type": "timestamp", "nullable": True},
            {"name": "day", "type": "date", "nullable": True},
            {"name": "price", "type": "decimal(8,2)", "nullable": True},
            {"name": "raw", "type": "binary", "nullable": True},
            {"name": "ok", "type": "bool", "nullable": True},
        ],
        "key": ["sensor", "minute"],
    }
)


def row(n: int) -> tuple[Any, ...]:
    if n % 5 == 4:
        return (n % 3, n, *([None] * 7))
    note = ["", "a", "it's", 'q"', "\n"][n % 5]
    celsius = [float("nan"), 1.5, -0.5, float("inf"), 20.0, 3.0][n % 6]
    at = datetime(2026, 6, 1, 0, n)
    return (n % 3, n, celsius, note, at, date(2026, 6, 1 + n), Decimal(n) / 4, bytes([n, 0]), n % 2 == 0)


ROWS = [row(n) for n in range(24)]
WHOLE = pa.Table.from_batches(
    [
        pa.RecordBatch.from_arrays(
            [pa.array(list(v), f.type) for v, f in zip(zip(*ROWS, strict=True), SCHEMA.layout.arrow, strict=True)],
            schema=SCHEMA.layout.arrow,
        )
    ]
)


@pytest.fixture(scope="module")
def memory() -> MemoryTable:
    """The rows, in two tablets."""
    made = MemoryTable(SCHEMA, {"hash": [{"columns": ["sensor"], "buckets": 2}]})
    asyncio.run(made.table.insert(ROWS))
    return made


def ask(memory: MemoryTable, text: str) -> tuple[list[tuple[Any, ...]], Query]:
    """The answer of a query, and what it scanned."""
    found: list[tuple[Any, ...]] = []

    def take(schema: Any, batches: Iterator[Any]) -> None:
        for batch in batches:
            found.extend(tuple(one.values()) for one in batch.to_pylist())

    async def asked() -> Query:
        query = Query(text, [memory.table], memory.table.now(), 5)
        await asyncio.to_thread(query.run, take)
        return query

    for tablet in memory.tablets:
        tablet.pages.clear()
    return found, asyncio.run(asked())


def predicates(memory: MemoryTable) -> set[Any]:
    """The predicates that reached the tablets."""
    return {one for tablet in memory.tablets for spec, _, _ in tablet.pages for one in spec.predicates}


def test_columns_and_conditions_reach_the_tablets_and_spare_those_that_cannot_match(memory: MemoryTable) -> None:
    found, query = ask(memory, "SELECT count(*) FROM readings WHERE sensor = 1 AND minute BETWEEN 4 AND 13")
    assert found == [(sum(r[0] == 1 and 4 <= r[1] <= 13 for r in ROWS),)]
    assert predicates(memory) == {Compare(1, "=", 1), Compare(2, ">=", 4), Compare(2, "<=", 13)}
    (scan,) = query.scans
    assert scan.columns == ["sensor", "minute"] and scan.rows == found[0][0]
    assert sorted(bool(tablet.pages) for tablet in memory.tablets) == [False, True]
    spec = next(spec for tablet in memory.tablets for spec, _, _ in tablet.pages)
    assert spec.columns == (1, 2)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("sensor IN (0, 2)", {In(1, (0, 2))}),
        ("sensor = 0 OR sensor = 2", {In(1, (0, 2))}),
        ("note IS NULL", {IsNull(4)}),
        ("note IS NOT NULL", {IsNull(4, True)}),
        ("note <> 'a'", {Compare(4, "!=", "a")}),
        ("note = 'it''s'", {Compare(4, "=", "it's")}),
        ("note = chr(10)", {Compare(4, "=", "\n")}),
        ("day > DATE '2026-06-05'", {Compare(6, ">", 20609)}),
        ("taken <= TIMESTAMP '2026-06-01 00:03'", {Compare(5, "<=", 1780272180000000)}),
        ("price >= 2.5", {Compare(7, ">=", "2.50")}),
        ("raw = '\\x02\\x00'::BLOB", {Compare(8, "=", b"\x02\0")}),
        ("sensor = 1 OR minute = 2", set()),
        ("note NOT IN ('a')", set()),
        ("celsius > 1", set()),
        ("length(note) = 1", set()),
    ],
)
def test_what_is_pushed_down_means_the_same_as_without(memory: MemoryTable, where: str, expected: set[Any]) -> None:
    text = f"SELECT sensor, minute FROM readings WHERE {where} ORDER BY ALL"
    found, _ = ask(memory, text)
    connection = duckdb.connect()
    connection.register("readings", WHOLE)
    assert found == connection.sql(text).fetchall()
    got = predicates(memory)
    plain = {type(p)(p.column, p.op, str(p.value)) if isinstance(getattr(p, "value", 0), Decimal) else p for p in got}
    assert plain == expected or got == expected


def test_a_query_of_several_scans_shows_one_time(memory: MemoryTable) -> None:
    text = "SELECT count(*) FROM readings a JOIN readings b USING (sensor, minute) WHERE a.sensor = 1 AND b.ok"
    found, query = ask(memory, text)
    assert found == [(sum(r[0] == 1 and bool(r[8]) for r in ROWS),)]
    assert len(query.scans) == 2
    assert {at for tablet in memory.tablets for _, at, _ in tablet.pages} == {query.at}


def test_a_limit_stops_reading_early() -> None:
    async def filled() -> MemoryTable:
        made = MemoryTable()
        await made.table.insert([(1, n, None, None) for n in range(20_000)])
        return made

    memory = asyncio.run(filled())
    found, query = ask(memory, "SELECT minute FROM readings LIMIT 1")
    assert len(found) == 1
    assert query.scans[0].rows < 20_000


def test_a_query_that_is_left_half_read_ends_its_scans(memory: MemoryTable) -> None:
    async def asked() -> Query:
        query = Query("SELECT * FROM readings", [memory.table], memory.table.now(), 5)
        with pytest.raises(BrokenPipeError):
            await asyncio.to_thread(query.run, _refuse)
        assert len(asyncio.all_tasks()) == 1
        return query

    def _refuse(schema: Any, batches: Iterator[Any]) -> None:
        next(batches)
        raise BrokenPipeError

    assert len(asyncio.run(asked()).scans) == 1


def test_a_query_that_is_stopped_fails_instead_of_answering_with_less(memory: MemoryTable) -> None:
    async def asked() -> None:
        query = Query("SELECT count(*) FROM readings", [memory.table], memory.table.now(), 5)
        page = memory.tablets[0].page

        async def stopping(*given: Any, **more: Any) -> Any:
            query.stop()
            return await page(*given, **more)

        for tablet in memory.tablets:
            tablet.page = stopping  # type: ignore[method-assign]
        try:
            with pytest.raises(SqlFailed, match=r"stopped|Interrupted"):
                await asyncio.to_thread(query.run, lambda schema, batches: [*batches])
        finally:
            for tablet in memory.tablets:
                del tablet.page

    asyncio.run(asked())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT nope FROM readings", 'Referenced column "nope" not found'),
        ("SELECT * FROM nowhere", "nowhere does not exist(.|\n)*the tables are: readings"),
        ("SELEC 1", "syntax error"),
        ("CREATE TABLE x (a INT)", "stelae sql runs one SELECT"),
        ("SELECT 1; SELECT 2", "stelae sql runs one SELECT"),
        ("COPY readings TO 'x.csv'", "stelae sql runs one SELECT"),
        ("", "stelae sql runs one SELECT"),
        ("SELECT minute / 'x' FROM readings", "Conversion Error"),
    ],
)
def test_a_query_that_is_wrong_is_an_error_that_says_why(memory: MemoryTable, text: str, says: str) -> None:
    with pytest.raises(SqlFailed, match=says):
        ask(memory, text)


def test_a_table_that_is_not_there_is_told_with_the_nearest(memory: MemoryTable) -> None:
    async def asked() -> None:
        names = [*(f"a{n}" for n in range(20)), "readings"]
        query = Query("SELECT * FROM raedings", [memory.table], memory.table.now(), 5, names)
        with pytest.raises(SqlFailed, match=r"the tables are: readings, a0, .* and 11 more$"):
            await asyncio.to_thread(query.run, lambda schema, batches: None)

    asyncio.run(asked())


def test_what_a_scan_raises_keeps_its_kind() -> None:
    memory = MemoryTable()
    memory.tablets[0].error = Unavailable("no replica could serve")
    with pytest.raises(Unavailable, match="no replica could serve"):
        ask(memory, "SELECT * FROM readings")


FIELD = dataset.field
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "sensor": st.integers(-1, 3),
    "minute": st.integers(0, 24),
    "note": st.sampled_from(["", "a", "it's", 'q"', "\n", "end: 'equal'"]),
    "price": st.integers(0, 24).map(lambda n: Decimal(n) / 4),
    "celsius": st.sampled_from([1.5, -0.5, float("nan"), float("inf")]),
}


@st.composite
def leaves(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from([*LITERALS]))
    field, kind = FIELD(name), draw(st.sampled_from(["=", "<", ">=", "!=", "in", "null", "valid"]))
    if kind == "null":
        return field.is_null()
    if kind == "valid":
        return field.is_valid()
    if kind == "in":
        values = draw(st.lists(LITERALS[name], min_size=1, max_size=3))
        return field.isin(pa.array(values, SCHEMA.by_name[name].data_type.arrow()))
    value = pa.scalar(draw(LITERALS[name]), SCHEMA.by_name[name].data_type.arrow())
    return {"=": field == value, "<": field < value, ">=": field >= value, "!=": field != value}[kind]


EXPRESSIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=6,
)


@settings(max_examples=times(300))
@given(EXPRESSIONS)
def test_filters_of_an_expression_never_leave_out_a_row_for_which_it_holds(expression: Any) -> None:
    from stelae.client.filters import predicates as read
    from stelae.rows.predicate_filter import filter_rows

    found = pushed(SCHEMA, expression)
    rows = RowBatch.from_arrays(SCHEMA.layout, WHOLE.combine_chunks().to_batches()[0].columns)
    kept = filter_rows(SCHEMA, read(SCHEMA, found.filters), rows)
    holds = WHOLE.filter(expression)
    assert pc.all(pc.is_in(holds["minute"], value_set=kept.arrow["minute"])).as_py() is not False
    assert found.columns is not None


def test_comparisons_of_floats_stay_with_whoever_asks_since_nan_may_be_above_all_numbers_there() -> None:
    # DuckDB keeps them today; one that handed them over would lose rows with NaN here.
    expression = (FIELD("celsius") > 1.0) & FIELD("celsius").is_valid() & (FIELD("sensor") == 1)
    found = pushed(SCHEMA, expression)
    assert sorted(found.filters, key=str) == [("celsius", "is not null"), ("sensor", "=", 1)]
    assert found.columns == ["celsius", "sensor"]


def test_an_expression_that_cannot_be_read_is_judged_by_whoever_asks_and_needs_all_columns() -> None:
    assert pushed(SCHEMA, object()) == ([], None)
    odd = schema_from_plain({"columns": [{"name": "a'\ncall: 'x", "type": "int64"}], "key": ["a'\ncall: 'x"]})
    assert pushed(odd, FIELD("a'\ncall: 'x") == 1) == ([], None)
    assert pushed(SCHEMA, FIELD("elsewhere") == 1) == ([], None)
    assert pushed(SCHEMA, None) == ([], ())
