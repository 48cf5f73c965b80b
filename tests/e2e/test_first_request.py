"""The first requests of a client to a tablet whose leader is known: they go to it, whichever member it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stelae.client.connection import Connection
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId
from tests.e2e.nodes import PATIENT_MS, TABLET, Cluster, insert, running, until


async def lead(cluster: Cluster, client: Connection, node_id: NodeId) -> None:
    """Let a node lead, and wait until all nodes know it."""
    while cluster.leader() != node_id:
        try:
            await client.transfer_leadership(await cluster.leading(), TABLET, node_id)
        except StelaeError:
            await asyncio.sleep(0.05)  # A leader that was just elected has heard no voter yet.
        await until(lambda: cluster.leader() is not None)
    await until(lambda: all(node.replicas[TABLET].status.leader == node_id for node in cluster.nodes.values()))


def test_writes_after_opening_a_tablet_go_to_its_leader_whichever_member_leads(tmp_path: Path) -> None:
    """If the first member led, which is the usual case, the client went on to the next one, and sent all writes of its
    first turn twice. The benchmark showed ``retries: 64`` for it in most of its runs."""

    async def go() -> list[tuple[bool, dict[str, int]]]:
        found = []
        async with running(tmp_path, election_timeout_ms=PATIENT_MS) as cluster:
            for place, node_id in enumerate(cluster.ids):
                async with await Connection.connect(cluster.addresses) as client:
                    await lead(cluster, client, node_id)
                    tablet = await client.tablet(TABLET)
                    leads = tablet.leader.current == node_id
                    await insert(tablet, range(64 * place, 64 * place + 64))
                    found.append((leads, dict(tablet.retries)))
        return found

    assert asyncio.run(asyncio.wait_for(go(), 120)) == [(True, {})] * 3
