"""Removes all files of one replica from a virtual disk, as if the disk had been replaced by an empty one.

The node keeps its uuid, so to its peers it is the member that it was."""

from __future__ import annotations

from stelae.host.directory_layout import DirectoryLayout
from stelae.sim.disk import VirtualDisk
from stelae.spi.ids import TabletId


def remove_replica(disk: VirtualDisk, layout: DirectoryLayout, tablet: TabletId) -> None:
    """Remove superblock, consensus metadata, log, data and the stage of a copy. Durable on return.

    The log must have a directory of its own."""
    for path in (layout.superblock_of(tablet), layout.consensus_of(tablet)):
        if disk.exists(path):
            disk.remove(path)
    for path in (f"{layout.wals}/{tablet}", layout.data_of(tablet), layout.stage_of(tablet)):
        if disk.exists(path):
            disk.remove_tree(path)
    for directory in (layout.superblocks, layout.consensus, layout.wals, layout.data):
        disk.sync_directory(directory)
