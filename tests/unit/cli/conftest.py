"""Nodes for the tests of the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.stopped_nodes import on_disk
from tests.unit.lifecycle.disk_node import OTHER, TABLET, DiskNode


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A node with two replicas and nothing else."""
    node = DiskNode.with_rows(TABLET, OTHER)
    node.wal.close()
    return on_disk(node.disk, tmp_path)
