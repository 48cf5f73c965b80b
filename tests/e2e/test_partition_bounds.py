"""A client that sends rows to tablets of other partitions, by mistake or to do harm: none is ever taken."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stelae.client import AsyncClient, AsyncTable, RowsFailed
from stelae.spi.write import OpKind
from tests.e2e.master_nodes import Cluster, running
from tests.e2e.test_masters import COLUMNS, QUICK, column, connect, rows

SPREAD = {
    "hash": [{"columns": ["id"], "buckets": 2}],
    "range": {"columns": ["id"], "ranges": [{"from": 0, "until": 50}, {"from": 50, "until": 300}]},
}
COUNT = 300  #: More than a row form has, so that batches travel as Arrow, too.


async def misled(client: AsyncClient) -> AsyncTable:
    """The table, with every tablet taken for the next one, and nobody to ask."""
    table = await client.table("people")
    table._writer.tablets = [*table._writer.tablets[1:], table._writer.tablets[0]]
    table._writer.renew = None
    return table


async def refused(table: AsyncTable, kind: OpKind, data: list[dict[str, object]]) -> None:
    given = [{"id": row["id"]} for row in data] if kind in (OpKind.DELETE, OpKind.DELETE_IGNORE) else data
    with pytest.raises(
        RowsFailed, match=r"outside of the tablet's partition: bucket [01] of 2 by id; id from"
    ) as caught:
        await table.write(kind, given)
    assert {failure.code for failure in caught.value.failures} == {"OUTSIDE_PARTITION"}
    assert caught.value.result.failed == len(given)


async def attack(client: AsyncClient) -> None:
    """Every kind of write, small and large, of rows that are there and of rows that are not."""
    table = await misled(client)
    for kind in OpKind:
        await refused(table, kind, [{"id": n, "text": "evil"} for n in range(7)])
        await refused(table, kind, [{"id": n, "text": "evil"} for n in range(COUNT)])


async def restart_servers(cluster: Cluster) -> None:
    for node in cluster.servers:
        await cluster.stop(node)
        await cluster.start(node)


def test_no_row_gets_into_another_partition_nor_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, settings=QUICK) as cluster, await connect(cluster) as client:
            table = await client.create_table("people", COLUMNS, "id", partition=SPREAD)
            await table.insert(rows(COUNT - 50))
            await attack(client)
            await restart_servers(cluster)
            await attack(client)
            assert await column(table, "text") == sorted(f"row {n}" for n in range(COUNT - 50))
            await table.insert(rows(COUNT)[COUNT - 50 :])
            assert await column(table, "id") == [*range(COUNT)]

    asyncio.run(run())


def test_a_client_that_is_misled_looks_again_and_its_rows_arrive(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, masters=1, settings=QUICK) as cluster, await connect(cluster) as client:
            await client.create_table("people", COLUMNS, "id", partition=SPREAD)
            table, true = await misled(client), await client.table("people")

            async def renew(timeout_s: float) -> bool:
                table._writer.altered(true._writer.partitioning, true._writer.tablets)
                return True

            table._writer.renew = renew
            assert (await table.insert(rows(COUNT))).failed == 0
            assert await column(true, "id") == [*range(COUNT)]

    asyncio.run(run())
