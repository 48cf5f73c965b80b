"""Limits as ``node.toml`` sets them, met through the client on running nodes, with both stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from stelae.client import RowsFailed
from stelae.client.async_client import AsyncClient, connect_async
from stelae.client.connection import Connection
from stelae.protocol.master_errors import BadChange
from stelae.protocol.master_messages import AddColumn
from stelae.protocol.tablet_messages import IN_VALUES_MAX
from stelae.rows.limits import RANGES
from stelae.rows.operation_encoding import operation
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.rows import RowBatch
from stelae.spi.scan import In, ScanSpec
from stelae.spi.schema import COLUMNS_MAX, Column, Schema
from stelae.spi.write import OpKind, RowCode
from tests.e2e import nodes
from tests.e2e.master_nodes import Cluster, running, until

LARGE = 100 << 10
RAISED = f"cell_bytes_max = {LARGE}\nkey_bytes_max = {32 << 10}\ncolumns_max = {COLUMNS_MAX}"
LOWERED = "cell_bytes_max = 1000\nkey_bytes_max = 100\ncolumns_max = 3"
COLUMNS = {"id": "string", "text": "string", "raw": "binary"}
stores = pytest.mark.parametrize("store", ["columnar", "lmdb"])


def settings(store: str, limits: str) -> str:
    return (
        f'[master]\nscan_interval_ms = 100\npolicy_interval_ms = 100\n[engines]\nstore = "{store}"\n[limits]\n{limits}'
    )


async def connect(cluster: Cluster) -> AsyncClient:
    return await connect_async(cluster.addresses[cluster.masters[0]])


async def restart(cluster: Cluster, limits: str) -> None:
    """Start every node again, set otherwise."""
    for node in cluster.ids:
        await cluster.stop(node)
    cluster.settings = cluster.settings.split("[limits]")[0] + f"[limits]\n{limits}"
    for node in cluster.ids:
        await cluster.start(node)
    await until(lambda: cluster.leader() is not None)


@stores
def test_a_raised_limit_takes_more_and_a_lowered_one_keeps_what_is_there(tmp_path: Path, store: str) -> None:
    key, text = "k" * (20 << 10), "x" * LARGE
    rows = [{"id": key, "text": text, "raw": None}, {"id": "b", "text": None, "raw": b"r" * LARGE}]

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=settings(store, RAISED)) as cluster:
            async with await connect(cluster) as client:
                table = await client.create_table("large", COLUMNS, "id", replicas=1)
                await table.upsert(rows)
                with pytest.raises(RowsFailed) as caught:
                    await table.upsert([{"id": "c", "text": text + "x"}, {"id": "d", "text": "small"}])
                (failure,) = caught.value.result.failures
                assert (failure.row, failure.code) == (0, "BAD_VALUE")
                assert "column 'text' has 102401 bytes; at most 102400 are accepted" in failure.reason
            await restart(cluster, LOWERED)
            async with await connect(cluster) as client:
                table = await client.table("large")
                kept = [rows[1], {"id": "d", "text": "small", "raw": None}, rows[0]]
                assert await table.scan(order="key").to_pylist() == kept
                assert await table.get(key) == rows[0]
                refused = await table.upsert([(key, "x", None), ("e", "x" * 1001, None)], errors="return")
                assert [failure.reason for failure in refused.failures] == [
                    "the encoded key has 20480 bytes; at most 100 are accepted (key_bytes_max in [limits])",
                    "column 'text' has 1001 bytes; at most 1000 are accepted (cell_bytes_max in [limits])",
                ]
                await table.delete([{"id": "d"}])
                with pytest.raises(SchemaMismatch, match="4 columns; at most 3 are accepted"):
                    await client.alter_table("large", AddColumn(name="more", type="int64"))

    asyncio.run(run())


@stores
def test_a_table_as_wide_as_can_be_is_made_written_and_known_after_a_restart(tmp_path: Path, store: str) -> None:
    """Its record in the catalog is a cell of megabytes. One above 64 KiB, which 150 columns with long names reach, was
    dropped from its batch, and masters that met tablets without their table stopped for good."""
    names = [f"column {n:04} {'with a long name ' * 6}" for n in range(COLUMNS_MAX - 1)]
    columns = {"id": "int64"} | dict.fromkeys(names, "int32")

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=settings(store, RAISED)) as cluster:
            async with await connect(cluster) as client:
                table = await client.create_table("wide", columns, "id", replicas=1)
                await table.upsert([{"id": 1, names[7]: 7}, {"id": 2, names[-1]: 9}])
                with pytest.raises(SchemaMismatch, match=f"{COLUMNS_MAX + 1} columns"):
                    await client.alter_table("wide", AddColumn(name="more", type="int64"))
            await restart(cluster, "columns_max = 3")
            async with await connect(cluster) as client:
                assert await client.tables() == ["wide"]
                table = await client.table("wide")
                found = await table.scan(order="key").to_pylist()
                assert [(row["id"], row[names[7]], row[names[-1]]) for row in found] == [(1, 7, None), (2, None, 9)]
                with pytest.raises(BadChange, match="4 columns; at most 3 are accepted"):
                    await client.create_table("four", dict.fromkeys("abcd", "int64"), "a", replicas=1)

    asyncio.run(run())


def test_a_server_refuses_what_a_client_that_does_not_look_would_send(tmp_path: Path) -> None:
    async def run() -> None:
        limits = "[limits]\ncolumns_max = 3"
        async with nodes.running(tmp_path, limits) as cluster, await Connection.connect(cluster.addresses) as client:
            tablet = await client.tablet(nodes.TABLET)
            wide = Schema(2, (*tablet.schema.columns, *(nullable(n) for n in range(7, 9))), tablet.schema.key)
            with pytest.raises(SchemaMismatch, match="4 columns; at most 3 are accepted"):
                await client.change_schema(tablet, wide)
            bad = msgspec.structs.replace(nullable(7), nullable=False, default=1 << 62)
            with pytest.raises(SchemaMismatch, match="is not a timestamp, which goes from 0001"):
                await client.change_schema(tablet, Schema(2, (*tablet.schema.columns, bad), tablet.schema.key))
            many = ScanSpec(columns=(1,), predicates=(In(1, tuple(range(IN_VALUES_MAX + 1))),))
            with pytest.raises(CallerError, match="'in' has 10001 values, at most 10000"):
                await tablet.page(many)
            dated = Schema(2, (*tablet.schema.columns, nullable(7)), tablet.schema.key)
            changed = await client.change_schema(tablet, dated)
            last = RANGES["timestamp"][1]
            rows = [(1, "a", last), (2, "b", last + 1), (3, "c", None)]
            for sent in (rows, RowBatch.from_equal_rows(dated.layout, rows).to_ipc()):
                result = await changed.send(operation(OpKind.UPSERT, sent), nodes.WAIT_S)
                assert not result.refusal, result
                ((row, code, detail),) = [(e.row, e.code, e.detail) for e in result.errors]
                assert (row, code) == (1, RowCode.BAD_VALUE) and "timestamp goes from" in detail

    asyncio.run(run())


def nullable(column_id: int) -> Column:
    return Column(id=column_id, name=f"at {column_id}", type="timestamp", nullable=True)
