"""The part ``ycsb``: the core workloads A to F on one table. The module ``ycsb`` draws the operations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from stelae.client.table import AsyncTable
from stelae.local.cluster import TabletSpec
from stelae.spi.ids import TabletId
from stelae_bench.closed_loop import run_calls
from stelae_bench.cluster_context import Bench, ClusterMeasure
from stelae_bench.measured_round import ClusterRound
from stelae_bench.peers import PeerTask
from stelae_bench.report import round_of
from stelae_bench.ycsb import FIELDS, WORKLOADS, Chooser, Population, Values, YcsbOperation, YcsbStep, key_of

RECORDS = 10_000
"""Records that are loaded before anything is measured. Workloads D and E insert more."""

TABLET = TabletSpec(
    tablet_id=TabletId("usertable"),
    columns=[
        {"name": "ycsb_key", "type": "string", "nullable": False},
        *({"name": f"field{place}", "type": "string", "nullable": False} for place in range(FIELDS)),
    ],
    key=["ycsb_key"],
)


class Ycsb:
    """Runs the workloads on an empty table."""

    def __init__(self, bench: Bench, table: AsyncTable) -> None:
        self._bench = bench
        self._table = table
        self._population = Population(RECORDS)
        self._values = Values(bench.settings.seed)

    async def measure(self) -> None:
        """Load the records, then measure each workload with each number in flight."""
        bench = self._bench
        bench.note(f"ycsb: loading {RECORDS:,} records")
        await self._table.insert([self._record(number) for number in range(RECORDS)])
        in_flight = bench.settings.in_flight
        bench.report.ycsb = {(letter, n): [] for letter in WORKLOADS for n in in_flight}
        choosers = {letter: Chooser(w, self._population, bench.settings.seed) for letter, w in WORKLOADS.items()}
        await run_calls(partial(self._call, choosers["B"]), in_flight[0], bench.settings.slot_s)  # Warms up.
        measures = [
            ClusterMeasure(
                run=partial(self._one, choosers[letter], letter, n), rounds=rounds, tablet_id=TABLET.tablet_id
            )
            for (letter, n), rounds in bench.report.ycsb.items()
        ]
        task = PeerTask(part="ycsb", in_flight=in_flight, seconds=bench.settings.slot_s, rows=RECORDS)
        await bench.rounds("ycsb", measures, task)
        await self._verify()

    async def _one(self, chooser: Chooser, letter: str, in_flight: int) -> ClusterRound | None:
        sample = await run_calls(partial(self._call, chooser), in_flight, self._bench.settings.slot_s)
        self._bench.report.problems += [f"ycsb {letter}: {problem}" for problem in sample.problems]
        return round_of([sample]) if sample.latencies_ms else None

    async def _call(self, chooser: Chooser) -> str:
        step = chooser.next()
        if step.kind is YcsbOperation.INSERT:
            await self._table.insert([self._record(step.record)])
            self._population.ack(step.record)
            return ""
        if step.kind is YcsbOperation.SCAN:
            return await self._scan(step)
        if step.kind is not YcsbOperation.UPDATE:
            row = await self._table.get(key_of(step.record))
            if row is None:
                return f"record {step.record} was acknowledged and not found"
        if step.kind is not YcsbOperation.READ:
            await self._table.update([{"ycsb_key": key_of(step.record), self._values.name(): self._values.field()}])
        return ""

    async def _scan(self, step: YcsbStep) -> str:
        start = key_of(step.record)
        rows = await self._table.scan(start=start, limit=step.rows, order="key").to_arrow()
        if not len(rows) or rows.column("ycsb_key")[0].as_py() != start:
            return f"a scan from record {step.record} does not begin with that record"
        return ""

    def _record(self, number: int) -> Mapping[str, Any]:
        return {"ycsb_key": key_of(number), **self._values.record()}

    async def _verify(self) -> None:
        """Check that every acknowledged record exists once. A run ends when all calls are answered."""
        bench, wanted = self._bench, self._population.acked
        if not bench.report.is_sound:
            return
        read = await self._table.scan("ycsb_key").to_arrow()
        keys = set(read.column("ycsb_key").to_pylist())
        if len(read) != wanted or keys != {key_of(number) for number in range(wanted)}:
            bench.report.problems.append(f"ycsb: {wanted} records were acknowledged, but {len(read)} were read")
