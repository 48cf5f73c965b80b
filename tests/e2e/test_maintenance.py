"""Real nodes keep their stores in shape: rows are flushed, logs collected, the past let go, schemas changed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from stelae.client.connection import ConnectedTablet, Connection
from stelae.spi.errors import SchemaMismatch, TooOld
from stelae.spi.schema import Column, Schema
from stelae.spi.write import OpKind
from stelae.testing.rings import ring_of_this_system
from tests.e2e.nodes import TABLET, WAIT_S, Cluster, agree, connected, insert, read_ids, running, until
from tests.tablet_rows import write_to

COLUMNAR = """
[engines]
store = "columnar"
[wal.segmented]
segment_bytes_first = 4096
segment_bytes_max = 4096
[maintenance]
flush_bytes = 65536
flush_interval_ms = 10
history_retention_s = 1
"""


def flushed(cluster: Cluster) -> list[int]:
    """Up to which index each replica's superblock holds its rows."""
    return [node.replicas[TABLET].flusher.superblock.flushed.index for node in cluster.nodes.values()]


def bases(cluster: Cluster) -> list[int]:
    """The index up to which each replica's log is gone."""
    logs = [(node, node.replicas[TABLET].log) for node in cluster.nodes.values()]
    return [node.engines.wal.logs()[log].base.index for node, log in logs]


def test_rows_are_flushed_the_log_is_collected_and_a_restart_finds_both(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, COLUMNAR) as cluster:
            async with connected(cluster) as tablet:
                count = 0
                async with asyncio.timeout(WAIT_S):
                    # The segment that is written to stays, and who came late has got all so far in one.
                    while count < 400 or not (min(flushed(cluster)) > 0 and min(bases(cluster)) > 0):
                        await insert(tablet, range(count, count + 50))
                        count += 50
                await until(lambda: agree(cluster))
                for node_id in cluster.ids:
                    await cluster.stop(node_id)
                    await cluster.start(node_id)
                    await until(lambda: cluster.leader() is not None)
                assert min(bases(cluster)) > 0, "what was collected is not replayed"
                assert await read_ids(tablet) == list(range(count))
            await until(lambda: agree(cluster))

    asyncio.run(run())


def test_a_replica_that_was_down_while_the_others_restarted_and_flushed_catches_up_by_itself(tmp_path: Path) -> None:
    """Followers held nothing for it, and a restart forgot how far it was: it needed a copy, for ever."""

    async def run() -> None:
        async with running(tmp_path, COLUMNAR) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(50))
            await until(lambda: agree(cluster))
            late = cluster.others(await cluster.leading())[0]
            had = cluster.nodes[late].replicas[TABLET].status.last.index
            await cluster.stop(late)
            count = await load_and_flush(cluster, tablet, 50)
            for node_id in list(cluster.nodes):
                await cluster.stop(node_id)
                await cluster.start(node_id)
                await until(lambda: cluster.leader() is not None)
            count = await load_and_flush(cluster, tablet, count)
            assert max(bases(cluster)) <= had, "the log that the stopped replica lacks is kept"
            await cluster.start(late)
            await until(lambda: agree(cluster))
            assert await read_ids(tablet) == list(range(count))
            async with asyncio.timeout(WAIT_S):
                while min(bases(cluster)) <= had:  # All have it: the log may go, also on followers.
                    await insert(tablet, range(count, count + 50))
                    count += 50

    asyncio.run(run())


async def load_and_flush(cluster: Cluster, tablet: ConnectedTablet, count: int) -> int:
    """Insert rows until each running replica has flushed twice what it had; return how many rows there are."""
    wanted = max(max(flushed(cluster)) * 2, 200)
    async with asyncio.timeout(WAIT_S):
        while min(flushed(cluster)) < wanted:
            await insert(tablet, range(count, count + 50))
            count += 50
    return count


def test_beyond_a_bound_a_log_is_not_held_for_a_peer_that_lags_and_it_is_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = f"{COLUMNAR}[log]\nlagging_peer_bytes_max = 30000\n"
    caplog.set_level(logging.INFO)

    async def run() -> None:
        async with running(tmp_path, settings) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(50))
            await until(lambda: agree(cluster))
            late = cluster.others(await cluster.leading())[0]
            had = cluster.nodes[late].replicas[TABLET].status.last.index
            await cluster.stop(late)
            count = 50
            async with asyncio.timeout(WAIT_S):
                while min(bases(cluster)) <= had:  # Either may lead when they were started again.
                    await insert(tablet, range(count, count + 50))
                    count += 50
            for node_id in list(cluster.nodes):  # What they wrote themselves they still have in memory.
                await cluster.stop(node_id)
                await cluster.start(node_id)
                await until(lambda: cluster.leader() is not None)
            await cluster.start(late)
            await until(lambda: f"copy complete tablet={TABLET}" in caplog.text)
            await until(lambda: agree(cluster))
            assert cluster.nodes[late].replicas[TABLET].flusher.log_base.index > had
            assert await read_ids(tablet) == list(range(count)), "and nobody else is disturbed"

    asyncio.run(run())


