"""A node whose log is an older copy, as after a restore from a backup: it must not help to forget acknowledged rows."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.check.cluster_state import ask_nodes
from stelae.check.health import _replica
from stelae.cli.node_formatting import format_here
from stelae.client.connection import Connection
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import MetadataMissing
from stelae.host.superblock import SuperblockFile
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.node_process import NodeProcess
from stelae.machine.files import RealFiles
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.write import OpKind
from tests.e2e.waiting import wait_until
from tests.tablet_rows import write_to

TABLET = TabletId("t")
SPEC = TabletSpec(tablet_id=TABLET, columns=({"name": "id", "type": "int64"},), key=("id",))
SETTINGS = {"consensus.raft": {"election_timeout_ms": 300}, "maintenance": {"flush_interval_ms": 100}}
WAIT_S = 60
"""Reached only by a defect."""


LONG = pytest.mark.long


@pytest.fixture(params=["segmented", pytest.param("lmdb", marks=LONG), pytest.param("shared", marks=LONG)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    engines = {"wal": request.param, "store": "columnar"}
    made = LocalCluster.create(
        tmp_path / "cluster", SPEC, ClusterOptions(engines=engines, settings=SETTINGS), formatted=format_here
    )
    try:
        yield made
    finally:
        made.stop()


def flushed_index(node: NodeProcess) -> int:
    try:
        return SuperblockFile(RealFiles(), DirectoryLayout(str(node.directory / "data")), TABLET).load().flushed.index
    except MetadataMissing:
        return 0  # It has just been started for the first time.


def stop(*nodes: NodeProcess) -> None:
    for node in nodes:
        node.ask_to_stop()
    for node in nodes:
        node.wait()


def insert(cluster: LocalCluster, numbers: range) -> None:
    """Insert rows, which are acknowledged on return."""

    async def run() -> None:
        async with await Connection.connect(cluster.addresses, timeout_s=WAIT_S) as client:
            tablet = await client.tablet(TABLET)
            result = await write_to(tablet, OpKind.INSERT, [(number,) for number in numbers])
            assert not result.errors and not result.refusal

    asyncio.run(run())


def rows(cluster: LocalCluster, timeout_s: float) -> list[int]:
    async def run() -> list[int]:
        async with await Connection.connect(cluster.addresses, timeout_s=timeout_s) as client:
            tablet = await client.tablet(TABLET)
            return sorted([row[0] async for batch in tablet.scan(timeout_s=timeout_s) for row in batch.to_rows()])

    return asyncio.run(run())


def failure(node: NodeProcess) -> str:
    """What ``check`` says of a node's replica."""

    async def run() -> str:
        async with await Connection.connect([node.address], timeout_s=WAIT_S) as client:
            facts = (await ask_nodes(client, [(node.node_id, node.address)]))[node.node_id]
            return _replica(node.node_id, node.address, TABLET, facts).problem

    return asyncio.run(run())


def test_a_node_with_an_older_log_forms_no_majority_with_a_lagging_one(cluster: LocalCluster) -> None:
    """It did: the two elected a leader and served 10 of 30 acknowledged rows."""
    older, lagging, whole = cluster.nodes
    for node in (lagging, whole):  # Only one flushes: a log that is not collected can feed the lagging node.
        text = node.config_path.read_text()
        assert "flush_interval_ms = 100" in text
        node.config_path.write_text(text.replace("flush_interval_ms = 100", "flush_interval_ms = 3600000"))
    cluster.start()
    insert(cluster, range(10))
    wait_until(lambda: flushed_index(older) >= 2, WAIT_S)
    first = flushed_index(older)
    stop(*cluster.nodes)
    wals, backup = older.directory / "data" / "wals", older.directory / "backup"
    shutil.copytree(wals, backup)

    older.start()
    whole.start()
    insert(cluster, range(10, 30))
    wait_until(lambda: flushed_index(older) > first, WAIT_S)
    assert rows(cluster, WAIT_S) == list(range(30))
    stop(older, whole)
    shutil.rmtree(wals)
    shutil.copytree(backup, wals)

    older.start()
    lagging.start()
    with pytest.raises(StelaeError):
        rows(cluster, 3)
    shown = failure(older)
    assert shown.startswith("FAILED the log contradicts the superblock"), shown
    assert "acknowledged entries are missing" in shown and shown.endswith("it will never vote again")

    whole.start()
    assert rows(cluster, WAIT_S) == list(range(30)), "with a node that has all of it, nothing is missing"
    assert failure(older) == shown
