"""A tablet server that retires, is in maintenance, or is active again, by the commands for it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.test_cluster_commands import answer, process, stelae, until_given_up


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running cluster of one master and four tablet servers, with a table."""
    directory = str(tmp_path_factory.mktemp("modes") / "cluster")
    process("cluster", "up", directory, "--masters", "1", "--servers", "4")
    try:
        process("table", "create", "t", "--column", "id:int64", "--key", "id", "--hash", "id:4", "--dir", directory)
        yield directory
    finally:
        process("cluster", "down", directory)


def replicas_of(cluster: str, name: str) -> int:
    found = answer("tserver", "describe", name, "--dir", cluster)
    assert isinstance(found["replicas"], int)
    return found["replicas"]


def test_a_server_retires_with_one_command_and_is_active_again_with_another(cluster: str) -> None:
    assert replicas_of(cluster, "tserver-2") > 0
    begun = answer("tserver", "retire", "tserver-2", "--dir", cluster)
    assert begun["changed"] and begun["mode"] == "RETIRING" and begun["replicas"] > 0
    done = stelae("tserver", "retire", "tserver-2", "--dir", cluster, "--wait", "--wait-s", "110", "--progress")
    assert "has no replicas; it can be stopped" in done.stderr
    assert replicas_of(cluster, "tserver-2") == 0
    again = answer("tserver", "retire", "tserver-2", "--dir", cluster)
    assert (again["changed"], again["replicas"], again["moving"]) == (False, 0, 0)
    active = answer("tserver", "activate", "tserver-2", "--dir", cluster)
    assert active["changed"] and active["mode"] == "NORMAL"
    assert "nothing to do" in stelae("tserver", "activate", "tserver-2", "--dir", cluster).stderr


def test_a_server_in_maintenance_hands_over_its_leaderships(cluster: str) -> None:
    done = stelae("tserver", "maintenance", "tserver-3", "--dir", cluster)
    assert "its replicas are not replaced while it is down" in done.stderr
    shown = json.loads(stelae("tserver", "list", "--dir", cluster, "--json").stdout)["servers"]
    assert [server["mode"] for server in shown].count("MAINTENANCE") == 1
    waited = answer("tserver", "maintenance", "tserver-3", "--dir", cluster, "--wait", "--wait-s", "110", "--progress")
    assert (waited["changed"], waited["leads"], waited["leads_alone"]) == (False, 0, 0)
    assert answer("tserver", "activate", "tserver-3", "--dir", cluster)["changed"]


def test_what_cannot_be_says_so(cluster: str) -> None:
    done = stelae("tserver", "retire", "tserver-9", "--dir", cluster, expect=2)
    assert "no tablet server 'tserver-9'" in done.stderr and "stelae tserver list" in done.stderr
    for name in ("tserver-4", "tserver-3"):  # Two servers are left for three replicas.
        stelae("tserver", "retire", name, "--dir", cluster)
    late = stelae("tserver", "retire", "tserver-3", "--dir", cluster, "--wait", "--wait-s", "2", expect=1)
    assert "still has" in late.stderr and "repeat the command to wait on" in late.stderr


def test_a_server_is_added_and_gets_replicas(cluster: str) -> None:
    for name in ("tserver-3", "tserver-4"):
        stelae("tserver", "activate", name, "--dir", cluster)
    added = json.loads(process("cluster", "add-server", cluster, "--json"))
    assert added["name"] == "tserver-5"
    for _ in until_given_up():
        if replicas_of(cluster, "tserver-5") > 0:
            break
    found = answer("cluster", "status", cluster)
    assert [node["name"] for node in found["nodes"]] == ["master-1", *(f"tserver-{n}" for n in range(1, 6))]
    assert found["ok"]


def test_a_cluster_says_what_is_left_to_balance_and_when_it_is_done(cluster: str) -> None:
    """After the server before was added, the masters move replicas to it by themselves."""
    done = stelae("cluster", "rebalance", "--dir", cluster, "--wait", "--wait-s", "110", "--progress")
    assert "nothing to do: every tablet is where the policy wants it" in done.stderr
    found = answer("cluster", "rebalance", "--dir", cluster)
    assert (found["done"], found["balances"], found["bytes_left"], found["policy"]) == (True, True, 0, "placement")
    stelae("tserver", "retire", "tserver-5", "--dir", cluster)
    planned = answer("cluster", "rebalance", "--dir", cluster, "--plan", "--rate", "1k")
    assert not planned["done"] and planned["assumed_bytes_per_s"] == 1024
    shown = stelae("cluster", "rebalance", "--dir", cluster, "--plan")
    assert "the masters do it by themselves" in shown.stderr or "nothing to do" in shown.stderr
    stelae("cluster", "rebalance", "--dir", cluster, "--wait", "--wait-s", "110")
    assert replicas_of(cluster, "tserver-5") == 0
    wrong = stelae("cluster", "rebalance", "--dir", cluster, "--plan", "--wait", expect=2)
    assert "pass one of them" in wrong.stderr
