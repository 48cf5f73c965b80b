"""Nodes with ``[log] fast = true``, on the system's own ring: killed, restarted with and without it, with bad disks."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client.connection import Connection
from stelae.host.replica_state import ReplicaState
from stelae.local.cluster import ClusterOptions, LocalCluster
from stelae.machine.files import RealFile, RealFiles
from stelae.spi.write import OpKind
from stelae.testing.rings import ring_of_this_system
from tests.e2e.nodes import TABLET, Cluster, agree, connected, insert, read_ids, until
from tests.e2e.test_processes import SPEC
from tests.tablet_rows import write_to

SMALL = {"segment_bytes_first": 65536, "segment_bytes_max": 65536, "prewrite_bytes_min": 65536}
SETTINGS = {
    "log": {"fast": True},
    "consensus.raft": {"election_timeout_ms": 300},
    "wal.segmented": SMALL,
    "wal.shared": SMALL,
}
ROWS = 400


async def insert_until_killed(cluster: LocalCluster, first: int) -> list[int]:
    """Insert rows, kill every node in the middle of it, and return the rows that were acknowledged."""
    acked: list[int] = []
    async with await Connection.connect(cluster.addresses, timeout_s=20) as client:
        tablet = await client.tablet(cluster.tablet_id)

        async def one(number: int) -> None:
            result = await write_to(tablet, OpKind.INSERT, [(number, f"row {number}" * 20)])
            assert not result.errors and not result.refusal
            acked.append(number)

        tasks = [asyncio.ensure_future(one(first + at)) for at in range(4 * ROWS)]
        while len(acked) < ROWS:
            await asyncio.sleep(0)
        for node in cluster.nodes:
            node.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return acked


async def rows_of(cluster: LocalCluster) -> dict[int, str]:
    async with await Connection.connect(cluster.addresses, timeout_s=20) as client:
        tablet = await client.tablet(cluster.tablet_id)
        return dict([row async for batch in tablet.scan() for row in batch.to_rows()])


@pytest.mark.long
def test_nodes_that_are_killed_and_change_the_setting_each_time_lose_no_acknowledged_row(tmp_path: Path) -> None:
    """Three lives: fast, plain, fast; with both engines that have a fast kind. Each ends by SIGKILL."""
    ring_of_this_system(1).close()
    options = ClusterOptions(settings=SETTINGS, engines={"wal": "segmented,shared,segmented"})
    cluster = LocalCluster.create(tmp_path / "cluster", SPEC, options, formatted=format_here)
    acked: list[int] = []
    try:
        for life, fast in enumerate([True, False, True]):
            for node in cluster.nodes:
                text = re.sub(r"fast = \w+", f"fast = {str(fast).lower()}", node.config_path.read_text())
                assert text.count("fast = ") == 1
                node.config_path.write_text(text)
            cluster.start()
            acked += asyncio.run(insert_until_killed(cluster, life * 10 * ROWS))
        cluster.start()
        rows = asyncio.run(rows_of(cluster))
    finally:
        cluster.stop()
    assert len(acked) >= 3 * ROWS
    assert {number: rows.get(number) for number in acked} == {number: f"row {number}" * 20 for number in acked}


class TracedFiles(RealFiles):
    """Real files that remember the segment opened last for writing."""

    broken = None  # As ``BreakableFiles``, which are no real files: the ring does not write to those.
    segment: RealFile

    def open(self, path: str, *, writable: bool = False) -> RealFile:
        file = super().open(path, writable=writable)
        if writable and path.endswith(".seg"):
            self.segment = file
        return file


@pytest.mark.parametrize("wal", ["segmented", "shared"])
def test_a_write_that_the_system_refuses_fails_that_replica_alone(tmp_path: Path, wal: str) -> None:
    """The segment's descriptor becomes one that is open for reading only: the ring's write fails in the kernel."""
    ring_of_this_system(1).close()
    settings = f'[log]\nfast = true\n[engines]\nwal = "{wal}"\n'

    async def scenario() -> None:
        cluster = Cluster(tmp_path, settings)
        cluster.files = {node: TracedFiles() for node in cluster.ids}  # type: ignore[misc]
        try:
            for node_id in cluster.ids:
                await cluster.start(node_id)
            await until(lambda: cluster.leader() is not None)
            async with connected(cluster) as tablet:
                await insert(tablet, range(50))
                broken = await cluster.leading()
                assert cluster.nodes[broken].metrics.gauges()["log_fast"] == 1  # type: ignore[attr-defined]
                files = cluster.files[broken]
                assert isinstance(files, TracedFiles)
                target = os.open(files.segment.path, os.O_RDONLY)
                os.dup2(target, files.segment.fileno())
                os.close(target)
                await insert(tablet, range(50, 100))
                replica = cluster.nodes[broken].replicas[TABLET]
                await until(lambda: replica.state is ReplicaState.FAILED)
                assert "Bad file descriptor" in str(replica.failure)
                assert await read_ids(tablet) == list(range(100))
                await cluster.stop(broken)
                await until(lambda: agree(cluster))
        finally:
            for node_id in list(cluster.nodes):
                await cluster.stop(node_id)

    asyncio.run(scenario())
