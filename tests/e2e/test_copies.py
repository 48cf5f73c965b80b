"""Real processes: a replica that fell behind the logs of the others is copied and joins again, without a person."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stelae.client import connect
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.local.node_process import NodeProcess
from stelae.machine.files import RealFiles
from stelae.spi.errors import StelaeError
from tests.e2e import in_process
from tests.e2e.test_lagging_replica import RUN_S, Servers, serving, until, waiting

BOUND: dict[str, dict[str, Any]] = {"log": {"lagging_peer_bytes_max": 30000}}
SLOW: dict[str, dict[str, Any]] = {
    **BOUND,
    "copy.streaming": {"fetch_bytes_per_s_max": 20_000, "chunk_bytes": 4096},
    "stage": {"pause_ms": 50},
}
"""A copy takes seconds, so that processes can be killed in the middle of it."""


class Lagging:
    """A cluster whose killed server lags beyond the logs of the others."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.late, self.ended = servers.kill_follower()
        servers.load(lambda: len(servers.bases()) == 2 and min(servers.bases().values()) > self.ended)
        self.others = [node for node in servers.cluster.servers if node is not self.late]
        for node in self.others:  # What they wrote themselves they still have in memory.
            node.kill()
            node.start()

    def block(self) -> Superblock:
        """The superblock of the server that lags."""
        layout = DirectoryLayout(str((self.late.directory / "data").resolve()))
        return SuperblockFile(RealFiles(), layout, self.servers.tablet_id).load()

    def wait_for(self, state: DataState) -> None:
        """Wait for a data state of the superblock, which may last for a moment only."""
        deadline = time.monotonic() + RUN_S
        while time.monotonic() < deadline:
            with suppress(StelaeError, OSError):
                if self.block().data_state is state:
                    return
            time.sleep(0.001)
        pytest.fail(f"the superblock never said {state}")

    def check_joined(self) -> None:
        """The server has all rows, without the log that is gone, and takes part again."""
        servers = self.servers
        until(servers.are_equal)
        until(lambda: servers.verdict() == "HEALTHY: ")
        assert servers.bases()[self.late.node_id] > self.ended
        assert self.block().data_state is DataState.READY and self.block().tombstone is None
        servers.load(lambda: True)
        until(servers.are_equal)
        assert rows_of(servers) == list(range(servers.count)), "no acknowledged row is lost"
        self.others[0].kill()
        until(lambda: rows_of(servers) == list(range(servers.count)))


def rows_of(servers: Servers) -> list[int]:
    with connect(servers.cluster.addresses[0]) as client:
        rows = client.table("late").scan(timeout_s=RUN_S).to_pylist()
    return sorted(row["id"] for row in rows)


@contextmanager
def lagging(directory: Path, settings: dict[str, dict[str, Any]]) -> Iterator[Lagging]:
    with serving(directory / "cluster", settings) as servers:
        yield Lagging(servers)


def test_a_server_that_lags_beyond_the_log_is_copied_joins_and_serves(tmp_path: Path) -> None:
    with lagging(tmp_path, BOUND) as cluster:
        cluster.late.start()
        cluster.check_joined()


@pytest.mark.long
def test_a_target_that_is_killed_again_and_again_resumes_its_copy(tmp_path: Path) -> None:
    """Killed at the beginning of the copy, and in the middle of it, it goes on with what it has (T2, T7, T9)."""
    with lagging(tmp_path, SLOW) as cluster:
        stage = cluster.late.directory / "data" / "copying" / cluster.servers.tablet_id
        cluster.late.start()
        cluster.wait_for(DataState.COPYING)
        cluster.late.kill()
        assert cluster.block().tombstone is not None, "its last op id is kept"
        kept: list[int] = []
        for _ in range(2):
            cluster.late.start()
            for _ in waiting():
                if sum(size_of(stage)) > sum(kept[-1:]):
                    break
            cluster.late.kill()
            kept.append(sum(size_of(stage)))
        cluster.late.start()
        cluster.check_joined()
        assert kept[-1] > 0 and not stage.exists()


def size_of(directory: Path) -> list[int]:
    sizes = []
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.name != "manifest":
                sizes.append(path.stat().st_size)
    return sizes


