"""A master whose catalog is damaged on disk: a copy of another master's takes its place, without a person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import connect_async
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from tests.e2e import in_process
from tests.e2e.nodes import WAIT_S
from tests.e2e.starting import start
from tests.e2e.test_damage import SMALL, _settled_blocks
from tests.e2e.test_failing_disks_of_masters import leading
from tests.e2e.waiting import wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterWithMasters]:
    options = ClusterOptions(node_count=1, engines={"store": "columnar"}, settings=SMALL)
    made = ClusterWithMasters.create(tmp_path / "cluster", options, masters=3, formatted=format_here)
    try:
        start(made)
        yield made
    finally:
        made.kill()


def test_a_master_whose_catalog_is_damaged_fails_with_file_and_place_and_is_copied_in_its_place(
    cluster: ClusterWithMasters,
) -> None:
    """It was FAILED for good, and `stelae check` asked for a person."""

    async def created() -> list[Path]:
        async with await connect_async(cluster.addresses, timeout_s=WAIT_S) as client:
            wide = {"id": "int64"} | {f"{'long' * 20}_{number}": "string" for number in range(50)}
            for number in range(20):
                await client.create_table(f"t{number}", wide, ["id"], replicas=1, timeout_s=WAIT_S)
            leader = await leading(client, cluster, cluster.masters)
        follower = next(master for master in cluster.masters if master is not leader)
        cluster.masters.remove(follower)
        cluster.masters.insert(0, follower)
        return await _settled_blocks(follower)

    blocks = asyncio.run(created())
    master = cluster.masters[0]
    where = ("--connect", ",".join(cluster.addresses))
    master.kill()
    for path in blocks:
        with path.open("r+b") as file:
            file.seek(8)
            file.write(bytes(200))
    master.start()
    wait_until(lambda: "replica failed" in master.log_path.read_text(), WAIT_S)
    wait_until(lambda: in_process.stelae("check", *where).exit_code == 0, WAIT_S)
    (told,) = [line for line in master.log_path.read_text().splitlines() if "replica failed" in line]
    assert "damage found" in told and ".parquet@" in told
    kept = in_process.stelae("tablet", "quarantine", "list", str(master.directory / "data")).stdout
    assert "it is damaged, and a copy replaces it" in kept, kept
