"""How long a command waits for the nodes of a local cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stelae.local import node_health
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId

MASTER, DEAD, ADDED = (NodeId(letter * 32) for letter in "abc")


class _Client:
    async def __aenter__(self) -> _Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterWithMasters:
    """One master and two tablet servers, of which the first is dead."""

    async def connect(*arguments: Any, **options: Any) -> _Client:
        return _Client()

    async def heard(*arguments: Any) -> set[str]:
        return {ADDED}

    async def unhealthy(*arguments: Any) -> dict[str, str]:
        return {"tserver-1": "does not answer"}

    monkeypatch.setattr(node_health, "connect_async", connect)
    monkeypatch.setattr(node_health, "_heard", heard)
    monkeypatch.setattr(node_health, "unhealthy_nodes", unhealthy)
    servers = [
        NodeProcess(f"tserver-{number}", node_id, "127.0.0.1:1", tmp_path)
        for number, node_id in enumerate((DEAD, ADDED), 1)
    ]
    return ClusterWithMasters(tmp_path, [NodeProcess("master-1", MASTER, "127.0.0.1:1", tmp_path, "master")], servers)


def test_a_server_that_replaces_a_dead_one_is_waited_for_alone(cluster: ClusterWithMasters) -> None:
    """`stelae cluster add-server` waited for the dead server as well. It said after a minute that the cluster does not
    serve, although the new server had been added, and a second attempt added one more."""
    asyncio.run(node_health.until_served(cluster, 60.0, server=cluster.servers[1]))


def test_a_cluster_that_starts_is_waited_for_as_a_whole(cluster: ClusterWithMasters) -> None:
    with pytest.raises(Unavailable, match="tserver-1: no heartbeat yet"):
        asyncio.run(node_health.until_served(cluster, 0.05))