@pytest.mark.long
def test_when_the_source_is_killed_in_the_middle_another_one_is_copied(tmp_path: Path) -> None:
    """On a busy machine a copy at the limit of the other tests could end before it was listed."""
    slower = {**SLOW, "copy.streaming": {**SLOW["copy.streaming"], "fetch_bytes_per_s_max": 5_000}}
    with lagging(tmp_path, slower) as cluster:
        cluster.late.start()
        cluster.wait_for(DataState.COPYING)
        source = leader_of(cluster)
        check_listed(cluster, source)
        source.kill()
        cluster.wait_for(DataState.READY)
        done = in_process.stelae("copy", "list", "--connect", cluster.servers.cluster.addresses[0])
        assert f"tablet server {source.address} does not answer" in done.stderr
        source.start()
        cluster.check_joined()


def check_listed(cluster: Lagging, source: NodeProcess) -> None:
    """The copy is listed with its ends and its progress."""
    where = ("--connect", cluster.servers.cluster.addresses[0])
    for _ in waiting():
        found = json.loads(in_process.stelae("copy", "list", *where, "--json").stdout)
        # A copy that begins again, with another leader say, is not listed for a moment.
        if not found["silent"] and found["copies"] and found["copies"][0]["bytes_total"]:
            shown = in_process.stelae("copy", "list", *where).stdout
            if "%" in shown:
                break
    (copy,) = found["copies"]
    assert found["silent"] == []
    ends = (copy["tablet_id"], copy["table"], copy["from"], copy["to"], copy["rows_only"])
    assert ends == (cluster.servers.tablet_id, "late", source.address, cluster.late.address, False)
    assert 0 <= copy["bytes_done"] <= copy["bytes_total"]
    assert "log and rows" in shown and source.address in shown


def leader_of(cluster: Lagging) -> NodeProcess:
    """The first source of the copy."""
    tablet = cluster.servers.tablet_id
    for _ in waiting():
        leaders = {
            facts.reports[tablet].leader for facts in cluster.servers.facts().values() if tablet in facts.reports
        }
        for node in cluster.others:
            if node.node_id in leaders:
                return node
    raise AssertionError


def test_a_new_member_and_one_whose_replica_was_deleted_are_copied_and_vote(tmp_path: Path) -> None:
    """The log of the leader was collected, so neither of them can be fed from it alone."""
    with serving(tmp_path / "cluster", BOUND, nodes=4) as servers:
        servers.load(lambda: len(servers.bases()) == 3 and min(servers.bases().values()) > 2)
        with connect(servers.cluster.addresses[0]) as client:
            replicas = client.replicas(servers.tablet_id, timeout_s=RUN_S)
            members = {member.node_id for member in replicas.config(timeout_s=RUN_S).committed.members}
            (new,) = (node for node in servers.cluster.servers if node.node_id not in members)
            view = replicas.add(new.address, node=new.node_id, wait=True, timeout_s=RUN_S).view
            removed = next(node for node in servers.cluster.servers if node.node_id in members - {view.node_id})
            replicas.remove(removed.node_id, timeout_s=RUN_S)
            layout = DirectoryLayout(str((removed.directory / "data").resolve()))
            block = SuperblockFile(RealFiles(), layout, servers.tablet_id)
            until(lambda: block.load().data_state is DataState.DELETED)
            assert block.load().tombstone is not None
            servers.load(lambda: True)
            replicas.add(removed.address, node=removed.node_id, wait=True, timeout_s=RUN_S)
            assert block.load().data_state is DataState.READY
            assert len(replicas.config(timeout_s=RUN_S).committed.voters()) == 4
        until(lambda: servers.are_equal(4))
        assert rows_of(servers) == list(range(servers.count))


