"""Arguments of wrong types: each is named, with the type that came and what was expected, wherever it is handed in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import pytest

from stelae.client import (
    AddColumn,
    AddRange,
    AsyncClient,
    AsyncTable,
    RenameColumn,
    ScanToken,
    SessionOptions,
    SetReplicas,
    to_datetime,
)
from stelae.client.arguments import alter_step
from stelae.client.async_client import connect_async
from stelae.client.catalog import CatalogClient
from stelae.spi.errors import CallerError
from stelae.spi.write import OpKind
from tests.unit.client.tablets import MemoryTable

WRONG: list[Any] = ["5", -1, True, None, [], [5], {}, object(), b"x", float("nan"), float("inf"), 10**400, datetime.min]
"""None of these is a number of seconds, the name of a table, or the kind of a write."""

ROW = {"sensor": 1, "minute": 1}


def refused(name: str, work: Callable[[AsyncTable], Awaitable[Any]]) -> None:
    async def run() -> None:
        with pytest.raises(CallerError) as caught:
            await work(MemoryTable().table)
        assert name in str(caught.value)

    asyncio.run(run())


async def rows_of(scan: Any) -> Any:
    return await scan.to_pylist()


@pytest.mark.parametrize("wrong", [*WRONG, "LZ4", "zstd", ""], ids=lambda v: repr(v)[:20])
def test_a_compression_is_none_or_lz4(wrong: Any) -> None:
    refused("compression must be 'none' or 'lz4'", lambda _: connect_async("127.0.0.1:1", compression=wrong))


@pytest.mark.parametrize("wrong", WRONG, ids=lambda v: repr(v)[:20])
def test_a_timeout_is_a_number_of_seconds(wrong: Any) -> None:
    calls: list[Callable[[AsyncTable], Awaitable[Any]]] = [
        lambda table: table.refresh(timeout_s=wrong),
        lambda table: table.insert(ROW, timeout_s=wrong),
        lambda table: table.get((1, 1), timeout_s=wrong),
        lambda table: table.get_many([(1, 1)], timeout_s=wrong),
        lambda table: rows_of(table.scan(timeout_s=wrong)),
        lambda table: rows_of(table.diff(table.now(), timeout_s=wrong)),
        lambda table: connect_async("127.0.0.1:1", timeout_s=wrong),
    ]
    for call in calls:
        refused("timeout_s must be a number of seconds", call)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda v: repr(v)[:20])
def test_an_argument_of_a_wrong_type_is_named_with_what_was_expected(wrong: Any) -> None:
    refused("kind must be a stelae.spi.write.OpKind", lambda table: table.write(wrong, ROW))
    refused("errors must be 'raise' or 'return'", lambda table: table.insert(ROW, errors=wrong))
    if wrong is not None:
        refused("limit must be a whole number from 0, or None for all rows", lambda t: rows_of(t.scan(limit=wrong)))
        refused("staleness_s must be a number of seconds", lambda t: rows_of(t.scan(staleness_s=wrong)))
    if wrong is not True:
        refused("own_writes must be True or False", lambda table: rows_of(table.scan(own_writes=wrong)))
    if not isinstance(wrong, list | dict):
        refused("keys must be a list of keys", lambda table: table.get_many(wrong))
    if wrong:
        refused("options must be SessionOptions", lambda table: asyncio.sleep(0, table.session(wrong)))
    for what in (to_datetime, ScanToken.from_bytes, alter_step):
        with pytest.raises(CallerError):
            what(wrong)


@pytest.mark.parametrize("wrong", [5, -1, 1.5, True, [[5]], [{}], [5], object(), b"x", datetime.min])
def test_columns_are_names(wrong: Any) -> None:
    refused("column", lambda table: rows_of(table.scan(columns=wrong)))
    refused("column", lambda table: rows_of(table.diff(table.now(), columns=wrong)))


@pytest.mark.parametrize(
    "name", ["auto_flush", "flush_rows", "flush_bytes", "flush_interval_s", "buffer_rows_max", "timeout_s"]
)
@pytest.mark.parametrize("wrong", [*WRONG[:2], *WRONG[3:], 0, 1.5 + 1j], ids=lambda v: repr(v)[:20])
def test_options_of_a_session_are_of_their_types(name: str, wrong: Any) -> None:
    with pytest.raises(CallerError, match=f"^{name} must be .*, not {type(wrong).__name__} "):
        SessionOptions(**{name: wrong})


def test_half_a_row_is_no_size_of_a_batch() -> None:
    """A session of 1.5 rows a batch hung for ever."""
    with pytest.raises(CallerError, match=r"flush_rows must be a whole number from 1, not float 1\.5"):
        SessionOptions(flush_rows=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [5, None, True, [], b"t", datetime.min], ids=repr)
def test_names_of_tables_are_text(wrong: Any) -> None:
    client = AsyncClient(None, ["127.0.0.1:1"])  # type: ignore[arg-type]
    client.catalog = CatalogClient(None, None)  # type: ignore[arg-type]
    for call in (
        lambda: client.table(wrong),
        lambda: client.create_table(wrong, {"k": "int64"}, "k"),
        lambda: client.alter_table(wrong),
        lambda: client.drop_table(wrong),
        lambda: client.recall_table(wrong),
    ):
        with pytest.raises(
            CallerError, match=rf"(the name of a table|table_id) must be text, not {type(wrong).__name__} "
        ):
            asyncio.run(call())


def test_steps_of_an_alteration_are_looked_at_field_by_field() -> None:
    for step, told in (
        (AddColumn(name=5, type="int64"), "name of AddColumn must be text, not int 5"),  # type: ignore[arg-type]
        (AddColumn(name="v", type="int64", nullable="no"), "nullable of AddColumn must be True or False, not str 'no'"),  # type: ignore[arg-type]
        (SetReplicas("three"), "count of SetReplicas must be a whole number from 1, not str 'three'"),  # type: ignore[arg-type]
        (AddRange(range=(1, 2)), "range of AddRange must be a range made by key_range of the table, not tuple"),  # type: ignore[arg-type]
        (
            "drop it",
            "a step must be one of AddColumn, DropColumn, RenameColumn, SetDefault, RenameTable, SetReplicas, "
            "AddRange, DropRange",
        ),
    ):
        with pytest.raises(CallerError, match="^" + told):
            alter_step(step)


def test_steps_of_an_alteration_take_their_fields_in_order() -> None:
    """The page showed them so, and they took keywords alone."""
    assert AddColumn("level", "string", False, "info") == AddColumn(
        name="level", type="string", nullable=False, default="info"
    )
    assert RenameColumn("what", "text") == RenameColumn(name="what", to="text")
    assert msgspec.json.decode(msgspec.json.encode(RenameColumn("a", "b"))) == {
        "step": "RenameColumn",
        "name": "a",
        "to": "b",
    }


def test_numbers_of_numpy_are_numbers() -> None:
    async def run() -> None:
        table = MemoryTable().table
        await table.write(OpKind.UPSERT, ROW, timeout_s=np.float32(5))  # type: ignore[arg-type]
        assert len(await table.scan(limit=np.int64(3), timeout_s=np.int32(5)).to_pylist()) == 1  # type: ignore[arg-type]

    asyncio.run(run())
