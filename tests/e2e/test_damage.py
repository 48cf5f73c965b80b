"""Files that are damaged under running nodes: one replica fails, by name and place, and the others serve its rows."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import AsyncClient, connect_async
from stelae.client.connection import ConnectedTablet
from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId
from stelae.spi.scan import ScanSpec
from tests.e2e import in_process
from tests.e2e.nodes import PATIENT_MS, TABLET, WAIT_S, Cluster, connected, flushed, insert, read_ids, running, until
from tests.e2e.starting import start
from tests.e2e.waiting import wait_until

COLUMNAR = """
[engines]
store = "columnar"
[maintenance]
flush_bytes = 65536
flush_interval_ms = 10
[store.columnar]
row_group_rows = 64
cache_bytes = 1048576
"""
LMDB = """
[engines]
store = "lmdb"
[maintenance]
flush_bytes = 65536
flush_interval_ms = 10
"""
SEGMENTED = """
[engines]
wal = "segmented"
"""
COUNT = 3000
PAGE = 4096


def zero_pages(files: list[Path], *, keep: int = 0) -> None:
    """Zero the pages of files in place, but for the first ``keep`` bytes of each."""
    assert files
    for path in files:
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(keep)
            file.write(bytes(min(PAGE, max(size - keep, 0))))


def blocks(cluster: Cluster, node_id: NodeId) -> list[Path]:
    return sorted((cluster.root / node_id).rglob("*.parquet"))


async def leader_of(cluster: Cluster) -> tuple[NodeId, Node]:
    """The leader, and its node."""
    found = await cluster.leading()
    return found, cluster.nodes[found]


def leads_on_another(cluster: Cluster, broken: Replica) -> bool:
    """Whether a replica leads that is not the broken one. A copy of that may lead."""
    leader = cluster.leader()
    return leader is not None and cluster.nodes[leader].replicas[TABLET] is not broken


async def loaded(cluster: Cluster) -> None:
    async with connected(cluster) as tablet:
        for start in range(0, COUNT, 500):
            await insert(tablet, range(start, start + 500))


async def read_until_failed(
    cluster: Cluster, tablet: ConnectedTablet, replica: Replica, damage: Callable[[], None] = lambda: None
) -> None:
    """Read all rows, right each time, until a damaged replica has failed. A copy may have replaced it by then.

    On a busy machine its leadership may move to a sound replica before it is read: then it is handed back. ``damage``
    is done before each read: a store may have written its rows anew."""
    async with asyncio.timeout(WAIT_S):
        while not replica.failure:
            damage()
            leader, broken = cluster.leader(), replica.status.node_id
            if leader is not None and leader != broken:
                cluster.nodes[leader].replicas[TABLET].transfer(broken, lambda _: None)
            assert await read_ids(tablet) == list(range(COUNT))
            await asyncio.sleep(0.05)


def test_a_damaged_block_of_the_leader_fails_that_replica_and_a_scan_is_served_by_the_next_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It answered ``CORRUPT`` for ever, led on, and its log said nothing."""

    async def scenario() -> None:
        async with running(tmp_path, COLUMNAR) as cluster:
            await loaded(cluster)
            await flushed(cluster)
            broken, node = await leader_of(cluster)
            replica = node.replicas[TABLET]
            zero_pages(blocks(cluster, broken), keep=8)
            async with connected(cluster) as tablet:
                assert await read_ids(tablet) == list(range(COUNT))
                await read_until_failed(cluster, tablet, replica)
            assert replica.state is ReplicaState.FAILED
            assert ".parquet@" in replica.failure and "checksum" in replica.failure
            await until(lambda: leads_on_another(cluster, replica))
            told = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
            assert [line for line in told if "replica failed" in line and ".parquet@" in line]
            assert node.crashed is None

    asyncio.run(scenario())


def test_a_scan_under_way_goes_on_at_another_replica_behind_its_last_row_and_at_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, COLUMNAR) as cluster, connected(cluster) as tablet:
            await loaded(cluster)
            await flushed(cluster)
            first, rows = await tablet.page(ScanSpec(limit=100))
            taken = [row[0] for row in (await rows or []).to_rows()]  # type: ignore[union-attr]
            assert taken == list(range(100)) and first.after is not None
            broken, node = await leader_of(cluster)
            replica = node.replicas[TABLET]
            zero_pages(blocks(cluster, broken), keep=8)
            await insert(tablet, range(COUNT, COUNT + 10))
            async for batch in tablet.scan(ScanSpec(after=first.after), at=first.at):
                taken += [row[0] for row in batch.to_rows()]
            assert taken == list(range(COUNT)), "the rows of its own time, each once"
            await until(lambda: bool(replica.failure))

    asyncio.run(scenario())


def test_a_damaged_value_of_store_lmdb_fails_the_leaders_replica_alike(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, LMDB) as cluster:
            await loaded(cluster)
            await flushed(cluster)
            broken, node = await leader_of(cluster)
            replica = node.replicas[TABLET]
            (environment,) = (cluster.root / broken / "data").rglob("data.mdb")

            def damage() -> None:
                data = environment.read_bytes()
                places = [found.start() for found in re.finditer(b"row 1234", data)]
                with environment.open("r+b") as file:
                    for place in places:
                        file.seek(place + 2)
                        file.write(b"x")

            async with connected(cluster) as tablet:
                await read_until_failed(cluster, tablet, replica, damage)
            assert "data.mdb@" in replica.failure

    asyncio.run(scenario())


