"""Changing the log engine of real nodes: one rejoins under another engine, and the cluster agrees."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client.connection import Connection
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import InstanceFile
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.node_process import NodeProcess
from stelae.machine.files import RealFiles
from stelae.spi.ids import TabletId
from stelae.spi.write import OpKind
from tests.e2e import in_process
from tests.e2e.nodes import Cluster, agree, connected, insert, read_ids, until
from tests.tablet_rows import write_to

STELAE = [sys.executable, "-m", "stelae"]
RUN_S = 90
ENGINES = ("segmented", "shared", "lmdb")
SPEC = TabletSpec(tablet_id=TabletId("t"), columns=({"name": "id", "type": "int64"},), key=("id",))
ALONE = ClusterOptions(
    node_count=1, engines={"wal": "segmented"}, settings={"consensus.raft": {"election_timeout_ms": 300}}
)


def stelae(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STELAE, *arguments], capture_output=True, text=True, timeout=RUN_S)


def document(*arguments: str) -> Any:
    """What a command answers, run here."""
    done = in_process.stelae(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


class Mixed(Cluster):
    """Nodes whose log engines differ."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.engines = dict(zip(self.ids, ENGINES, strict=True))

    def _toml(self, node_id: Any) -> str:
        return f'{super()._toml(node_id)}[engines]\nwal = "{self.engines[node_id]}"\n'


@asynccontextmanager
async def mixed(root: Path) -> AsyncIterator[Mixed]:
    """Three running nodes with three log engines; all stopped at the end."""
    cluster = Mixed(root)
    try:
        for node_id in cluster.ids:
            await cluster.start(node_id)
        await until(lambda: cluster.leader() is not None)
        yield cluster
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)


def test_nodes_with_three_log_engines_agree_and_go_on_when_each_has_changed_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with mixed(tmp_path) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(200))
            await until(lambda: agree(cluster))
            for turn, node_id in enumerate(cluster.ids, start=1):
                await cluster.stop(node_id)
                old, new = ENGINES[turn - 1], ENGINES[turn % 3]
                # Beside the loop: the two that are left go on, and this one has to catch up.
                done = await asyncio.to_thread(document, "wal", "convert", str(tmp_path / node_id), "--to", new)
                assert (done["from"], done["to"], done["logs"]) == (old, new, 1)
                cluster.engines[node_id] = new
                await insert(tablet, range(turn * 200, turn * 200 + 200))
                await cluster.start(node_id)
                await until(lambda: cluster.leader() is not None and agree(cluster))
            assert sorted(cluster.engines.values()) == sorted(ENGINES)
            assert await read_ids(tablet) == list(range(800))
            assert cluster.nodes[cluster.ids[0]].failed_tablets == {}

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[NodeProcess, Path, Path]:
    """A stopped node, its cluster's folder, and a copy of that."""
    place = tmp_path_factory.mktemp("convert")
    made = LocalCluster.create(place / "cluster", SPEC, ALONE, formatted=format_here).nodes[0]
    run(made, insert_forty(made))
    shutil.copytree(place / "cluster", place / "kept")
    return made, place / "cluster", place / "kept"


@pytest.fixture
def node(filled: tuple[NodeProcess, Path, Path]) -> NodeProcess:
    """A stopped node, the only one of its cluster, with forty rows in its log: for each test as it was at first."""
    made, folder, kept = filled
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)
    return made


async def insert_forty(node: NodeProcess) -> None:
    async with await Connection.connect([node.address], timeout_s=RUN_S) as client:
        tablet = await client.tablet(SPEC.tablet_id)
        for number in range(40):
            result = await write_to(tablet, OpKind.INSERT, [(number,)], timeout_s=RUN_S)
            assert not result.errors and not result.refusal


async def expect_forty(node: NodeProcess) -> None:
    async with await Connection.connect([node.address], timeout_s=RUN_S) as client:
        tablet = await client.tablet(SPEC.tablet_id)
        assert sorted([row async for batch in tablet.scan() for row in batch.to_rows()]) == [(n,) for n in range(40)]


