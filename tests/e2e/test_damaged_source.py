"""The source of a copy has damaged rows: it fails that replica, and does not serve the same bytes for ever.

``stelae check`` then shows it, and a copy replaces it. Before, each copy ended with ``CORRUPT`` or was passed on to
another source, and a leader with such rows led on, healthy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.protocol.codec import encode
from stelae.protocol.copy_messages import END_COPY, EndCopy
from stelae.spi.errors import PeerError
from stelae.spi.members import AddServer, MemberType
from stelae.wire.settings import Lane
from tests.e2e.nodes import TABLET, WAIT_S, Cluster, changed, connected, insert, running, until
from tests.e2e.test_copy_source import Target, _service
from tests.e2e.test_damage import COLUMNAR, COUNT, blocks, leader_of, leads_on_another, loaded, zero_pages

SMALL_LOG = f"""{COLUMNAR}
[log]
lagging_peer_bytes_max = 1
[wal.segmented]
segment_bytes_first = 4096
segment_bytes_max = 4096
"""


def with_spare(directory: Path, settings: str, work: Callable[[Cluster, Replica, Node], Awaitable[None]]) -> None:
    """Run ``work`` on three nodes with rows in files, with the leader's replica and a spare node."""

    async def scenario() -> None:
        async with running(directory, settings, spares=1) as cluster:
            await loaded(cluster)
            members = [cluster.nodes[node_id].replicas[TABLET] for node_id in cluster.ids[:3]]
            await until(lambda: len({one.applier.applied for one in members}) == 1)
            await until(lambda: all(one.flusher.superblock.flushed == one.applier.store.applied for one in members))
            await until(lambda: all(not one.flusher.busy for one in members))
            _, node = await leader_of(cluster)
            await work(cluster, node.replicas[TABLET], cluster.nodes[cluster.ids[3]])

    asyncio.run(scenario())


def failed_with_damage(replica: Replica) -> bool:
    return replica.state is ReplicaState.FAILED and replica.read_faults.explain(replica.failure)


def test_an_export_that_meets_damage_fails_the_replica_of_its_source(tmp_path: Path) -> None:
    async def work(cluster: Cluster, replica: Replica, spare: Node) -> None:
        source = replica.status.node_id
        zero_pages(blocks(cluster, source), keep=8)
        target = Target(cluster, spare)
        try:
            await target.begin(source, as_export=True)
        except PeerError as error:
            assert error.remote_code == "CORRUPT"
        else:
            raise AssertionError("the damaged rows were served")
        await until(lambda: failed_with_damage(replica))
        assert ".parquet@" in replica.failure
        await until(lambda: leads_on_another(cluster, replica))
        target.sources.stop()

    with_spare(tmp_path, COLUMNAR, work)


async def collected(cluster: Cluster) -> None:
    """Write until each log has lost its first entries. Followers collect once they know what the others have."""
    first, replicas = COUNT, [cluster.nodes[node_id].replicas[TABLET] for node_id in cluster.ids[:3]]
    async with asyncio.timeout(WAIT_S), connected(cluster) as tablet:
        while min(replica.flusher.log_base.index for replica in replicas) <= 2:
            await insert(tablet, range(first, first + 500))
            first += 500
            await asyncio.sleep(0.05)


def test_files_that_arrive_damaged_are_verified_by_their_source_which_fails_its_replica(tmp_path: Path) -> None:
    """The real target: the leader adds a member, which its collected log cannot feed."""

    async def work(cluster: Cluster, _replica: Replica, spare: Node) -> None:
        await collected(cluster)
        for node_id in cluster.ids[:3]:  # What they wrote themselves they still have in memory.
            await cluster.stop(node_id)
            await cluster.start(node_id)
        _, node = await leader_of(cluster)
        replica = node.replicas[TABLET]
        assert replica.flusher.log_base.index > 2
        zero_pages(blocks(cluster, replica.status.node_id), keep=8)
        change = AddServer(
            node_id=spare.node_id, address=cluster.address(spare.node_id), member_type=MemberType.PRE_VOTER
        )
        await changed(replica, change)
        await until(lambda: failed_with_damage(replica))
        assert ".parquet" in replica.failure and "digest" in replica.failure
        await until(lambda: leads_on_another(cluster, replica))
        await until(lambda: TABLET in spare.replicas and spare.replicas[TABLET].state is ReplicaState.RUNNING)

    with_spare(tmp_path, SMALL_LOG, work)


def test_a_source_does_not_fail_because_a_target_says_so(tmp_path: Path) -> None:
    async def work(cluster: Cluster, replica: Replica, spare: Node) -> None:
        source = replica.status.node_id
        target, service = Target(cluster, spare), _service(cluster.nodes[source])
        offer = await target.begin(source)
        names = [item.name for item in offer.snapshot.items]
        assert any(name.startswith("rows/") for name in names)
        for name in (*names, "rows/none", "nothing", "rows/../../clock"):
            said = encode(EndCopy(session=offer.session, damaged=name))
            await spare.messenger.call(source, END_COPY, [said], deadline_ms=10_000, lane=Lane.BULK)
            await until(lambda: service.reports.idle)
            assert not replica.failure and not service.sessions()
            offer = await target.begin(source)
        target.sources.stop()

    with_spare(tmp_path, COLUMNAR, work)
