"""Whether a local cluster is up: each of its nodes is asked, and not the process table."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_health import unhealthy_nodes, until_served
from stelae.local.node_process import NodeProcess, NodeRole
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId
from stelae.wire.refusals import StaleSender
from tests.e2e.master_nodes import Cluster, running, until
from tests.e2e.nodes import WAIT_S


def as_local(cluster: Cluster) -> ClusterWithMasters:
    """The same nodes, as a local cluster has them on record."""

    def listed(nodes: list[NodeId], role: NodeRole) -> list[NodeProcess]:
        found = enumerate(nodes, 1)
        return [NodeProcess(f"{role}-{n}", one, cluster.addresses[one], cluster.root, role) for n, one in found]

    return ClusterWithMasters(cluster.root, listed(cluster.masters, "master"), listed(cluster.servers, "tserver"))


def test_a_cluster_is_up_once_each_master_answers_and_not_only_the_leading_one(tmp_path: Path) -> None:
    """One that was killed and started again did not answer yet when ``cluster up`` returned."""

    async def run() -> None:
        async with running(tmp_path, servers=1) as cluster:
            local = as_local(cluster)
            await until_served(local, 60.0)
            leader = await cluster.leading()
            place = next(n for n, master in enumerate(cluster.masters) if master != leader)
            await cluster.stop(cluster.masters[place])
            assert set(await unhealthy_nodes(local)) == {f"master-{place + 1}"}
            with pytest.raises(Unavailable, match=f"master-{place + 1}: does not answer"):
                await until_served(local, 1.0)
            await cluster.start(cluster.masters[place])
            await until_served(local, 60.0)
            assert await unhealthy_nodes(local) == {}

    asyncio.run(run())


def test_a_master_that_answers_and_has_no_system_tablet_yet_is_not_up(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = Cluster(tmp_path, 3, 0)
        try:
            await cluster.start(cluster.masters[0])  # It makes none before it has heard from the others.
            found = await unhealthy_nodes(as_local(cluster))
        finally:
            await cluster.stop(cluster.masters[0])
        assert found["master-1"] == "its system tablet does not run yet"
        assert all(found[name].startswith("does not answer") for name in ("master-2", "master-3"))

    asyncio.run(run())


def test_a_server_whose_folder_also_runs_elsewhere_is_not_well(tmp_path: Path) -> None:
    """The masters hear the other one and refuse its own reports, for ever: it ends itself, and can be started again."""

    async def run() -> None:
        async with running(tmp_path, masters=1, servers=1) as cluster:
            local, (server,) = as_local(cluster), cluster.servers
            await until_served(local, 60.0)
            twin = Cluster(tmp_path / "twin", 0, 1)
            (address,) = twin.addresses.values()
            twin.masters, twin.first, twin.servers = cluster.masters, cluster.first, [server]
            twin.addresses = {**cluster.addresses, server: address}
            await cluster.stop(server)
            shutil.copytree(tmp_path / server, tmp_path / "twin" / server)
            await cluster.start(server)
            await until_served(local, 60.0)
            # As in a copy that was taken while it ran: the times that its first run may have used are not used again.
            (clock,) = (tmp_path / server).rglob("clock")
            shutil.copy(clock, tmp_path / "twin" / clock.relative_to(tmp_path))
            await twin.start(server)
            try:
                async with asyncio.timeout(WAIT_S):
                    while not (found := await unhealthy_nodes(local)):
                        await asyncio.sleep(0.05)
                await until(lambda: cluster.nodes[server].crashed is not None)
                assert twin.nodes[server].crashed is None
            finally:
                await twin.stop(server)
            assert isinstance(cluster.nodes[server].crashed, StaleSender)
            await cluster.stop(server)
            await cluster.start(server)
            await until_served(local, 60.0)
            assert list(found) == ["tserver-1"]
            assert f"the masters get its heartbeats from {address}: stop that process" in found["tserver-1"]

    asyncio.run(run())
