"""The part ``reads``: point reads by full key, of the newest state and of a snapshot, with several numbers in flight,
and calls of ``get_many``.

A read of the newest state is linearizable: the leader confirms with a majority that it leads. A read of a snapshot has
a time and may come from any replica. Keys are uniformly distributed, and every row that is returned is checked.

How fast reads are depends on the number of rows: a node keeps decoded rows in a cache of limited size. So the report
says over how many rows the reads went."""

from __future__ import annotations

import random
from functools import partial

from stelae.client.table import AsyncTable
from stelae.spi.ids import TabletId
from stelae_bench.closed_loop import run_calls
from stelae_bench.cluster_context import Bench, ClusterMeasure
from stelae_bench.measured_round import ClusterRound
from stelae_bench.peers import PeerTask
from stelae_bench.report import round_of

IN_FLIGHT = (1, 16, 64)
MODES = ("latest", "snapshot")

MANY_KEYS = 1000
"""The number of keys of one call of ``get_many``, of the newest state. One call is in flight."""

MANY = f"latest, {MANY_KEYS} keys"


class Reads:
    """Reads rows of a table.

    Args:
        bench: the run.
        table: a table of one tablet with an integer key ``id`` that counts up from 0.
        tablet_id: the tablet.
        count: the number of its rows.
        at: the hybrid timestamp of the snapshot that is read. It has all rows.
    """

    def __init__(self, bench: Bench, table: AsyncTable, tablet_id: TabletId, count: int, at: int) -> None:
        self._bench = bench
        self._tablet_id = tablet_id
        self._at = at
        self._table = table
        self._count = count
        self._rng = random.Random(f"reads/{bench.settings.seed}")

    async def measure(self) -> None:
        """Measure each mode with each number in flight, after a warm-up of each mode."""
        bench, slot_s = self._bench, self._bench.settings.slot_s
        bench.report.reads = {(mode, n): [] for mode in MODES for n in IN_FLIGHT}
        bench.report.reads[MANY, 1] = []
        bench.report.read_rows = self._count
        for call in (partial(self._read, None), partial(self._read, self._at), self._read_many):
            bench.report.problems += (await run_calls(call, IN_FLIGHT[1], slot_s)).problems
        measures = [
            ClusterMeasure(run=partial(self._one, mode, n), rounds=rounds, tablet_id=self._tablet_id)
            for (mode, n), rounds in bench.report.reads.items()
        ]
        task = PeerTask(part="reads", in_flight=IN_FLIGHT, seconds=slot_s, rows=self._count)
        await bench.rounds("reads", measures, task)

    async def _one(self, mode: str, in_flight: int) -> ClusterRound | None:
        at = self._at if mode == "snapshot" else None
        call = self._read_many if mode == MANY else partial(self._read, at)
        sample = await run_calls(call, in_flight, self._bench.settings.slot_s)
        self._bench.report.problems += sample.problems
        return round_of([sample]) if sample.latencies_ms else None

    async def _read(self, at: int | None) -> str:
        key = int(self._rng.random() * self._count)
        row = await self._table.get(key, at=at)
        return "" if row is not None and row["id"] == key else f"the row of key {key} was read as {row!r:.80}"

    async def _read_many(self) -> str:
        keys = [int(self._rng.random() * self._count) for _ in range(MANY_KEYS)]
        rows = await self._table.get_many(keys)
        wrong = [(key, row) for key, row in zip(keys, rows, strict=True) if row is None or row["id"] != key]
        return f"the row of key {wrong[0][0]} was read as {wrong[0][1]!r:.80}" if wrong else ""
