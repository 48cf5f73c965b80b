"""The folder of a local cluster: what commands find there, and what is left of it after an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters, FolderLost
from stelae.local.node_process import NodeProcess
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
