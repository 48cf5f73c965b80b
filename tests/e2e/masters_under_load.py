"""A cluster of real processes whose masters come and go, and clients that change tables and write rows meanwhile.

The clients note what was acknowledged, and which of their calls failed. No call may: clients retry by themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stelae.cli.node_formatting import format_here
from stelae.client import AddColumn, connect
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_health import until_served
from stelae.local.node_process import NodeProcess
from tests.e2e.test_cluster_commands import answer

Answer = Callable[..., Any]
"""Runs a ``stelae`` command, and returns its JSON document."""

WAIT_S = 120.0
"""How long a client tries each call, and a node may take to start: reached only by a defect."""

ROUNDS_WAIT_S = 10 * WAIT_S
"""How long two rounds of a client, with the calls of each, may take: reached only by a defect."""


@dataclass(slots=True)
class Load:
    """What one client has done. It knows one master at first, which may be gone at the end.

    Attributes:
        tables: the tables that exist, by name, with the number of their rows.
        dropped: the tables that were dropped.
        rounds: how often it has created, altered, filled, and perhaps dropped a table.
        failure: the error that has ended it.
    """

    name: str
    master: str
    replicas: int = 1
    tables: dict[str, int] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    rounds: int = 0
    failure: BaseException | None = None
    turn: threading.Condition = field(default_factory=threading.Condition)  #: Notified of each round and a failure.

    @property
    def kept(self) -> str:
        """The table that gets rows in each round."""
        return f"{self.name}_kept"

    def is_past(self, rounds: int) -> bool:
        """Return whether it has done this many rounds, or has failed."""
        return self.rounds >= rounds or self.failure is not None

    def run(self, ended: threading.Event) -> None:
        """Create, alter and drop tables, and write rows, until it ends or a call fails."""
        try:
            with connect(self.master, timeout_s=WAIT_S) as client:
                columns = {"id": "int64", "round": "int64"}
                kept = client.create_table(self.kept, columns, "id", replicas=self.replicas, timeout_s=WAIT_S)
                self.tables[self.kept] = 0
                while not ended.is_set():
                    self._one_table(client)
                    first = self.tables[self.kept]
                    kept.insert([{"id": first + n, "round": self.rounds} for n in range(10)], timeout_s=WAIT_S)
                    self.tables[self.kept] += 10
                    with self.turn:
                        self.rounds += 1
                        self.turn.notify_all()
        except BaseException as error:
            error.add_note(f"client {self.name}, in round {self.rounds}")
            with self.turn:
                self.failure = error
                self.turn.notify_all()

    def _one_table(self, client: Any) -> None:
        """Create, alter and fill a table; drop every second one."""
        table = f"{self.name}_{self.rounds}"
        client.create_table(table, {"id": "int64"}, "id", replicas=self.replicas, timeout_s=WAIT_S)
        client.alter_table(table, AddColumn("note", "string", nullable=True), timeout_s=WAIT_S)
        client.table(table, timeout_s=WAIT_S).insert([{"id": 1, "note": "x"}], timeout_s=WAIT_S)
        if self.rounds % 2:
            client.drop_table(table, timeout_s=WAIT_S)
            self.dropped.add(table)
        else:
            self.tables[table] = 1


@contextmanager
def under_load(master: str, clients: int, replicas: int = 1) -> Iterator[list[Load]]:
    """Run the clients, and check at the end that none of their calls has failed."""
    ended = threading.Event()
    loads = [Load(f"c{number}", master, replicas) for number in range(clients)]
    threads = [threading.Thread(target=load.run, args=(ended,)) for load in loads]
    for thread in threads:
        thread.start()
    try:
        yield loads
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failures := [load.failure for load in loads if load.failure is not None]:
        raise BaseExceptionGroup(f"calls of {len(failures)} of {clients} clients failed", failures)


def until_each_goes_on(loads: list[Load]) -> None:
    """Wait until each client has done a whole round since now, or has failed."""
    wanted = [load.rounds + 2 for load in loads]
    for load, rounds in zip(loads, wanted, strict=True):
        with load.turn:
            assert load.turn.wait_for(partial(load.is_past, rounds), ROUNDS_WAIT_S), f"client {load.name} stands still"


def check_nothing_is_lost(cluster: ClusterWithMasters, loads: list[Load]) -> None:
    """Check that exactly the tables are there that were acknowledged and not dropped, each with exactly its rows."""
    with connect(cluster.addresses[0], timeout_s=WAIT_S) as client:
        assert set(client.tables()) == {table for load in loads for table in load.tables}
        for load in loads:
            for name, count in load.tables.items():
                rows = client.table(name).scan().to_pylist()
                assert sorted(row["id"] for row in rows) == (list(range(count)) if name == load.kept else [1]), name
                assert name == load.kept or rows[0]["note"] == "x", name


@contextmanager
def killed_at_the_end() -> Iterator[list[ClusterWithMasters]]:
    """Yield a list for the clusters that ``start`` makes. All of their processes end with the block."""
    made: list[ClusterWithMasters] = []
    try:
        yield made
    finally:
        for cluster in made:
            cluster.kill()


def start(tmp_path: Path, made: list[ClusterWithMasters], masters: int, servers: int = 1) -> ClusterWithMasters:
    """Start a cluster, and wait until it serves. ``made`` gets it, so that the caller can kill it."""
    cluster = ClusterWithMasters.create(
        tmp_path / "cluster", ClusterOptions(node_count=servers), masters=masters, formatted=format_here
    )
    made.append(cluster)
    cluster.start()
    asyncio.run(until_served(cluster, WAIT_S))
    return cluster


def new_master(cluster: ClusterWithMasters) -> NodeProcess:
    """Start one more master, and wait until it answers. It is no member yet."""
    known, node = cluster.addresses[-1], cluster.add_master()
    node.start()
    with connect(known, timeout_s=WAIT_S) as client:
        assert client.masters.node_at(node.address, timeout_s=WAIT_S) == node.node_id
    return node


def add(cluster: ClusterWithMasters, run: Answer = answer) -> NodeProcess:
    """Start one more master, and add it. Return it once it has a vote."""
    known = cluster.addresses[-1]
    node = new_master(cluster)
    done = run("master", "add", node.address, "--wait", "--connect", known)
    assert done["changed"] and node.node_id in [one["node_id"] for one in done["committed_members"]]
    return node


def remove(cluster: ClusterWithMasters, node: NodeProcess, run: Answer = answer) -> None:
    """Remove a master, then end its process."""
    left = next(one for one in cluster.masters if one is not node)
    assert run("master", "remove", node.address, "--connect", left.address)["changed"]
    node.kill()
    cluster.remove_master(node)


def replace_each(cluster: ClusterWithMasters, loads: list[Load], run: Answer = answer) -> None:
    """Replace all masters, one after the other, and end the processes of the replaced ones."""
    for node in list(cluster.masters):
        new = new_master(cluster)
        left = next(one for one in cluster.masters if one not in (node, new))
        assert run("master", "replace", node.address, new.address, "--connect", left.address)["changed"]
        node.kill()
        cluster.remove_master(node)
        until_each_goes_on(loads)


def pids(cluster: ClusterWithMasters) -> dict[str, int | None]:
    """Return the process of each node that runs, to see that none was restarted."""
    return {node.name: node.running_pid() for node in cluster.nodes}
