"""At which address others reach a node that has moved."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stelae.spi.ids import NodeId
from tests.e2e.nodes import Cluster, until


class MovedNode(Cluster):
    """A cluster whose first node has moved: ``[tablet]`` still has its old address, and ``advertise`` the new one.

    The other nodes are new, and know no tablet."""

    def _toml(self, node_id: NodeId) -> str:
        moved, address = self.ids[0], self.addresses[0]
        text = (
            super()._toml(node_id).replace(f'"{moved}", address = "{address}"', f'"{moved}", address = "127.0.0.1:1"')
        )
        if node_id == moved:
            return text.replace("[cluster]", f'advertise = "{address}"\n[cluster]')
        before, _, tablet = text.partition("[tablet]")  # A new node has no replica yet.
        return f"{before}[consensus.raft]{tablet.partition('[consensus.raft]')[2]}"


def test_a_node_that_has_moved_is_answered_at_the_address_that_it_advertises(tmp_path: Path) -> None:
    """It said in its hello the address of its section ``[tablet]``. A new member answers there, until it has a config:
    it never got one."""

    async def run() -> None:
        cluster = MovedNode(tmp_path, spares=1)
        moved, new = cluster.ids[0], cluster.ids[3]
        try:
            there, here = await cluster.start(moved), await cluster.start(new)
            there.messenger.add_peer(new, cluster.address(new))
            await until(lambda: there.messenger.connected(new) is not None)
            assert here.messenger.learn_peer(moved)
            await until(lambda: here.messenger.connected(moved) is not None)
        finally:
            for node_id in list(cluster.nodes):
                await cluster.stop(node_id)

    asyncio.run(run())
