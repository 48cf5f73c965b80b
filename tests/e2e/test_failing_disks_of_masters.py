"""A leading master whose disk answers EIO: another one leads, DDL goes on, and it says what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import AsyncClient, connect_async
from stelae.local.chaos.node_rules import RulesKind, enable_rules
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.protocol.catalog_names import SYSTEM_TABLET
from tests.e2e.starting import start
from tests.e2e.test_failing_disks import LOG_LINES_MAX, SETTINGS, WAIT_S, checked, fail_disk, lines, reports, until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterWithMasters]:
    made = ClusterWithMasters.create(
        tmp_path / "cluster", ClusterOptions(node_count=1, settings=SETTINGS), masters=3, formatted=format_here
    )
    for master in made.masters:
        enable_rules(master, RulesKind.DISK)
    try:
        start(made)
        yield made
    finally:
        made.kill()


async def leading(client: AsyncClient, cluster: ClusterWithMasters, among: list[NodeProcess]) -> NodeProcess:
    async with asyncio.timeout(WAIT_S):
        while True:
            for master in among:
                if any(report.role == "LEADER" for report in await reports(client, master)):
                    return master
            await asyncio.sleep(0.05)


async def create(client: AsyncClient, name: str) -> None:
    await client.create_table(name, {"id": "int64"}, ["id"], replicas=1, timeout_s=WAIT_S)


async def fail_leader(cluster: ClusterWithMasters, below: str, operations: tuple[str, ...]) -> tuple[NodeProcess, int]:
    """Fail the disk of the leading master, create a table by its successor, and return it and its lines so far."""
    async with await connect_async(cluster.addresses, timeout_s=WAIT_S) as client:
        await create(client, "before")
        failing = await leading(client, cluster, cluster.masters)
        begun = len(lines(failing))
        fail_disk(failing, below=below, operations=operations)
        await create(client, "after")
        others = [master for master in cluster.masters if master is not failing]
        assert await leading(client, cluster, others) in others
        assert sorted(await client.tables()) == ["after", "before"]
        return failing, begun


def test_a_master_whose_log_answers_eio_hands_over_names_the_file_and_runs_on(cluster: ClusterWithMasters) -> None:
    below = f"wals/{SYSTEM_TABLET}"

    async def scenario() -> tuple[NodeProcess, int]:
        failing, begun = await fail_leader(cluster, below, ("write", "sync"))
        async with await connect_async(cluster.addresses) as client:

            async def failed() -> bool:
                return any(report.state == "FAILED" for report in await reports(client, failing))

            await until(failed)
        return failing, begun

    failing, begun = asyncio.run(scenario())
    told = lines(failing)[begun:]
    assert len(told) <= LOG_LINES_MAX, told
    (line,) = [line for line in told if "replica failed" in line]
    assert "Input/output error" in line and below in line
    assert failing.running_pid() is not None
    report = checked(cluster)
    assert failing.address in report and "Input/output error" in report and below in report, report


def test_a_master_whose_whole_disk_answers_eio_ends_and_its_last_line_says_what_to_do(
    cluster: ClusterWithMasters,
) -> None:
    async def scenario() -> tuple[NodeProcess, int]:
        failing, begun = await fail_leader(cluster, "", ("read", "write", "sync", "metadata"))

        async def ended() -> bool:
            return failing.running_pid() is None

        await until(ended)
        return failing, begun

    failing, begun = asyncio.run(scenario())
    told = [line for line in lines(failing)[begun:] if line.strip()]
    assert len(told) <= LOG_LINES_MAX, told
    assert "Input/output error" in told[-1] and str(failing.directory) in told[-1], told
    assert "'Replace a disk' has the steps" in told[-1], told
    assert failing.wait() not in (0, None)
    assert failing.address in checked(cluster)
