"""Ranges that come and go behind the back of who has a table open: what a scan reads is what the table has by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stelae.client import AddColumn, AddRange, AsyncClient, AsyncTable, DropRange, RenameTable, RowsFailed, ScanToken
from stelae.client.locations import NoSuchTable
from stelae.client.tokens import BadToken
from stelae.partition.partitioning import NoPartition
from stelae.protocol.actions import DeleteReplica, ServerAction
from stelae.server.tserver.actions import ActionService, Done
from tests.e2e.master_nodes import Cluster, running
from tests.e2e.test_masters import COLUMNS, QUICK, column, connect, rows

RANGED = {"range": {"columns": ["id"], "ranges": [{"from": 0, "until": 10}]}}


def two_clients(
    path: Path, work: Callable[[AsyncTable, AsyncClient, Cluster], Awaitable[Any]], **partition: Any
) -> None:
    """Carry out ``work`` on a table that one client has open, and with another client that alters it."""

    async def run() -> None:
        async with (
            running(path, masters=1, settings=QUICK) as cluster,
            await connect(cluster) as mine,
            await connect(cluster) as other,
        ):
            table = await mine.create_table("people", COLUMNS, "id", partition=partition or RANGED)
            await work(table, other, cluster)

    asyncio.run(run())


async def ids(table: AsyncTable, **how: Any) -> list[object]:
    return sorted(row["id"] for row in await table.scan(["id"], **how).to_pylist())


def test_a_scan_has_the_rows_of_a_range_that_another_client_added_before_it_began(tmp_path: Path) -> None:
    async def work(table: AsyncTable, other: AsyncClient, cluster: Cluster) -> None:
        await table.insert(rows(10))
        described = table.scan(["id"])
        added = await other.alter_table("people", AddRange(range=table.key_range(10, 20)))
        written = await added.insert(rows(20)[10:])
        assert sorted(row["id"] for row in await described.to_pylist()) == [*range(20)]
        assert await ids(table) == await ids(table, order="key") == [*range(20)]
        assert await ids(table, at=written.timestamp) == await ids(table, own_writes=True) == [*range(20)]
        assert await table.scan().count() == 20

    two_clients(tmp_path, work)


def test_point_reads_writes_and_tokens_find_a_range_that_another_client_added(tmp_path: Path) -> None:
    async def work(table: AsyncTable, other: AsyncClient, cluster: Cluster) -> None:
        await table.insert(rows(10))
        with pytest.raises(NoPartition):
            await table.get(15)
        added = await other.alter_table("people", AddRange(range=table.key_range(10, 20)))
        await added.insert(rows(16)[15:])
        assert await table.get(15) == {"id": 15, "text": "row 15"}
        added = await other.alter_table("people", AddRange(range=table.key_range(20, 30)))
        await added.insert(rows(26)[25:])
        tokens = await table.scan(["id"]).tokens()
        assert len(tokens) == 3
        added = await other.alter_table("people", AddRange(range=table.key_range(30, 40)))
        await table.insert(rows(40)[35:])
        assert await ids(table) == [*range(10), 15, 25, *range(35, 40)]

    two_clients(tmp_path, work)


def test_a_scan_has_no_row_of_a_range_that_was_dropped_nor_of_its_predecessor_when_it_came_again(
    tmp_path: Path,
) -> None:
    async def work(table: AsyncTable, other: AsyncClient, cluster: Cluster) -> None:
        first = table.key_range(0, 10)
        await other.alter_table("people", AddRange(range=table.key_range(10, 20)))
        await table.insert(rows(20))
        (token, late) = await table.scan(["id"], order="key").tokens()
        await other.alter_table("people", DropRange(range=first))
        assert await ids(table) == [*range(10, 20)]
        with pytest.raises(NoPartition):
            await table.get(5)
        await other.alter_table("people", AddRange(range=first))
        assert await ids(table) == [*range(10, 20)]
        assert await table.get(5) is None
        await table.insert(rows(1))
        assert await ids(table) == [0, *range(10, 20)]
        with pytest.raises(BadToken, match="which table 'people' does not have: its range was dropped"):
            await (await other.open(token)).to_pylist()
        assert len(await (await other.open(late)).to_pylist()) == 10

    two_clients(tmp_path, work)


def test_a_scan_after_an_alteration_of_columns_and_ranges_keeps_the_columns_that_it_was_described_with(
    tmp_path: Path,
) -> None:
    async def work(table: AsyncTable, other: AsyncClient, cluster: Cluster) -> None:
        await table.insert(rows(10))
        described = table.scan()
        steps = AddColumn(name="size", type="int64", default=7), AddRange(range=table.key_range(10, 20))
        added = await other.alter_table("people", *steps)
        await added.insert(rows(12)[10:])
        assert (await described.to_arrow()).column_names == ["id", "text"]
        assert await described.count() == 12
        assert await column(table, "size") == [7] * 12

    two_clients(tmp_path, work)


def test_a_table_of_hashes_alone_is_scanned_without_its_masters(tmp_path: Path) -> None:
    async def work(table: AsyncTable, other: AsyncClient, cluster: Cluster) -> None:
        await table.insert(rows(10))
        await cluster.stop(cluster.masters[0])
        assert await ids(table) == [*range(10)]

    two_clients(tmp_path, work, hash=[{"columns": ["id"], "buckets": 2}])


def test_a_token_follows_its_table_through_a_rename_and_reads_no_other_of_its_old_name(tmp_path: Path) -> None:
    async def work(table: AsyncTable, other: AsyncClient, cluster: Cluster) -> None:
        await table.insert(rows(10))
        whole = table.scan(["id"]).token()
        assert whole is not None
        tokens = [ScanToken.from_bytes(one.to_bytes()) for one in (whole, *await table.scan(["id"]).tokens())]
        await other.alter_table("people", RenameTable(to="folk"))
        for token in tokens:
            assert len(await (await other.open(token)).to_pylist()) == 10
        again = await other.create_table("people", COLUMNS, "id", partition=RANGED)
        for token in tokens:
            assert len(await (await other.open(token)).to_pylist()) == 10
            with pytest.raises(BadToken, match="was called 'people' then; this is another table, called 'people'"):
                again.open(token)
        await other.drop_table("folk")
        for token in tokens:
            with pytest.raises(BadToken, match="table that is gone, called 'people' then; the table of that name is"):
                await other.open(token)
        await other.drop_table("people")
        with pytest.raises(BadToken, match="table that is gone, called 'people' then; there are: none"):
            await other.open(whole)

    two_clients(tmp_path, work)


def test_a_range_takes_no_more_writes_once_its_drop_has_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to it was acknowledged, and gone with the replicas, which are deleted a while after the masters' word."""
    act = ActionService.act

    def slowly(self: ActionService, action: ServerAction, done: Done) -> None:
        delay_s = 0.5 if isinstance(action, DeleteReplica) else 0.0
        asyncio.get_running_loop().call_later(delay_s, act, self, action, done)

    monkeypatch.setattr(ActionService, "act", slowly)

    async def work(table: AsyncTable, other: AsyncClient, cluster: Cluster) -> None:
        await table.insert(rows(10))
        first = table.key_range(0, 10)
        await other.alter_table("people", AddRange(range=table.key_range(10, 20)))
        await other.alter_table("people", DropRange(range=first))
        with pytest.raises(RowsFailed, match="NO_PARTITION"):
            await table.upsert(rows(1))
        with pytest.raises(NoPartition):
            await table.get(0)

    two_clients(tmp_path, work)


def test_a_write_under_way_while_its_table_is_dropped_says_so_soon_and_by_its_name(tmp_path: Path) -> None:
    """One that a replica may have taken used to be sent until its timeout, and then its outcome was unknown."""

    async def work(table: AsyncTable, other: AsyncClient, cluster: Cluster) -> None:
        async def writing() -> None:
            for turn in count():
                await table.upsert(rows(10)[turn % 10 :], timeout_s=300)

        writer = asyncio.create_task(writing())
        await table.insert_ignore(rows(10))
        await other.drop_table("people")
        with pytest.raises(NoSuchTable, match="table 'people' was dropped; there are: none"):
            await writer
        with pytest.raises(NoSuchTable, match="table 'people' was dropped"):
            await table.get(3)

    two_clients(tmp_path, work)
