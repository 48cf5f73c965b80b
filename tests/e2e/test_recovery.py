"""A tablet that has lost its majority is recovered from a survivor, on real disks and sockets (durability rule 29)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from stelae.client.async_client import AsyncClient, connect_async
from stelae.recover.execution import RecoveryOutcome, RecoveryResult, apply_plan, until_whole
from stelae.recover.plan import NotPlanned, RecoveryPlan, TabletPlan
from stelae.recover.survey import survey_masters, survey_servers
from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId, OpId
from stelae.spi.recovery_epoch import recovery_epoch
from tests.e2e.master_nodes import running
from tests.e2e.nodes import WAIT_S, agree, read_ids
from tests.e2e.nodes import connected as connected_nodes
from tests.e2e.nodes import insert as insert_ids
from tests.e2e.nodes import running as running_nodes
from tests.e2e.test_healing import HEAL_S, QUICK, ROWS, Scene, config_of, is_whole, until, with_a_table


async def planned(client: AsyncClient) -> tuple[RecoveryPlan, list[NotPlanned]]:
    assert client.catalog is not None
    survey = await survey_masters(client.connection, client.catalog, timeout_s=WAIT_S)
    return survey.plan(7, 0)


async def planned_once_lost(client: AsyncClient) -> RecoveryPlan:
    """The plan, once the survivors have noticed that their leader is gone."""
    async with asyncio.timeout(HEAL_S):
        while True:
            plan, _ = await planned(client)
            if plan.tablets:
                return plan
            await asyncio.sleep(0.1)


async def applied(client: AsyncClient, plan: RecoveryPlan) -> list[RecoveryOutcome]:
    return await apply_plan(client.connection, plan, timeout_s=WAIT_S, done=lambda outcome: None)


async def lose(scene: Scene, count: int = 2) -> list[NodeId]:
    """Stop members of the tablet, its leader among them. The others have all of its log: a majority may do without."""
    cluster, tablet = scene.cluster, scene.tablet
    await until(lambda: is_whole(cluster, tablet, set(config_of(cluster, tablet))))
    members = sorted(config_of(cluster, tablet), key=lambda node: _leads(scene, node), reverse=True)
    for node in members[:count]:
        await cluster.stop(node)
    return members[:count]


def _leads(scene: Scene, node: NodeId) -> bool:
    replica = scene.cluster.nodes[node].replicas.get(scene.tablet)
    return replica is not None and replica.status.role is Role.LEADER


def _is_tombstone(scene: Scene, node: NodeId) -> bool:
    """Whether a node has no replica of the tablet, or one that follows the recovered tablet."""
    replica = scene.cluster.nodes[node].replicas.get(scene.tablet)
    return replica is None or recovery_epoch(replica.status.last.term) == 1


def test_a_survivor_serves_all_that_it_has_and_the_cluster_heals_on_new_servers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 5) as scene:
            cluster, client, table = scene.cluster, scene.client, scene.table
            nothing, healthy = await planned(client)
            assert not nothing.tablets and not nothing.unrecoverable
            assert [one.has_majority for one in healthy] == [True]
            for node in await lose(scene):
                shutil.rmtree(cluster.root / node)
            plan = await planned_once_lost(client)
            (tablet,) = plan.tablets
            assert tablet.survivor.node_id in cluster.nodes and len(tablet.lost) == 2 and not tablet.others
            assert f"entries after {tablet.last}" in tablet.loss[0]
            (outcome,) = await applied(client, plan)
            assert outcome.result is RecoveryResult.RECOVERED, outcome.text
            assert len(await table.scan().to_arrow()) == ROWS
            await table.insert([{"id": ROWS, "text": "after"}], timeout_s=WAIT_S)
            left = await until_whole(client.connection, plan, timeout_s=HEAL_S, progress=lambda text: None)
            assert left == []
            await until(lambda: is_whole(cluster, scene.tablet, set(cluster.nodes) & set(cluster.servers)))
            assert len(await table.scan().to_arrow()) == ROWS + 1
            (again,) = await applied(client, plan)
            assert again.result is RecoveryResult.DONE_ALREADY
            assert not (await planned(client))[0].tablets

    asyncio.run(scenario())


def test_lost_servers_that_return_stand_down_and_undo_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 3) as scene:
            cluster, client, table, tablet = scene.cluster, scene.client, scene.table, scene.tablet
            lost = await lose(scene)
            (outcome,) = await applied(client, await planned_once_lost(client))
            assert outcome.result is RecoveryResult.RECOVERED, outcome.text
            await table.insert([{"id": ROWS + n, "text": "after"} for n in range(5)], timeout_s=WAIT_S)
            for node in lost:
                await cluster.start(node)
            await table.insert([{"id": ROWS + 5 + n, "text": "later"} for n in range(5)], timeout_s=WAIT_S)
            await until(lambda: is_whole(cluster, tablet, set(cluster.servers)))
            assert all(_is_tombstone(scene, node) for node in cluster.servers)
            assert len(await table.scan().to_arrow()) == ROWS + 10
            survivor = (set(cluster.servers) - set(lost)).pop()
            await cluster.stop(survivor)
            assert len(await table.scan().to_arrow()) == ROWS + 10

    asyncio.run(scenario())


def test_an_old_majority_without_masters_hears_of_the_recovery_and_elects_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_nodes(tmp_path) as cluster:
            async with connected_nodes(cluster) as tablet:
                await insert_ids(tablet, range(20))
            async with asyncio.timeout(WAIT_S):
                while not agree(cluster):
                    await asyncio.sleep(0.02)
            ids = list(cluster.nodes)
            leader = await cluster.leading()
            lost = [leader, next(node for node in ids if node != leader)]
            (survivor,) = set(ids) - set(lost)
            for node in lost:
                await cluster.stop(node)
            async with await connect_async([cluster.address(survivor)]) as client:
                async with asyncio.timeout(WAIT_S):
                    while True:
                        survey = await survey_servers(client.connection, [cluster.address(survivor)])
                        plan, _ = survey.plan(3, 0)
                        if plan.tablets:
                            break
                        await asyncio.sleep(0.1)
                (outcome,) = await applied(client, plan)
                assert outcome.result is RecoveryResult.RECOVERED, outcome.text
                for node in lost:
                    await cluster.start(node)
                (name,) = cluster.nodes[survivor].replicas
                async with asyncio.timeout(WAIT_S):
                    while not all(_stands_down(cluster.nodes[node].replicas[name]) for node in lost):
                        await asyncio.sleep(0.05)
                tablet = await client.connection.tablet(name, asked=[survivor])
                assert sorted(await read_ids(tablet)) == list(range(20))

    asyncio.run(scenario())


def _stands_down(replica: object) -> bool:
    status = replica.status  # type: ignore[attr-defined]
    return status.role is Role.NON_PARTICIPANT and recovery_epoch(status.term) == 1


@pytest.mark.long
def test_a_plan_is_not_applied_once_a_lost_server_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 3) as scene:
            cluster, client = scene.cluster, scene.client
            lost = await lose(scene)
            plan = await planned_once_lost(client)
            await cluster.start(lost[0])
            (outcome,) = await applied(client, plan)
            assert outcome.result is RecoveryResult.FAILED and "runs again" in outcome.text
            assert len(await scene.table.scan().to_arrow()) == ROWS
            assert all(
                recovery_epoch(cluster.nodes[node].replicas[scene.tablet].status.term) == 0
                for node in cluster.servers
                if node in cluster.nodes
            )

    asyncio.run(scenario())


def test_of_two_survivors_one_stands_down_durably_and_becomes_a_copy_of_the_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            running(tmp_path, 1, 5, QUICK) as cluster,
            await connect_async(cluster.addresses[cluster.masters[0]]) as client,
        ):
            table = await client.create_table("t", {"id": "int64"}, ["id"], replicas=5)
            await table.insert([{"id": n} for n in range(ROWS)])
            (tablet_id,) = await client.tablet_ids()
            await lose(Scene(cluster, client, table, tablet_id), 3)
            plan = await planned_once_lost(client)
            (tablet,) = plan.tablets
            (other,) = tablet.others
            at_once = msgspec.structs.replace(
                tablet, survivor=other, others=(tablet.survivor,), term=tablet.term + (1 << 24), last=other_last(tablet)
            )
            (outcome,) = await applied(client, plan)
            assert outcome.result is RecoveryResult.RECOVERED, outcome.text
            rival = msgspec.structs.replace(plan, tablets=(at_once,))
            (refused,) = await apply_plan(client.connection, rival, timeout_s=3.0, done=lambda outcome: None)
            assert refused.result is RecoveryResult.FAILED, "two plans do not recover two survivors"
            await until(lambda: is_whole(cluster, tablet_id, set(cluster.servers) & set(cluster.nodes)))
            assert len(await table.scan().to_arrow()) == ROWS
            assert recovery_epoch(cluster.nodes[other.node_id].replicas[tablet_id].status.last.term) == 1

    asyncio.run(scenario())


def other_last(tablet: TabletPlan) -> OpId:
    """The end of the log of the survivor that was not chosen."""
    return tablet.ranking[1].last


@pytest.mark.long
def test_rows_that_only_the_lost_servers_had_stay_lost_when_they_return(tmp_path: Path) -> None:
    """The lost servers have committed and applied entries at indexes at which the recovered log has others."""

    async def scenario() -> None:
        async with with_a_table(tmp_path, 3) as scene:
            cluster, client, table, tablet = scene.cluster, scene.client, scene.table, scene.tablet
            await until(lambda: is_whole(cluster, tablet, set(cluster.servers)))
            survivor = next(node for node in cluster.servers if not _leads(scene, node))
            lost = [node for node in cluster.servers if node != survivor]
            await cluster.stop(survivor)
            await table.insert([{"id": ROWS + n, "text": "lost"} for n in range(50)], timeout_s=WAIT_S)
            for node in lost:
                await cluster.stop(node)
            await cluster.start(survivor)
            (outcome,) = await applied(client, await planned_once_lost(client))
            assert outcome.result is RecoveryResult.RECOVERED, outcome.text
            await table.insert([{"id": n, "text": "after"} for n in range(1000, 1020)], timeout_s=WAIT_S)
            for node in lost:
                await cluster.start(node)
            await until(lambda: is_whole(cluster, tablet, set(cluster.servers)))
            found = (await table.scan().to_arrow()).column("text").to_pylist()
            assert sorted(found) == ["after"] * 20 + ["before"] * ROWS

    asyncio.run(scenario())
