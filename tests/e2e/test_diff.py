"""Diffs of a table on running nodes: over flushes and compactions, a change of leader, and below the history floor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stelae.client import AsyncTable, connect_async
from stelae.server.tserver import diff_pages
from stelae.spi.errors import TooOld
from tests.e2e.nodes import TABLET, Cluster, flushed, running

SETTINGS = """
[engines]
store = "{store}"
[maintenance]
flush_bytes = 65536
flush_interval_ms = 10
"""
COUNT = 2000
STORES = pytest.mark.parametrize("store", ["columnar", "lmdb"])

State = dict[int, str | None]


def on_nodes(path: Path, store: str, work: Callable[[Cluster, AsyncTable], Awaitable[Any]]) -> None:
    async def run() -> None:
        settings = SETTINGS.format(store=store)
        async with running(path, settings) as cluster, await connect_async(cluster.addresses) as client:
            table = await client.table(TABLET)
            await table.insert([(n, f"row {n}") for n in range(COUNT)])
            await flushed(cluster)
            await work(cluster, table)

    asyncio.run(run())


async def change(table: AsyncTable, turn: int) -> None:
    """Update, delete and insert rows all over the table."""
    await table.upsert([(n, f"turn {turn}") for n in range(turn, COUNT, 7)])
    await table.delete_ignore([(n,) for n in range(turn, COUNT, 11)])
    await table.upsert([(COUNT + 10 * turn + n, f"new in {turn}") for n in range(10)])


async def state(table: AsyncTable, at: int) -> State:
    return {row["id"]: row["text"] for row in await table.scan(at=at).to_pylist()}


def applied(before: State, changes: list[dict[str, Any]]) -> State:
    after = dict(before)
    for row in changes:
        if row["is_deleted"]:
            assert row["text"] is None
            del after[row["id"]]
        else:
            after[row["id"]] = row["text"]
    return after


@STORES
def test_a_diff_over_flushes_and_compactions_makes_the_later_table_of_the_earlier_one(
    tmp_path: Path, store: str
) -> None:
    async def work(cluster: Cluster, table: AsyncTable) -> None:
        times = [table.now()]
        for turn in range(6):
            await change(table, turn)
            await flushed(cluster)
            times.append(table.now())
        await change(table, 6)
        for since, until_ in [(0, 6), (0, 1), (2, 5), (5, 6), (3, 3)]:
            changes = await table.diff(times[since], times[until_], order="key").to_pylist()
            assert [row["id"] for row in changes] == sorted({row["id"] for row in changes})
            assert applied(await state(table, times[since]), changes) == await state(table, times[until_])
        assert len(await table.diff(times[5], times[6]).to_pylist()) < COUNT // 3

    on_nodes(tmp_path, store, work)


@STORES
def test_a_diff_goes_on_behind_its_page_when_the_leader_is_gone(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_pages, "FIRST_PAGE_ROWS_MAX", 16)
    monkeypatch.setattr(diff_pages, "PAGE_BYTES_MAX", 1000)

    async def work(cluster: Cluster, table: AsyncTable) -> None:
        since = table.now()
        await change(table, 1)
        await flushed(cluster)
        await change(table, 2)
        diff = table.diff(since)
        assert diff.at is not None
        expected = await table.diff(since, diff.at).to_pylist()
        batches = diff.batches()
        found = (await anext(batches)).to_pylist()
        leader = await cluster.leading()
        assert len(found) < len(expected) // 8
        await cluster.stop(leader)
        found += [row async for batch in batches for row in batch.to_pylist()]
        assert found == expected
        await change(table, 3)
        assert await table.diff(since, diff.at).to_pylist() == expected
        later = await table.diff(diff.at).to_pylist()
        now = await state(table, table.now())
        assert applied(applied(await state(table, since), expected), later) == now

    on_nodes(tmp_path, store, work)


@STORES
def test_a_diff_from_below_the_history_floor_is_refused(tmp_path: Path, store: str) -> None:
    async def work(cluster: Cluster, table: AsyncTable) -> None:
        since = table.now()
        await change(table, 1)
        floor = table.now()
        await change(table, 2)
        for node in cluster.nodes.values():
            node.replicas[TABLET].applier.store.set_history_floor(floor)
        with pytest.raises(TooOld):
            await table.diff(since).to_pylist()
        assert applied(await state(table, floor), await table.diff(floor).to_pylist()) == await state(
            table, table.now()
        )

    on_nodes(tmp_path, store, work)
