"""Loses power within some creations of replicas.

The crashes of the fault plan come at any time, and a creation is short. So few of them would fall between its steps,
and almost none into the replacement of the superblock, which decides whether the replica exists. ``--faults`` does not
leave out these crashes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from stelae.sim.coverage import Coverage
from stelae.sim.disk_faults import VirtualDiskFaults
from stelae.sim.draw import below, chance

SHARE: Final = 0.3
"""Share of the creations in which power is lost between any two disk operations, or soon after the last one."""

OPERATIONS_MAX: Final = 18
"""About the number of disk operations that the creation of a replica takes."""

SHARE_OF_SUPERBLOCKS: Final = 0.2
"""Share of the creations in which power is lost while the superblock is written, or just afterwards."""

SUPERBLOCK_OPERATIONS_MAX: Final = 6
"""About the number of disk operations that writing the superblock takes."""


class CreationCrashes:
    """Draws the crashes of one start of a node.

    Args:
        faults: the faults of the node's disk.
        may_strike: returns false once all faults are healed.
    """

    def __init__(
        self, faults: VirtualDiskFaults, rng: random.Random, may_strike: Callable[[], bool], coverage: Coverage
    ) -> None:
        self._faults = faults
        self._rng = rng
        self._may_strike = may_strike
        self._coverage = coverage

    def creation_begins(self) -> None:
        """Draw whether power is lost within this creation, and at which disk operation."""
        self._draw(SHARE, OPERATIONS_MAX)

    def superblock_begins(self) -> None:
        """Draw whether power is lost while the superblock of this creation is written."""
        self._draw(SHARE_OF_SUPERBLOCKS, SUPERBLOCK_OPERATIONS_MAX)

    def _draw(self, share: float, operations_max: int) -> None:
        if self._may_strike() and chance(self._rng, share):
            self._coverage.hit("new_replica.crash_planned")
            self._faults.lose_power_after(operations=below(self._rng, operations_max))