def test_a_follower_that_reads_damage_fails_alone_and_the_leader_leads_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, COLUMNAR, PATIENT_MS) as cluster, connected(cluster) as tablet:
            await loaded(cluster)
            await flushed(cluster)
            leader, node = await leader_of(cluster)
            broken = cluster.others(leader)[0]
            term, replica = node.replicas[TABLET].status.term, cluster.nodes[broken].replicas[TABLET]
            zero_pages(blocks(cluster, broken), keep=8)
            with pytest.raises(StelaeError, match="failed"):
                await tablet._connection.checksum(broken, TABLET)
            await until(lambda: bool(replica.failure))
            assert cluster.leader() == leader and node.replicas[TABLET].status.term == term
            assert await read_ids(tablet) == list(range(COUNT))

    asyncio.run(scenario())


def test_a_leader_whose_log_is_damaged_where_a_lagging_follower_needs_it_gives_way_to_one_that_can_feed_it(
    tmp_path: Path,
) -> None:
    """The read failed again and again, and the follower never came back."""

    async def scenario() -> None:
        async with running(tmp_path, SEGMENTED) as cluster:
            async with connected(cluster) as tablet:
                await insert(tablet, range(10))
                leader, _ = await leader_of(cluster)
                lagging = cluster.others(leader)[0]
                await cluster.stop(lagging)
                await insert(tablet, range(10, 600))
            for node_id in cluster.others(lagging):  # Nothing of the log is in memory behind a start.
                await cluster.stop(node_id)
            for node_id in cluster.others(lagging):
                await cluster.start(node_id)
            broken, node = await leader_of(cluster)
            replica = node.replicas[TABLET]
            zero_pages(sorted((cluster.root / broken / "wals").rglob("*.seg"))[:1], keep=PAGE)
            await cluster.start(lagging)
            await until(lambda: bool(replica.failure))
            assert ".seg@" in replica.failure
            await until(lambda: leads_on_another(cluster, replica))

    asyncio.run(scenario())


SMALL = {
    "maintenance": {"flush_bytes": 65536, "flush_interval_ms": 10},
    "store.columnar": {"row_group_rows": 64},
    "consensus.raft": {"election_timeout_ms": 300},
}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ClusterWithMasters]:
    options = ClusterOptions(engines={"store": "columnar"}, settings=SMALL)
    made = ClusterWithMasters.create(tmp_path / "cluster", options, masters=1, formatted=format_here)
    try:
        start(made)
        yield made
    finally:
        made.kill()


def test_a_damaged_replica_is_copied_in_its_place_without_a_spare_server_or_a_person(
    processes: ClusterWithMasters,
) -> None:
    """The log of its server names file and place, and the damaged files are in its quarantine. If the copy is damaged
    again, `stelae check` names replica, file and place, and it stays as it is."""
    rows = [{"id": n, "text": f"row {n}"} for n in range(COUNT)]
    where = ("--connect", ",".join(processes.addresses))

    async def scenario() -> NodeProcess:
        async with await connect_async(processes.addresses) as client:
            await client.create_table("t", {"id": "int64", "text": "string"}, ["id"], replicas=3)
            table = await client.table("t")
            await table.insert(rows)
            leader = await _leader(client, processes)
            zero_pages(await _settled_blocks(leader), keep=8)
            assert await table.scan(order="key").to_pylist() == rows
            return leader

    async def again() -> list[dict[str, object]]:
        async with await connect_async(processes.addresses) as client:
            return await (await client.table("t")).scan(order="key").to_pylist()

    leader = asyncio.run(scenario())
    wait_until(lambda: "replica failed" in leader.log_path.read_text(), WAIT_S)
    wait_until(lambda: in_process.stelae("check", "--checksums", *where).exit_code == 0, WAIT_S)
    assert asyncio.run(again()) == rows
    log = [line for line in leader.log_path.read_text().splitlines() if "replica failed" in line]
    assert len(log) == 1 and "damage found" in log[0] and ".parquet@" in log[0], log
    kept = in_process.stelae("tablet", "quarantine", "list", str(leader.directory / "data")).stdout
    assert "it is damaged, and a copy replaces it" in kept, kept

    zero_pages(asyncio.run(_settled_blocks(leader)), keep=8)
    told = ""

    def is_told() -> bool:
        nonlocal told
        checked = in_process.stelae("check", "--checksums", *where)
        told = checked.stdout + checked.stderr
        return checked.exit_code == 1 and "FAILED damage found" in told

    wait_until(is_told, WAIT_S)
    assert ".parquet@" in told and leader.address in told, told
    wait_until(lambda: "DAMAGED_AGAIN" in leader.log_path.read_text(), WAIT_S)
    assert asyncio.run(again()) == rows


async def _leader(client: AsyncClient, cluster: ClusterWithMasters) -> NodeProcess:
    """The server whose replica leads the only table's tablet."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for server in cluster.servers:
                reports = await client.connection.status(await client.connection.reach(server.address))
                if any(report.role == "LEADER" and report.state == "RUNNING" for report in reports):
                    return server
            await asyncio.sleep(0.05)


async def _settled_blocks(server: NodeProcess) -> list[Path]:
    """The block files of a server, once merges have come to rest."""
    found: list[Path] = []
    unchanged = 0
    async with asyncio.timeout(WAIT_S):
        while unchanged < 10:
            before, found = found, sorted((server.directory / "data").rglob("*.parquet"))
            unchanged = unchanged + 1 if found and found == before else 0
            await asyncio.sleep(0.1)
    return found
