"""Damage in the stage of a copy: some bytes of an item change that has arrived and is durable."""

from __future__ import annotations

import random

from stelae.lifecycle.copy_items import ItemKind
from stelae.sim.disk import VirtualDisk
from stelae.sim.draw import between, pick

SPAN_BYTES = 16
"""The most bytes in a row that change."""


class StageDamage:
    """The damage in the stages of one node.

    Args:
        stage: the directory of the stage of a tablet.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._damaged: list[bytes] = []

    def items(self, disk: VirtualDisk) -> list[str]:
        """Return the paths of the items that are complete and durable, in order."""
        found = []
        for kind in ItemKind:
            directory = f"{self._stage}/{kind}"
            names = disk.listdir(directory) if disk.exists(directory) else ()
            found += [f"{directory}/{name}" for name in sorted(names) if not name.startswith(".")]
        return [path for path in found if disk.is_durable(path) and disk.read_bytes(path)]

    def strike(self, disk: VirtualDisk, rng: random.Random) -> bool:
        """Change bytes of a complete item. Return false if there is none."""
        items = self.items(disk)
        if not items:
            return False
        path = pick(rng, items)
        size = len(disk.read_bytes(path))
        begin = between(rng, 0, size - 1)
        for offset in range(begin, min(begin + SPAN_BYTES, size)):
            disk.damage(path, offset, 0xFF)
        self._damaged.append(disk.read_bytes(path))
        return True

    def kept(self, disk: VirtualDisk) -> list[str]:
        """Return the paths of the damaged items that are still on the disk, wherever they are now."""
        return [path for path, data in disk.tree().items() if data in self._damaged] if self._damaged else []
