"""Masters complete a move that a client has begun, on real nodes: its client dies, and so does the leading master."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from stelae.client import connect_async
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.member_messages import ConfigView
from stelae.spi.errors import DeadlineExceeded
from stelae.spi.ids import NodeId
from stelae.spi.members import MemberType
from tests.e2e.master_nodes import Cluster
from tests.e2e.test_healing import HEAL_S, PATIENT, ROWS, Scene, config_of, is_whole, until, with_a_table


async def begun(scene: Scene, source: NodeId, target: NodeId) -> None:
    """Begin a move with another client, which dies as soon as it has seen the new member. The target is down."""
    seen = asyncio.Event()

    def look(view: ConfigView) -> None:
        if view.committed.member(target) is not None:
            seen.set()

    addresses = (scene.cluster.addresses[master] for master in scene.cluster.masters)
    async with await connect_async(",".join(addresses)) as client:
        replicas = await client.replicas(scene.tablet)
        call = replicas.move(source, scene.cluster.addresses[target], to=target, on_progress=look, wait_s=HEAL_S)
        move = asyncio.ensure_future(call)
        await asyncio.wait([move, asyncio.ensure_future(seen.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert not move.done(), "the target is down"
        move.cancel()
        with suppress(asyncio.CancelledError):
            await move


async def until_listed(scene: Scene, server: NodeId) -> None:
    """Wait until the masters know a server, which may have just started."""
    catalog = scene.client.catalog
    assert catalog is not None
    async with asyncio.timeout(HEAL_S):
        while server not in {line.node_id for line in (await catalog.list_servers()).servers}:
            await asyncio.sleep(0.05)


def leading_master(cluster: Cluster) -> NodeId:
    return next(m for m in cluster.masters if m in cluster.nodes and leads(cluster, m))


def leads(cluster: Cluster, master: NodeId) -> bool:
    replica = cluster.nodes[master].replicas.get(SYSTEM_TABLET)
    return replica is not None and replica.status.role == "LEADER" and replica.status.serving


@pytest.mark.parametrize("masters", [1, 3])
def test_a_move_is_completed_although_its_client_and_the_leading_master_die(tmp_path: Path, masters: int) -> None:
    """It stopped with the client: four voters, one of them pinned, for ever."""

    async def scenario() -> None:
        async with with_a_table(tmp_path, 4, masters, settings=PATIENT) as scene:
            cluster, table, tablet = scene.cluster, scene.table, scene.tablet
            members = set(config_of(cluster, tablet))
            (target,) = set(cluster.servers) - members
            source = max(members)
            await until_listed(scene, target)
            await cluster.stop(target)
            await begun(scene, source, target)
            if masters > 1:
                await cluster.stop(leading_master(cluster))
            joining = config_of(cluster, tablet)[target]
            assert (joining.member_type, joining.replaces) == (MemberType.PRE_VOTER, source)
            await cluster.start(target)
            wanted = members - {source} | {target}
            await until(lambda: set(config_of(cluster, tablet)) == wanted)
            await until(lambda: is_whole(cluster, tablet, wanted))
            found = config_of(cluster, tablet)
            assert all(m.replaces is msgspec.UNSET and m.pinned is msgspec.UNSET for m in found.values())
            await until(lambda: tablet not in cluster.nodes[source].replicas)
            assert await table.scan().count() == ROWS

    asyncio.run(scenario())


def test_a_move_that_is_not_complete_in_time_says_what_goes_on_and_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 4, settings=PATIENT) as scene:
            cluster, tablet = scene.cluster, scene.tablet
            members = set(config_of(cluster, tablet))
            (target,) = set(cluster.servers) - members
            source = max(members)
            await until_listed(scene, target)
            await cluster.stop(target)
            replicas = await scene.client.replicas(tablet)
            with pytest.raises(DeadlineExceeded, match=f"not a voter yet: .* the masters then remove node {source}"):
                await replicas.move(source, cluster.addresses[target], to=target, wait_s=0.0)
            await cluster.start(target)
            again = await replicas.move(source, cluster.addresses[target], wait_s=HEAL_S)
            assert {m.node_id for m in again.view.committed.members} == members - {source} | {target}

    asyncio.run(scenario())
