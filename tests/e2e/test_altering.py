"""Tables that are altered while others open them and write to them: nobody notices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stelae.client import AddColumn, DropColumn
from stelae.spi.errors import Unavailable
from tests.e2e.master_nodes import running
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
            placed = cluster.core(cluster.masters[0]).catalog.tablets.values()
            away = next(tablet.config.members[0].node_id for tablet in placed if tablet.config is not None)
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
