"""Records of plain values: what ``to_pylist`` of the same rows returns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from stelae.client.found_parts import FoundPage, FoundValues, found_pages
from stelae.client.plain_records import LacksColumns, PlainRecords
from stelae.protocol.codec import decode
from stelae.protocol.lookup_messages import LOOKUP_REPLY_BYTES, LookupReply, LookupRequest, pack_positions
from stelae.rows.arrow_page import encoded_rows
from stelae.rows.found_rows import plain_rows
from stelae.rows.limits import RANGES
from stelae.server.tserver.lookup_answer import LookupAnswer
from stelae.spi.errors import Corrupt
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.store import FoundBatch, FoundRows
from stelae.testing.conformance.store_lookup import EVERY_TYPE
from tests.unit.client.tablets import SCHEMA

ASKED = LookupRequest(TabletId("t"), (b"k",), EVERY_TYPE.version)
DAYS, TIMES = RANGES["date"], RANGES["timestamp"]


def sent(schema: Schema, rows: list[Any]) -> LookupReply:
    """Rows after their way from the server to the client."""
    answer = LookupAnswer(ASKED)
    answer.add(FoundRows(schema, rows))
    return decode(answer.frames()[0], LookupReply)


def batch() -> RowBatch:
    rows: list[Any] = [
        (TIMES[0], "", *[None] * 10),
        (0, "x", False, -128, -(1 << 63), 0.1, -0.0, "-9999999.99", "", b"", DAYS[0], TIMES[0]),
        (TIMES[1], "\U0001f600", True, 127, (1 << 63) - 1, 1e30, 1e308, "0.01", "\0", b"\xff", DAYS[1], TIMES[1]),
    ]
    return RowBatch.from_equal_rows(EVERY_TYPE.layout, rows)


def test_a_record_has_the_values_that_arrow_returns() -> None:
    reply = sent(EVERY_TYPE, [None, *batch().to_rows()])
    assert reply.ids is None
    found = PlainRecords(EVERY_TYPE).of(FoundValues(EVERY_TYPE.layout.ids, reply.rows))
    assert found == [None, *batch().arrow.to_pylist()]
    types = [[type(value) for value in (record or {}).values()] for record in found[1:]]
    assert types == [[type(value) for value in record.values()] for record in batch().arrow.to_pylist()]


def test_columns_are_matched_by_id() -> None:
    records = PlainRecords(SCHEMA)
    one = {"sensor": 1, "minute": 2, "celsius": 3.5, "note": None}
    assert records.of(FoundValues((4, 9, 1, 3, 2), [[None, "x", 1, 3.5, 2], None])) == [one, None]
    for _ in range(2):
        with pytest.raises(LacksColumns):
            records.of(FoundValues((1, 2, 3), [[1, 2, 3.5]]))


def test_an_answer_names_the_columns_if_the_client_knows_another_version() -> None:
    other = Schema(2, SCHEMA.columns, SCHEMA.key)
    assert sent(other, [None]).ids == SCHEMA.layout.ids


def test_an_answer_ends_when_it_is_large_and_has_one_row_at_least() -> None:
    half, whole = "x" * (LOOKUP_REPLY_BYTES // 2), "x" * (2 * LOOKUP_REPLY_BYTES)
    rows: list[Any] = [None, (1, 1, None, half), None, (1, 2, None, half), (1, 3, None, "y")]
    assert len(sent(SCHEMA, rows).rows) == 4
    assert len(sent(SCHEMA, [(1, 1, None, whole), (1, 2, None, whole)]).rows) == 1


def test_the_records_of_a_page_are_those_of_the_same_rows_in_row_form() -> None:
    found = FoundBatch(EVERY_TYPE, batch(), [2, -1, 0, 1, 2])
    values, page = sent(EVERY_TYPE, [*plain_rows(found)]), FoundPage(found.rows, found.positions)
    records = PlainRecords(EVERY_TYPE)
    of_page = records.of(page)
    assert of_page == records.of(FoundValues(EVERY_TYPE.layout.ids, values.rows))
    types = [[type(value) for value in (record or {}).values()] for record in of_page]
    expected = [None if place < 0 else found.rows.arrow.to_pylist()[place] for place in found.positions]
    assert types == [[type(value) for value in (record or {}).values()] for record in expected]


def test_each_record_of_a_key_that_is_repeated_is_an_object_of_its_own() -> None:
    first, _, other = PlainRecords(EVERY_TYPE).of(FoundPage(batch(), [1, -1, 1]))
    assert first == other and first is not other


def test_the_columns_of_a_page_are_matched_by_id() -> None:
    layout = SCHEMA.project((3, 2, 1, 4))
    page = FoundPage(RowBatch.from_equal_rows(layout, [(3.5, 2, 1, "x")]), [0])
    assert PlainRecords(SCHEMA).of(page) == [{"sensor": 1, "minute": 2, "celsius": 3.5, "note": "x"}]
    lacking = SCHEMA.project((1, 2, 3))
    with pytest.raises(LacksColumns):
        PlainRecords(SCHEMA).of(FoundPage(RowBatch.from_equal_rows(lacking, [(1, 2, 3.5)]), [0]))


def test_dates_and_times_of_a_page_that_python_has_not_are_damage() -> None:
    for name, value in (("date", DAYS[1] + 1), ("at", TIMES[1] + 1), ("k", -(1 << 63))):
        rows = [dict(zip(EVERY_TYPE.layout.arrow.names, row, strict=True)) | {name: value} for row in batch().to_rows()]
        arrays = [
            pa.array([row[field.name] for row in rows], {"date": pa.int32(), "at": pa.int64(), "k": pa.int64()}[name])
            if field.name == name
            else column
            for field, column in zip(EVERY_TYPE.layout.arrow, batch().arrow.columns, strict=True)
        ]
        arrays = [array.view(field.type) for array, field in zip(arrays, EVERY_TYPE.layout.arrow, strict=True)]
        page = RowBatch.from_arrays(EVERY_TYPE.layout, arrays)
        reply = LookupReply([], pages=(pack_positions(range(len(page))),))
        with pytest.raises(Corrupt, match=f"column '{name}' of found rows"):
            found_pages(reply, [encoded_rows(page)], EVERY_TYPE)
