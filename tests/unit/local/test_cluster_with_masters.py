"""The folder of a local cluster: what commands find there, and what is left of it after an error."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters, FolderLost
from stelae.local.node_process import NodeProcess
from stelae.spi.errors import ConfigError
from stelae.spi.ids import NodeId


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
