"""Rows by key from real processes: from memory and from disk, at any time, and while the leader dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import Client, connect, connect_async
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.spi.ids import TabletId
from tests.e2e.starting import start
from tests.e2e.test_client import leader_of

COLUMNS = [
    {"name": "id", "type": "int64"},
    {"name": "value", "type": "int64"},
    {"name": "text", "type": "string", "nullable": True},
]
SETTINGS = {
    "consensus.raft": {"election_timeout_ms": 500},
    "maintenance": {"flush_bytes": 65536, "flush_interval_ms": 20},
    "store.columnar": {"row_group_rows": 64, "cache_bytes": 100_000},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes with one tablet, whose rows are soon on disk."""
    spec = TabletSpec(tablet_id=TabletId("rows"), columns=COLUMNS, key=["id"])
    made = LocalCluster.create(
        tmp_path_factory.mktemp("three") / "cluster", spec, ClusterOptions(settings=SETTINGS), formatted=format_here
    )
    start(made)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with connect(",".join(cluster.addresses)) as connected:
        yield connected


def test_every_key_has_its_row_at_its_time_from_memory_and_from_disk(client: Client) -> None:
    table = client.table("rows")
    rows = [{"id": n, "value": n, "text": f"row {n}"} for n in range(0, 6000, 2)]
    before = table.upsert(rows).timestamp
    after = table.delete([(n,) for n in range(0, 600, 2)]).timestamp
    expected = {row["id"]: row for row in rows}
    for _ in range(4):  # Any replica may serve a time, and blocks are written meanwhile.
        assert table.get_many(range(6000), at=before) == [expected.get(n) for n in range(6000)]
        assert table.get_many(range(6000), at=after) == [expected.get(n) if n >= 600 else None for n in range(6000)]
        assert table.get_many([5998, 0, 5998, 1]) == [rows[-1], None, rows[-1], None]
        assert table.get(2, at=before) == rows[1] and table.get(2) is None


def test_a_lookup_shows_every_acknowledged_write_while_leaders_die(cluster: LocalCluster) -> None:
    """Each reader has many lookups in flight, which share requests."""

    async def run() -> None:
        async with await connect_async(cluster.addresses) as client:
            table = await client.table("rows")
            await table.upsert({"id": -1, "value": 0})
            acknowledged, reads, done = 0, 0, False

            async def read() -> None:
                nonlocal reads
                while not done:
                    least = acknowledged
                    row = await table.get(-1, timeout_s=60)
                    assert row is not None and row["value"] >= least, (row, least)
                    reads += 1

            readers = [asyncio.ensure_future(read()) for _ in range(16)]
            for turn in range(1, 301):
                if turn % 100 == 0:
                    victim = await asyncio.to_thread(leader_of, cluster)
                    victim.kill()
                await table.upsert({"id": -1, "value": turn}, timeout_s=60)
                acknowledged = turn
                if turn % 100 == 0:
                    await asyncio.to_thread(victim.start)
            done = True
            await asyncio.gather(*readers)
            assert reads > 16 * 10

    asyncio.run(run())
