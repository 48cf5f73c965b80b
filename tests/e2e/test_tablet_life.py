"""Tablets are created and deleted on running nodes; a tombstone votes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stelae.client.connection import Connection
from stelae.host.node import Node
from stelae.host.settings import TabletSettings
from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletExists, TabletManager
from stelae.partition.schema import Partition
from stelae.protocol.actions import ACTION, CreateReplica, DeleteReplica, Evicted, ServerAction, Terminal, encode_action
from stelae.protocol.catalog_names import TableId, TabletState
from stelae.rows.plain_schema import schema_from_plain
from stelae.server.tserver.actions import FenceRefused
from stelae.server.tserver.leadership import hand_over
from stelae.spi.errors import CallerError, NotLeader, StelaeError, Unavailable
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.schema import Schema
from tests.e2e.nodes import TABLET, WAIT_S, Cluster, insert, read_ids, running, until

SECOND = TabletId("second")
SCHEMA = schema_from_plain(
    {"columns": [{"name": "id", "type": "int64"}, {"name": "text", "type": "string"}], "key": ["id"]}
)


GONE = Terminal(state=TabletState.REMOVED)
"""The fence of a replica whose table was removed."""


async def act(client: Connection, action: ServerAction) -> None:
    """Send an action as a master does: again while another operation on the tablet delays it, such as a copy that its
    leader has asked for and that is being refused."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await client.ask(action.node_id, ACTION, encode_action(action), deadline_ms=30_000)
                return
            except Unavailable:
                await asyncio.sleep(0.01)


def creation(cluster: Cluster, node: NodeId, tablet: TabletId = SECOND, schema: Schema = SCHEMA) -> CreateReplica:
    members = zip(cluster.ids, cluster.addresses, strict=True)
    return CreateReplica(
        node_id=node,
        tablet_id=tablet,
        table_id=TableId("people"),
        config=TabletConfig(
            op_id=ZERO, members=tuple(Member(node_id=member, address=address) for member, address in members)
        ),
        schema=schema.to_bytes(),
        partition=Partition(),
        consensus="raft",
    )


async def create(cluster: Cluster, client: Connection) -> None:
    for node in cluster.nodes:
        await act(client, creation(cluster, node))
    await until(lambda: leader(cluster) is not None)


async def delete(client: Connection, node: NodeId, fence: Terminal | Evicted, tablet: TabletId = SECOND) -> None:
    await act(client, DeleteReplica(node_id=node, tablet_id=tablet, fence=fence))


async def refusal(begin: Callable[[TabletManager, Callable[[StelaeError | None], None]], None], node: Node) -> str:
    """Why the manager of a node's replicas, which stands behind the fences of actions, refuses an operation."""
    assert isinstance(node.tablets, TabletLoader)
    ended: asyncio.Future[StelaeError | None] = asyncio.get_running_loop().create_future()
    begin(TabletManager(node, node.tablets), ended.set_result)
    error = await ended
    return f"{type(error).__name__}: {error}"


def leader(cluster: Cluster) -> NodeId | None:
    """Who leads the second tablet, if anybody does."""
    found = [n for n, node in cluster.nodes.items() if (r := node.replicas.get(SECOND)) and r.status.role == "LEADER"]
    return found[0] if len(found) == 1 else None


def committed_config(cluster: Cluster, node: NodeId) -> OpId:
    return cluster.nodes[node].replicas[SECOND].status.committed_config.op_id


def test_a_tablet_is_created_on_running_nodes_and_is_there_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Connection.connect(cluster.addresses) as client:
            await create(cluster, client)
            await create(cluster, client)  # repeated
            tablet = await client.tablet(SECOND)
            await insert(tablet, range(20))
            for node in cluster.ids:
                await cluster.stop(node)
                await cluster.start(node)
                await until(lambda: leader(cluster) is not None)
            assert await read_ids(tablet) == list(range(20))
            other = Schema(1, SCHEMA.columns[:1], SCHEMA.key)
            again = TabletSettings(id=SECOND, schema=other, members=creation(cluster, cluster.ids[0]).config.members)
            why = await refusal(lambda manager, done: manager.create(again, done), cluster.nodes[cluster.ids[0]])
            assert why.startswith("TabletExists") and "with another first schema" in why
            with pytest.raises(CallerError, match="must include its node"):
                stranger = creation(cluster, cluster.ids[0], TabletId("third"))
                config = TabletConfig(op_id=ZERO, members=stranger.config.members[1:2])
                await act(client, msgspec.structs.replace(stranger, config=config))
            with pytest.raises(CallerError, match="an odd number of members, not 2"):
                config = TabletConfig(op_id=ZERO, members=stranger.config.members[:2])
                await act(client, msgspec.structs.replace(stranger, config=config))

    asyncio.run(run())


