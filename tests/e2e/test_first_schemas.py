"""Nodes without masters whose ``[tablet]`` sections contradict each other: only one table comes of it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.check.cluster_state import ask_nodes
from stelae.check.health import ReplicaHealth, _replica
from stelae.cli.node_formatting import format_here
from stelae.client.connection import Connection
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.node_process import NodeProcess
from stelae.spi.ids import TabletId
from stelae.spi.write import OpKind
from tests.e2e.in_process import stelae
from tests.e2e.waiting import wait_until
from tests.tablet_rows import write_to

TABLET = TabletId("t")
COLUMNS = tuple({"name": name, "type": "int64"} for name in ("id", "a", "b"))
SPEC = TabletSpec(tablet_id=TABLET, columns=COLUMNS, key=("id",))
OPTIONS = ClusterOptions(settings={"consensus.raft": {"election_timeout_ms": 300}})
WAIT_S = 60
"""Reached only by a defect."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "cluster", SPEC, OPTIONS, formatted=format_here)
    try:
        yield made
    finally:
        made.stop()


def swap_columns(node: NodeProcess) -> None:
    """Let the file of a node list column b before column a."""
    text = node.config_path.read_text()
    changed = text.replace('"a"', '"x"').replace('"b"', '"a"').replace('"x"', '"b"')
    assert changed != text
    node.config_path.write_text(changed)


def insert(cluster: LocalCluster, *rows: tuple[int, int, int]) -> None:
    async def run() -> None:
        async with await Connection.connect(cluster.addresses, timeout_s=WAIT_S) as client:
            result = await write_to(await client.tablet(TABLET), OpKind.INSERT, list(rows))
            assert not result.errors and not result.refusal

    asyncio.run(run())


def rows(cluster: LocalCluster) -> list[dict[str, int]]:
    async def run() -> list[dict[str, int]]:
        async with await Connection.connect(cluster.addresses, timeout_s=WAIT_S) as client:
            tablet = await client.tablet(TABLET)
            names = [column.name for column in tablet.schema.columns]
            found = [row async for batch in tablet.scan(timeout_s=WAIT_S) for row in batch.to_rows()]
            return [dict(zip(names, row, strict=True)) for row in found]

    return asyncio.run(run())


def replica(node: NodeProcess) -> ReplicaHealth:
    """What ``check`` says of a node's replica."""

    async def run() -> ReplicaHealth:
        async with await Connection.connect([node.address], timeout_s=WAIT_S) as client:
            facts = (await ask_nodes(client, [(node.node_id, node.address)]))[node.node_id]
            return _replica(node.node_id, node.address, TABLET, facts)

    return asyncio.run(run())


def test_a_node_with_other_columns_than_the_majority_takes_no_part(cluster: LocalCluster) -> None:
    """It did: values of a and b were swapped, silently, whenever that node led the tablet."""
    first, second, third = cluster.nodes
    swap_columns(third)
    cluster.start()
    insert(cluster, (1, 10, 20))
    wait_until(lambda: replica(third).problem.startswith("FAILED"), WAIT_S)
    shown = replica(third).problem
    assert "this replica was created with the columns id int64, b int64, a int64; key id" in shown, shown
    assert f"({first.address}) with id int64, a int64, b int64; key id" in shown.replace(
        second.address, first.address
    ), shown
    assert replica(third).last in ("-", "0.0"), "it acknowledged nothing"
    assert rows(cluster) == [{"id": 1, "a": 10, "b": 20}]

    third.kill()
    third.start()  # A restart changes nothing.
    wait_until(lambda: replica(third).problem.startswith("FAILED"), WAIT_S)
    assert replica(third).problem.split(";")[0] == shown.split(";")[0]


def test_the_node_takes_part_once_its_file_is_corrected_and_it_is_formatted_again(cluster: LocalCluster) -> None:
    third = cluster.nodes[2]
    before = third.config_path.read_text()
    swap_columns(third)
    cluster.start()
    insert(cluster, (1, 10, 20))
    wait_until(lambda: replica(third).problem.startswith("FAILED"), WAIT_S)
    third.ask_to_stop()
    third.wait()
    shutil.rmtree(third.directory / "data")
    third.config_path.write_text(before)
    done = stelae("fs", "format", "--config", str(third.config_path), "--uuid", third.node_id)
    assert done.exit_code == 0, done.stderr
    third.start()
    insert(cluster, (2, 11, 21))
    wait_until(lambda: replica(third).applied >= 3, WAIT_S)
    assert replica(third).problem == "" and len(rows(cluster)) == 2
