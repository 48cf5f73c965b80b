"""All masters are replaced, twice, and one master becomes three and one again, twice, while four clients change tables.

Masters, tablet servers and the commands of the operator are processes of their own. No call of a client may fail:
clients retry by themselves. Every acknowledged table and row is there at the end, and no process was restarted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from tests.e2e.masters_under_load import (
    Load,
    add,
    check_nothing_is_lost,
    killed_at_the_end,
    pids,
    remove,
    replace_each,
    start,
    under_load,
    until_each_goes_on,
)
from tests.e2e.test_cluster_commands import process

CLIENTS = 4
ROUNDS = 2
SERVERS = 3
REPLICAS = 3


def run(*words: str) -> Any:
    """Run a command with an interpreter of its own."""
    return json.loads(process(*words, "--json"))


@pytest.fixture
def make() -> Iterator[list[ClusterWithMasters]]:
    """Clusters that a test makes with ``start``; all of their processes end with it."""
    with killed_at_the_end() as made:
        yield made


def check(cluster: ClusterWithMasters, loads: list[Load], kept: dict[str, int | None]) -> None:
    """Check that nothing is lost, that the masters are those of the cluster, and that no node of ``kept`` restarted."""
    cluster.check()
    check_nothing_is_lost(cluster, loads)
    shown = run("master", "list", "--dir", str(cluster.directory))["masters"]
    assert {one["node_id"]: (one["type"], one["problem"]) for one in shown} == {
        one.node_id: ("VOTER", "") for one in cluster.masters
    }
    after = pids(cluster)
    assert {name: after[name] for name in kept} == kept


def told(capsys: pytest.CaptureFixture[str], begun_s: float, loads: list[Load]) -> None:
    tables, rows = sum(len(load.tables) for load in loads), sum(sum(load.tables.values()) for load in loads)
    dropped = sum(len(load.dropped) for load in loads)
    with capsys.disabled():
        print(f"\n{time.monotonic() - begun_s:.0f} s: {tables} tables kept, {dropped} dropped, {rows} rows, 0 errors")


def servers_of(cluster: ClusterWithMasters) -> dict[str, int | None]:
    found = pids(cluster)
    return {server.name: found[server.name] for server in cluster.servers}


def test_all_three_masters_are_replaced_twice_under_the_load_of_four_clients(
    tmp_path: Path, make: list[ClusterWithMasters], capsys: pytest.CaptureFixture[str]
) -> None:
    begun_s = time.monotonic()
    cluster = start(tmp_path, make, 3, SERVERS)
    kept = servers_of(cluster)
    with under_load(cluster.addresses[0], CLIENTS, REPLICAS) as loads:
        until_each_goes_on(loads)
        for _ in range(ROUNDS):
            before = set(cluster.masters)
            replace_each(cluster, loads, run)
            assert not before & set(cluster.masters)
    check(cluster, loads, kept)
    told(capsys, begun_s, loads)


def test_one_master_becomes_three_and_one_again_twice_under_the_load_of_four_clients(
    tmp_path: Path, make: list[ClusterWithMasters], capsys: pytest.CaptureFixture[str]
) -> None:
    begun_s = time.monotonic()
    cluster = start(tmp_path, make, 1, SERVERS)
    kept = servers_of(cluster)
    with under_load(cluster.addresses[0], CLIENTS, REPLICAS) as loads:
        until_each_goes_on(loads)
        for _ in range(ROUNDS):
            _to_three_and_back(cluster, loads)
    check(cluster, loads, kept)
    told(capsys, begun_s, loads)


def _to_three_and_back(cluster: ClusterWithMasters, loads: list[Load]) -> None:
    """Add two masters, and remove the two that have been there longest, so that no master stays."""
    for _ in range(2):
        add(cluster, run)
        until_each_goes_on(loads)
    gone: list[NodeProcess] = cluster.masters[:2]
    for node in list(gone):
        remove(cluster, node, run)
        until_each_goes_on(loads)