def run(node: NodeProcess, work: Coroutine[Any, Any, None]) -> str:
    """Run a node as long as some work takes; return what it logged."""
    node.log_path.unlink(missing_ok=True)
    node.start()
    try:
        asyncio.run(work)
    finally:
        node.ask_to_stop()
        code = node.wait()
    assert code == 0, node.log_tail()
    return node.log_path.read_text()


def choose(node: NodeProcess, engine: str) -> None:
    """Name another log engine in its node.toml."""
    text, changed = re.subn(r'wal = "\w+"', f'wal = "{engine}"', node.config_path.read_text())
    assert changed == 1
    node.config_path.write_text(text)


def layout_of(node: NodeProcess) -> DirectoryLayout:
    return DirectoryLayout(str(node.directory / "data"))


def test_a_node_whose_toml_names_another_engine_says_the_command_which_then_helps(node: NodeProcess) -> None:
    choose(node, "shared")
    refused = stelae("tserver", "run", "--config", str(node.config_path))
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    command = re.search(r"stelae (wal convert \S+ --to shared)", refused.stderr)
    assert command is not None, refused.stderr
    done = stelae(*command[1].split())
    assert done.returncode == 0 and done.stdout.startswith("converted from segmented to shared: 1 logs"), done.stderr
    run(node, expect_forty(node))


def test_a_running_node_keeps_its_log_to_itself(node: NodeProcess) -> None:
    async def ask() -> None:
        await expect_forty(node)
        root, told = layout_of(node).root, f"in use by process {node.pid}"
        for words in (("dump",), ("verify",), ("stats",)):
            here = await asyncio.to_thread(in_process.stelae, "wal", words[0], root)
            assert here.exit_code == 1 and told in here.stderr
        done = await asyncio.to_thread(stelae, "wal", "convert", root, "--to", "lmdb")
        assert done.returncode == 1 and told in done.stderr

    run(node, ask())


DIES_AT = """
import os, sys
from stelae.cli import offline_node
from stelae.convert import conversion
from stelae.host.metadata_files import CrashPoints
class DieAt(CrashPoints):
    def hit(self, point):
        if point == sys.argv[2]:
            os._exit(9)
paths = conversion.ConversionPaths
offline_node.ConversionPaths = lambda layout, services: paths(layout, services, DieAt())
with offline_node.OfflineNode.opened(None, sys.argv[1]) as node:
    node.convert("lmdb", offline_node.ProgressMeter(), dry_run=False)
"""


@pytest.mark.parametrize(
    ("point", "engine", "told"),
    [
        ("convert.before_compare", "segmented", "removed what an interrupted conversion left"),
        ("instance.after_replace", "lmdb", "finished the conversion of the log from segmented to lmdb"),
        ("convert.before_rename", "lmdb", "finished the conversion of the log from segmented to lmdb"),
    ],
)
def test_a_node_starts_after_the_conversion_was_killed_anywhere(
    node: NodeProcess, point: str, engine: str, told: str
) -> None:
    before = document("wal", "dump", layout_of(node).root)["entries"]
    died = subprocess.run(
        [sys.executable, "-c", DIES_AT, str(node.config_path), point], capture_output=True, text=True, timeout=RUN_S
    )
    assert died.returncode == 9, died.stderr
    choose(node, engine)
    assert told in run(node, expect_forty(node))
    instance = InstanceFile(RealFiles(), layout_of(node)).load()
    assert (instance.wal_engine, instance.converted_from) == (engine, None)
    assert not RealFiles().exists(f"{layout_of(node).wals}.converting")
    after = document("wal", "dump", "--config", str(node.config_path))["entries"]
    assert len(before) > 40 and after[: len(before)] == before
    assert [entry["summary"] for entry in before if entry["kind"] == "CONFIG"] == ["1 VOTER"]
    inserted = "1 INSERT; 1 operations of 1 clients; schema 1"
    assert [entry["summary"] for entry in before if entry["kind"] == "WRITE"] == [inserted] * 40
