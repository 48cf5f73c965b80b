"""A reader on each node that scans the local store as of past times, while clients write.

A scan may stay open over many turns, in which the store is flushed and merged and its history floor is raised. Or the
reader resumes it after the last row with a new cursor, as a client does that continues on another node."""

from __future__ import annotations

import random
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.sim.coverage import Coverage
from stelae.sim.draw import between, chance, pick, skewed
from stelae.sim.fact_feed import FactFeed
from stelae.sim.invariants import ObservedScan
from stelae.sim.process import Process
from stelae.sim.table import Cell
from stelae.sim.world import ObservedNode
from stelae.spi.errors import TooOld
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import Cursor

PAUSE_US = (50_000, 2_500_000)
ROWS_MAX: Final = 6
RECENT: Final = 16
"""Most scans are as of one of this number of last entries. Older entries are soon below the history floor."""

RESUMED: Final = 0.2
"""Share of the steps that resume a scan with a new cursor."""

BELOW_FLOOR: Final = 0.7
"""Share of the scans below the highest floor while a restarted store has a lower floor. If the store still serves such
a scan, the rows must be right."""

FIRST_US: Final = (1_000, 400_000)
"""Shortest and longest time from a start to the first scan: before maintenance sets the history floor again."""

READ_AT_ONCE: Final = 0.5
"""Share of the scans that are read to the end at once."""


_DONE_WORKING = (ReplicaState.FAILED, ReplicaState.STOPPING)


@dataclass(slots=True)
class _SnapshotScan:
    """An open scan.

    Attributes:
        at: hybrid timestamp as of which it reads.
        floor: history floor of the store when the cursor was opened.
        edits: number of durable edits of the store when the scan began.
        schema: schema in force when the scan began.
    """

    at: int
    floor: int
    order: Order
    cursor: Cursor
    edits: int
    schema: Schema
    rows: list[tuple[Cell, ...]] = field(default_factory=list)


class SnapshotReader:
    """Scans the local store while its process runs."""

    def __init__(
        self,
        process: Process,
        replica: Replica,
        node: ObservedNode,
        facts: FactFeed,
        rng: random.Random,
        coverage: Coverage,
    ) -> None:
        self._process = process
        self._replica = replica
        self._node = node
        self._facts = facts
        self._rng = rng
        self._coverage = coverage
        self._scan: _SnapshotScan | None = None
        self.stopping = False

    def start(self) -> None:
        """Begin to scan at random times until ``stopping``."""
        self._process.schedule(skewed(self._rng, *FIRST_US), "snapshot_reader", self._act)

    def _act(self) -> None:
        if self.stopping or self._replica.state in _DONE_WORKING:
            return
        if self._scan is None:
            self._begin()
        else:
            self._continue(self._scan)
        self._process.schedule(skewed(self._rng, *PAUSE_US), "snapshot_reader", self._act)

    def _begin(self) -> None:
        at = self._draw_time()
        if at is None:
            return
        order = pick(self._rng, (Order.KEY, Order.KEY_DESCENDING))
        floor = self._node.floor
        store = self._replica.applier.store
        try:
            cursor = store.scan(ScanSpec(order=order), at)
        except TooOld as error:
            self._refused(at, floor, error)
            return
        self._scan = _SnapshotScan(at, floor, order, cursor, self._node.edits, store.schema)
        self._read(self._scan, to_end=chance(self._rng, READ_AT_ONCE))

    def _continue(self, scan: _SnapshotScan) -> None:
        token = scan.cursor.resume_token
        if token is not None and chance(self._rng, RESUMED):
            scan.cursor.close()
            if self._replica.applier.store.schema != scan.schema:
                self._scan = None  # The rows of a new cursor would have other columns than the rows so far.
                self._coverage.hit("snapshot.schema_changed")
                return
            scan.floor = self._node.floor
            spec = ScanSpec(order=scan.order, after=token)
            try:
                scan.cursor = self._replica.applier.store.scan(spec, scan.at)
            except TooOld as error:
                self._refused(scan.at, scan.floor, error)
                return
            self._coverage.hit("snapshot.resumed")
        self._read(scan, to_end=False)

    def _read(self, scan: _SnapshotScan, *, to_end: bool) -> None:
        while (batch := scan.cursor.next_batch(between(self._rng, 1, ROWS_MAX))) is not None:
            scan.rows += batch.to_rows()
            if not to_end:
                return
        self._scan = None
        scan.cursor.close()
        self._coverage.hit("snapshot.read")
        if scan.edits != self._node.edits:
            self._coverage.hit("snapshot.over_an_edit")
        rows = scan.rows if scan.order is Order.KEY else scan.rows[::-1]
        self._facts.scanned(self._node, ObservedScan(scan.at, scan.floor, tuple(rows), schema=scan.schema))

    def _refused(self, at: int, floor: int, error: TooOld) -> None:
        self._scan = None
        self._coverage.hit("snapshot.too_old")
        self._facts.scanned(self._node, ObservedScan(at, floor, None, error.floor))

    def _draw_time(self) -> int | None:
        """Draw a time at or below the last applied entry: of an entry, just before one, or near the history floor."""
        timestamps = self._facts.world.agreed.timestamps(self._replica.applier.applied.index)
        if not timestamps:
            return None
        floor = self._node.floor_max
        if self._node.floor < floor and chance(self._rng, BELOW_FLOOR):
            below = timestamps[: bisect_left(timestamps, floor)]
            if below:
                return pick(self._rng, below[-RECENT:])
        share = self._rng.random()
        if share < 0.15 and floor:
            return min(timestamps[-1], floor + between(self._rng, -2, 1))
        reach = len(timestamps) if share < 0.3 else min(len(timestamps), RECENT)
        at = timestamps[-between(self._rng, 1, reach)]
        return at - 1 if chance(self._rng, 0.3) else at
