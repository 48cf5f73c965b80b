"""Masters that replace what is lost, on real nodes: dead servers and lost disks; and what they leave alone."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from stelae.client import AsyncClient, AsyncTable, SetReplicas, connect_async
from stelae.client.arguments import BadArgument
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.machine.files import RealFiles
from stelae.protocol.actions import ACTION, ChangeConfig, ConfigChange, encode_action
from stelae.spi.consensus import Role
from stelae.spi.errors import CallerError, MemberChangeRefused, StelaeError
from stelae.spi.ids import ZERO, NodeId, TabletId
from stelae.spi.members import Member, MemberType
from stelae.spi.policy import Action, NodeHealth, PolicySnapshot
from stelae_placement_policy import PlacementPolicy
from tests.e2e.master_nodes import Cluster, running, until_every_replica_runs
from tests.e2e.nodes import WAIT_S

HEAL_S = 60.0
"""Longest wait for masters to heal; reached only by a defect."""


def given_up_after(ms: int) -> str:
    """Settings with which masters give a silent server up after a time. A busy machine lets nodes wait for seconds."""
    return f"""
[master]
server_silent_ms = {ms // 2}
server_dead_ms = {ms}
policy_interval_ms = 100
action_retry_ms = 200
[tserver]
follower_unhealthy_ms = {ms}
"""


QUICK, PATIENT = given_up_after(6_000), given_up_after(60_000)
ROWS = 300


class Scene(NamedTuple):
    cluster: Cluster
    client: AsyncClient
    table: AsyncTable
    tablet: TabletId


@asynccontextmanager
async def with_a_table(root: Path, servers: int, masters: int = 1, settings: str = QUICK) -> AsyncIterator[Scene]:
    """A cluster with a table of one tablet and three replicas, and rows in it."""
    async with (
        running(root, masters, servers, settings) as cluster,
        await connect_async(cluster.addresses[cluster.masters[0]]) as client,
    ):
        table = await client.create_table("t", {"id": "int64", "text": "string"}, ["id"])
        await table.insert([{"id": n, "text": "before"} for n in range(ROWS)])
        (tablet,) = await client.tablet_ids()
        await until_every_replica_runs(cluster)
        yield Scene(cluster, client, table, tablet)


def config_of(cluster: Cluster, tablet: TabletId) -> dict[NodeId, Member]:
    """The members of a tablet by the newest config that a running server has committed."""
    known = [node.replicas[tablet].status for node in cluster.nodes.values() if tablet in node.replicas]
    newest = max((status.committed_config for status in known), key=lambda config: config.op_id)
    return {member.node_id: member for member in newest.members}


def is_whole(cluster: Cluster, tablet: TabletId, nodes: set[NodeId]) -> bool:
    """Whether exactly these nodes are members of a tablet, all vote, and all have applied the same."""
    members = config_of(cluster, tablet)
    if set(members) != nodes or any(m.member_type is not MemberType.VOTER for m in members.values()):
        return False
    replicas = [cluster.nodes[node].replicas.get(tablet) for node in nodes]
    appliers = [replica.applier for replica in replicas if replica is not None and not replica.failure]
    if len({applier.applied for applier in appliers}) > 1:
        return False
    return len(appliers) == len(nodes) and len({applier.store.checksum(None) for applier in appliers}) == 1


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(HEAL_S):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[PolicySnapshot]:
    """What the policy has planned for, plan by plan."""
    found: list[PolicySnapshot] = []
    plan = PlacementPolicy.plan

    def planned(snapshot: PolicySnapshot, config: object, rng: random.Random) -> tuple[Action, ...]:
        found.append(snapshot)
        return plan(snapshot, config, rng)

    monkeypatch.setattr(PlacementPolicy, "plan", planned)
    return found


async def until_planned(plans: list[PolicySnapshot], suits: Callable[[PolicySnapshot], bool]) -> None:
    """Wait until the policy has planned ten times for a cluster that suits, so that it would have acted."""
    before = len(plans)
    await until(lambda: sum(map(suits, plans[before:])) > 10)


async def writes_on(table: AsyncTable, start: int, stop: asyncio.Event) -> int:
    """Insert rows one by one until told to stop; returns the number of the next one."""
    number = start
    while not stop.is_set():
        await table.insert([{"id": number, "text": "meanwhile"}], timeout_s=WAIT_S)
        number += 1
    return number


@pytest.mark.parametrize("masters", [1, 3])
def test_a_dead_server_is_replaced_while_clients_write_and_is_left_with_a_tombstone(
    tmp_path: Path, masters: int
) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 4, masters) as scene:
            cluster, table, tablet = scene.cluster, scene.table, scene.tablet
            members = set(config_of(cluster, tablet))
            (spare,) = set(cluster.servers) - members
            dead = min(members)
            stop = asyncio.Event()
            writer = asyncio.create_task(writes_on(table, ROWS, stop))
            await cluster.stop(dead)
            healed = members - {dead} | {spare}
            await until(lambda: set(config_of(cluster, tablet)) == healed)
            stop.set()
            rows = await writer
            await until(lambda: is_whole(cluster, tablet, healed))
            assert rows > ROWS and await table.scan().count() == rows
            await cluster.start(dead)
            await until(lambda: tablet not in cluster.nodes[dead].replicas)  # What the config left behind goes.
            assert is_whole(cluster, tablet, healed) and await table.scan().count() == rows

    asyncio.run(scenario())


def test_a_server_that_is_back_in_time_keeps_its_replica_and_the_spare_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 4) as scene:
            cluster, table, tablet = scene.cluster, scene.table, scene.tablet
            members = set(config_of(cluster, tablet))
            (spare,) = set(cluster.servers) - members
            dead = min(members)
            await cluster.stop(dead)
            await until(lambda: spare in config_of(cluster, tablet))
            await cluster.start(dead)
            await until(lambda: len(config_of(cluster, tablet)) == 3)
            await until(lambda: is_whole(cluster, tablet, set(config_of(cluster, tablet))))
            assert await table.scan().count() == ROWS

    asyncio.run(scenario())


async def with_one_replica_stopped(scene: Scene) -> tuple[NodeId, set[NodeId]]:
    """Stop one server with a replica. Return it, and the members once the only spare server has taken its place."""
    cluster, members = scene.cluster, set(config_of(scene.cluster, scene.tablet))
    (spare,) = set(cluster.servers) - members
    stopped = min(members)
    await cluster.stop(stopped)
    return stopped, members - {stopped} | {spare}


def test_a_server_whose_disk_is_lost_is_replaced_and_its_old_name_votes_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 4) as scene:
            cluster, table, tablet = scene.cluster, scene.table, scene.tablet
            lost, healed = await with_one_replica_stopped(scene)
            shutil.rmtree(tmp_path / lost)
            await cluster.start(lost)  # With its old name, and nothing else.
            await until(lambda: set(config_of(cluster, tablet)) == healed)
            await until(lambda: is_whole(cluster, tablet, healed))
            assert tablet not in cluster.nodes[lost].replicas
            assert await table.scan().count() == ROWS

    asyncio.run(scenario())


async def deleted_once_replaced(scene: Scene, tmp_path: Path, broken: NodeId, healed: set[NodeId]) -> Superblock:
    """Wait until other servers have the tablet, and what a broken one had of it is deleted. Return its superblock."""
    cluster, tablet = scene.cluster, scene.tablet
    await until(lambda: set(config_of(cluster, tablet)) == healed)
    await until(lambda: tablet not in cluster.nodes[broken].failed_tablets)
    await until(lambda: is_whole(cluster, tablet, healed))
    block = SuperblockFile(RealFiles(), DirectoryLayout(str(tmp_path / broken)), tablet).load()
    assert block.data_state is DataState.DELETED
    assert await scene.table.scan().count() == ROWS
    await cluster.stop(broken)
    await cluster.start(broken)
    assert tablet not in cluster.nodes[broken].failed_tablets, "it is a tombstone, which starts"
    return block


def test_a_replica_that_does_not_start_is_replaced_and_what_is_left_of_it_is_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 4) as scene:
            cluster, tablet = scene.cluster, scene.tablet
            broken, healed = await with_one_replica_stopped(scene)
            shutil.rmtree(tmp_path / broken / "wals")
            (tmp_path / broken / "wals").mkdir()
            await cluster.start(broken)
            assert "the log is gone" in cluster.nodes[broken].failed_tablets[tablet]
            await deleted_once_replaced(scene, tmp_path, broken, healed)

    asyncio.run(scenario())


@pytest.mark.parametrize("file", ["tablet-meta", "consensus-meta"])
def test_a_replica_with_a_flipped_byte_in_its_metadata_is_replaced_and_what_is_left_of_it_is_deleted(
    tmp_path: Path, file: str
) -> None:
    """Its rows and its log stayed on the disk for ever, and no check told it."""

    async def scenario() -> None:
        async with with_a_table(tmp_path, 4) as scene:
            cluster, tablet = scene.cluster, scene.tablet
            broken, healed = await with_one_replica_stopped(scene)
            path = tmp_path / broken / file / tablet
            spoiled = bytearray(path.read_bytes())
            spoiled[30] ^= 1
            path.write_bytes(spoiled)
            await cluster.start(broken)
            assert "cannot be read" in cluster.nodes[broken].failed_tablets[tablet]
            block = await deleted_once_replaced(scene, tmp_path, broken, healed)
            assert block.tombstone == "UNKNOWN"
            place = tmp_path / broken / str(block.quarantine)
            assert {part.name for part in place.iterdir()} >= {"about", "superblock", "consensus-meta", "wals"}
            kept = "superblock" if file == "tablet-meta" else "consensus-meta"
            assert (place / kept).read_bytes() == spoiled
            assert not (tmp_path / broken / "data" / tablet).exists()

    asyncio.run(scenario())


def test_without_a_spare_server_nothing_is_removed(tmp_path: Path, plans: list[PolicySnapshot]) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 3, settings=given_up_after(2_000)) as scene:
            cluster, table, tablet = scene.cluster, scene.table, scene.tablet
            members = set(config_of(cluster, tablet))
            dead = min(members)
            await cluster.stop(dead)
            await until_planned(plans, lambda seen: seen.nodes[dead].health is NodeHealth.DEAD)
            assert set(config_of(cluster, tablet)) == members
            await table.insert([{"id": ROWS, "text": "two of three"}])
            await cluster.start(dead)
            await until(lambda: is_whole(cluster, tablet, members))

    asyncio.run(scenario())


def test_a_replica_that_an_operator_added_stays_until_one_is_removed(
    tmp_path: Path, plans: list[PolicySnapshot]
) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 4, settings=PATIENT) as scene:
            cluster, client, tablet = scene.cluster, scene.client, scene.tablet
            members = set(config_of(cluster, tablet))
            (spare,) = set(cluster.servers) - members
            replicas = await client.replicas(tablet)
            added = await replicas.add(cluster.addresses[spare], wait=True)
            pinned = added.view.committed.member(spare)
            assert pinned is not None and pinned.pinned is True
            await until_planned(plans, lambda seen: len(seen.tablets[tablet].replicas) == 4)
            assert set(config_of(cluster, tablet)) == members | {spare}, "the masters leave it"
            gone = min(members)
            removed = await replicas.remove(gone)
            kept = removed.view.committed.member(spare)
            assert kept is not None and kept.pinned is not True
            await until(lambda: is_whole(cluster, tablet, members - {gone} | {spare}))
            await until_planned(plans, lambda seen: len(seen.tablets[tablet].replicas) == 3)
            assert is_whole(cluster, tablet, members - {gone} | {spare})

    asyncio.run(scenario())


def test_a_change_of_members_by_a_master_is_checked_like_any_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 4, settings=PATIENT) as scene:
            cluster, tablet = scene.cluster, scene.tablet
            leader = next(n for n in cluster.servers if _leads(cluster, n, tablet))
            (spare,) = set(cluster.servers) - set(config_of(cluster, tablet))
            cas = cluster.nodes[leader].replicas[tablet].status.committed_config.op_id
            for fields, words in (
                ({"cas": ZERO}, "committed config is"),
                ({"member_type": None}, "does not say as what"),
                ({"member_type": MemberType.VOTER}, "new member has no vote"),
                ({"address": "no port"}, "host:port"),
                ({"change": ConfigChange.CHANGE_ROLE, "member_type": None}, "does not say as what"),
            ):
                action = ChangeConfig(
                    **{
                        "node_id": leader,
                        "tablet_id": tablet,
                        "change": ConfigChange.ADD,
                        "member": spare,
                        "address": cluster.addresses[spare],
                        "member_type": MemberType.PRE_VOTER,
                        "cas": cas,
                        **fields,
                    }
                )
                master = cluster.nodes[cluster.masters[0]]
                with pytest.raises(StelaeError, match=words):
                    await master.messenger.call(leader, ACTION, [encode_action(action)], deadline_ms=5_000)
            assert spare not in config_of(cluster, tablet)

    asyncio.run(scenario())


def _leads(cluster: Cluster, node: NodeId, tablet: TabletId) -> bool:
    replica = cluster.nodes[node].replicas.get(tablet)
    return replica is not None and replica.status.role is Role.LEADER and replica.status.serving


def test_a_replica_is_moved_by_one_call_that_can_be_repeated(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 4, settings=PATIENT) as scene:
            cluster, client, table, tablet = scene
            members = set(config_of(cluster, tablet))
            (spare,) = set(cluster.servers) - members
            source = next(n for n in cluster.servers if _leads(cluster, n, tablet))  # It hands over first.
            replicas = await client.replicas(tablet)
            moved = await replicas.move(source, cluster.addresses[spare])
            assert moved.changed and not (await replicas.move(source, cluster.addresses[spare])).changed
            wanted = members - {source} | {spare}
            await until(lambda: is_whole(cluster, tablet, wanted))
            await until(lambda: tablet not in cluster.nodes[source].replicas)
            assert await table.scan().count() == ROWS
            with pytest.raises(MemberChangeRefused, match="choose another node"):
                await replicas.move(spare, cluster.addresses[spare])
            with pytest.raises(MemberChangeRefused, match="has no replica of tablet"):
                await replicas.move(source, cluster.addresses[source], to="f" * 32)

    asyncio.run(scenario())


def test_a_table_that_is_open_follows_a_replica_to_a_server_that_the_client_does_not_know(tmp_path: Path) -> None:
    """The server that had it is down by then, so nobody but the masters can tell where it is."""

    async def scenario() -> None:
        async with (
            running(tmp_path, 1, 2, PATIENT) as cluster,
            await connect_async(cluster.addresses[cluster.masters[0]]) as client,
            await connect_async(cluster.addresses[cluster.masters[0]]) as operator,
        ):
            table = await client.create_table("t", {"id": "int64"}, ["id"], replicas=1)
            await table.insert([{"id": n} for n in range(ROWS)])
            (tablet,) = await client.tablet_ids()
            (source,) = config_of(cluster, tablet)
            (target,) = set(cluster.servers) - {source}
            await (await operator.replicas(tablet)).move(source, cluster.addresses[target])
            await until(lambda: is_whole(cluster, tablet, {target}))
            await cluster.stop(source)
            await table.insert([{"id": ROWS}], timeout_s=WAIT_S)
            assert await table.scan().count() == ROWS + 1

    asyncio.run(scenario())


def test_more_and_fewer_replicas_are_made_of_a_table_by_one_step(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with with_a_table(tmp_path, 5, settings=PATIENT) as scene:
            cluster, client, table, tablet = scene
            for count in (5, 1, 3):
                await client.alter_table("t", SetReplicas(count))
                await until(lambda: len(config_of(cluster, tablet)) == count)  # noqa: B023
                await until(lambda: is_whole(cluster, tablet, set(config_of(cluster, tablet))))
                assert await table.scan().count() == ROWS
            for wrong, words in ((2, "it is odd"), (9, "replication_factor_max"), (7, "7 live tablet servers")):
                with pytest.raises(CallerError, match=words):
                    await client.alter_table("t", SetReplicas(wrong))
            with pytest.raises(BadArgument, match="count of SetReplicas"):
                await client.alter_table("t", SetReplicas(0))

    asyncio.run(scenario())
