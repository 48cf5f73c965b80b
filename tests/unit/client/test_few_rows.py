"""Few rows of plain values are encoded without Arrow, exactly as the Arrow path encodes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stelae.client.failures import FailureTally
from stelae.client.few_rows import RowConverters
from stelae.client.row_input import RowInput
from stelae.client.table_writer import TableWriter
from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.rows.operation_encoding import ROW_FORM_ROWS_MAX
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-200, 200),
    "int64": st.integers(-(1 << 63) - 1, 1 << 63),
    "float": st.floats() | st.floats(width=32) | st.integers(-5, 5),
    "double": st.floats() | st.integers(-(1 << 54), 1 << 54),
    "bool": st.booleans() | st.integers(0, 1),
    "decimal(7,3)": st.decimals(-12_000, 12_000) | st.decimals(-100, 100, places=2) | st.integers(-20, 20),
    "string": st.text() | st.just("\ud800") | st.binary(max_size=3),
    "binary": st.binary(max_size=8) | st.text(max_size=3),
    "date": st.dates() | st.integers(-719_165, -719_160) | st.datetimes(),
    "timestamp": st.datetimes() | st.datetimes(timezones=st.just(UTC)) | st.dates() | st.integers(0, 9),
}
"""Values of each type: most fit, some need a conversion, some are refused."""

KEYS = [name for name in VALUES if name != "float"]
PARTITIONINGS: list[dict[str, Any]] = [
    {},
    {"hash": [{"columns": ["key"], "buckets": 3}]},
    {"hash": [{"columns": ["second"], "buckets": 2}, {"columns": ["key"], "buckets": 5}]},
]


class NoTablet:
    """A tablet to which nothing is sent."""

    def __init__(self, number: int) -> None:
        self.tablet_id = TabletId(f"tablet-{number}")

    def send(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("planning sends nothing")


def schema_of(key: str, *others: tuple[str, bool]) -> Schema:
    columns: list[dict[str, Any]] = [{"name": "key", "type": key}, {"name": "second", "type": "int8"}]
    columns += [{"name": f"c{at}", "type": kind, "nullable": null} for at, (kind, null) in enumerate(others)]
    return schema_from_plain({"columns": columns, "key": ["key", "second"]})


def writer_of(schema: Schema, plain: dict[str, Any]) -> TableWriter:
    partitioning = Partitioning(schema, partition_schema_from_plain(schema, plain))
    return TableWriter("t", partitioning, [NoTablet(n) for n in range(partitioning.partition_schema.count)])


def planned(writer: TableWriter, kind: OpKind, rows: Any) -> tuple[list[Any], list[Any], int]:
    """What would be sent: partition, columns, encoded rows and places; the rows that failed; and how many there are."""
    tally = FailureTally("t", kind)
    sent = [
        (one.tablet, one.encoded.columns, bytes(one.encoded.rows), [*one.positions])
        for batch in writer.planned(kind, rows, tally)
        for one in batch._operations
    ]
    return sent, [(f.row, f.reason) for f in tally.failures], tally.rows


@st.composite
def calls(draw: st.DrawFn) -> tuple[Schema, dict[str, Any], OpKind, list[Any]]:
    others = draw(st.lists(st.tuples(st.sampled_from(sorted(VALUES)), st.booleans()), max_size=4))
    schema = schema_of(draw(st.sampled_from(KEYS)), *others)
    kind = draw(st.sampled_from([OpKind.UPSERT, OpKind.UPDATE, OpKind.DELETE]))
    layout = schema.key_layout if kind is OpKind.DELETE else schema.layout
    row = st.tuples(*[VALUES[c.type] | st.none() if c.nullable else VALUES[c.type] for c in layout.columns])
    rows: list[Any] = draw(st.lists(row, min_size=1, max_size=4))
    if draw(st.booleans()):
        names = draw(st.permutations([c.name for c in layout.columns]))
        positions = [[c.name for c in layout.columns].index(name) for name in names]
        rows = [{name: values[at] for name, at in zip(names, positions, strict=True)} for values in rows]
        if kind is OpKind.UPDATE and draw(st.booleans()):
            rows = [{n: v for n, v in values.items() if n in ("key", "second", "c0")} for values in rows]
    return schema, draw(st.sampled_from(PARTITIONINGS)), kind, rows


@example(call=(schema_of("string"), PARTITIONINGS[1], OpKind.UPSERT, [("\ud800", 0)]))
@given(calls())
def test_what_is_sent_and_what_fails_is_the_same_with_and_without_arrow(
    call: tuple[Schema, dict[str, Any], OpKind, list[Any]],
) -> None:
    schema, plain, kind, rows = call

    async def both() -> Iterator[Any]:
        quick, through_arrow = writer_of(schema, plain), writer_of(schema, plain)
        through_arrow._plan_few_rows = lambda *_: None  # type: ignore[method-assign]
        outcomes = []
        for writer in (quick, through_arrow):
            try:
                outcomes.append(planned(writer, kind, rows))
            except StelaeError as error:
                outcomes.append(([], [(type(error).__name__, str(error))], 0))
        return iter(outcomes)

    quick, through_arrow = asyncio.run(both())
    assert quick == through_arrow


@pytest.mark.parametrize(
    ("kind", "value", "plain"),
    [
        ("int8", 127, 127),
        ("double", 3, 3.0),
        ("float", 0.1, 0.10000000149011612),
        ("decimal(7,3)", Decimal("1.5"), Decimal("1.500")),
        ("date", date(1970, 1, 2), 1),
        ("timestamp", datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        ("string", "é", "é"),
        ("binary", b"\0", b"\0"),
        ("bool", True, True),
    ],
)
def test_plain_values_of_every_type_need_no_arrow(kind: str, value: Any, plain: Any) -> None:
    converters = RowConverters(schema_of("int8", (kind, False)))
    for row in ({"second": 2, "key": 1, "c0": value}, (1, 2, value), [{"key": 1, "second": 2, "c0": value}]):
        taken = converters.convert(OpKind.INSERT, row)
        assert taken is not None
        assert taken[1] == [(1, 2, plain)]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (OpKind.INSERT, []),
        (OpKind.INSERT, [(1, 2, "x")] * ROW_FORM_ROWS_MAX),
        (OpKind.INSERT, [(1, 2, "x"), {"key": 1, "second": 2, "c0": "x"}]),
        (OpKind.INSERT, [{"key": 1, "second": 2, "c0": "x"}, {"key": 1, "second": 2}]),
        (OpKind.INSERT, [{"key": 1, "second": 2, "c0": "x"}, {"key": 1, "second": 2, "c1": "x"}]),
        (OpKind.INSERT, (1, 2)),
        (OpKind.INSERT, {"key": 1, "c0": "x"}),
        (OpKind.INSERT, {"key": 1, "second": 2, "no such": "x"}),
        (OpKind.DELETE, {"key": 1, "second": 2, "c0": "x"}),
        (OpKind.INSERT, (True, 2, "x")),
        (OpKind.INSERT, (1.0, 2, "x")),
        (OpKind.INSERT, 5),
        (OpKind.INSERT, [5]),
        (OpKind.INSERT, [None]),
    ],
)
def test_what_needs_a_conversion_or_an_explanation_goes_through_arrow(kind: OpKind, rows: Any) -> None:
    assert RowConverters(schema_of("int8", ("string", False))).convert(kind, rows) is None


@pytest.mark.parametrize("count", [1, ROW_FORM_ROWS_MAX - 1])
@pytest.mark.parametrize("partitioning", PARTITIONINGS)
def test_few_plain_rows_are_sent_without_arrow(
    count: int, partitioning: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single row costs some 40 us in the client, and several hundred over Arrow: nothing may bring it there."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("few plain rows went over Arrow")

    writer = writer_of(schema_of("int64", ("string", True), ("double", False)), partitioning)
    monkeypatch.setattr(RowInput, "batches", refuse)
    monkeypatch.setattr(RowBatch, "from_equal_rows", refuse)
    rows = [{"key": number, "second": 1, "c0": None if number % 2 else "text", "c1": 0.5} for number in range(count)]
    sent, failures, total = planned(writer, OpKind.INSERT, rows)
    assert total == count and not failures
    assert sorted(place for *_, places in sent for place in places) == list(range(count))
