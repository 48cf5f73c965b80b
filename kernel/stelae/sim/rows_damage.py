"""Damage in the stored rows of one node: some bytes of a file of its store change, and a read finds them."""

from __future__ import annotations

import random

from stelae.host.replica import Replica
from stelae.sim.disk import VirtualDisk
from stelae.sim.draw import between, pick
from stelae.spi.errors import Corrupt, StelaeError

SPAN_BYTES = 64
"""Bytes in a row that change: more than the header of a page, whose bytes have no checksum."""

BEGIN_BYTES = 8
"""The first bytes of a file stay, so that it can still be opened."""


class RowsDamage:
    """The damage on one node. ``directory`` is that of the store of the replica."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path: str | None = None

    def strike(self, disk: VirtualDisk, replica: Replica, rng: random.Random) -> bool:
        """Damage a file and read all rows. Return whether the read has found it; otherwise nothing has changed."""
        blocks = sorted(path for path in disk.tree() if path.startswith(f"{self._directory}/") and ".parquet" in path)
        sizes = {path: len(disk.tree()[path]) for path in blocks}
        large = [path for path in blocks if sizes[path] // 2 > BEGIN_BYTES + SPAN_BYTES]
        if not large:
            return False
        path = pick(rng, large)
        begin = between(rng, BEGIN_BYTES, sizes[path] // 2 - SPAN_BYTES)  # The end of the file describes its contents.
        _flip(disk, path, begin)
        self._path = path
        if self.find(disk, replica):
            return True
        _flip(disk, path, begin)
        self._path = None
        return False

    def find(self, disk: VirtualDisk, replica: Replica) -> bool:
        """Read all rows, if the damaged file is still part of the store. Return whether that has found the damage."""
        if self._path is None or self._path not in disk.tree():
            self._path = None
            return False
        try:
            replica.applier.store.checksum()
        except StelaeError as error:
            replica.read_faults.note(error)
            return isinstance(error, Corrupt) and bool(error.path)
        return False


def _flip(disk: VirtualDisk, path: str, begin: int) -> None:
    for offset in range(begin, begin + SPAN_BYTES):
        disk.damage(path, offset, 0xFF)
