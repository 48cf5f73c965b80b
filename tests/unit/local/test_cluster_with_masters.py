"""The folder of a local cluster: what commands find there, and what is left of it after an error."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
from pathlib import Path

import pytest

from stelae.local import cluster_with_masters
from stelae.local.cluster import CLUSTER_FILE, ClusterExists, ClusterOptions, LocalCluster, NotACluster, TabletSpec
from stelae.local.cluster_with_masters import ClusterWithMasters, FolderLost, FolderMoved
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import ConfigError
from stelae.spi.ids import NodeId, TabletId


def unformatted(node: NodeProcess, node_id: NodeId) -> None:
    """Format nothing: these nodes are never started."""


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterWithMasters:
    options = ClusterOptions(node_count=3)
    return ClusterWithMasters.create(tmp_path / "c", options, masters=1, formatted=unformatted)


def test_a_server_whose_folder_is_lost_does_not_keep_the_others_from_starting(
    cluster: ClusterWithMasters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stelae cluster up` stopped at the first such server with a Python trace, and started none after it."""
    started: list[str] = []
    monkeypatch.setattr(NodeProcess, "start", lambda node, *, outlive: started.append(node.name))
    cluster.servers[1].config_path.unlink()
    cluster.servers[1].directory.rmdir()
    with pytest.raises(FolderLost, match="started all nodes but tserver-2"):
        cluster.start(outlive=True)
    assert started == ["master-1", "tserver-1", "tserver-3"]


