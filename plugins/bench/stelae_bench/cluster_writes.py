"""The part ``writes``: durable single-row writes in loads of several sizes, beside the bare machine.

Every round measures each load and the bare machine once, so that a slow minute of the machine meets all of them alike.
Nothing is measured before a warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from stelae.client.table import AsyncTable
from stelae_bench.bare import BareDisk, BareNetwork
from stelae_bench.closed_loop import LoopSample
from stelae_bench.cluster_context import Bench, Measure
from stelae_bench.fleet import Fleet
from stelae_bench.report import round_of
from stelae_bench.rows import KEY, RowSource
from stelae_bench.single_writes import SingleWrites
from stelae_bench.verify import Verification

IN_FLIGHT = (1, 16, 64, 256)
PROCESSES = 8
IN_FLIGHT_EACH = 8
WARM_UP_IN_FLIGHT = 64
WARM_UP_S = 1.0


class Writes:
    """Writes to the cluster's first tablet."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._report = bench.report
        self._report.writes = {in_flight: [] for in_flight in IN_FLIGHT}
        self._acked = dict.fromkeys(range(1 + PROCESSES), 0)

    async def measure(self) -> None:
        """Measure, and read every acknowledged row back."""
        bench = self._bench
        table = await bench.table(bench.cluster.tablet_id)
        disk, network = BareDisk(bench.cluster.directory), BareNetwork()
        try:
            await self._loads(table, disk, network)
        finally:
            network.close()
            disk.close()
        self._report.retries = table.retries
        await self._verify(table)

    async def _loads(self, table: AsyncTable, disk: BareDisk, network: BareNetwork) -> None:
        bench, writers = self._bench, range(1, 1 + PROCESSES)
        seed = bench.settings.seed
        loop = SingleWrites(table, RowSource(0, seed))
        bench.note(f"starting {PROCESSES} client processes")
        fleet = await Fleet.start(bench.cluster.addresses, table.name, writers, seed)
        try:
            bench.note("warming up")
            self._count([0], [await loop.run(WARM_UP_IN_FLIGHT, WARM_UP_S)])
            self._count(writers, await fleet.run(IN_FLIGHT_EACH, WARM_UP_S / 2))
            await bench.rounds("writes", self._measures(loop, fleet, disk, network))
        finally:
            await fleet.stop()

    def _measures(self, loop: SingleWrites, fleet: Fleet, disk: BareDisk, network: BareNetwork) -> list[Measure]:
        report, seconds = self._report, self._bench.settings.seconds

        async def bare() -> None:
            report.fdatasync_4k_us.append(disk.sync_us())
            report.zmq_rtt_us.append(network.round_trip_us())

        async def alone(in_flight: int) -> None:
            samples = [await loop.run(in_flight, seconds)]
            if self._count([0], samples):
                report.writes[in_flight].append(round_of(samples))

        async def side_by_side() -> None:
            samples = await fleet.run(IN_FLIGHT_EACH, seconds)
            if self._count(range(1, 1 + PROCESSES), samples):
                report.writes_8x8.append(round_of(samples))

        return [bare, side_by_side, *(partial(alone, n) for n in IN_FLIGHT)]

    def _count(self, writers: Sequence[int], samples: Sequence[LoopSample]) -> bool:
        """Take note of what was acknowledged; say whether all went well."""
        for writer, sample in zip(writers, samples, strict=True):
            self._acked[writer] += len(sample.latencies_ms)
            self._report.problems += sample.problems
        return self._report.ok

    async def _verify(self, table: AsyncTable) -> None:
        bench, report = self._bench, self._report
        bench.note("reading every row back")
        found = Verification(self._acked)
        async for batch in table.scan(KEY):
            bench.cluster.check()
            found.take(batch.column(0).to_pylist())
        tally = found.tally()
        report.rows_acked = sum(self._acked.values())
        report.rows_read = tally.read
        if tally.lost:
            report.problems.append(f"{tally.lost} acknowledged rows are missing")
        if tally.strange and report.ok:
            # After a write that failed, rows may be there that were not acknowledged.
            report.problems.append(f"{tally.strange} rows are there that nobody wrote, or twice")
