"""Masters of real processes are added, replaced and removed while clients change tables and write rows.

No call of a client may fail, nothing acknowledged may be lost, and no process but a removed master is ended. The long
form, with more clients and all masters replaced twice, is in `make soak`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.local.cluster import CLUSTER_FILE
from stelae.local.cluster_with_masters import ClusterWithMasters
from tests.e2e import in_process
from tests.e2e.masters_under_load import (
    add,
    check_nothing_is_lost,
    killed_at_the_end,
    new_master,
    pids,
    remove,
    replace_each,
    start,
    under_load,
    until_each_goes_on,
)
from tests.e2e.test_cluster_commands import answer

CLIENTS = 2


@pytest.fixture
def make() -> Iterator[list[ClusterWithMasters]]:
    """Clusters that a test makes with ``start``; all of their processes end with it."""
    with killed_at_the_end() as made:
        yield made


def test_one_master_becomes_three_and_one_again_under_load(tmp_path: Path, make: list[ClusterWithMasters]) -> None:
    cluster = start(tmp_path, make, 1)
    first = cluster.masters[0]
    with under_load(first.address, CLIENTS) as loads:
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
    before = pids(cluster)
    with under_load(cluster.addresses[0], CLIENTS) as loads:
        until_each_goes_on(loads)
        replace_each(cluster, loads)
    cluster.check()
    check_nothing_is_lost(cluster, loads)
    shown = answer("master", "list", "--dir", str(cluster.directory))["masters"]
    assert {one["node_id"] for one in shown} == {one.node_id for one in cluster.masters}
    assert {name: pid for name, pid in pids(cluster).items() if name in before} == {
        server.name: before[server.name] for server in cluster.servers
    }


def test_the_folder_of_a_cluster_leads_to_masters_that_replaced_all_of_its_own(
    tmp_path: Path, make: list[ClusterWithMasters]
) -> None:
    """The cluster file has the first masters. Once all were replaced, every command with ``--dir`` failed."""
    cluster = start(tmp_path, make, 1)
    (first,) = cluster.masters
    folder, file = str(cluster.directory), cluster.directory / CLUSTER_FILE
    before = file.read_text()
    new = new_master(cluster)
    file.write_text(before)  # As if it ran elsewhere.
    assert answer("master", "replace", first.address, new.address, "--dir", folder)["changed"]
    first.kill()
    assert [one["node_id"] for one in answer("master", "list", "--dir", folder)["masters"]] == [new.node_id]
    made = ("--column", "id:int64", "--key", "id", "--replicas", "1")
    answer("table", "create", "people", *made, "--dir", folder)
    assert answer("table", "list", "--dir", folder)["tables"][0]["name"] == "people"
    answer("cluster", "up", folder)
    status = answer("cluster", "status", folder)
    assert (status["leader"], status["tables"], status["removed"]) == (new.address, ["people"], [first.name])
    assert answer("cluster", "down", folder)["stopped"] == [cluster.servers[0].name, first.name]