class Operator:
    """Runs ``stelae copy`` against the masters of a cluster."""

    def __init__(self, cluster: Lagging) -> None:
        self._where = ("--connect", cluster.servers.cluster.addresses[0])
        self._to = ("--to", cluster.late.address)
        self._late = cluster.late.address

    def run(self, *words: str) -> Any:
        done = in_process.stelae("copy", *words, *self._where, "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    def order(self, order: str, *words: str) -> Any:
        return self.run(order, *words, *self._to)

    def copy(self) -> dict[str, Any]:
        """The copy once its size is known."""
        for _ in waiting():
            found = self.run("list")["copies"]
            if found and found[0]["bytes_total"]:
                one: dict[str, Any] = found[0]
                return one
        raise AssertionError

    def server(self) -> dict[str, Any]:
        one: dict[str, Any]
        (one,) = [one for one in self.run("list")["servers"] if one["address"] == self._late]
        return one


def test_an_operator_pauses_limits_cancels_and_resumes_a_copy(tmp_path: Path) -> None:
    """The copy takes too long to end before it is held, however busy the machine is. Without its limit it ends soon."""
    slowest = {**SLOW, "copy.streaming": {**SLOW["copy.streaming"], "fetch_bytes_per_s_max": 1_000}}
    with lagging(tmp_path, slowest) as cluster:
        operator, tablet = Operator(cluster), cluster.servers.tablet_id
        cluster.late.start()
        cluster.wait_for(DataState.COPYING)
        assert operator.copy()["paused"] is False
        assert operator.order("pause", tablet[:8])["paused"] == [tablet]
        assert operator.order("pause", tablet)["unchanged"] == [tablet]
        assert operator.server()["fetch_bytes_per_s_max"] == 1_000, "as in its node.toml"
        limits = operator.run("limit", cluster.late.address, "--in", "none", "--out", "20MiB")
        assert (limits["fetch_bytes_per_s_max"], limits["serve_bytes_per_s_max"]) == (0, 20 << 20)
        until(lambda: holds_still(operator))
        assert operator.copy()["paused"] and cluster.block().data_state is DataState.COPYING
        shown = in_process.stelae("copy", "list", "--connect", cluster.servers.cluster.addresses[0]).stdout
        assert "%, paused" in shown
        assert operator.order("cancel", "--all")["cancelled"] == [tablet]
        assert operator.server()["cancelled"] == [tablet]
        stage = cluster.late.directory / "data" / "copying" / tablet
        assert not stage.exists() and cluster.block().data_state is DataState.DELETED
        assert cluster.block().tombstone is not None, "its last op id is kept"
        assert operator.order("cancel", tablet)["unchanged"] == [tablet]
        assert operator.order("resume", tablet)["resumed"] == [tablet]
        cluster.wait_for(DataState.READY)
        cluster.check_joined()
        refused = in_process.stelae("copy", "pause", tablet, "--to", cluster.late.address, *operator._where)
        assert refused.exit_code == 2 and "no tablet with a copy to" in refused.stderr
        wrong = in_process.stelae("copy", "limit", cluster.late.address, "--in", "fast", *operator._where)
        assert wrong.exit_code == 2 and "20MiB" in wrong.stderr


def holds_still(operator: Operator) -> bool:
    """Whether nothing arrives for a second, in which everything could arrive if there is no limit."""
    before = operator.copy()["bytes_done"]
    turns = waiting()
    for _ in range(20):
        next(turns)
    return bool(operator.copy()["bytes_done"] == before)


def test_the_copy_of_a_new_member_that_is_removed_ends_and_leaves_nothing(tmp_path: Path) -> None:
    """It went on until all rows had arrived, with a slot and the log of its source."""
    slowest = {**SLOW, "copy.streaming": {**SLOW["copy.streaming"], "fetch_bytes_per_s_max": 1_000}}
    with serving(tmp_path / "cluster", slowest, nodes=4) as servers:
        servers.load(lambda: len(servers.bases()) == 3 and min(servers.bases().values()) > 2)
        address = servers.cluster.addresses[0]
        with connect(address) as client:
            replicas = client.replicas(servers.tablet_id, timeout_s=RUN_S)
            members = {member.node_id for member in replicas.config(timeout_s=RUN_S).committed.members}
            (new,) = (node for node in servers.cluster.servers if node.node_id not in members)
            replicas.add(new.address, node=new.node_id, timeout_s=RUN_S)
            listed = ("copy", "list", "--connect", address, "--json")
            until(lambda: any(one["bytes_done"] for one in json.loads(in_process.stelae(*listed).stdout)["copies"]))
            replicas.remove(new.node_id, timeout_s=RUN_S)
        until(lambda: json.loads(in_process.stelae(*listed).stdout)["copies"] == [])
        layout = DirectoryLayout(str((new.directory / "data").resolve()))
        until(lambda: not Path(layout.superblock_of(servers.tablet_id)).exists())
