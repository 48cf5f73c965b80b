"""Records of plain values: what ``to_pylist`` of the same rows returns."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.client.plain_records import LacksColumns, PlainRecords
from stelae.protocol.codec import decode
from stelae.protocol.lookup_messages import LOOKUP_REPLY_BYTES, LookupReply, LookupRequest
from stelae.rows.limits import RANGES
from stelae.server.tserver.lookup_answer import LookupAnswer
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.store import FoundRows
from stelae.testing.conformance.store_lookup import EVERY_TYPE
from tests.unit.client.tablets import SCHEMA

ASKED = LookupRequest(TabletId("t"), (b"k",), EVERY_TYPE.version)
DAYS, TIMES = RANGES["date"], RANGES["timestamp"]


def sent(schema: Schema, rows: list[Any]) -> LookupReply:
    """Rows after their way from the server to the client."""
    answer = LookupAnswer(ASKED)
    answer.add(FoundRows(schema, rows))
    return decode(answer.encoded(), LookupReply)


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
    found = PlainRecords(EVERY_TYPE).of(EVERY_TYPE.layout.ids, reply.rows)
    assert found == [None, *batch().arrow.to_pylist()]
    types = [[type(value) for value in (record or {}).values()] for record in found[1:]]
    assert types == [[type(value) for value in record.values()] for record in batch().arrow.to_pylist()]


def test_columns_are_matched_by_id() -> None:
    records = PlainRecords(SCHEMA)
    one = {"sensor": 1, "minute": 2, "celsius": 3.5, "note": None}
    assert records.of((4, 9, 1, 3, 2), [[None, "x", 1, 3.5, 2], None]) == [one, None]
    for _ in range(2):
        with pytest.raises(LacksColumns):
            records.of((1, 2, 3), [[1, 2, 3.5]])


def test_an_answer_names_the_columns_if_the_client_knows_another_version() -> None:
    other = Schema(2, SCHEMA.columns, SCHEMA.key)
    assert sent(other, [None]).ids == SCHEMA.layout.ids


def test_an_answer_ends_when_it_is_large_and_has_one_row_at_least() -> None:
    half, whole = "x" * (LOOKUP_REPLY_BYTES // 2), "x" * (2 * LOOKUP_REPLY_BYTES)
    rows: list[Any] = [None, (1, 1, None, half), None, (1, 2, None, half), (1, 3, None, "y")]
    assert len(sent(SCHEMA, rows).rows) == 4
    assert len(sent(SCHEMA, [(1, 1, None, whole), (1, 2, None, whole)]).rows) == 1
