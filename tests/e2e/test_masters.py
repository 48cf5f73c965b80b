"""Masters and tablet servers, as users have them: tables are made, changed, dropped, and survive dead masters."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stelae.client.admin import Admin
from stelae.client.aio import AsyncClient, connect_async
from stelae.client.catalog import SYSTEM_TABLET
from stelae.client.master_errors import BadChange, NoTable, TableExists, TooFewServers
from stelae.client.master_requests import AddColumn, DropColumn, RenameColumn, RenameTable
from stelae.client.table import AsyncTable
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.write import OpKind
from tests.e2e.master_nodes import Cluster, running, until

COLUMNS = {"id": "int64", "text": "string"}
FOUR = {"hash": [{"columns": ["id"], "buckets": 4}]}
QUICK = """
[master]
scan_interval_ms = 100
policy_interval_ms = 100
"""


async def connect(cluster: Cluster) -> AsyncClient:
    """Connect by the address of one master that runs."""
    return await connect_async(next(cluster.addresses[m] for m in cluster.masters if m in cluster.nodes))


def rows(count: int) -> list[dict[str, object]]:
    return [{"id": n, "text": f"row {n}"} for n in range(count)]


async def column(table: AsyncTable, name: str) -> list[object]:
    """The values of a column, sorted."""
    return sorted(row[name] for row in await table.scan().to_pylist())


def replicas(cluster: Cluster) -> int:
    """How many replicas the tablet servers have."""
    return sum(len(cluster.nodes[server].replicas) for server in cluster.servers if server in cluster.nodes)


def test_a_table_is_created_written_read_changed_and_dropped(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, settings=QUICK) as cluster, await connect(cluster) as client:
            table = await client.create_table("people", COLUMNS, "id", partition=FOUR)
            assert replicas(cluster) == 12
            await table.insert(rows(100))
            assert await column(table, "id") == list(range(100))
            assert await client.tables() == ["people"]
            changed = await client.alter_table(
                "people", AddColumn(name="size", type="int64", default=7), RenameColumn(name="text", to="words")
            )
            assert list(changed.columns) == ["id", "words", "size"]
            await changed.insert([{"id": 100, "words": "new", "size": 8}])
            assert await column(changed, "size") == [*[7] * 100, 8]
            renamed = await client.alter_table("people", RenameTable(to="folk"), DropColumn(name="size"))
            assert await client.tables() == ["folk"] and list(renamed.columns) == ["id", "words"]
            await client.drop_table("folk")
            assert await client.tables() == []
            await until(lambda: replicas(cluster) == 0)

    asyncio.run(run())


def test_a_table_outlives_every_master_and_every_server_one_after_the_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, settings=QUICK) as cluster, await connect(cluster) as client:
            table = await client.create_table("people", COLUMNS, "id", partition=FOUR)
            await table.insert(rows(50))
            for number, node in enumerate(cluster.ids):
                await cluster.stop(node)
                await until(lambda: cluster.leader() is not None)
                await table.upsert([{"id": 1000 + number, "text": "more"}])
                if node in cluster.masters:
                    await client.create_table(f"made-{number}", COLUMNS, "id", replicas=3)
                await cluster.start(node)
            async with await connect(cluster) as again:
                assert await again.tables() == ["made-0", "made-1", "made-2", "people"]
                assert await column(await again.table("people"), "id") == [*range(50), *range(1000, 1006)]

    asyncio.run(run())


def test_what_cannot_be_is_refused_with_the_fact_and_the_next_step(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, settings=QUICK) as cluster, await connect(cluster) as client:
            with pytest.raises(TooFewServers, match="5"):
                await client.create_table("people", COLUMNS, "id", replicas=5)
            await client.create_table("people", COLUMNS, "id")
            with pytest.raises(TableExists, match="already"):
                await client.create_table("people", COLUMNS, "id")
            with pytest.raises(NoTable, match="there are: people"):
                await client.drop_table("peolpe")
            with pytest.raises(BadChange):
                await client.alter_table("people", DropColumn(name="id"))
            with pytest.raises(SchemaMismatch, match="is no column; there are: id, text"):
                await client.create_table("other", COLUMNS, "ident")
            with pytest.raises(SchemaMismatch, match="unknown column type"):
                await client.create_table("other", {"id": "integer"}, "id")

    asyncio.run(run())


def test_nobody_but_masters_writes_the_catalog(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster, await connect(cluster) as client:
            catalog = await client.connection.tablet(SYSTEM_TABLET)
            with pytest.raises(CallerError, match="by masters alone"):
                await catalog.write(OpKind.UPSERT, [("table", "x", b"nonsense")])
            with pytest.raises(CallerError, match="by masters alone"):
                await client.connection.change_schema(catalog, catalog.schema)
            with pytest.raises(CallerError, match="by masters alone"):
                await Admin(client.connection).delete_replica(
                    cluster.masters[0], SYSTEM_TABLET, "mischief", table_is_gone=True
                )
            await client.create_table("people", COLUMNS, "id", replicas=1)

    asyncio.run(run())
