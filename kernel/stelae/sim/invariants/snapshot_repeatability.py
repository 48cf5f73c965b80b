"""A read in the past gives the same rows for ever, wherever it is done, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant, Scanned
from stelae.sim.world import NodeView, World


class SnapshotRepeatability(Invariant):
    """A scan at T, at or below safe time, sees what the agreed writes up to T left: now, later, on every replica.

    Flushes, merges, restarts, changes of leader and a floor raised behind an open cursor change nothing in it. Once
    the history floor has passed T, the answer is ``TooOld``; before, it never is. After a restart a store may know a
    lower floor than it was told: then it may answer still, and has to be right."""

    name: ClassVar[str] = "snapshot_repeatability"
    source: ClassVar[str] = "durability.md rules 14 and 32; behaviours.md C14; contract store, 4 and 5"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._seen: dict[int, tuple[int, tuple[tuple[int, str], ...]]] = {}

    def on_scanned(self, node: NodeView, scanned: Scanned) -> None:
        """Judge what a scan gave, or that it was refused."""
        what = f"node {node.position} at {scanned.at}"
        if scanned.rows is None:
            if scanned.at >= node.floor_max:
                self.fail(f"{what} is refused as too old, the highest floor is {node.floor_max}")
            elif not scanned.at < scanned.told <= node.floor_max:
                self.fail(f"{what} is refused for a floor of {scanned.told}, the highest is {node.floor_max}")
            return
        if scanned.at < scanned.floor:
            self.fail(f"{what} is answered below the floor of {scanned.floor}")
            return
        first, rows = self._seen.setdefault(scanned.at, (node.position, scanned.rows))
        if rows != scanned.rows:
            self.fail(f"{what} reads {scanned.rows}, node {first} read {rows}"[:600])
            return
        expected = tuple(self.world.agreed.rows(self.world.agreed.index_at(scanned.at)).items())
        if rows != expected:
            self.fail(f"{what} reads {rows}, the agreed writes give {expected}"[:600])
