"""A read as of a past time returns the same rows on every replica and at all times, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stelae.sim.invariants.base import AppliedRequest, Invariant, ObservedLookup, ObservedScan
from stelae.sim.table import Cell
from stelae.sim.world import ObservedNode, World
from stelae.spi.ids import OpId


class SnapshotRepeatability(Invariant):
    """A scan as of T, at or below safe time, returns the rows that the agreed writes up to T produce.

    This holds now and later, on every replica. Flushes, merges, restarts, changes of leader, and a history floor raised
    above the time of an open cursor do not change the rows. Once the history floor is above T, the answer is
    ``TooOld``; before that, it never is. After a restart a store may have a lower floor than before. Then it may still
    serve the scan, and the rows must be right.

    A lookup as of T returns the same rows for its keys.

    Once a replica has served a read as of T, no entry with a timestamp at or below T takes effect any more, because the
    scan would lack it. A reader that names the lowest time of its snapshot gets no older snapshot."""

    name: ClassVar[str] = "snapshot_repeatability"
    source: ClassVar[str] = "durability.md rules 14 and 32; behaviours.md C14; contract store, 4 and 5"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._seen: dict[tuple[int, int], tuple[int, tuple[tuple[Cell, ...], ...]]] = {}
        """The first node and its rows, by time and version of the schema."""
        self._served_max = 0
        self._applied_index = 0

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Check that a newly applied entry is above the time of every scan that was served."""
        if op_id.index <= self._applied_index:
            return
        self._applied_index = op_id.index
        entry = self.world.entries.get(op_id)
        if entry is not None and entry.timestamp <= self._served_max:
            self.fail(f"a scan at {self._served_max} was served before {op_id} at {entry.timestamp} was applied")

    def on_looked_up(self, node: ObservedNode, found: ObservedLookup) -> None:
        """Check the rows of a lookup."""
        what = f"node {node.position} at {found.at}"
        if found.at < found.floor:
            self.fail(f"{what} looks up keys below the floor {found.floor}")
            return
        self._served_max = max(self._served_max, found.at)
        agreed = self.world.agreed
        schemas = [schema for schema in agreed.schemas.values() if schema.layout.ids == found.ids]
        if not schemas:
            self.fail(f"{what} returns columns {found.ids}, which no schema has")
            return
        expected = agreed.rows(agreed.index_at(found.at), schemas[-1])
        for key, row in found.rows:
            wanted = None if key not in expected else (key, *expected[key])
            if (None if row is None else tuple(row)) != wanted:
                self.fail(f"{what} finds {row} for key {key}, but the agreed writes produce {wanted}"[:600])
                return

    def on_scanned(self, node: ObservedNode, scanned: ObservedScan) -> None:
        """Check the rows of a scan, or its refusal."""
        what = f"node {node.position} at {scanned.at}"
        if scanned.rows is None:
            if scanned.at >= node.floor_max:
                self.fail(f"{what} is refused as too old, but the highest floor is {node.floor_max}")
            elif not scanned.at < scanned.refused_floor <= node.floor_max:
                self.fail(
                    f"{what} is refused with floor {scanned.refused_floor}, but the highest floor is {node.floor_max}"
                )
            return
        if scanned.at < scanned.floor:
            self.fail(f"{what} is served below the floor {scanned.floor}")
            return
        if scanned.at < scanned.at_least:
            self.fail(f"{what} is served to a reader that must see {scanned.at_least}")
            return
        self._served_max = max(self._served_max, scanned.at)
        key = (scanned.at, scanned.schema.version)
        first, rows = self._seen.setdefault(key, (node.position, scanned.rows))
        if rows != scanned.rows:
            self.fail(f"{what} reads {scanned.rows}, but node {first} read {rows}"[:600])
            return
        agreed = self.world.agreed
        found = agreed.rows(agreed.index_at(scanned.at), scanned.schema)
        expected = tuple((key, *cells) for key, cells in found.items())
        if rows != expected:
            self.fail(f"{what} reads {rows}, but the agreed writes produce {expected}"[:600])
