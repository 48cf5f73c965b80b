"""What the others keep for a member that was removed: nothing, once it is down."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stelae.spi.consensus import Role
from stelae.spi.members import RemoveServer
from tests.e2e.nodes import TABLET, Cluster, changed, running, until


async def remove(cluster: Cluster, change: RemoveServer) -> None:
    """Remove a member that does not lead, and wait until every running node knows it."""
    leader = await cluster.leading()
    await changed(cluster.nodes[leader].replicas[TABLET], change)
    replicas = [node.replicas[TABLET] for node in cluster.nodes.values()]
    await until(lambda: all(r.status.committed_config.member(change.node_id) is None for r in replicas))


def test_no_node_keeps_links_to_a_removed_member_that_came_back_once_it_is_down(tmp_path: Path) -> None:
    """It asks for votes when it comes back, so both others linked it, and nothing closed these links."""

    async def main() -> None:
        async with running(tmp_path) as cluster:
            removed = cluster.others(await cluster.leading())[0]
            others = cluster.others(removed)
            await cluster.stop(removed)
            await remove(cluster, RemoveServer(node_id=removed))
            assert not any(removed in cluster.nodes[node].messenger.peers for node in others)
            back = (await cluster.start(removed)).replicas[TABLET]
            await until(lambda: back.status.role is Role.NON_PARTICIPANT)
            await cluster.stop(removed)
            await until(lambda: not any(removed in cluster.nodes[node].messenger.peers for node in others))

    asyncio.run(main())
