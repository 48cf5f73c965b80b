"""Replicas that are added, promoted, demoted and removed by the calls that operators have, on real nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stelae.client import AsyncClient, ReplicaGone, connect_async
from stelae.client.arguments import BadArgument
from stelae.client.catalog import CatalogClient
from stelae.local.ports import free_ports
from stelae.protocol.member_messages import ConfigView
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import CallerError, MemberChangeRefused, Unavailable, WrongConfigId
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import MemberType
from tests.e2e.master_nodes import Cluster as MastersCluster
from tests.e2e.master_nodes import running as masters_running
from tests.e2e.master_nodes import until_every_replica_runs
from tests.e2e.nodes import TABLET, WAIT_S, no_space, running, until


def types(view: ConfigView) -> dict[NodeId, MemberType]:
    return {member.node_id: member.member_type for member in view.committed.members}


def test_a_fourth_replica_is_added_promoted_and_serves_when_two_old_ones_are_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, spares=1) as cluster, await connect_async(cluster.addresses[:3]) as client:
            table = await client.table(TABLET)
            await table.insert([{"id": n, "text": "before"} for n in range(100)])
            replicas, spare, seen = await client.replicas(TABLET), cluster.ids[3], list[ConfigView]()
            added = await replicas.add(cluster.address(spare), wait=True, on_progress=seen.append)
            assert added.changed and types(added.view)[spare] is MemberType.VOTER and len(types(added.view)) == 4
            assert any(types(view).get(spare) is MemberType.PRE_VOTER for view in seen)
            assert not (await replicas.add(cluster.address(spare), wait=True)).changed
            for node in cluster.ids[:2]:
                assert (await replicas.remove(node)).changed
                await cluster.stop(node)
            await table.insert([{"id": n, "text": "after"} for n in range(100, 200)])
            assert await table.scan().count() == 200
            assert set(types(await replicas.config())) == {cluster.ids[2], spare}

    asyncio.run(scenario())


def test_a_leader_that_is_removed_hands_over_and_can_be_added_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, spares=1) as cluster, await connect_async(cluster.addresses[:3]) as client:
            table, replicas = await client.table(TABLET), await client.replicas(TABLET)
            await replicas.add(cluster.address(cluster.ids[3]), wait=True)
            for turn in range(3):
                old = await cluster.leading()
                assert (await replicas.remove(old)).view.node_id != old
                assert not (await replicas.remove(old)).changed
                await table.insert([{"id": turn, "text": "while it is out"}])
                await until(lambda old=old: cluster.leader() not in (None, old))  # type: ignore[misc]
                back = await replicas.add(cluster.address(old), node=old, wait=True)
                assert types(back.view)[old] is MemberType.VOTER
            assert await table.scan().count() == 3

    asyncio.run(scenario())


def test_a_client_follows_a_tablet_none_of_whose_first_replicas_is_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, spares=3) as cluster, await connect_async(cluster.addresses[:3]) as client:
            table, replicas = await client.table(TABLET), await client.replicas(TABLET)
            for old, new in zip(cluster.ids[:3], cluster.ids[3:], strict=True):
                await replicas.add(cluster.address(new), wait=True)
                await replicas.remove(old)
                await table.insert([{"id": cluster.ids.index(old), "text": "x"}])
            assert set(types(await replicas.config())) == set(cluster.ids[3:])
            for old in cluster.ids[:2]:
                await cluster.stop(old)  # One of the first remains: it tells clients who the members are.
            await table.insert([{"id": 9, "text": "x"}])
            assert await table.scan().count() == 4

    asyncio.run(scenario())


def test_a_role_changes_and_leadership_is_handed_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, await connect_async(cluster.addresses) as client:
            replicas = await client.replicas(TABLET)
            leader = await cluster.leading()
            one, other = cluster.others(leader)
            assert (await replicas.transfer(one)).view.node_id == one
            assert not (await replicas.transfer(one)).changed
            moved = await replicas.transfer()
            assert moved.changed and moved.view.node_id != one
            demoted = await replicas.change_role(other, "NON_VOTER")
            assert types(demoted.view)[other] is MemberType.NON_VOTER
            with pytest.raises(CallerError, match="only to a voter"):
                await replicas.transfer(other)
            promoted = await replicas.change_role(other, "VOTER")
            assert types(promoted.view)[other] is MemberType.VOTER

    asyncio.run(scenario())


def test_a_change_is_made_only_for_the_config_that_the_caller_has_seen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, spares=1) as cluster, await connect_async(cluster.addresses[:3]) as client:
            replicas, spare = await client.replicas(TABLET), cluster.ids[3]
            old = (await replicas.config()).committed.op_id
            newer = (await replicas.add(cluster.address(spare), config_id=old, wait=True)).view.committed.op_id
            with pytest.raises(WrongConfigId, match=f"is {newer}, the change is meant for {old}; look at the config"):
                await replicas.remove(spare, config_id=old)
            with pytest.raises(WrongConfigId):
                await replicas.transfer(spare, config_id=old)
            with pytest.raises(WrongConfigId):
                await replicas.abort_change(config_id=old)
            assert (await replicas.remove(spare, config_id=newer)).changed

    asyncio.run(scenario())


def test_what_cannot_be_done_is_refused_with_the_next_step(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = "member_join_timeout_ms = 1500"
        async with running(tmp_path, settings) as cluster, await connect_async(cluster.addresses) as client:
            replicas = await client.replicas(TABLET)
            with pytest.raises(BadArgument, match="address must be host:port"):
                await replicas.add("nowhere")
            with pytest.raises(BadArgument, match="must be 32 lower-case hexadecimal digits"):
                await replicas.remove("node-1")
            with pytest.raises(BadArgument, match="member_type must be one of VOTER, PRE_VOTER"):
                await replicas.add(cluster.addresses[0], member_type="LEADER")
            with pytest.raises(MemberChangeRefused, match="a new member has no vote; add it as PRE_VOTER"):
                await replicas.add("127.0.0.1:9", node="f" * 32, member_type="VOTER")
            with pytest.raises(MemberChangeRefused, match="not a member; add it first"):
                await replicas.change_role("f" * 32, "VOTER")
            assert not (await replicas.abort_change()).changed
            with pytest.raises(NoSuchTablet):
                await client.connection.tablet(type(TABLET)("other"))
            added = await replicas.add("127.0.0.1:9", node="f" * 32)
            assert types(added.view)[NodeId("f" * 32)] is MemberType.PRE_VOTER
            with pytest.raises(ReplicaGone, match="did not answer the leader"):
                await replicas.add("127.0.0.1:9", node="f" * 32, wait=True)

    asyncio.run(scenario())


def test_a_removal_of_the_leader_is_aborted_while_no_successor_has_all_of_the_log(tmp_path: Path) -> None:
    """The disks of both followers are full, so they stay behind, and the leader waits with the handover."""

    async def scenario() -> None:
        async with (
            running(tmp_path, election_timeout_ms=3000) as cluster,
            await connect_async(cluster.addresses) as client,
        ):
            table, replicas, leader = await client.table(TABLET), await client.replicas(TABLET), await cluster.leading()
            before = await replicas.config()
            status = cluster.nodes[leader].replicas[TABLET]
            for other in cluster.others(leader):
                cluster.files[other].broken = no_space
            written = asyncio.ensure_future(table.insert([{"id": 1, "text": "while it is full"}], timeout_s=WAIT_S))
            await until(lambda: status.status.last.index > status.status.commit)
            removed = asyncio.ensure_future(replicas.remove(leader))
            async with asyncio.timeout(WAIT_S):
                while not (await replicas.abort_change()).changed:
                    await asyncio.sleep(0.01)
            with pytest.raises(MemberChangeRefused, match=f"remove node {leader}: ABORTED: an operator has cancelled"):
                await removed
            for other in cluster.others(leader):
                cluster.files[other].broken = None
            await written
            after = await replicas.config()
            assert (after.node_id, after.committed) == (before.node_id, before.committed)
            assert not (await replicas.abort_change()).changed

    asyncio.run(scenario())


def test_without_a_leader_the_newest_known_config_is_shown_and_no_change_is_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, await connect_async(cluster.addresses) as client:
            replicas = await client.replicas(TABLET)
            for node in cluster.ids[:2]:
                await cluster.stop(node)
            await until(lambda: cluster.leader() is None)
            view = await replicas.config(leader_only=False, timeout_s=0.5)
            assert view.role != "LEADER" and len(types(view)) == 3
            with pytest.raises(Unavailable, match="in time"):
                await replicas.remove(cluster.ids[0], timeout_s=0.5)

    asyncio.run(scenario())


def test_with_masters_a_server_that_never_had_the_tablet_gets_a_replica_from_the_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            masters_running(tmp_path, 1, 4) as cluster,
            await connect_async(cluster.addresses[cluster.masters[0]]) as client,
        ):
            table = await client.create_table("t", {"id": "int64", "text": "string"}, ["id"])
            await table.insert([{"id": n, "text": "x"} for n in range(100)])
            await until_every_replica_runs(cluster)
            (tablet,) = await client.tablet_ids()
            replicas = await client.replicas(tablet)
            members = set(types(await replicas.config()))
            (spare,) = set(cluster.servers) - members
            added = await replicas.add(cluster.addresses[spare], wait=True)
            assert types(added.view)[spare] is MemberType.VOTER
            superblock = cluster.nodes[spare].replicas[tablet].flusher.superblock
            assert (superblock.table_name, superblock.partition) == (table.table_id, _partition(cluster, tablet))
            old = added.view.node_id
            removed = await replicas.remove(old)
            assert set(types(removed.view)) == members - {old} | {spare}
            await table.insert([{"id": n, "text": "x"} for n in range(100, 200)])
            assert await table.scan().count() == 200
            sums = {(await client.connection.checksum(node, tablet)).checksum for node in types(removed.view)}
            assert len(sums) == 1
            await until(lambda: tablet not in cluster.nodes[old].replicas)  # The masters have deleted what is left.
            async with asyncio.timeout(WAIT_S):
                while True:
                    (place,) = (await masters_of(client).get_table("t")).tablets
                    if {node for node, _ in place.members} == set(types(removed.view)):
                        break
                    await asyncio.sleep(0.05)
            assert place.learners == ()
            await table.insert([{"id": n, "text": "x"} for n in range(200, 250)])
            assert set(types(await replicas.config())) == set(types(removed.view)), "the masters change nothing back"

    asyncio.run(scenario())


def masters_of(client: AsyncClient) -> CatalogClient:
    assert client.catalog is not None
    return client.catalog


def _partition(cluster: MastersCluster, tablet: TabletId) -> object:
    return next(n.replicas[tablet].flusher.superblock.partition for n in cluster.nodes.values() if tablet in n.replicas)


def test_a_member_that_moves_to_another_address_is_reached_there_once_the_config_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, await connect_async(cluster.addresses) as client:
            table, replicas = await client.table(TABLET), await client.replicas(TABLET)
            moving = cluster.others(await cluster.leading())[0]
            await cluster.stop(moving)
            await table.insert([{"id": n, "text": "while it moves"} for n in range(20)])
            (port,) = free_ports(1)
            cluster.addresses[cluster.ids.index(moving)] = f"127.0.0.1:{port}"
            await cluster.start(moving)
            changed = await replicas.add(cluster.address(moving), node=moving)
            member = changed.view.committed.member(moving)
            assert changed.changed and member is not None
            assert (member.address, member.member_type) == (cluster.address(moving), MemberType.VOTER)
            replica = cluster.nodes[moving].replicas[TABLET]
            await until(lambda: replica.applier.applied.index >= changed.view.last.index)
            for other in cluster.others(moving):
                if other != await cluster.leading():
                    await cluster.stop(other)
            await table.insert([{"id": 99, "text": "with its vote"}])
            assert await table.scan().count() == 21

    asyncio.run(scenario())
