"""Real processes: a replica that was down while the others went on, with and without a bound of the log."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stelae.check.cluster_state import ask_nodes
from stelae.check.health import NodeFacts, tablet_health
from stelae.cli.node_formatting import format_here
from stelae.client import Table, connect
from stelae.client.connection import Connection
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import SuperblockFile
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_health import until_served
from stelae.local.node_process import NodeProcess
from stelae.machine.files import RealFiles
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, TabletId
from tests.e2e import in_process

RUN_S = 90.0
"""Longest that a state may be waited for; reached only by a defect."""

SMALL: dict[str, dict[str, Any]] = {
    "consensus.raft": {"election_timeout_ms": 500},
    "wal.segmented": {"segment_bytes_first": 4096, "segment_bytes_max": 4096},
    "maintenance": {"flush_bytes": 65536, "flush_interval_ms": 10},
}


class Servers:
    """One master, three tablet servers, and a table of one tablet."""

    def __init__(self, cluster: ClusterWithMasters, tablet_id: TabletId, table: Table) -> None:
        self.cluster = cluster
        self.tablet_id = tablet_id
        self.count = 0
        self._table = table

    def kill_follower(self) -> tuple[NodeProcess, int]:
        """Kill a follower; return it, and the last index that any replica had then."""
        found = self.facts()
        last_index = max(facts.reports[self.tablet_id].last.index for facts in found.values())
        leader = next(facts.reports[self.tablet_id].leader for facts in found.values())
        node = next(node for node in self.cluster.servers if node.node_id != leader)
        node.kill()
        return node, last_index

    def facts(self) -> dict[NodeId, NodeFacts]:
        """What the servers that answer say, of this tablet among others."""

        async def ask() -> dict[NodeId, NodeFacts]:
            async with await Connection.connect(self.cluster.addresses, timeout_s=RUN_S) as connection:
                return await ask_nodes(connection, [(node.node_id, node.address) for node in self.cluster.servers])

        found = asyncio.run(ask())
        return {node: facts for node, facts in found.items() if self.tablet_id in facts.facts}

    def bases(self) -> dict[NodeId, int]:
        """The index up to which each replica's log is gone."""
        bases = {node: facts.facts[self.tablet_id].log_base for node, facts in self.facts().items()}
        return {node: base.index for node, base in bases.items() if base is not None}

    def flushed(self, node: NodeProcess) -> int:
        """The index up to which a server's superblock has the rows."""
        layout = DirectoryLayout(str((node.directory / "data").resolve()))
        return SuperblockFile(RealFiles(), layout, self.tablet_id).load().flushed.index

    def load(self, done: Callable[[], bool]) -> None:
        """Insert rows until something is so."""
        for _ in waiting():
            rows = [{"id": number, "text": "x" * 200} for number in range(self.count, self.count + 100)]
            self._table.insert(rows, timeout_s=RUN_S)
            self.count += 100
            if done():
                return

    def verdict(self) -> str:
        """The health of the tablet in words."""
        members = tuple((node.node_id, node.address) for node in self.cluster.servers)
        health = tablet_health(self.tablet_id, members, self.facts())
        return f"{health.verdict}: {health.why}"

    def are_equal(self, count: int = 3) -> bool:
        """Whether all replicas run and have applied the same. One that is being copied is not there for a moment."""
        reports = [facts.reports.get(self.tablet_id) for facts in self.facts().values()]
        applied = [report.applied for report in reports if report is not None]
        return len(applied) == count and len(set(applied)) == 1


def waiting() -> Iterator[None]:
    """Turns of a wait, with a rest after each, for ``RUN_S``; then it has failed."""
    deadline = time.monotonic() + RUN_S
    while time.monotonic() < deadline:
        yield
        time.sleep(0.05)
    pytest.fail(f"not so within {RUN_S} s")


def until(condition: Callable[[], bool]) -> None:
    for _ in waiting():
        try:
            if condition():
                return
        except StelaeError:
            continue  # A node that has just been started does not answer yet.


@contextmanager
def serving(directory: Path, settings: dict[str, dict[str, Any]], *, nodes: int = 3) -> Iterator[Servers]:
    """Serve the table with three replicas on the first of the servers."""
    options = ClusterOptions(node_count=nodes, engines={"store": "columnar"}, settings={**SMALL, **settings})
    cluster = ClusterWithMasters.create(directory, options, masters=1, formatted=format_here)
    try:
        cluster.start()
        asyncio.run(until_served(cluster, RUN_S))
        with connect(cluster.addresses[0]) as client:
            table = client.create_table("late", {"id": "int64", "text": "string"}, "id")
            (tablet,) = json.loads(in_process.stelae("tablet", "list", "--dir", str(directory), "--json").stdout)[
                "tablets"
            ]
            servers = Servers(cluster, TabletId(tablet["tablet_id"]), table)
            servers.load(servers.are_equal)
            yield servers
    finally:
        cluster.kill()


@pytest.mark.long
def test_a_server_that_was_killed_while_the_others_were_restarted_catches_up_by_itself(tmp_path: Path) -> None:
    """Nothing held the log for it: followers never did, and the leader forgot it when it was restarted itself."""
    with serving(tmp_path / "cluster", {}) as servers:
        late, ended = servers.kill_follower()
        others = [node for node in servers.cluster.servers if node is not late]

        def load_and_flush() -> None:
            wanted = 2 * max(servers.flushed(node) for node in others) + 10
            servers.load(lambda: min(servers.flushed(node) for node in others) >= wanted)

        load_and_flush()
        for node in others:
            node.kill()
            node.start()
        load_and_flush()
        bases = servers.bases()
        assert len(bases) == 2 and max(bases.values()) <= ended, "the log that the killed server lacks is kept"
        late.start()
        until(servers.are_equal)
        until(lambda: servers.verdict() == "HEALTHY: ")
        servers.load(lambda: min(servers.bases().values()) > ended)  # Now it may go, on all of them.


def test_beyond_the_bound_check_names_the_replica_that_needs_a_copy_and_why(tmp_path: Path) -> None:
    """As long as the copy is in progress: this one takes very long."""
    bound = {"log": {"lagging_peer_bytes_max": 30000}, "copy.streaming": {"fetch_bytes_per_s_max": 1}}
    with serving(tmp_path / "cluster", bound) as servers:
        late, ended = servers.kill_follower()
        servers.load(lambda: len(servers.bases()) == 2 and min(servers.bases().values()) > ended)
        for node in servers.cluster.servers:  # What they wrote themselves they still have in memory.
            node.kill()
            node.start()
        until(lambda: f"{late.address} needs a copy, because its log ended before those of all" in servers.verdict())
        checked = in_process.stelae("check", "--dir", str(servers.cluster.directory))
        assert checked.exit_code == 1 and "not in touch" not in checked.stderr
        (problem,) = [line for line in checked.stderr.splitlines() if "needs a copy" in line]
        assert "others begin, which is at index" in problem and "the leader has it copied" in problem
        found = json.loads(in_process.stelae("check", "--json", "--dir", str(servers.cluster.directory)).stdout)
        (tablet,) = found["tables"][0]["tablets"]
        needs = {replica["address"]: replica["needs_copy"] for replica in tablet["replicas"]}
        assert [address for address, why in needs.items() if why] == [late.address]
