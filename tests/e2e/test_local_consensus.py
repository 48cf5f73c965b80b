"""A node with the consensus engine ``local``: killed, converted to Raft, grown, and with a disk that fills up."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stelae.cli.node_formatting import format_here
from stelae.client.connection import ConnectedTablet, Connection
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.node import Node
from stelae.host.replica_state import ReplicaState
from stelae.host.settings import TabletSettings
from stelae.host.superblock import SuperblockFile
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.node_process import NodeProcess
from stelae.machine.files import RealFiles
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, ConfigError, StelaeError, Unsupported
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import AddServer, Member, MemberChange
from stelae.spi.write import OpKind
from tests.e2e import in_process
from tests.e2e.nodes import TABLET, Cluster, connected, insert, no_space, read_ids, sync_fails, until
from tests.e2e.test_tablet_life import act, creation
from tests.tablet_rows import write_to

RUN_S = 90
SPARE = NodeId("e" * 32)
"""A node that does not run."""
SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
SPEC = TabletSpec(tablet_id=TabletId("t"), columns=({"name": "id", "type": "int64"},), key=("id",))


def options(node_count: int = 1, store: str = "columnar") -> ClusterOptions:
    engines = {"consensus": "local", "store": store}
    return ClusterOptions(node_count=node_count, engines=engines, settings={"maintenance": {"flush_interval_ms": 50}})


@pytest.fixture
def node(tmp_path: Path) -> NodeProcess:
    return LocalCluster.create(tmp_path / "cluster", SPEC, options(), formatted=format_here).nodes[0]


async def write(node: NodeProcess, numbers: Sequence[int]) -> None:
    async with await Connection.connect([node.address], timeout_s=RUN_S) as client:
        tablet = await client.tablet(SPEC.tablet_id)
        results = await asyncio.gather(*(write_to(tablet, OpKind.INSERT, [(n,)], timeout_s=RUN_S) for n in numbers))
        assert not any(result.errors or result.refusal for result in results)


async def expect(node: NodeProcess, numbers: Sequence[int]) -> None:
    async with await Connection.connect([node.address], timeout_s=RUN_S) as client:
        tablet = await client.tablet(SPEC.tablet_id)
        assert sorted([row[0] async for batch in tablet.scan() for row in batch.to_rows()]) == list(numbers)


async def reach(node: NodeProcess) -> None:
    """Wait until a node answers."""
    async with await Connection.connect([node.address], timeout_s=RUN_S):
        pass


def run(node: NodeProcess, *work: Coroutine[Any, Any, None], kill: bool = False) -> str:
    """Run a node as long as some work takes, and stop or kill it. Return what it logged."""
    node.log_path.unlink(missing_ok=True)
    node.start()
    try:
        for one in work:
            asyncio.run(one)
    finally:
        if kill:
            node.kill()
        else:
            node.ask_to_stop()
            assert node.wait() == 0, node.log_tail()
    return node.log_path.read_text()


def convert(node: NodeProcess, *words: str) -> Any:
    """What the command answers, run here."""
    done = in_process.stelae(
        "tablet", "convert-consensus", "--config", str(node.config_path), "--to", "raft", "--json", *words
    )
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def files_of(node: NodeProcess) -> dict[str, bytes]:
    """The bytes of every file of a stopped node but its log and its lock. Opening a log recovers it."""
    root = node.directory / "data"
    found = {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_file() and p.name != "lock"}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("wals/")}


def log_of(node: NodeProcess) -> Any:
    """Every entry of the log of a stopped node, with its body."""
    done = in_process.stelae("wal", "dump", "--config", str(node.config_path), "--bodies", "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["entries"]


def recorded(node: NodeProcess) -> str:
    layout = DirectoryLayout(str(node.directory / "data"))
    return SuperblockFile(RealFiles(), layout, SPEC.tablet_id).load().consensus_engine


def test_a_local_tablet_survives_kills_and_goes_on_as_a_raft_tablet(node: NodeProcess) -> None:
    run(node, write(node, range(50)), kill=True)
    run(node, expect(node, range(50)), write(node, range(50, 100)), kill=True)
    before, entries, text = files_of(node), log_of(node), node.config_path.read_text()
    assert convert(node, "--dry-run")["tablets"] == [{"tablet_id": "t", "from": "local"}]
    assert files_of(node) == before and node.config_path.read_text() == text

    answer = convert(node)
    assert (answer["to"], answer["node_toml_is_set"]) == ("raft", True)
    after = files_of(node)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] == ["tablet-meta/t"]
    assert log_of(node) == entries and len({entry["op_id"].split(".")[0] for entry in entries}) == 2
    assert node.config_path.read_text() == text.replace('consensus = "local"', 'consensus = "raft"') != text

    run(node, expect(node, range(100)), write(node, range(100, 120)), kill=True)
    run(node, expect(node, range(120)))
    assert recorded(node) == "raft" and convert(node)["tablets"] == []


DIES_AT = """
import os, sys
from stelae.cli import offline_node
from stelae.host.metadata_files import CrashPoints
class DieAt(CrashPoints):
    def hit(self, point):
        if point == sys.argv[2]:
            os._exit(9)
