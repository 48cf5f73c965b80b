"""``stelae recover`` on real processes: two of three servers are killed, and their disks are lost, or come back."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from tests.e2e import in_process
from tests.e2e.test_cluster_commands import answer, process, stelae, until_given_up

ROWS = 40


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A running cluster of one master and three tablet servers, with a table of four tablets and rows."""
    directory = str(tmp_path / "cluster")
    process("cluster", "up", directory, "--masters", "1", "--servers", "3")
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n" + "".join(f"{n}\n" for n in range(ROWS)))
    try:
        process("table", "create", "t", "--column", "id:int64", "--key", "id", "--hash", "id:4", "--dir", directory)
        process("import", str(rows), "--dir", directory, "--table", "t")
        # A write is acknowledged once two of three replicas have it. Here the third must have it, too.
        for _ in until_given_up():
            if in_process.stelae("check", "--checksums", "--dir", directory).exit_code == 0:
                break
        yield directory
    finally:
        process("cluster", "down", directory)


def killed(cluster: str, *names: str) -> list[NodeProcess]:
    """Kill servers as by ``kill -9``."""
    nodes = [node for node in ClusterWithMasters.open(Path(cluster)).servers if node.name in names]
    for node in nodes:
        pid = node.running_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    return nodes


def plan_of(cluster: str, file: Path) -> list[dict[str, object]]:
    """Write a plan with all four tablets, once the survivor has noticed that the leaders are gone."""
    for _ in until_given_up():
        stelae("recover", "plan", "--dir", cluster, "--out", str(file))
        found: list[dict[str, object]] = json.loads(file.read_text())["tablets"]
        if len(found) == 4:
            return found
    raise AssertionError("the tablets without a majority are not in a plan")


def row_count(cluster: str) -> int:
    return len(process("scan", "--dir", cluster, "--table", "t", "--format", "jsonl").splitlines())


def test_tablets_are_recovered_from_the_only_server_left(cluster: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert "nothing to recover" in stelae("recover", "plan", "--dir", cluster).stderr
    for node in killed(cluster, "tserver-1", "tserver-2"):
        shutil.rmtree(node.directory)
    assert len(plan_of(cluster, file)) == 4
    shown = stelae("recover", "plan", "--dir", cluster).stdout
    assert "that only the lost nodes may have had" in shown
    refused = stelae("recover", "apply", str(file), "--dir", cluster, expect=2)
    assert "--yes" in refused.stderr
    done = stelae("recover", "apply", str(file), "--dir", cluster, "--yes")
    assert done.stdout.count("RECOVERED") == 4
    assert row_count(cluster) == ROWS
    again = answer("recover", "apply", str(file), "--dir", cluster, "--yes")
    assert [tablet["result"] for tablet in again["tablets"]] == ["DONE_ALREADY"] * 4
    late = stelae("recover", "apply", str(file), "--dir", cluster, "--yes", "--wait-s", "1", expect=1)
    assert "does not have all of its replicas yet" in late.stderr, "no server is left for them"


def test_killed_servers_that_come_back_follow_the_recovered_tablets(cluster: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    nodes = killed(cluster, "tserver-1", "tserver-3")
    plan_of(cluster, file)
    stelae("recover", "apply", str(file), "--dir", cluster, "--yes")
    more = tmp_path / "more.csv"
    more.write_text("id\n" + "".join(f"{n}\n" for n in range(ROWS, 2 * ROWS)))
    process("import", str(more), "--dir", cluster, "--table", "t")
    for node in nodes:
        node.start(outlive=True)
    for _ in until_given_up():
        if in_process.stelae("check", "--dir", cluster).exit_code == 0:
            break
    else:
        raise AssertionError(stelae("check", "--dir", cluster).stdout)
    assert row_count(cluster) == 2 * ROWS
    plan = json.loads(stelae("recover", "plan", "--dir", cluster, "--json").stdout)
    assert plan["tablets"] == plan["unrecoverable"] == []
