"""A catalog whose masters have all lost their disks is rebuilt from what the tablet servers have on record."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

from stelae.check.cluster_check import check
from stelae.client import AddColumn, AsyncClient, DropColumn
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.machine.files import RealFiles
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.recover.catalog_rebuild import survey_catalog
from stelae.spi.consensus import HardState
from stelae.spi.ids import NodeId
from stelae.spi.recovery_epoch import first_term
from tests.e2e.master_nodes import Cluster, running, until, until_every_replica_runs
from tests.e2e.test_cluster_commands import stelae
from tests.e2e.test_master_changes import add_master
from tests.e2e.test_masters import COLUMNS, QUICK
from tests.e2e.test_masters_apart import connected

PARTITION = {"hash": [{"columns": ["text"], "buckets": 3}], "range": {"columns": ["id"], "bounds": [[10], [20]]}}


def rows(first: int, end: int) -> list[dict[str, object]]:
    return [{"id": number, "text": f"row {number}"} for number in range(first, end)]


async def _with_tables(cluster: Cluster, client: AsyncClient) -> None:
    """Make a plain table, one in nine tablets by hash and range, and one that was altered. All have rows."""
    plain = await client.create_table("plain", {"id": "int64", "text": "string"}, "id")
    await plain.insert(rows(0, 50))
    parts = await client.create_table("parts", {"id": "int64", "text": "string"}, ["id", "text"], partition=PARTITION)
    await parts.insert(rows(0, 50))
    altered = await client.create_table("altered", {"id": "int64", "text": "string"}, "id")
    await altered.insert(rows(0, 50))
    await client.alter_table("altered", AddColumn("gone", "int64"))
    await client.alter_table("altered", DropColumn("gone"))
    await until_every_replica_runs(cluster)


async def _lose_all_masters(cluster: Cluster) -> NodeId:
    """Change the masters, lose all of them, and begin a catalog with a new one, which all servers list. Returns it."""
    async with await connected(cluster, cluster.masters[0]) as client:
        await add_master(cluster, client, cluster.new_master())
        await until(lambda: all(_knows(cluster, server, cluster.masters[-1]) for server in cluster.servers))
    for master in cluster.masters:
        await cluster.stop(master)
        shutil.rmtree(cluster.root / master)
    cluster.masters.clear()
    first = cluster.new_master()
    cluster.first = [first]
    for server in cluster.servers:
        await cluster.stop(server)
        await cluster.start(server)
    await cluster.start(first)
    await until(lambda: cluster.leader() == first)
    return first


def test_all_tables_are_back_with_their_rows_and_the_servers_follow_new_masters(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, servers=3, settings=QUICK) as cluster:
            async with await connected(cluster, cluster.masters[0]) as client:
                await _with_tables(cluster, client)
                ids = {name: (await client.table(name)).table_id for name in ("plain", "parts", "altered")}
            first = await _lose_all_masters(cluster)
            servers = [cluster.addresses[server] for server in cluster.servers]
            where = ("recover", "catalog", "--connect", cluster.addresses[first])
            none = await asyncio.to_thread(stelae, *where, expect=2)
            assert "pass the addresses of all tablet servers: --servers" in none.stderr
            where = (*where, "--servers", ",".join(servers))
            async with await connected(cluster, first) as client:
                assert await client.tables() == []
                assert client.catalog is not None
                survey = await survey_catalog(client.connection, client.catalog, servers, timeout_s=20.0)
                assert survey.needs_epoch, "the servers know a newer config of the lost masters"
                assert sorted(survey.astray) == sorted(servers)
            shown = await asyncio.to_thread(stelae, *where, "--json")
            assert json.loads(shown.stdout)["servers_of_the_lost_catalog"] == sorted(servers)
            found = {table["table_id"]: table for table in json.loads(shown.stdout)["tables"]}
            assert set(found) == set(ids.values())
            assert len(found[ids["parts"]]["tablets"]) == 9 and not any(one["problems"] for one in found.values())
            wrong = await asyncio.to_thread(stelae, *where, "--name", "ffff0000=t", expect=2)
            assert "no table 'ffff0000'" in wrong.stderr
            named = [option for name, table in ids.items() for option in ("--name", f"{table}={name}")]
            done = await asyncio.to_thread(stelae, *where, *named, "--apply")
            assert done.stdout.count("  adopted") == 3
            assert done.stdout.count(": handed to the masters of this catalog") == 3
            again = await asyncio.to_thread(stelae, *where, "--apply")
            assert "nothing to adopt" in again.stderr
            async with await connected(cluster, first) as client:
                await _everything_works(cluster, client)

    asyncio.run(run())


def test_a_master_whose_epoch_was_interrupted_is_recovered_first_as_the_command_says(tmp_path: Path) -> None:
    """Its term is that of the epoch, and its log has no entry of it: it stands down, and leads nothing."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1, settings=QUICK) as cluster:
            (first,), (server,) = cluster.masters, cluster.servers
            async with await connected(cluster, first) as client:
                await client.create_table("people", COLUMNS, "id", replicas=1)
            await cluster.stop(first)
            metadata = ConsensusMetadata(RealFiles(), DirectoryLayout(str(tmp_path / first)), SYSTEM_TABLET)
            before = metadata.load()
            assert before is not None
            metadata.save(HardState(term=first_term(1, 5), voted_for=first), before.committed_config)
            await cluster.start(first)
            address, plan = cluster.addresses[first], str(tmp_path / "plan.json")
            where = ("recover", "catalog", "--connect", address, "--servers", cluster.addresses[server])
            refused = await asyncio.to_thread(stelae, *where, "--timeout-s", "2", expect=1)
            assert "recover one first: stelae recover plan --masters" in refused.stderr
            await asyncio.to_thread(stelae, "recover", "plan", "--masters", address, "--out", plan)
            await asyncio.to_thread(stelae, "recover", "apply", plan, "--masters", address, "--yes")
            assert "nothing to adopt" in (await asyncio.to_thread(stelae, *where)).stderr

    asyncio.run(run())


async def _everything_works(cluster: Cluster, client: AsyncClient) -> None:
    assert await client.tables() == ["altered", "parts", "plain"]
    for name in await client.tables():
        table = await client.table(name)
        await table.insert(rows(50, 60))
        assert await table.scan().count() == 60
    await client.alter_table("altered", AddColumn("new", "int64"))
    altered = await client.table("altered")
    assert {column.name: column.id for column in altered.schema.columns}["new"] == 4, "3 was that of the dropped one"
    await client.create_table("later", COLUMNS, "id")
    new = cluster.new_master()
    await add_master(cluster, client, new)
    await until(lambda: all(_knows(cluster, server, new) for server in cluster.servers))
    assert client.catalog is not None
    async with asyncio.timeout(20):
        while (found := await check(client.connection, client.catalog)).problems:
            await asyncio.sleep(0.1)
    assert not found.problems


def _knows(cluster: Cluster, server: NodeId, master: NodeId) -> bool:
    """Whether a server has a link to a master."""
    return cluster.nodes[server].messenger.connected(master) is not None
