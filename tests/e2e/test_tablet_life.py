"""Tablets are created and deleted on running nodes; a tombstone votes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stelae.client.admin import Admin
from stelae.client.connection import Client
from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle.tablet_manager import FenceMismatch, TabletExists
from stelae.rows.plain_schema import schema_from_plain
from stelae.server.tserver.leadership import hand_over
from stelae.spi.errors import CallerError, NotLeader
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.schema import Schema
from tests.e2e.nodes import TABLET, Cluster, insert, read_ids, running, until

SECOND = TabletId("second")
SCHEMA = schema_from_plain(
    {"columns": [{"name": "id", "type": "int64"}, {"name": "text", "type": "string"}], "key": ["id"]}
)


async def create(cluster: Cluster, admin: Admin) -> None:
    members = list(zip(cluster.ids, cluster.addresses, strict=True))
    for node in cluster.nodes:
        await admin.create_replica(node, SECOND, SCHEMA, members, table_name="people")
    await until(lambda: leader(cluster) is not None)


def leader(cluster: Cluster) -> NodeId | None:
    """Who leads the second tablet, if anybody does."""
    found = [n for n, node in cluster.nodes.items() if (r := node.replicas.get(SECOND)) and r.status.role == "LEADER"]
    return found[0] if len(found) == 1 else None


def committed_config(cluster: Cluster, node: NodeId) -> OpId:
    return cluster.nodes[node].replicas[SECOND].status.committed_config.op_id


def test_a_tablet_is_created_on_running_nodes_and_is_there_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Client.connect(cluster.addresses) as client:
            admin = Admin(client)
            await create(cluster, admin)
            await create(cluster, admin)  # repeated
            tablet = await client.tablet(SECOND)
            await insert(tablet, range(20))
            for node in cluster.ids:
                await cluster.stop(node)
                await cluster.start(node)
                await until(lambda: leader(cluster) is not None)
            assert await read_ids(tablet) == list(range(20))
            other = Schema(1, SCHEMA.columns[:1], SCHEMA.key)
            members = list(zip(cluster.ids, cluster.addresses, strict=True))
            with pytest.raises(TabletExists, match="with another first schema"):
                await admin.create_replica(cluster.ids[0], SECOND, other, members)
            with pytest.raises(CallerError, match="no member"):
                await admin.create_replica(cluster.ids[0], TabletId("third"), SCHEMA, members[1:2])

    asyncio.run(run())


def test_a_deleted_replica_leaves_a_tombstone_that_votes_also_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Client.connect(cluster.addresses) as client:
            admin = Admin(client)
            await create(cluster, admin)
            tablet = await client.tablet(SECOND)
            await insert(tablet, range(20))
            leads = leader(cluster)
            assert leads is not None
            gone, stays = (node for node in cluster.ids if node != leads)
            await until(lambda: committed_config(cluster, gone) > OpId(0, 0))
            wrong = OpId(7, 7)
            with pytest.raises(FenceMismatch, match=r"committed config 1\.1 here, not 7\.7"):
                await admin.delete_replica(gone, SECOND, "evicted", seen=wrong)
            seen = committed_config(cluster, gone)
            await admin.delete_replica(gone, SECOND, "evicted", seen=seen)
            await admin.delete_replica(gone, SECOND, "evicted", seen=wrong)  # it is gone, whatever was seen
            block = SuperblockFile(cluster.nodes[gone].files, cluster.nodes[gone].layout, SECOND).load()
            assert block.data_state is DataState.DELETED and isinstance(block.tombstone, OpId)
            assert block.quarantine is not None
            assert sorted(path.name for path in (tmp_path / gone / block.quarantine).iterdir()) >= ["about"]
            await insert(tablet, range(20, 40))  # two of three go on
            await cluster.stop(gone)
            await cluster.start(gone)
            await cluster.stop(leads)
            # The one that is left wins with the tombstone's vote; alone it would be one of three.
            await until(lambda: cluster.nodes[stays].replicas[SECOND].status.role == "LEADER")
            assert SECOND not in cluster.nodes[gone].replicas
            await cluster.start(leads)
            await until(lambda: leader(cluster) is not None)
            assert await read_ids(tablet) == list(range(40))
            with pytest.raises(TabletExists, match="has been deleted"):
                members = list(zip(cluster.ids, cluster.addresses, strict=True))
                await admin.create_replica(gone, SECOND, SCHEMA, members)

    asyncio.run(run())


def test_the_table_that_is_gone_takes_its_replicas_with_it_and_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Client.connect(cluster.addresses) as client:
            admin = Admin(client)
            await create(cluster, admin)
            await insert(await client.tablet(SECOND), range(5))
            for node in cluster.ids:
                await admin.delete_replica(node, SECOND, "dropped", table_is_gone=True)
            assert all(SECOND not in node.replicas for node in cluster.nodes.values())
            with pytest.raises(CallerError, match="not open"):
                cluster.nodes[cluster.ids[0]].writer.reserve(LogId(SECOND, 1), 1)
            await until(lambda: cluster.leader() is not None)
            with pytest.raises(CallerError, match="never here"):
                await admin.delete_replica(cluster.ids[0], TabletId("third"), "dropped", table_is_gone=True)
            with pytest.raises(CallerError, match="one of both"):
                await admin.delete_replica(cluster.ids[0], SECOND, "dropped")

    asyncio.run(run())


def test_leadership_is_handed_over_by_name_and_before_a_node_stops_and_no_write_is_lost(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Client.connect(cluster.addresses) as client:
            tablet = await client.tablet(TABLET)
            leads = cluster.leader()
            assert leads is not None
            admin = Admin(client)
            to = cluster.others(leads)[0]
            writes = asyncio.ensure_future(insert(tablet, range(500)))
            await admin.transfer_leadership(leads, TABLET, to)
            await until(lambda: cluster.leader() == to)
            await writes
            with pytest.raises(NotLeader):
                await admin.transfer_leadership(leads, TABLET)
            with pytest.raises(CallerError, match="to a voter of the tablet"):
                await admin.transfer_leadership(to, TABLET, NodeId("f" * 32))
            await hand_over(cluster.nodes[to])
            await until(lambda: cluster.leader() not in (None, to))
            await cluster.stop(to)
            await hand_over(cluster.nodes[leads])  # whoever of the two leads: the other takes over
            await insert(tablet, range(500, 600))
            assert await read_ids(tablet) == list(range(600))

    asyncio.run(run())


def test_a_replica_that_has_failed_is_deleted_like_any_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Client.connect(cluster.addresses) as client:
            await insert(await client.tablet(TABLET), range(10))
            leads = cluster.leader()
            assert leads is not None
            gone = cluster.others(leads)[0]
            replica = cluster.nodes[gone].replicas[TABLET]
            replica.fail("the test says so")
            replica.applier._failed = True
            replica.applier.between_groups(lambda: None, lambda _result: None)  # as a flush that was about to begin
            await Admin(client).delete_replica(gone, TABLET, "failed", table_is_gone=True)
            block = SuperblockFile(cluster.nodes[gone].files, cluster.nodes[gone].layout, TABLET).load()
            assert block.data_state is DataState.DELETED
            with pytest.raises(CallerError, match="not open"):
                cluster.nodes[gone].writer.reserve(block.log_id, 1)

    asyncio.run(run())
