"""The change feed on running nodes: a copy follows a table whose leaders die and whose ranges are added and dropped."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from stelae.client import AddRange, AsyncTable, ChangesExpired, DropRange, RangeDropped, connect_async
from stelae.client.feed_position import FeedPosition
from stelae.server.tserver import diff_pages
from tests.e2e.master_nodes import running as masters_running
from tests.e2e.nodes import TABLET, Cluster, running
from tests.e2e.test_masters import COLUMNS, QUICK, connect

RANGES = {
    "hash": [{"columns": ["id"], "buckets": 2}],
    "range": {"columns": ["id"], "ranges": [{"from": 0, "until": 1000}, {"from": 1000, "until": 2000}]},
}

Copy = dict[int, str | None]


class Follower:
    """A copy of a table that applies the feed. It begins anew from its position with each call of :meth:`follow`."""

    def __init__(self) -> None:
        self.copy: Copy = {}
        self.position: str | None = None
        self.versions: dict[int, int] = {}

    async def follow(self, table: AsyncTable, batches_max: int | None = None, *, follow: bool = True) -> None:
        feed = table.changes(self.position, follow=follow, poll_s=0.01, fail_on_dropped_ranges=False)
        batches_taken = 0
        async with aclosing(feed.batches()) as batches:
            async for batch in batches:
                for row in batch.to_pylist():
                    self._apply(row)
                self.position = feed.position
                batches_taken += 1
                if batches_taken == batches_max:
                    return

    def _apply(self, row: dict[str, Any]) -> None:
        key, version = row["id"], row["_commit_version"]
        assert version > self.versions.get(key, 0), "changes of a key come in order, and each once"
        self.versions[key] = version
        if row["_change_type"] == "delete":
            del self.copy[key]
        else:
            self.copy[key] = row["text"]


async def contents(table: AsyncTable) -> Copy:
    return {row["id"]: row["text"] for row in await table.scan().to_pylist()}


async def write_turn(table: AsyncTable, turn: int, low: int, high: int) -> None:
    await table.upsert([(n, f"turn {turn}") for n in range(low + turn % 7, high, 7)])
    await table.delete_ignore([(n,) for n in range(low + turn % 11, high, 11)])


def test_a_copy_follows_while_a_server_is_stopped_and_ranges_are_added_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diff_pages, "FIRST_PAGE_ROWS_MAX", 16)

    async def run() -> None:
        async with (
            masters_running(tmp_path, masters=1, settings=QUICK) as cluster,
            await connect(cluster) as mine,
            await connect(cluster) as other,
        ):
            written = await mine.create_table("people", COLUMNS, "id", partition=RANGES)
            table = await other.table("people")
            follower = Follower()
            await write_turn(written, 0, 0, 2000)
            await follower.follow(table, 2)
            first = follower.position
            following = asyncio.create_task(follower.follow(table))
            for turn in range(1, 30):
                await write_turn(written, turn, 1000, 2000)
                if turn == 5:
                    await cluster.stop(cluster.servers[0])
                if turn == 10:
                    await mine.alter_table("people", AddRange(range=written.key_range(2000, 3000)))
                if turn > 10:
                    await write_turn(written, turn, 2000, 3000)
                if turn == 15:
                    await cluster.start(cluster.servers[0])
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                    following = asyncio.create_task(follower.follow(table))
                if turn == 20:
                    await mine.alter_table("people", DropRange(range=written.key_range(0, 1000)))
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            async with await connect(cluster) as third:
                await follower.follow(await third.table("people"), follow=False)
            with pytest.raises(RangeDropped):
                _ = [batch async for batch in table.changes(first)]
            kept = {key: text for key, text in follower.copy.items() if key >= 1000}
            assert kept == await contents(written)
            assert any(key >= 2000 for key in kept)

    asyncio.run(run())


def test_history_that_has_expired_is_an_error_before_any_row_and_a_new_feed_reads_the_table(tmp_path: Path) -> None:
    async def work(cluster: Cluster, table: AsyncTable) -> None:
        await table.insert([(n, "first") for n in range(100)])
        feed = table.changes()
        assert sum([batch.num_rows async for batch in feed]) == 100
        await table.upsert([(n, "second") for n in range(50)])
        floor = table.now()
        await table.upsert([(n, "third") for n in range(50)])
        for node in cluster.nodes.values():
            node.replicas[TABLET].applier.store.set_history_floor(floor)
        with pytest.raises(ChangesExpired, match="so changes are missing") as error:
            assert [batch async for batch in feed] == []
        assert error.value.floor == floor
        assert sum([batch.num_rows async for batch in table.changes()]) == 100
        assert sum([batch.num_rows async for batch in table.changes(floor)]) == 50

    on_nodes(tmp_path, work)


def test_an_idle_table_gives_no_changes_and_no_later_position_and_its_next_write_is_seen(tmp_path: Path) -> None:
    async def work(cluster: Cluster, table: AsyncTable) -> None:
        await table.insert([(1, "first")])
        feed = table.changes()
        assert [len(batch) async for batch in feed] == [1]
        position = feed.position
        assert [batch async for batch in feed] == [] and feed.position == position
        assert await feed.next_position() == position
        written = await table.upsert([(1, "second")])
        (batch,) = [batch async for batch in feed]
        assert batch.column("_commit_version").to_pylist() == [written.timestamp]
        assert FeedPosition.from_text(feed.position, TABLET).since == written.timestamp

    on_nodes(tmp_path, work)


def on_nodes(path: Path, work: Any) -> None:
    async def run() -> None:
        async with running(path) as cluster, await connect_async(cluster.addresses) as client:
            await work(cluster, await client.table(TABLET))

    asyncio.run(run())
