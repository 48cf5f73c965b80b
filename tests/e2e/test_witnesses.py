"""Witnesses on real nodes: the sequence t=1 to t=5 of the appendix of "Raft config change"."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from stelae.check.cluster_check import check
from stelae.client import AsyncClient, AsyncReplicas, AsyncTable, connect_async
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.protocol.codec import encode
from stelae.protocol.copy_list_messages import LIMIT_COPIES, LimitCopies
from stelae.protocol.tablet_messages import DESCRIBE, DescribeRequest
from stelae.spi.errors import NoRows
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import MemberType
from tests.e2e.master_nodes import Cluster, running, until, until_every_replica_runs
from tests.e2e.nodes import WAIT_S
from tests.e2e.test_replicas import types

SMALL_CHUNKS = """
[copy.streaming]
chunk_bytes = 4096
"""
SLOW_COPIES = f"{SMALL_CHUNKS}fetch_bytes_per_s_max = 1"
"""The rows arrive in several pieces, and the second one never does, so that the tablet stays at t=4."""


def rows(first: int, end: int) -> list[dict[str, object]]:
    return [{"id": number, "text": secrets.token_hex(200)} for number in range(first, end)]


def test_a_witness_restores_the_fault_tolerance_before_anything_is_copied(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running(tmp_path, 1, 4, SLOW_COPIES) as cluster,
            await connect_async(cluster.addresses[cluster.masters[0]]) as client,
        ):
            table, tablet, replicas = await _table_with_rows(cluster, client)
            leader, dead, other, spare = await _one_voter_dead(cluster, replicas)
            address = cluster.addresses[spare]
            added = await replicas.add(address, member_type="WITNESS", wait=True)
            assert types(added.view)[spare] is MemberType.WITNESS
            assert not (await replicas.add(address, member_type="WITNESS", wait=True)).changed
            await replicas.change_role(dead, "NON_VOTER")
            await cluster.stop(other)
            await table.insert(rows(100, 200))
            assert await table.scan().count() == 200, "the leader and the witness are a majority"
            for _ in range(8):  # Any replica may serve these reads, and each begins at a random one.
                assert await table.scan(own_writes=True).count() == 200
            await _has_the_log_only(cluster, client, spare, tablet)
            await _compares_the_others(client, tablet)
            await cluster.stop(spare)
            await cluster.start(spare)
            await table.insert(rows(200, 300))
            await _has_the_log_only(cluster, client, spare, tablet)
            await cluster.start(dead)
            back = await replicas.change_role(dead, "VOTER")
            assert types(back.view)[dead] is MemberType.VOTER
            await replicas.remove(spare)
            await cluster.start(other)
            assert await table.scan().count() == 300
            assert set(types(await replicas.config())) == {leader, dead, other}

    asyncio.run(scenario())


def test_a_witness_copies_the_rows_by_itself_becomes_a_voter_and_serves_alone_with_one_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running(tmp_path, 1, 4) as cluster,
            await connect_async(cluster.addresses[cluster.masters[0]]) as client,
        ):
            table, tablet, replicas = await _table_with_rows(cluster, client)
            leader, dead, other, spare = await _one_voter_dead(cluster, replicas)
            await replicas.add(cluster.addresses[spare], member_type="WITNESS", wait=True)
            await replicas.change_role(dead, "NON_VOTER")
            await table.insert(rows(100, 200))
            async with asyncio.timeout(WAIT_S):
                while types(await replicas.config()).get(spare) is not MemberType.VOTER:
                    await asyncio.sleep(0.1)
            await table.insert(rows(200, 300))
            replica = cluster.nodes[spare].replicas[tablet]
            assert not replica.log_only
            await until(lambda: replica.applier.applied.index >= cluster.nodes[leader].replicas[tablet].status.commit)
            sums = {(await client.connection.checksum(node, tablet)).checksum for node in (leader, spare, other)}
            assert len(sums) == 1
            await cluster.stop(leader)
            await table.insert(rows(300, 400))
            assert await table.scan().count() == 400

    asyncio.run(scenario())


def test_a_witness_begins_without_a_copy_on_a_server_that_had_the_tablet(tmp_path: Path) -> None:
    """It was copied first, and the tablet had no witness for as long as that takes. Here no copy to it ever ends.

    The spare may be copied to: a leader whose first request for an empty replica is lost asks for a copy next."""

    async def scenario() -> None:
        async with (
            running(tmp_path, 1, 4, SMALL_CHUNKS) as cluster,
            await connect_async(cluster.addresses[cluster.masters[0]]) as client,
        ):
            table, tablet, replicas = await _table_with_rows(cluster, client)
            view = await replicas.config()
            leader, members = view.node_id, set(types(view))
            (spare,) = set(cluster.servers) - members
            former = min(members - {leader})
            await _flushed(cluster, leader, tablet)
            await table.insert(rows(100, 200))
            await replicas.add(cluster.addresses[spare], wait=True)
            await replicas.remove(former)
            await until(lambda: _block(cluster, former, tablet).data_state is DataState.DELETED)
            had = _block(cluster, former, tablet).tombstone
            assert isinstance(had, OpId)
            await _let_no_copy_end(cluster, client, former)
            added = await replicas.add(cluster.addresses[former], member_type="WITNESS", wait=True)
            assert types(added.view)[former] is MemberType.WITNESS
            await table.insert(rows(200, 300))
            await cluster.stop(spare)
            await table.insert(rows(300, 400))
            assert await table.scan().count() == 400, "two voters and the witness are a majority"
            await _has_the_log_only(cluster, client, former, tablet)
            assert _block(cluster, former, tablet).tombstone in (None, had)
            await cluster.stop(former)
            await cluster.start(former)
            await table.insert(rows(400, 500))
            await _has_the_log_only(cluster, client, former, tablet)

    asyncio.run(scenario())


async def _let_no_copy_end(cluster: Cluster, client: AsyncClient, node_id: NodeId) -> None:
    """Limit the copies to a node as ``stelae copy limit`` does, and in the settings of nodes that are started later."""
    cluster.settings = SLOW_COPIES
    limits = encode(LimitCopies(fetch_bytes_per_s_max=1))
    await client.connection.ask(node_id, LIMIT_COPIES, limits, deadline_ms=int(WAIT_S * 1000))


def _block(cluster: Cluster, node_id: NodeId, tablet: TabletId) -> Superblock:
    node = cluster.nodes[node_id]
    return SuperblockFile(node.files, node.layout, tablet).load()


async def _compares_the_others(client: AsyncClient, tablet: TabletId) -> None:
    """A witness has no rows to compare, which is no problem."""
    assert client.catalog is not None
    found = await check(client.connection, client.catalog, checksums=True)
    assert not found.differ
    witness = [why for whys in found.not_compared.values() for why in whys if "rows" in why]
    assert witness == [] and all("does not run" in why for why in found.not_compared.get(tablet, ()))


async def _table_with_rows(cluster: Cluster, client: AsyncClient) -> tuple[AsyncTable, TabletId, AsyncReplicas]:
    table = await client.create_table("t", {"id": "int64", "text": "string"}, ["id"])
    await table.insert(rows(0, 100))
    await until_every_replica_runs(cluster)
    (tablet,) = await client.tablet_ids()
    return table, tablet, await client.replicas(tablet)


async def _one_voter_dead(cluster: Cluster, replicas: AsyncReplicas) -> tuple[NodeId, NodeId, NodeId, NodeId]:
    """Stop a follower of the three voters, after the leader has flushed. Returns the leader, the dead voter, the other
    one, and the server without a replica."""
    view = await replicas.config()
    leader, members = view.node_id, set(types(view))
    (spare,) = set(cluster.servers) - members
    await _flushed(cluster, leader, replicas.tablet_id)
    dead, other = members - {leader}
    await cluster.stop(dead)
    return leader, dead, other, spare


async def _flushed(cluster: Cluster, node_id: NodeId, tablet: TabletId) -> None:
    """Flush a replica. Its log begins at the first entry all the same, but that of a witness begins here."""
    flusher = cluster.nodes[node_id].replicas[tablet].flusher
    await until(lambda: flusher.superblock.flushed > ZERO or (flusher.flush() and False))


async def _has_the_log_only(cluster: Cluster, client: AsyncClient, node_id: NodeId, tablet: TabletId) -> None:
    node = cluster.nodes[node_id]
    replica = node.replicas[tablet]
    assert replica.log_only and replica.status.caretaker
    assert replica.applier.applied.index > 0 and not node.files.exists(node.layout.data_of(tablet))
    await client.connection.reach(cluster.addresses[node_id])
    with pytest.raises(NoRows, match="is a witness: it keeps the log and has no rows"):
        await client.connection.ask(node_id, DESCRIBE, encode(DescribeRequest(tablet)))
