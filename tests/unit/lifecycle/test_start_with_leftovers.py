"""Leftovers that cannot be removed when a node starts: they disturb nothing, so the node starts, and tries again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stelae.lifecycle.quarantine import make_directory
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO, LogId
from tests.unit.lifecycle.copy_network import FakeNetwork
from tests.unit.lifecycle.copy_node import CopyNode, check_nothing_is_installed, check_others, tombstone_disk
from tests.unit.lifecycle.disk_node import LAYOUT, OTHER, TABLET, DiskNode


def interrupted_restore() -> VirtualDisk:
    """A restore from the quarantine was interrupted: the tombstone has a log and rows."""
    node = DiskNode(tombstone_disk())
    node.wal.create(LogId(TABLET, 2), ZERO)
    node.disk.make_directory(LAYOUT.data_of(TABLET))
    node.disk.replace(f"{LAYOUT.data_of(TABLET)}/1.rows", b"rows")
    return node.disk.clone()


def interrupted_deletion() -> VirtualDisk:
    """A deletion was interrupted before it began to count: it has a directory in the quarantine, which is empty."""
    disk = tombstone_disk()
    make_directory(disk, LAYOUT, OTHER)
    return disk.clone()


@pytest.mark.parametrize(
    ("left", "where"),
    [
        (interrupted_restore, LAYOUT.wals),
        (interrupted_restore, LAYOUT.data_of(TABLET)),
        (interrupted_deletion, LAYOUT.quarantine),
    ],
    ids=["log", "rows", "quarantine"],
)
def test_a_node_starts_and_removes_them_at_a_later_start(left: Callable[[], VirtualDisk], where: str) -> None:
    """One directory that could not be removed kept all tablets of the node offline."""

    def fails(operation: str, path: str) -> None:
        if operation.startswith("remove") and path.startswith(where):
            raise StorageError("input/output error", path=path)

    disk = left()
    disk.faults.hook = fails
    node = CopyNode(disk, FakeNetwork({}))
    check_others(node)
    assert not node.loader.failed and node.vote(99) is not None
    disk.faults.hook = None
    again = CopyNode(disk.clone(), FakeNetwork({}))
    check_nothing_is_installed(again)
    assert again.disk.listdir(LAYOUT.quarantine) == ["t.1"]
