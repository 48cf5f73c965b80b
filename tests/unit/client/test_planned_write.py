"""Batches of one call: two of them may be in flight at once unless they have a key in common."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from stelae.client import planned_write, table_writer
from stelae.client.failures import FailureTally
from stelae.client.planned_write import PlannedWrite
from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import PartitionSchema
from stelae.rows.batch_building import build_batch
from stelae.rows.key_order import key_order
from stelae.rows.operation_encoding import operation
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind

LAST_US = (1 << 63) - 1
NAN = float("nan")


def schema(kind: str) -> Schema:
    columns = [{"name": "first", "type": kind}, {"name": "second", "type": "int32"}]
    return schema_from_plain({"columns": columns, "key": ["first", "second"]})


def batch(kind: str, *batches: list[tuple[Any, ...]]) -> PlannedWrite:
    found = schema(kind)
    rows = [build_batch(found.layout, batch) for batch in batches]
    return PlannedWrite(
        Partitioning(found, PartitionSchema()), [], key_order(found), rows, FailureTally("t", OpKind.UPSERT), [], []
    )


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("int64", -(1 << 63), (1 << 63) - 1),
        ("string", "", "\U0010ffff"),
        ("binary", b"\0", b"\xff"),
        ("bool", False, True),
        ("date", -(1 << 31), (1 << 31) - 1),
        ("timestamp", -LAST_US, LAST_US),
        ("decimal(5,2)", Decimal("-1.00"), Decimal("1.00")),
        ("float", -1.0, 1.0),
        ("double", float("-inf"), NAN),
    ],
)
def test_keys_of_any_type_meet_if_one_is_in_both_and_else_do_not(kind: str, low: Any, high: Any) -> None:
    mine = batch(kind, [(low, 1), (low, 3)])
    assert mine.shares_key_with(batch(kind, [(high, 9)], [(low, 3)]))
    assert batch(kind, [(high, 1)]).shares_key_with(batch(kind, [(high, 1)]))
    assert not mine.shares_key_with(batch(kind, [(high, 1), (high, 3)]))
    assert not mine.shares_key_with(batch(kind, [(low, 2)])), "only the first column is the same"
    assert not mine.shares_key_with(batch(kind, [(high, 1)], [(low, 2), (low, 4)]))


def test_zero_and_minus_zero_are_one_key() -> None:
    assert batch("double", [(0.0, 1)]).shares_key_with(batch("double", [(-0.0, 1)]))


def test_of_batches_in_key_order_no_key_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_write.PlannedWrite, "_keys", lambda *_: pytest.fail("keys were encoded"))
    assert not batch("int64", [(1, 1), (5, 1)]).shares_key_with(batch("int64", [(6, 1), (9, 1)]))


def test_of_batches_that_share_one_value_of_the_first_column_only_its_rows_are_looked_at() -> None:
    """As of an order whose lines are cut apart: looking at all keys cost a load a tenth of its time."""
    mine, other = batch("int64", [(1, 1), (4, 1), (5, 1)], [(5, 2)]), batch("int64", [(5, 3), (6, 1), (9, 1)])
    assert not mine.shares_key_with(other)
    assert (len(mine._keys(5, 5)), len(other._keys(5, 5))) == (2, 1)
    assert mine.shares_key_with(batch("int64", [(5, 3), (5, 2), (9, 1)]))


def test_a_batch_without_rows_meets_nothing() -> None:
    assert not batch("int64").shares_key_with(batch("int64", [(1, 1)]))
    assert not batch("int64", [(1, 1)]).shares_key_with(batch("int64"))


def test_rows_that_travel_as_arrow_are_encoded_as_any_operation_is() -> None:
    rows = build_batch(schema("string").layout, [(f"row {n}", n) for n in range(100)])
    ((_, _, encoded),) = table_writer._encoded(OpKind.UPSERT, None, None, rows, 0)
    assert encoded == operation(OpKind.UPSERT, rows.to_ipc())