paths = offline_node.ConversionPaths
offline_node.ConversionPaths = lambda layout, services: paths(layout, services, DieAt())
with offline_node.OfflineNode.opened(None, sys.argv[1]) as node:
    node.change_consensus("raft", offline_node.ProgressMeter(), dry_run=False)
"""


@pytest.mark.parametrize(
    ("point", "engine"), [("superblock.before_replace", "local"), ("superblock.after_replace", "raft")]
)
def test_a_node_goes_on_after_the_conversion_was_killed(node: NodeProcess, point: str, engine: str) -> None:
    run(node, write(node, range(20)))
    died = subprocess.run(
        [sys.executable, "-c", DIES_AT, str(node.config_path), point], capture_output=True, text=True, timeout=RUN_S
    )
    assert died.returncode == 9, died.stderr
    assert recorded(node) == engine
    if engine == "local":
        run(node, expect(node, range(20)))
    else:
        assert convert(node)["node_toml_is_set"]
        run(node, expect(node, range(20)), write(node, range(20, 30)))


def test_a_node_with_the_other_engine_says_the_command_which_then_helps(node: NodeProcess) -> None:
    run(node, write(node, range(10)))
    text = node.config_path.read_text()
    node.config_path.write_text(text.replace('consensus = "local"', 'consensus = "raft"'))
    root = node.directory / "data"
    said = run(node, reach(node))
    assert "the tablet has consensus engine 'local', but the node has 'raft'" in said
    assert f"stelae tablet convert-consensus {root} --to raft" in said
    done = in_process.stelae("tablet", "convert-consensus", str(root), "--to", "raft")
    assert done.exit_code == 0 and done.stdout == "converted from local to raft: tablet t\n"
    run(node, expect(node, range(10)))


def test_the_command_needs_a_stopped_node_and_a_known_engine(node: NodeProcess) -> None:
    async def ask() -> None:
        done = await asyncio.to_thread(
            in_process.stelae, "tablet", "convert-consensus", str(node.directory / "data"), "--to", "raft"
        )
        assert done.exit_code == 1 and f"in use by process {node.pid}" in done.stderr

    run(node, write(node, [1]), ask())
    directory = str(node.directory / "data")
    done = in_process.stelae("tablet", "convert-consensus", directory)
    assert done.exit_code != 0 and "pass --to ENGINE" in done.stderr
    done = in_process.stelae("tablet", "convert-consensus", directory, "--to", "paxos")
    assert done.exit_code != 0 and "known consensus engines: local, raft" in done.stderr


def test_a_tablet_with_three_members_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="3 nodes replicate a tablet, and the consensus engine 'local' serves one"):
        LocalCluster.create(tmp_path / "three", SPEC, options(3), formatted=format_here)
    assert not (tmp_path / "three").exists()
    node = LocalCluster.create(tmp_path / "cluster", SPEC, options(), formatted=format_here).nodes[0]
    more = ", ".join(f'{{ uuid = "{letter * 32}", address = "127.0.0.1:{port}" }}' for letter, port in ("e1", "f2"))
    text = node.config_path.read_text()
    node.config_path.write_text(text.replace("members = [", f"members = [{more}, "))
    command = [sys.executable, "-m", "stelae", "tserver", "run", "--config", str(node.config_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "'local' serves a tablet whose only member is this node" in done.stderr
    assert "[engines] consensus = 'raft'" in done.stderr
    assert os.listdir(node.directory / "data" / "tablet-meta") == []
    assert os.listdir(node.directory / "data" / "consensus-meta") == []


# -- in this process, with a disk that can be broken -------------------------------------------------


class Alone(Cluster):
    """One node."""

    def __init__(self, root: Path, engine: str = "local") -> None:
        super().__init__(root, f'[engines]\nconsensus = "{engine}"\n')
        del self.ids[1:], self.addresses[1:]


@asynccontextmanager
async def alone(root: Path) -> AsyncIterator[tuple[Alone, ConnectedTablet]]:
    """A running node that serves, and a client of it. The node is stopped at the end."""
    cluster = Alone(root)
    try:
        await cluster.start(cluster.ids[0])
        await until(lambda: cluster.leader() is not None)
        async with connected(cluster) as tablet:
            yield cluster, tablet
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)


def test_a_full_disk_acknowledges_nothing_and_resumes_with_space(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with alone(tmp_path) as (cluster, tablet):
            await insert(tablet, range(10))
            node_id = cluster.ids[0]
            replica = cluster.nodes[node_id].replicas[TABLET]
            term = replica.status.term
            cluster.files[node_id].broken = no_space
            late = asyncio.ensure_future(insert(tablet, range(10, 20)))
            await until(lambda: replica.suspended)
            await asyncio.sleep(0)
            assert not late.done() and replica.status.term == term, "a suspended replica begins no term"
            cluster.files[node_id].broken = None
            await late
            assert replica.status.term > term and await read_ids(tablet) == list(range(20))

    asyncio.run(scenario())


def test_a_failed_sync_fails_the_tablet_and_a_restart_has_every_acknowledged_row(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with alone(tmp_path) as (cluster, tablet):
            await insert(tablet, range(10))
            node_id = cluster.ids[0]
            cluster.files[node_id].broken = sync_fails
            with pytest.raises(StelaeError):
                await write_to(tablet, OpKind.INSERT, [(10, "row 10")], timeout_s=1.0)
            assert cluster.nodes[node_id].replicas[TABLET].failure
            cluster.files[node_id].broken = None
            await cluster.stop(node_id)
            await cluster.start(node_id)
            await until(lambda: cluster.leader() is not None)
            found = await read_ids(tablet)
            assert found[:10] == list(range(10)) and len(found) <= 11

    asyncio.run(scenario())


def test_changes_of_members_and_transfers_are_refused_with_the_next_step(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with alone(tmp_path) as (cluster, _tablet):
            replica = cluster.nodes[cluster.ids[0]].replicas[TABLET]
            added: MemberChange = AddServer(node_id=SPARE, address="127.0.0.1:1")
            refused = await answered(lambda done: replica.change_members(added, done))
            assert isinstance(refused, CallerError) and refused.code == "MEMBER_CHANGE_REFUSED"
            assert "stelae tablet convert-consensus --to raft" in str(refused)
            refused = await answered(lambda done: replica.transfer(None, done))
            assert isinstance(refused, StelaeError) and "could take over" in str(refused)

    asyncio.run(scenario())


def test_a_replica_of_several_is_refused_on_a_running_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with alone(tmp_path) as (cluster, _tablet):
            node = cluster.nodes[cluster.ids[0]]
            manager = TabletManager(node, loader_of(node))
            members = tuple(Member(node_id=n, address="127.0.0.1:1") for n in (node.node_id, SPARE))
            new = TabletSettings(id=TabletId("second"), schema=SCHEMA, members=members)
            refused = await answered(lambda done: manager.create(new, done))
            assert isinstance(refused, ConfigError) and "consensus = 'raft'" in str(refused)
            assert "second" not in node.replicas and not node.files.exists(node.layout.consensus_of(new.id))

    asyncio.run(scenario())


def test_a_table_of_another_engine_is_not_created_on_a_local_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with alone(tmp_path) as (cluster, _tablet), await Connection.connect(cluster.addresses) as client:
            node = cluster.nodes[cluster.ids[0]]
            action = creation(cluster, node.node_id)
            with pytest.raises(Unsupported, match="needs the consensus engine 'raft', and this node has 'local'"):
                await act(client, action)
            await act(client, msgspec.structs.replace(action, consensus="local"))
            await until(lambda: action.tablet_id in node.replicas)
            await until(lambda: node.replicas[action.tablet_id].state is ReplicaState.RUNNING)

    asyncio.run(scenario())


async def answered(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """What a call with a callback is answered."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    ask(lambda result: future.set_result(result))
    return await future


def loader_of(node: Node) -> TabletLoader:
    assert isinstance(node.tablets, TabletLoader)
    return node.tablets
