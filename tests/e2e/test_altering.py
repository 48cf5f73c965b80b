"""Tables that are altered while others open them and write to them: nobody notices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stelae.client import AddColumn, DropColumn
from stelae.host.replica import Replica
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId
from tests.e2e.master_nodes import Cluster, running, until
from tests.e2e.test_masters import COLUMNS, QUICK, connect

ALTERATIONS = 12
HASHED = {"hash": [{"columns": ["id"], "buckets": 3}]}


def test_a_table_is_opened_and_written_while_it_is_altered(tmp_path: Path) -> None:
    """What masters and tablets had at different steps was told as tablets of different schemas, the same one twice."""

    async def run() -> None:
        async with (
            running(tmp_path, masters=1, settings=QUICK) as cluster,
            await connect(cluster) as mine,
            await connect(cluster) as other,
            await connect(cluster) as third,
        ):
            table = await mine.create_table("people", COLUMNS, "id", partition=HASHED)
            altered, written = asyncio.Event(), 0

            async def alter() -> None:
                try:
                    for n in range(ALTERATIONS):
                        await other.alter_table("people", AddColumn(name=f"c{n}", type="string", default="-"))
                        if n:
                            await other.alter_table("people", DropColumn(name=f"c{n - 1}"))
                finally:
                    altered.set()

            async def write() -> None:
                nonlocal written
                while not altered.is_set():
                    await table.insert([{"id": written + n} for n in range(200)])
                    written += 200

            async def open_it() -> None:
                while not altered.is_set():
                    opened = await third.table("people")
                    assert "id" in opened.columns

            await asyncio.gather(alter(), write(), open_it())
            assert written and await (await third.table("people")).scan().count() == written

    asyncio.run(asyncio.wait_for(run(), 100))


def test_a_table_that_is_altered_twice_while_a_server_is_away_comes_to_rest_when_it_is_back(tmp_path: Path) -> None:
    """Masters kept the newest schema alone. A tablet takes one version after the other, so the one that had missed the
    first change was offered the second for ever, and the table stayed ALTERING."""

    async def run() -> None:
        async with running(tmp_path, masters=1, settings=QUICK) as cluster, await connect(cluster) as client:
            table = await client.create_table("people", COLUMNS, "id", partition=HASHED, replicas=1)
            await table.insert([{"id": n} for n in range(30)])
            core, found = cluster.core(cluster.masters[0]), table.table_id

            def hosts() -> list[NodeId]:
                """The servers of the tablets. The first to register get all, and the policy moves them to others."""
                configs = [tablet.config for tablet in core.catalog.live_tablets(found)]
                return [member.node_id for config in configs if config is not None for member in config.members]

            await until(lambda: sorted(hosts()) == sorted(cluster.servers))
            away = hosts()[0]
            await cluster.stop(away)
            with pytest.raises(Unavailable, match="still ALTERING"):
                await client.alter_table("people", AddColumn(name="a", type="string", default="-"), timeout_s=1)
            with pytest.raises(Unavailable, match="schema version 2") as refused:
                await client.alter_table("people", AddColumn(name="b", type="string", default="+"), timeout_s=1)
            assert "ask again" in str(refused.value)
            await cluster.start(away)
            opened = await client.alter_table("people", AddColumn(name="b", type="string", default="+"))
            assert list(opened.columns) == [*COLUMNS, "a", "b"]
            assert {(row["a"], row["b"]) for row in (await opened.scan().to_pylist())} == {("-", "+")}

    asyncio.run(asyncio.wait_for(run(), 60))


FLUSHED = """
[engines]
store = "columnar"
[maintenance]
flush_interval_ms = 10
"""


def test_one_step_that_adds_and_drops_a_column_is_flushed_and_outlives_restarts(tmp_path: Path) -> None:
    """The store compared how many columns there are, and not which: the replicas failed at their next flush."""

    async def run() -> None:
        async with running(tmp_path, masters=1, settings=QUICK + FLUSHED) as cluster, await connect(cluster) as client:
            table = await client.create_table("people", COLUMNS, "id", partition=HASHED)
            await table.insert([{"id": n, "text": "before"} for n in range(60)])
            await until(lambda: all(replica.flusher.superblock.flushed.index for replica in replicas_of(cluster)))
            altered = await client.alter_table(
                "people", AddColumn(name="more", type="int64", default=7), DropColumn(name="text")
            )
            await altered.insert([{"id": n, "more": n} for n in range(60, 90)])
            flushed = {r.tablet_id: r.applier.applied.index for r in replicas_of(cluster)}
            await until(
                lambda: all(r.flusher.superblock.flushed.index >= flushed[r.tablet_id] for r in replicas_of(cluster))
            )
            for server in cluster.servers:
                await cluster.stop(server)
            for server in cluster.servers:
                await cluster.start(server)
            rows = await (await client.table("people")).scan().to_pylist()
            expected = [{"id": n, "more": 7 if n < 60 else n} for n in range(90)]
            assert sorted(rows, key=lambda row: row["id"]) == expected
            assert not any(replica.failure for replica in replicas_of(cluster))

    asyncio.run(asyncio.wait_for(run(), 100))


def replicas_of(cluster: Cluster) -> list[Replica]:
    """The replicas of tables on the servers that run."""
    nodes = [cluster.nodes[server] for server in cluster.servers if server in cluster.nodes]
    return [replica for node in nodes for replica in node.replicas.values()]
