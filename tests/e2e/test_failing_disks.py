"""Real nodes whose disks answer EIO while clients write: nothing acknowledged is lost, and they say what failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import AsyncClient, AsyncTable, connect_async
from stelae.local.chaos.node_rules import RulesKind, enable_rules, rules_paths, set_rules
from stelae.local.chaos.rules_file import LOOK_S
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.errors import StelaeError
from tests.e2e import in_process
from tests.e2e.starting import start

WAIT_S = 60.0
"""Longest that anything is waited for; reached only by a defect."""

SETTINGS = {
    "maintenance": {"flush_bytes": 65536, "flush_interval_ms": 10},
    "store.columnar": {"row_group_rows": 64, "cache_bytes": 1 << 20},
    "consensus.raft": {"election_timeout_ms": 300},
    "clock": {"ceiling_step_ms": 4000},
}
LOG_LINES_MAX = 40
"""Of one node, from the fault on: it says what failed, not how often."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterWithMasters]:
    options = ClusterOptions(engines={"store": "columnar"}, settings=SETTINGS)
    made = ClusterWithMasters.create(tmp_path / "cluster", options, masters=1, formatted=format_here)
    for server in made.servers:
        enable_rules(server, RulesKind.DISK)
    try:
        start(made)
        yield made
    finally:
        made.kill()


def fail_disk(server: NodeProcess, *, below: str = "", operations: tuple[str, ...] = ("write", "sync")) -> None:
    """Have the disk of a running node answer EIO from now on. Blocks until the node follows the rule."""
    rules = [{"below": below, "operations": operations, "error": "EIO"}]
    set_rules(rules_paths(server)[RulesKind.DISK], rules)
    time.sleep(LOOK_S)  # A transfer of the leadership took less, and no later write was to fail.


class Writers:
    """Rows written one request after the other while disks fail; ``taken`` holds those that were acknowledged."""

    def __init__(self, table: AsyncTable) -> None:
        self._table = table
        self._stop = False
        self.taken: list[int] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while not self._stop:
            rows = [{"id": number + n, "text": f"row {number + n}"} for n in range(20)]
            await self._table.insert(rows, timeout_s=WAIT_S)
            self.taken += [row["id"] for row in rows]  # type: ignore[misc]
            number += 20
            await asyncio.sleep(0.005)

    async def reach(self, count: int) -> None:
        """Wait until this many more rows were acknowledged."""
        aim = len(self.taken) + count
        async with asyncio.timeout(WAIT_S):
            while len(self.taken) < aim:
                if self._task.done():
                    await self._task
                await asyncio.sleep(0.02)

    async def end(self) -> None:
        """Stop, and see that what was acknowledged is there, once."""
        self._stop = True
        await self._task
        rows = await self._table.scan(order="key").to_pylist()
        assert [row["id"] for row in rows] == self.taken
        assert all(row["text"] == f"row {row['id']}" for row in rows)


async def reports(client: AsyncClient, server: NodeProcess) -> list[ReplicaReport]:
    """How the replicas of a server stand; none if it does not answer."""
    try:
        return await client.connection.status(await client.connection.reach(server.address), deadline_ms=1000)
    except StelaeError:
        return []


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def leader_of(client: AsyncClient, cluster: ClusterWithMasters, tablet: str) -> NodeProcess:
    async with asyncio.timeout(WAIT_S):
        while True:
            for server in cluster.servers:
                for report in await reports(client, server):
                    if report.tablet_id == tablet and report.role == "LEADER" and report.state == "RUNNING":
                        return server
            await asyncio.sleep(0.05)


async def table_of(client: AsyncClient, name: str) -> tuple[AsyncTable, str]:
    """A new table, and its only tablet."""
    await client.create_table(name, {"id": "int64", "text": "string"}, ["id"], replicas=3)
    table = await client.table(name)
    return table, table._tablets[0].tablet_id


def lines(server: NodeProcess) -> list[str]:
    return server.log_path.read_text().splitlines()


def checked(cluster: ClusterWithMasters) -> str:
    """What ``stelae check`` says of a cluster that is not well."""
    done = in_process.stelae("check", "--connect", ",".join(cluster.addresses))
    assert done.exit_code == 1
    return done.stdout + done.stderr


FAULTS = {
    "log": ("wals/{tablet}", ("write", "sync")),
    "metadata": ("tablet-meta/{tablet}", ("write", "sync", "metadata")),
    "reads": ("data/{tablet}", ("read",)),
    "votes": ("consensus-meta/{tablet}", ("write", "sync", "metadata")),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_the_replica_whose_files_answer_eio_fails_by_name_and_the_node_serves_the_other_tablet(
    cluster: ClusterWithMasters, kind: str
) -> None:
    below, operations = FAULTS[kind]

    async def scenario() -> tuple[NodeProcess, str]:
        async with await connect_async(cluster.addresses) as client:
            table, tablet = await table_of(client, "t")
            other, other_tablet = await table_of(client, "other")
            await other.insert([{"id": 1, "text": "kept"}])
            writers = Writers(table)
            await writers.reach(2000)
            server = await leader_of(client, cluster, tablet)
            begun = len(lines(server))
            fail_disk(server, below=below.format(tablet=tablet), operations=operations)
            if kind == "reads":
                await asyncio.gather(*(table.scan(order="key").to_pylist() for _ in range(3)))
            if kind == "votes":  # The next term is to be saved by the old leader, too.
                await (await client.replicas(tablet)).transfer(timeout_s=WAIT_S)

            async def failed() -> bool:
                return any(r.tablet_id == tablet and r.state == "FAILED" for r in await reports(client, server))

            await until(failed)
            await writers.reach(500)
            assert any(r.tablet_id == other_tablet and r.state == "RUNNING" for r in await reports(client, server))
            assert await other.scan().to_pylist() == [{"id": 1, "text": "kept"}]
            await writers.end()
            told = lines(server)[begun:]
            assert len(told) <= LOG_LINES_MAX, told
            (line,) = [line for line in told if "replica failed" in line]
            assert "Input/output error" in line and below.format(tablet=tablet) in line
            return server, tablet

    server, tablet = asyncio.run(scenario())
    told = checked(cluster)
    assert server.address in told and "Input/output error" in told and tablet in told, told
    assert server.running_pid() is not None


@pytest.mark.parametrize("kind", ["clock", "everything"])
def test_a_node_that_its_disk_leaves_nothing_to_serve_ends_and_its_last_line_says_why(
    cluster: ClusterWithMasters, kind: str
) -> None:
    async def scenario() -> tuple[NodeProcess, int]:
        async with await connect_async(cluster.addresses) as client:
            table, tablet = await table_of(client, "t")
            writers = Writers(table)
            await writers.reach(1000)
            server = await leader_of(client, cluster, tablet)
            begun = len(lines(server))
            if kind == "clock":
                fail_disk(server, below="clock", operations=("write", "sync", "metadata"))
            else:
                fail_disk(server, operations=("read", "write", "sync", "metadata"))

            async def ended() -> bool:
                return server.running_pid() is None

            await until(ended)
            await writers.reach(500)
            await writers.end()
            return server, begun

    server, begun = asyncio.run(scenario())
    told = [line for line in lines(server)[begun:] if line.strip()]
    assert len(told) <= LOG_LINES_MAX, told
    assert len([line for line in told if "ceiling" in line]) <= 1, told
    assert "Input/output error" in told[-1] and str(server.directory) in told[-1], told
    assert "replace the disk" in told[-1], told
    assert server.wait() not in (0, None)
    assert server.address in checked(cluster)
