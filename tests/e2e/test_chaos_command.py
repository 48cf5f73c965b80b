"""``stelae chaos`` on real processes: a clean run, an interrupted one, a finding, and bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stelae.cli.node_formatting import format_here
from stelae.local.chaos.node_rules import enable_rules
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae_chaos.fault_kinds import KINDS
from tests.e2e import in_process
from tests.e2e.chaos_run import RUN_S_MAX, chaos, chaos_command
from tests.e2e.starting import start

SEED = 20_260_601


def test_a_new_cluster_under_half_a_minute_of_faults_leaves_no_finding_and_no_file(tmp_path: Path) -> None:
    done = chaos("--up", "--minutes", "0.5", "--seed", str(SEED), folder=tmp_path)
    assert done.exit_code == 0, done.stderr
    report = done.report
    assert report["ok"] and report["settled"] and report["findings"] == [] and report["left_out"] == {}
    assert report["directories_checked"] == 4
    assert all(counts["acknowledged"] for counts in report["workloads"].values())
    assert report["faults"]
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.svg"]
    assert ElementTree.parse(tmp_path / "timeline.svg").getroot().tag.endswith("svg")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterWithMasters]:
    """A cluster of one master and three tablet servers that runs, with rules for the network of its nodes only."""
    made = ClusterWithMasters.create(tmp_path / "cluster", ClusterOptions(), masters=1, formatted=format_here)
    try:
        start(made)
        yield made
    finally:
        done = in_process.stelae("cluster", "down", str(made.directory))  # Some were started by the command.
        made.kill()
        assert done.exit_code == 0, done.stderr


def test_a_running_cluster_is_healed_and_its_tables_are_dropped_after_an_interruption(
    cluster: ClusterWithMasters, tmp_path: Path
) -> None:
    words = ("--dir", str(cluster.directory), "--minutes", "30", "--faults", "kill-one,bad-network", "--clients", "1")
    command = chaos_command(*words, folder=tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        told = []
        for line in run.stderr:
            told.append(line)
            if "kill-one: SIGKILL of" in line:
                break
        run.send_signal(signal.SIGINT)
        output, rest = run.communicate(timeout=RUN_S_MAX)
    story = "".join(told) + rest
    report = json.loads(output)
    assert report["interrupted"], story
    assert "left out: bad-network: not every node.toml names a file of network_rules" in story
    # So early an interruption may leave a workload without any acknowledged write, which is a finding.
    empty = [finding for finding in report["findings"] if "no write was acknowledged" in finding["fact"]]
    assert report["findings"] == empty, story
    assert run.returncode == (1 if empty else 130), story
    assert all(node.running_pid() is not None for node in cluster.nodes)
    status = in_process.stelae("cluster", "status", str(cluster.directory), "--json")
    assert empty or json.loads(status.stdout)["tables"] == []


def test_a_node_that_ends_by_itself_is_a_finding_and_its_folder_is_kept(tmp_path: Path) -> None:
    """A signal from outside stands for a defect. The node is started again, so everything else is judged, too."""
    folder = tmp_path / "kept"
    words = ("--up", "--keep", str(folder), "--minutes", "30", "--faults", "transfer", "--seed", "1")
    command = chaos_command(*words, folder=tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if "transfer: " in line:
                break
        found = ClusterWithMasters.open(folder)
        pid = found.servers[0].running_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        output, rest = run.communicate(timeout=RUN_S_MAX)
    report = json.loads(output)
    assert run.returncode == 1, rest
    (first, *others) = report["findings"]
    assert first["check"] == "nodes" and "tserver-1 has ended by itself" in first["fact"], rest
    assert [finding for finding in others if "no write was acknowledged" not in finding["fact"]] == [], rest
    assert report["settled"]
    assert (folder / "chaos-history.jsonl").stat().st_size > 0
    assert json.loads((folder / "chaos-report.json").read_bytes())["ok"] is False
    assert [node.name for node in found.nodes if node.running_pid() is not None] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give either --up, for a new cluster, or --dir DIR"),
        (("--up", "--dir", "x"), "not both"),
        (("--up", "--minutes", "0"), "--minutes 0 injects no fault"),
        (("--up", "--faults", "kill-two"), f"no fault is called 'kill-two'; known: {', '.join(KINDS)}"),
        (("--dir", "nowhere"), "nowhere has no local cluster in it"),
        (("--up", "--servers", "2"), "Invalid value for '--servers'"),
        (("--dir", "x", "--servers", "5"), "--servers needs --up"),
        (("--up", "--every", "4"), "--every 4 is too short: most faults last up to 4 s; give 5 or more"),
        (("--up", "--every", "nan"), "Invalid value for '--every'"),
        (("--dir", "x", "--keep", "y"), "--keep needs --up"),
        (("--dir", "x", "--wal", "lmdb"), "--wal and --store need --up"),
        (("--up", "--plot", "timeline.png"), "give the name of an .svg file in an existing folder"),
        (("--up", "--wal", "nope"), "there is no wal engine 'nope'"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(words: tuple[str, ...], says: str) -> None:
    done = in_process.stelae("chaos", *words)
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_cluster_that_does_not_run_is_refused(tmp_path: Path) -> None:
    made = ClusterWithMasters.create(tmp_path / "cluster", ClusterOptions(), masters=1, formatted=format_here)
    enable_rules(made.masters[0])
    done = in_process.stelae("chaos", "--dir", str(made.directory))
    assert done.exit_code == 2
    assert "master-1, tserver-1, tserver-2, tserver-3" in done.stderr and "stelae cluster up" in done.stderr
