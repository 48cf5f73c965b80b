"""Epochs of a source on real processes: a program that is killed and started again writes each row once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import RowsFailed, connect
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.spi.ids import TabletId
from tests.e2e.starting import start
from tests.e2e.test_client import COLUMNS, KEY, NOTE, SETTINGS

ROWS = 4000

PROGRAM = """
import sys
from stelae.client import connect

addresses, kill_at, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with connect(addresses) as client, client.table("loads").epoch("load", 1) as epoch:
    print("complete" if epoch.is_complete else "begun", flush=True)
    if not epoch.is_complete:
        for first in range(0, count, 100):
            rows = [{"sensor": n, "minute": 0, "celsius": n / 3} for n in range(first, first + 100)]
            if first == kill_at:
                epoch.insert(rows[:37])
                print("kill me", flush=True)
                sys.stdin.read()
            epoch.insert(rows)
print("done", flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes with one tablet, ``loads``."""
    spec = TabletSpec(tablet_id=TabletId("loads"), columns=[*COLUMNS, NOTE], key=KEY)
    made = LocalCluster.create(tmp_path / "cluster", spec, ClusterOptions(settings=SETTINGS), formatted=format_here)
    start(made)
    try:
        yield made
    finally:
        made.stop()


def run(cluster: LocalCluster, kill_at: int) -> list[str]:
    """Run the program, kill it in the batch that begins at ``kill_at``, and return what it printed."""
    arguments = [sys.executable, "-c", PROGRAM, ",".join(cluster.addresses), str(kill_at), str(ROWS)]
    lines = []
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            lines.append(line.strip())
            if lines[-1] == "kill me":
                program.send_signal(signal.SIGKILL)
    return lines


@pytest.mark.long
def test_a_program_that_is_killed_and_started_again_writes_each_row_once(cluster: LocalCluster) -> None:
    for kill_at in (0, 100, 2500):
        assert run(cluster, kill_at) == ["begun", "kill me"]
    assert run(cluster, -1) == ["begun", "done"]
    assert run(cluster, -1) == ["complete", "done"]
    with connect(cluster.addresses) as client:
        found = client.table("loads").scan(["sensor"]).to_pylist()
    assert sorted(row["sensor"] for row in found) == [*range(ROWS)]


def test_nodes_that_are_killed_remember_which_epochs_are_over(cluster: LocalCluster) -> None:
    rows = [{"sensor": n, "minute": 0, "celsius": float(n)} for n in range(ROWS)]
    with connect(cluster.addresses) as client, client.table("loads").epoch("load", 1) as epoch:
        epoch.insert(rows)
    for node in cluster.nodes:
        node.kill()
    start(cluster)
    with connect(cluster.addresses) as client:
        table = client.table("loads")
        assert not table.epoch("load", 1).begin()
        with pytest.raises(RowsFailed, match="STALE_EPOCH: the epoch of source 'load' is over"):
            table.epoch("load", 1).upsert({"sensor": 1, "minute": 0, "celsius": -1.0})
        assert table.get((1, 0))["celsius"] == 1.0  # type: ignore[index]
        with table.epoch("load", 2) as epoch:
            assert epoch.upsert(rows[:10]).written == 10
