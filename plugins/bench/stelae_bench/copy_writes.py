"""The part ``writes``: single-row writes with 64 in flight, with and without a copy beside them.

The table has three replicas, and its leader is on the server that the copy is made from."""

from __future__ import annotations

import asyncio
import math

from stelae.client.replicas import AsyncReplicas
from stelae.client.table import AsyncTable
from stelae_bench.closed_loop import LoopSample
from stelae_bench.copy_context import CopyBench
from stelae_bench.copy_speed import timed_copy
from stelae_bench.copy_tables import TIMEOUT_S, CopiedTable
from stelae_bench.report import round_of
from stelae_bench.rows import COLUMNS, KEY, RowSource
from stelae_bench.single_writes import SingleWrites
from stelae_bench.verify import Verification

IN_FLIGHT = 64
WARM_UP_S = 1.0


class WritesBesideCopy:
    """Measures writes beside copies. Made by :meth:`create`."""

    def __init__(self, bench: CopyBench, table: AsyncTable, replicas: AsyncReplicas) -> None:
        self._bench = bench
        self._table = table
        self._replicas = replicas
        self._loop = SingleWrites(table, RowSource(0, bench.settings.seed))
        self._acked = 0

    @classmethod
    async def create(cls, bench: CopyBench) -> WritesBesideCopy:
        """Create the table that is written. All servers are alive: later, masters could choose one that was killed."""
        before = set(await bench.client.tablet_ids())
        table = await bench.client.create_table("written", COLUMNS, KEY, replicas=3, timeout_s=TIMEOUT_S)
        (tablet_id,) = set(await bench.client.tablet_ids()) - before
        return cls(bench, table, await bench.client.replicas(tablet_id, timeout_s=TIMEOUT_S))

    async def measure(self, copied: CopiedTable) -> None:
        """Measure beside copies of a table that is loaded already, then read every acknowledged row back."""
        self._copied, source = copied, await copied.source()
        await self._replicas.transfer(source.node_id, timeout_s=TIMEOUT_S)
        self._count(await self._loop.run(IN_FLIGHT, WARM_UP_S))
        await self._bench.rounds("writes", [self._alone, self._beside])
        await self._verify()

    async def _alone(self) -> None:
        sample = await self._loop.run(IN_FLIGHT, self._bench.settings.seconds)
        if self._count(sample):
            self._bench.report.writes_alone.append(round_of([sample]))

    async def _beside(self) -> None:
        bench = self._bench
        target = await bench.nodes.new_server()
        copy = asyncio.ensure_future(timed_copy(bench, [self._copied], target))
        sample = await self._loop.run(IN_FLIGHT, math.inf, copy.done)
        found = await copy
        if self._count(sample):
            bench.report.writes_beside.append(round_of([sample]))
            bench.report.copies_beside.append(found)
        await self._copied.remove(target)
        bench.nodes.discard(target)

    def _count(self, sample: LoopSample) -> bool:
        self._acked += len(sample.latencies_ms)
        self._bench.report.problems += sample.problems
        return self._bench.report.ok

    async def _verify(self) -> None:
        report, found = self._bench.report, Verification({0: self._acked})
        self._bench.note("writes: reading every row back")
        async for batch in self._table.scan(KEY):
            found.add(batch.column(0).to_pylist())
        tally = found.tally()
        report.rows_acked, report.rows_read = self._acked, tally.read
        if tally.missing:
            report.problems.append(f"{tally.missing} acknowledged rows are missing")
        if tally.unexpected and report.ok:
            report.problems.append(f"{tally.unexpected} rows were read that were never written, or were read twice")
