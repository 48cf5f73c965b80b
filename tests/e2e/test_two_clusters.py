"""Two clusters that have one id by mistake: servers and clients of the one that meet the other stay where they are."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import pytest

from stelae.client.async_client import connect_async
from stelae.spi.ids import ClusterId, NodeId
from stelae.wire.refusals import WrongCluster
from tests.e2e.master_nodes import Cluster, running, until
from tests.e2e.test_cluster_commands import stelae
from tests.e2e.test_master_changes import add_master
from tests.e2e.test_masters import COLUMNS, QUICK
from tests.e2e.test_masters_apart import connected


async def with_newer_config(cluster: Cluster) -> None:
    """Change the masters of a cluster, so that the op id of its config is above that of the other one."""
    async with await connected(cluster, cluster.masters[0]) as client:
        new = cluster.new_master()
        await add_master(cluster, client, new)
        await client.masters.remove(new)


async def point_at(cluster: Cluster, server: NodeId, other: Cluster) -> None:
    """Restart a server with the master of another cluster in its file."""
    cluster.addresses |= {master: other.addresses[master] for master in other.first}
    cluster.lists[server] = other.first
    await cluster.stop(server)
    await cluster.start(server)


def counts(cluster: Cluster, server: NodeId) -> bool:
    """Whether the leader hears a server, and may place replicas there."""
    leader = cluster.leader()
    return leader is not None and cluster.core(leader).servers.get(server) is not None


def test_a_server_that_is_pointed_at_another_cluster_stays_with_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one had the higher op id. The server followed it for good, also once its file was corrected."""

    async def run() -> None:
        async with running(tmp_path / "one", 1, 1, QUICK) as one, running(tmp_path / "two", 1, 1, QUICK) as two:
            (ours,), (server,) = one.masters, one.servers
            async with await connected(one, ours) as client:
                await client.create_table("ours", COLUMNS, "id", replicas=1)
            await with_newer_config(two)
            await point_at(one, server, two)
            told = rf"\[masters\] lists {two.addresses[two.first[0]]} .*: the masters of the config count"
            assert re.search(told, caplog.text), "what to correct"
            await until(partial(counts, one, server))
            async with await connected(one, ours) as client:
                await client.create_table("more", COLUMNS, "id", replicas=1)
            assert not counts(two, server), "it would get replicas of two"
            del one.lists[server]
            await one.stop(server)
            await one.start(server)
            async with await connected(one, ours) as client:
                await client.create_table("and more", COLUMNS, "id", replicas=1)
                assert await client.tables() == ["and more", "more", "ours"]

    asyncio.run(run())


@pytest.mark.parametrize("cluster_id", ["test", "other"])
def test_a_client_with_addresses_of_two_clusters_is_refused(tmp_path: Path, cluster_id: str) -> None:
    """It used whichever cluster answered first, and ``stelae table list`` showed the tables of one by chance."""

    async def run() -> None:
        two = Cluster(tmp_path / "two", 1, 1, QUICK, cluster_id=ClusterId(cluster_id))
        async with running(tmp_path / "one", 1, 1, QUICK) as one:
            try:
                for node_id in two.ids:
                    await two.start(node_id)
                stored = two.root / two.servers[0] / "masters"
                await until(lambda: two.leader() is not None and stored.exists())
                ours = one.addresses[one.masters[0]]
                for theirs in (two.addresses[node_id] for node_id in two.ids):
                    with pytest.raises(WrongCluster, match="connect to nodes of one cluster only") as refused:
                        await connect_async([ours, theirs])
                    assert ours in str(refused.value) and theirs in str(refused.value)
                shown = await asyncio.to_thread(
                    stelae, "table", "list", "--connect", f"{ours},{two.addresses[two.masters[0]]}", expect=1
                )
                assert "of one cluster only" in shown.stderr
                async with await connect_async([ours, one.addresses[one.servers[0]]]) as client:
                    assert await client.tables() == []
            finally:
                for node_id in list(two.nodes):
                    await two.stop(node_id)

    asyncio.run(run())


def test_a_catalog_is_not_rebuilt_with_a_server_whose_own_masters_lead(tmp_path: Path) -> None:
    """The command was given a server of another cluster by mistake. Nothing is adopted, and the server stays."""

    async def run() -> None:
        async with running(tmp_path / "one", 1, 1, QUICK) as one, running(tmp_path / "two", 1, 1, QUICK) as two:
            (ours,), (server,), (theirs,) = one.masters, one.servers, two.masters
            async with await connected(one, ours) as client:
                await client.create_table("ours", COLUMNS, "id", replicas=1)
            words = ("--connect", two.addresses[theirs], "--servers", one.addresses[server], "--timeout-s", "2")
            shown = await asyncio.to_thread(stelae, "recover", "catalog", *words)
            assert f"server {one.addresses[server]}: does not follow the masters of this catalog" in shown.stdout
            refused = await asyncio.to_thread(stelae, "recover", "catalog", *words, "--apply", expect=1)
            assert f"the masters of this server lead, so they are not lost: {one.addresses[ours]}" in refused.stderr
            assert two.core(theirs).catalog.tables == {} and not counts(two, server)
            async with await connected(one, ours) as client:
                await client.create_table("more", COLUMNS, "id", replicas=1)

    asyncio.run(run())
