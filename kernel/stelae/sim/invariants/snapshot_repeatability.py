"""A read in the past gives the same rows for ever, wherever it is done, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stelae.sim.invariants.base import AppliedRequest, Invariant, Scanned
from stelae.sim.table import Cell
from stelae.sim.world import ObservedNode, World
from stelae.spi.ids import OpId


class SnapshotRepeatability(Invariant):
    """A scan at T, at or below safe time, sees what the agreed writes up to T left: now, later, on every replica.

    Flushes, merges, restarts, changes of leader and a floor raised behind an open cursor change nothing in it. Once
    the history floor has passed T, the answer is ``TooOld``; before, it never is. After a restart a store may know a
    lower floor than it was told: then it may answer still, and has to be right.

    Once a replica has served a scan at T, no entry with a time at or below T takes effect any more: the scan would lack
    it. A reader who names a time that its snapshot must reach gets no older one."""

    name: ClassVar[str] = "snapshot_repeatability"
    source: ClassVar[str] = "durability.md rules 14 and 32; behaviours.md C14; contract store, 4 and 5"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._seen: dict[tuple[int, int], tuple[int, tuple[tuple[Cell, ...], ...]]] = {}
        """First node and rows, by time and version of the schema."""
        self._served_max = 0
        self._applied_index = 0

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """An entry that nobody has applied before is above every time that was served."""
        if op_id.index <= self._applied_index:
            return
        self._applied_index = op_id.index
        entry = self.world.entries.get(op_id)
        if entry is not None and entry.timestamp <= self._served_max:
            self.fail(f"a scan at {self._served_max} was served before {op_id} at {entry.timestamp} was applied")

    def on_scanned(self, node: ObservedNode, scanned: Scanned) -> None:
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
        if scanned.at < scanned.at_least:
            self.fail(f"{what} is served to a reader who must see {scanned.at_least}")
            return
        self._served_max = max(self._served_max, scanned.at)
        key = (scanned.at, scanned.schema.version)
        first, rows = self._seen.setdefault(key, (node.position, scanned.rows))
        if rows != scanned.rows:
            self.fail(f"{what} reads {scanned.rows}, node {first} read {rows}"[:600])
            return
        agreed = self.world.agreed
        found = agreed.rows(agreed.index_at(scanned.at), scanned.schema)
        expected = tuple((key, *cells) for key, cells in found.items())
        if rows != expected:
            self.fail(f"{what} reads {rows}, the agreed writes give {expected}"[:600])
