"""Starts clusters of processes, and waits until their nodes answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from stelae.client.connection import Connection
from stelae.local.cluster import LocalCluster
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import Unavailable

START_S = 60.0
"""Longest that nodes may take to answer; reached only by a defect. A client waits for 10 s, which is not enough for
interpreters that share two processors with a whole check."""

ATTEMPT_S = 5.0


AnyCluster = TypeVar("AnyCluster", LocalCluster, ClusterWithMasters)


def start(cluster: AnyCluster) -> AnyCluster:
    """Start every node, wait until each of them has answered, and return the cluster.

    Raises:
        NodeExited: a node has ended.
        TimeoutError: a node does not answer in time.
    """
    cluster.start()
    wait_until_answered(cluster.nodes)
    return cluster


def wait_until_answered(nodes: Sequence[NodeProcess]) -> None:
    """Wait until each of some nodes that were started has answered. Raises what ``start`` raises."""
    asyncio.run(_until_answered(nodes))


async def _until_answered(nodes: Sequence[NodeProcess]) -> None:
    async with asyncio.timeout(START_S):
        for node in nodes:
            while not await _answers(node):
                node.check()


async def _answers(node: NodeProcess) -> bool:
    try:
        async with await Connection.connect([node.address], timeout_s=ATTEMPT_S):
            return True
    except Unavailable:
        return False