def test_a_full_disk_leaves_the_list_of_the_nodes_whole(
    cluster: ClusterWithMasters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was written in its place. On a full disk it was empty after that, and no command found the cluster."""

    def fsync(file: int) -> None:
        os.ftruncate(file, 10)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        cluster.remove_server(cluster.servers[0])
    found = ClusterWithMasters.open(cluster.directory)
    assert [node.name for node in found.servers] == ["tserver-1", "tserver-2", "tserver-3"]


def test_two_commands_that_add_a_server_at_once_add_two(cluster: ClusterWithMasters) -> None:
    """Each wrote the list that it had read with its own server added. One server ran, and no command knew of it."""
    first, second = (
        ClusterWithMasters.open(cluster.directory, formatted=unformatted),
        ClusterWithMasters.open(cluster.directory, formatted=unformatted),
    )
    added = [first.add_server(), second.add_server()]
    found = ClusterWithMasters.open(cluster.directory)
    assert [node.node_id for node in found.servers[3:]] == [node.node_id for node in added]
    first.remove_server(first.servers[0])
    assert [node.name for node in ClusterWithMasters.open(cluster.directory).servers] == [
        f"tserver-{number}" for number in (2, 3, 4, 5)
    ]


def test_an_even_number_of_masters_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """The masters refused their node.toml at the start, and the folder kept them: no later command could start it."""
    with pytest.raises(ConfigError, match="2 masters tolerate no more failures than 1"):
        ClusterWithMasters.create(tmp_path / "c", ClusterOptions(node_count=1), masters=2, formatted=unformatted)
    assert not (tmp_path / "c").exists()


def interrupt_at_second(node: NodeProcess, node_id: NodeId) -> None:
    if node.name.endswith("-2"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("masters", [True, False])
@pytest.mark.parametrize("existed", [True, False])
def test_a_creation_that_is_interrupted_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, masters: bool, existed: bool
) -> None:
    """Ctrl-C or a full disk left some of the nodes. The next `stelae cluster up` refused the folder, as not empty."""
    folder = tmp_path / "c"
    if existed:
        folder.mkdir()

    def create(formatted: object) -> ClusterWithMasters | LocalCluster:
        if masters:
            return ClusterWithMasters.create(folder, ClusterOptions(), formatted=formatted)  # type: ignore[arg-type]
        columns = [{"name": "id", "type": "int64", "nullable": False}]
        spec = TabletSpec(tablet_id=TabletId("t"), columns=columns, key=["id"])
        return LocalCluster.create(folder, spec, ClusterOptions(), formatted=formatted)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        create(interrupt_at_second)
    assert folder.exists() is existed and not [*tmp_path.glob("c/*")]
    assert (create(unformatted).directory / CLUSTER_FILE).exists()


def test_a_folder_with_files_keeps_them_when_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ClusterExists, match="is not empty"):
        ClusterWithMasters.create(tmp_path, ClusterOptions(), formatted=unformatted)
    assert (tmp_path / "mine").read_text() == "kept"


def test_of_two_creations_in_one_folder_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both found the folder empty, and one ended with the error that the folder of a node exists."""
    outcomes: list[object] = []
    waits_or_ended = threading.Event()
    flock, ports = fcntl.flock, cluster_with_masters.free_ports

    def lock(file: int, how: int) -> None:
        if threading.current_thread() is other:
            waits_or_ended.set()
        flock(file, how)

    def second() -> None:
        try:
            outcomes.append(ClusterWithMasters.create(tmp_path, ClusterOptions(), formatted=unformatted))
        except Exception as error:
            outcomes.append(error)
        waits_or_ended.set()

    def begin_second(count: int) -> list[int]:
        if other.ident is None:
            other.start()
            assert waits_or_ended.wait(60)
        return ports(count)

    other = threading.Thread(target=second)
    monkeypatch.setattr(fcntl, "flock", lock)
    monkeypatch.setattr(cluster_with_masters, "free_ports", begin_second)
    first = ClusterWithMasters.create(tmp_path, ClusterOptions(), formatted=unformatted)
    other.join(60)
    (refused,) = outcomes
    assert isinstance(refused, ClusterExists)
    assert f"`stelae cluster down {tmp_path}` stops it before you remove it" in str(refused)
    assert [node.node_id for node in ClusterWithMasters.open(tmp_path).nodes] == [node.node_id for node in first.nodes]


@pytest.mark.parametrize("copied", [True, False])
def test_the_nodes_of_a_folder_that_was_moved_or_copied_are_not_started(
    cluster: ClusterWithMasters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """The paths in node.toml are absolute. The nodes of a copy ran on the data of the original. Those of a moved
    cluster said that their directories were not formatted. Formatted anew, they would have forgotten their votes."""
    started: list[str] = []
    monkeypatch.setattr(NodeProcess, "start", lambda node, *, outlive: started.append(node.name))
    for node in cluster.nodes:
        (node.directory / "data").mkdir()
    before, after = cluster.directory, tmp_path / "d"
    if copied:
        shutil.copytree(before, after)
    else:
        before.rename(after)
    with pytest.raises(FolderMoved, match=f"replace {before} by {after} in each node.toml"):
        ClusterWithMasters.open(after).start()
    assert not started
    if copied:
        cluster.start()
    else:
        for path in after.glob("*/node.toml"):
            path.write_text(path.read_text().replace(str(before), str(after)))
        ClusterWithMasters.open(after).start()
    assert started == [node.name for node in cluster.nodes]


def test_a_node_may_store_its_data_on_another_disk(
    cluster: ClusterWithMasters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(NodeProcess, "start", lambda node, *, outlive: started.append(node.name))
    for node, place in zip(cluster.nodes, ("tserver-1", "master-1", "x", "tserver-2"), strict=True):
        stored = tmp_path / "disk" / place / "data"
        stored.mkdir(parents=True, exist_ok=True)
        text = node.config_path.read_text()
        node.config_path.write_text(text.replace(str(node.directory / "data"), str(stored)))
    cluster.start()
    assert len(started) == 4


@pytest.mark.parametrize("text", ["", "{", "\udc80", "[]", '{"nodes": 1}'])
def test_a_cluster_file_that_cannot_be_read_is_named(cluster: ClusterWithMasters, text: str) -> None:
    """It was told that the folder had no cluster, and to create one there."""
    path = cluster.directory / CLUSTER_FILE
    path.write_bytes(text.encode(errors="surrogateescape"))
    for kind in (ClusterWithMasters, LocalCluster):
        with pytest.raises(NotACluster, match=str(path)) as caught:
            kind.open(cluster.directory)
        assert f"cluster up {cluster.directory}" not in str(caught.value)


def test_a_folder_without_a_cluster_file_is_told_with_the_next_step(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotACluster, match=f"create one with: stelae cluster up {folder}"):
            LocalCluster.open(folder)
