"""Masters of real processes are added, replaced and removed while clients change tables and write rows.

No call of a client may fail, nothing acknowledged may be lost, and no process but a removed master is ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import AddColumn, connect
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from tests.at_length import times
from tests.e2e import in_process
from tests.e2e.test_cluster_commands import answer, stelae

CLIENTS = 2
ROUNDS = times(1)
"""How often all three masters are replaced."""


@dataclass(slots=True)
class Load:
    """What one client has done. It knows one master, which is gone at the end."""

    name: str
    master: str
    tables: set[str] = field(default_factory=set)
    rows: int = 0
    rounds: int = 0
    failure: BaseException | None = None

    def run(self, ended: threading.Event) -> None:
        """Create, alter and drop tables, and write rows, until it ends or a call fails."""
        try:
            with connect(self.master) as client:
                kept = client.create_table(f"{self.name}_kept", {"id": "int64", "round": "int64"}, "id", replicas=1)
                self.tables.add(f"{self.name}_kept")
                while not ended.is_set():
                    table = f"{self.name}_{self.rounds}"
                    client.create_table(table, {"id": "int64"}, "id", replicas=1)
                    client.alter_table(table, AddColumn("note", "string", nullable=True))
                    client.table(table).insert([{"id": 1, "note": "x"}])
                    if self.rounds % 2:
                        client.drop_table(table)
                    else:
                        self.tables.add(table)
                    kept.insert([{"id": self.rows + n, "round": self.rounds} for n in range(10)])
                    self.rows += 10
                    self.rounds += 1
        except BaseException as error:
            self.failure = error


@contextmanager
def under_load(master: str) -> Iterator[list[Load]]:
    """Run the clients, and check at the end that none of their calls has failed."""
    ended, loads = threading.Event(), [Load(f"c{number}", master) for number in range(CLIENTS)]
    threads = [threading.Thread(target=load.run, args=(ended,)) for load in loads]
    for thread in threads:
        thread.start()
    try:
        yield loads
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    for load in loads:
        if load.failure is not None:
            raise load.failure


def until_each_goes_on(loads: list[Load]) -> None:
    """Wait until each client has done a whole round since now, or has failed."""
    before = [load.rounds for load in loads]
    tick = threading.Event()
    while any(load.rounds < count + 2 and load.failure is None for load, count in zip(loads, before, strict=True)):
        tick.wait(0.05)


def check_nothing_is_lost(cluster: ClusterWithMasters, loads: list[Load]) -> None:
    with connect(cluster.addresses[0]) as client:
        assert set(client.tables()) == set().union(*(load.tables for load in loads))
        for load in loads:
            rows = client.table(f"{load.name}_kept").scan().to_pylist()
            assert {row["id"] for row in rows} == set(range(load.rows))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[list[ClusterWithMasters]]:
    """Clusters that a test makes with ``start``; all of their processes end with it."""
    made: list[ClusterWithMasters] = []
    try:
        yield made
    finally:
        for cluster in made:
            cluster.kill()


def start(tmp_path: Path, made: list[ClusterWithMasters], masters: int) -> ClusterWithMasters:
    cluster = ClusterWithMasters.create(
        tmp_path / "cluster", ClusterOptions(node_count=1), masters=masters, formatted=format_here
    )
    made.append(cluster)
    cluster.start()
    return cluster


def add(cluster: ClusterWithMasters) -> NodeProcess:
    node = cluster.add_master()
    node.start()
    done = answer("master", "add", node.address, "--wait", "--connect", cluster.addresses[-2])
    assert done["changed"] and node.node_id in [one["node_id"] for one in done["committed_members"]]
    return node


def remove(cluster: ClusterWithMasters, node: NodeProcess) -> None:
    left = next(one for one in cluster.masters if one is not node)
    assert answer("master", "remove", node.address, "--connect", left.address)["changed"]
    node.kill()
    cluster.remove_master(node)


def test_one_master_becomes_three_and_one_again_under_load(tmp_path: Path, make: list[ClusterWithMasters]) -> None:
    cluster = start(tmp_path, make, 1)
    first = cluster.masters[0]
    with under_load(first.address) as loads:
        until_each_goes_on(loads)
        for _ in range(2):
            add(cluster)
            until_each_goes_on(loads)
        shown = answer("master", "list", "--dir", str(cluster.directory))["masters"]
        assert [(one["type"], one["problem"]) for one in shown] == [("VOTER", "")] * 3
        moved = answer("master", "transfer", "--to", cluster.masters[-1].address, "--dir", str(cluster.directory))
        assert moved["changed"] and moved["leader"] == cluster.masters[-1].node_id
        for node in list(cluster.masters[:2]):
            remove(cluster, node)
            until_each_goes_on(loads)
    cluster.check()
    check_nothing_is_lost(cluster, loads)
    shown = in_process.stelae("check", "--dir", str(cluster.directory)).stdout
    assert f"{cluster.masters[0].address} VOTER" in shown and "masters: config " in shown


def test_all_three_masters_are_replaced_one_after_the_other_under_load(
    tmp_path: Path, make: list[ClusterWithMasters]
) -> None:
    cluster = start(tmp_path, make, 3)
    with under_load(cluster.addresses[0]) as loads:
        until_each_goes_on(loads)
        for _ in range(ROUNDS):
            for node in list(cluster.masters):
                new = cluster.add_master()
                new.start()
                stelae("master", "replace", node.address, new.address, "--connect", cluster.addresses[1])
                node.kill()
                cluster.remove_master(node)
                until_each_goes_on(loads)
    cluster.check()
    check_nothing_is_lost(cluster, loads)
    shown = answer("master", "list", "--dir", str(cluster.directory))["masters"]
    assert {one["node_id"] for one in shown} == {one.node_id for one in cluster.masters}
