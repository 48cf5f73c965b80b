"""Masters that have lost their majority: one survivor is recovered, new ones join, and the lost ones are harmless."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stelae.check.cluster_check import check
from stelae.client.connection import Connection
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.recover.execution import RecoveryResult, apply_plan
from stelae.recover.plan import RecoveryPlan
from stelae.recover.survey import survey_system_tablet
from stelae.spi.errors import MemberChangeRefused
from stelae.spi.ids import NodeId
from tests.e2e.master_nodes import Cluster, running, until
from tests.e2e.test_cluster_commands import answer, process, stelae, until_given_up
from tests.e2e.test_master_changes import add_master
from tests.e2e.test_masters import COLUMNS, QUICK
from tests.e2e.test_masters_apart import connected, has_the_catalog_of, serves


async def plan_of(cluster: Cluster, survivor: NodeId) -> RecoveryPlan:
    """The plan, once the survivor has noticed that no master leads."""
    async with asyncio.timeout(20), await Connection.connect([cluster.addresses[survivor]]) as connection:
        while True:
            found = await survey_system_tablet(connection, [cluster.addresses[survivor]])
            plan, _ = found.plan(tag=7, made_us=time.time_ns() // 1000)
            if plan.tablets:
                return plan


async def recover(cluster: Cluster, survivor: NodeId, plan: RecoveryPlan) -> RecoveryResult:
    async with await Connection.connect([cluster.addresses[survivor]]) as connection:
        (outcome,) = await apply_plan(connection, plan, timeout_s=20.0, done=lambda outcome: None)
    return outcome.result


def test_a_survivor_serves_alone_new_masters_join_and_lost_ones_that_return_together_do_not_lead(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster:
            survivor, *lost = cluster.masters
            async with await connected(cluster, survivor) as client:
                await client.create_table("before", COLUMNS, "id", replicas=1)
            for master in lost:
                await cluster.stop(master)
            plan = await plan_of(cluster, survivor)
            (tablet,) = plan.tablets
            assert (tablet.tablet_id, tablet.table, tablet.voters) == (SYSTEM_TABLET, "the catalog", 3)
            assert {member.node_id for member in tablet.lost} == set(lost)
            assert any("changes of the catalog" in sentence for sentence in tablet.loss)
            assert await recover(cluster, survivor, plan) is RecoveryResult.RECOVERED
            assert await recover(cluster, survivor, plan) is RecoveryResult.DONE_ALREADY
            await until(lambda: cluster.leader() == survivor)
            async with await connected(cluster, survivor) as client:
                await client.create_table("after", COLUMNS, "id", replicas=1)
                for master in lost:  # Together they are a majority of the config that they know.
                    await cluster.start(master)
                new = cluster.new_master()
                await add_master(cluster, client, new)
                await client.create_table("later", COLUMNS, "id", replicas=1)
                await until(partial(has_the_catalog_of, cluster, new, survivor))
                await until(lambda: all(cluster.was_removed(master) for master in lost))
                assert not any(serves(cluster, master) for master in lost)
                with pytest.raises(MemberChangeRefused, match=r"left behind when the masters were recovered.*new uuid"):
                    await client.masters.add(cluster.addresses[lost[0]])
                assert {node for node, _ in (await client.masters.view()).members} == {survivor, new}
                assert await client.tables() == ["after", "before", "later"]
                assert client.catalog is not None
                found = await check(client.connection, client.catalog)
                assert not found.problems, found.problems

    asyncio.run(run())


def test_a_plan_is_refused_once_a_lost_master_runs_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, servers=1, settings=QUICK) as cluster:
            survivor, returns, gone = cluster.masters
            for master in (returns, gone):
                await cluster.stop(master)
            plan = await plan_of(cluster, survivor)
            await cluster.start(returns)
            await until(lambda: cluster.leader() is not None)
            assert await recover(cluster, survivor, plan) is RecoveryResult.FAILED
            async with await connected(cluster, survivor) as client:
                assert len((await client.masters.view()).members) == 3

    asyncio.run(run())


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[str]:
    """A running cluster of three masters and one tablet server, with a table."""
    directory = str(tmp_path / "cluster")
    process("cluster", "up", directory, "--masters", "3", "--servers", "1")
    try:
        process(*("table", "create", "t", "--column", "id:int64", "--key", "id", "--replicas", "1", "--dir", directory))
        yield directory
    finally:
        process("cluster", "down", directory)


def test_the_commands_recover_the_masters_from_one_whose_peers_have_lost_their_disks(
    directory: str, tmp_path: Path
) -> None:
    opened, file = ClusterWithMasters.open(Path(directory)), tmp_path / "masters.json"
    survivor, *lost = opened.masters
    server = opened.servers[0].address
    for node in lost:
        pid = node.running_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(node.directory / "data")
    given = ("--masters", survivor.address)
    refused = stelae("recover", "plan", "--masters", server, expect=2)
    assert f"{server} is a tablet server" in refused.stderr
    both = stelae("recover", "plan", *given, "--servers", server, expect=2)
    assert "pass only one of --servers and --masters" in both.stderr
    assert "--masters" in stelae("recover", "plan", "--servers", survivor.address, expect=2).stderr
    for _ in until_given_up():
        shown = stelae("recover", "plan", *given, "--out", str(file))
        if json.loads(file.read_text())["tablets"]:
            break
    assert f"recover {survivor.address} in epoch 1" in shown.stdout and "changes of the catalog" in shown.stdout
    assert "--yes" in stelae("recover", "apply", str(file), *given, expect=2).stderr
    done = stelae("recover", "apply", str(file), *given, "--yes")
    assert "RECOVERED" in done.stdout
    assert f"next: stelae master add HOST:PORT --connect {survivor.address}" in done.stderr
    stelae(
        *("table", "create", "more", "--column", "id:int64", "--key", "id", "--replicas", "1"),
        *("--connect", survivor.address),
    )
    tables = answer("table", "list", "--connect", survivor.address)["tables"]
    assert [table["name"] for table in tables] == ["more", "t"]