def test_a_deleted_replica_leaves_a_tombstone_that_votes_also_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Connection.connect(cluster.addresses) as client:
            await create(cluster, client)
            tablet = await client.tablet(SECOND)
            await insert(tablet, range(20))
            leads = leader(cluster)
            assert leads is not None
            gone, stays = (node for node in cluster.ids if node != leads)
            await until(lambda: committed_config(cluster, gone) > OpId(0, 0))
            wrong = Evicted(config_op_id=OpId(9, 9), seen=OpId(7, 7))
            with pytest.raises(FenceRefused, match=r"committed config is 1\.1, but the master has seen 7\.7"):
                await delete(client, gone, wrong)
            seen = OpId(7, 7)
            why = await refusal(lambda manager, done: manager.delete(SECOND, "", done, seen=seen), cluster.nodes[gone])
            assert why.startswith("FenceMismatch") and "is 1.1, not 7.7" in why
            await delete(client, gone, GONE)  # Its leader would have it copied again if it were only evicted.
            await delete(client, gone, wrong)  # it is gone, whatever was seen
            block = SuperblockFile(cluster.nodes[gone].files, cluster.nodes[gone].layout, SECOND).load()
            assert block.data_state is DataState.DELETED and isinstance(block.tombstone, OpId)
            assert block.quarantine is not None and block.removed
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
            with pytest.raises(TabletExists, match="was deleted"):
                await act(client, creation(cluster, gone))

    asyncio.run(run())


def test_the_table_that_is_gone_takes_its_replicas_with_it_and_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Connection.connect(cluster.addresses) as client:
            await create(cluster, client)
            await insert(await client.tablet(SECOND), range(5))
            for node in cluster.ids:
                await delete(client, node, GONE)
            assert all(SECOND not in node.replicas for node in cluster.nodes.values())
            with pytest.raises(CallerError, match="not open"):
                cluster.nodes[cluster.ids[0]].writer.reserve(LogId(SECOND, 1), 1)
            await until(lambda: cluster.leader() is not None)
            await delete(client, cluster.ids[0], GONE, TabletId("third"))  # never here: there is nothing to delete
            node = cluster.nodes[cluster.ids[0]]
            third = TabletId("third")
            assert "never on this node" in await refusal(
                lambda manager, done: manager.delete(third, "", done, seen=None), node
            )
            assert not node.files.exists(node.layout.superblock_of(TabletId("third")))

    asyncio.run(run())


def test_leadership_is_handed_over_by_name_and_before_a_node_stops_and_no_write_is_lost(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Connection.connect(cluster.addresses) as client:
            tablet = await client.tablet(TABLET)
            leads = await cluster.leading()
            to = cluster.others(leads)[0]
            writes = asyncio.ensure_future(insert(tablet, range(500)))
            await client.transfer_leadership(leads, TABLET, to)
            await until(lambda: cluster.leader() == to)
            await writes
            with pytest.raises(NotLeader):
                await client.transfer_leadership(leads, TABLET)
            with pytest.raises(CallerError, match="hand over to one of the voters"):
                await client.transfer_leadership(to, TABLET, NodeId("f" * 32))
            await hand_over(cluster.nodes[to])
            await until(lambda: cluster.leader() not in (None, to))
            await cluster.stop(to)
            await hand_over(cluster.nodes[leads])  # whoever of the two leads: the other takes over
            await insert(tablet, range(500, 600))
            assert await read_ids(tablet) == list(range(600))

    asyncio.run(run())


def test_a_replica_that_has_failed_is_deleted_like_any_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as cluster, await Connection.connect(cluster.addresses) as client:
            await insert(await client.tablet(TABLET), range(10))
            leads = await cluster.leading()
            gone = cluster.others(leads)[0]
            replica = cluster.nodes[gone].replicas[TABLET]
            replica.fail("the test says so")
            replica.applier._failed = True
            replica.applier.between_groups(lambda: None, lambda _result: None)  # as a flush that was about to begin
            await delete(client, gone, GONE, TABLET)
            block = SuperblockFile(cluster.nodes[gone].files, cluster.nodes[gone].layout, TABLET).load()
            assert block.data_state is DataState.DELETED
            with pytest.raises(CallerError, match="not open"):
                cluster.nodes[gone].writer.reserve(block.log_id, 1)

    asyncio.run(run())
