"""The directory of a stopped node, on the real disk."""

from __future__ import annotations

from pathlib import Path

from stelae.host.directory_layout import DirectoryLayout
from stelae.sim.disk import VirtualDisk
from tests.unit.lifecycle.disk_node import LAYOUT


def on_disk(disk: VirtualDisk, place: Path) -> Path:
    """Write a virtual disk to a directory; return that of the node."""
    for path in DirectoryLayout("/node").directories():
        (place / path.removeprefix("/")).mkdir(parents=True, exist_ok=True)
    for path, data in disk.tree().items():
        target = place / path.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return place / LAYOUT.root.removeprefix("/")