def test_space_of_collected_segments_is_used_again_and_a_restart_finds_what_is_there(tmp_path: Path) -> None:
    ring_of_this_system(1).close()
    settings = COLUMNAR.replace("[maintenance]", "prewrite_bytes_min = 4096\n[maintenance]") + "[log]\nfast = true\n"

    async def run() -> None:
        async with running(tmp_path, settings) as cluster:
            async with connected(cluster) as tablet:
                count = 0
                async with asyncio.timeout(WAIT_S):
                    while count < 400 or min(reused(cluster)) < 3:
                        await insert(tablet, range(count, count + 10))
                        count += 10
                await until(lambda: agree(cluster))
                for node_id in cluster.ids:
                    await cluster.stop(node_id)
                    await cluster.start(node_id)
                    await until(lambda: cluster.leader() is not None)
                assert await read_ids(tablet) == list(range(count))
            await until(lambda: agree(cluster))

    asyncio.run(run())


def reused(cluster: Cluster) -> list[float]:
    """How many segments of each node were begun in the file of a collected one."""
    return [node.engines.wal.stats()["segments_reused"] for node in cluster.nodes.values()]


def test_the_past_is_let_go_when_its_retention_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, COLUMNAR) as cluster, connected(cluster) as tablet:
            await insert(tablet, [1])
            old = cluster.nodes[cluster.ids[0]].time.now()
            await insert(tablet, [2])
            assert [batch.to_rows() async for batch in tablet.scan(at=old)] == [[(1, "row 1")]]
            async with asyncio.timeout(WAIT_S):
                number = 3
                with pytest.raises(TooOld):
                    while True:
                        await insert(tablet, [number])  # the floor never passes what is applied
                        number += 1
                        _ = [batch async for batch in tablet.scan(at=old)]
                        await asyncio.sleep(0.05)
            assert await read_ids(tablet) == list(range(1, number))

    asyncio.run(run())


@pytest.mark.parametrize("store", ["memory", "columnar"])
def test_a_schema_is_changed_while_rows_are_there_and_survives_flush_and_restart(tmp_path: Path, store: str) -> None:
    settings = COLUMNAR if store == "columnar" else ""

    async def run() -> None:
        async with running(tmp_path, settings) as cluster, await Connection.connect(cluster.addresses) as client:
            tablet = await client.tablet(TABLET)
            await insert(tablet, [1])
            wider = next_schema(tablet.schema, Column(id=3, name="size", type="int64", default=7))
            changed = await client.change_schema(tablet, wider)
            await client.change_schema(tablet, wider)  # asked twice
            result = await write_to(changed, OpKind.INSERT, [(2, "row 2", 8)])
            assert not result.refusal and not result.errors
            refused = await write_to(tablet, OpKind.INSERT, [(3, "row 3")])
            assert refused.refusal == SchemaMismatch.code and "version 2" in refused.detail
            assert [batch.to_rows() async for batch in tablet.scan()] == [[(1, "row 1"), (2, "row 2")]]
            with pytest.raises(SchemaMismatch, match="does not follow"):
                await client.change_schema(tablet, next_schema(tablet.schema, Column(id=3, name="x", type="int64")))
            with pytest.raises(SchemaMismatch, match="make it nullable, or give it a default"):
                await client.change_schema(tablet, next_schema(wider, Column(id=4, name="y", type="int64")))
            if store == "columnar":
                await until(lambda: min(flushed(cluster)) > 0)
            for node_id in cluster.ids:
                await cluster.stop(node_id)
                await cluster.start(node_id)
                await until(lambda: cluster.leader() is not None)
            again = await client.tablet(TABLET)
            assert again.schema == wider
            rows = [row async for batch in again.scan() for row in batch.to_rows()]
            assert rows == [(1, "row 1", 7), (2, "row 2", 8)]

    asyncio.run(run())


def test_a_change_that_drops_a_column_and_adds_another_survives_flush_and_restart(tmp_path: Path) -> None:
    """The rows of before were still in memory: every replica failed at its next flush, and again after each restart,
    when it had applied the log and flushed."""
    settings = COLUMNAR.replace("flush_interval_ms = 10\n", "flush_interval_ms = 600000\n")

    async def flush(cluster: Cluster) -> None:
        """Flush every replica up to what all have applied: the test says when, and not the clock."""
        replicas = [node.replicas[TABLET] for node in cluster.nodes.values()]
        upto = max(replica.status.last.index for replica in replicas)
        for replica in replicas:
            await until(lambda replica=replica: replica.applier.applied.index >= upto or bool(replica.failure))
            await until(lambda replica=replica: replica.flusher.flush() or bool(replica.failure))
            await until(lambda replica=replica: not replica.flusher.busy or bool(replica.failure))
            assert not replica.failure

    async def run() -> None:
        async with running(tmp_path, settings) as cluster, await Connection.connect(cluster.addresses) as client:
            tablet = await client.tablet(TABLET)
            await insert(tablet, [1])
            key, _ = tablet.schema.columns
            changed = Schema(2, (key, Column(id=3, name="b", type="int64", nullable=True)), tablet.schema.key)
            tablet = await client.change_schema(tablet, changed)
            for node_id in cluster.ids[:2]:  # These apply the log again; the third one has been running all along.
                await cluster.stop(node_id)
                await cluster.start(node_id)
                await until(lambda: cluster.leader() is not None)
            await flush(cluster)
            again = await client.tablet(TABLET)
            assert [row async for batch in again.scan() for row in batch.to_rows()] == [(1, None)]
            assert min(flushed(cluster)) > 0

    asyncio.run(run())


def next_schema(schema: Schema, column: Column) -> Schema:
    """The schema with one more column."""
    return Schema(schema.version + 1, (*schema.columns, column), schema.key)
