"""The part ``writes``: durable single-row writes with several numbers in flight, and the bare machine for comparison.

Every round measures each load and the bare machine once, so that a slow minute of the machine affects all of them.
A warm-up precedes the first round."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from stelae.client.table import AsyncTable
from stelae_bench.bare_machine import BareDisk, BareNetwork
from stelae_bench.closed_loop import LoopSample
from stelae_bench.cluster_context import Bench, ClusterMeasure
from stelae_bench.measured_round import ClusterRound
from stelae_bench.peers import PeerTask
from stelae_bench.report import round_of
from stelae_bench.rows import KEY, RowSource
from stelae_bench.single_writes import SingleWrites
from stelae_bench.verify import Verification
from stelae_bench.writer_processes import WriterProcesses

IN_FLIGHT = (1, 16, 64, 256)
PROCESSES = 8
IN_FLIGHT_EACH = 8
WARM_UP_IN_FLIGHT = 64
WARM_UP_S = 1.0


class Writes:
    """Measures writes to the cluster's first tablet."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._report = bench.report
        self._report.writes = {in_flight: [] for in_flight in IN_FLIGHT}
        self._acked = dict.fromkeys(range(1 + PROCESSES), 0)

    async def measure(self) -> None:
        """Measure each load, then read every acknowledged row back."""
        bench = self._bench
        table = await bench.table(bench.cluster.tablet_id)
        disk, network = BareDisk(bench.cluster.directory), BareNetwork()
        try:
            await self._loads(table, disk, network)
        finally:
            network.close()
            disk.close()
        await self._verify(table)

    async def _loads(self, table: AsyncTable, disk: BareDisk, network: BareNetwork) -> None:
        bench, writers = self._bench, range(1, 1 + PROCESSES)
        seed = bench.settings.seed
        loop = SingleWrites(table, RowSource(0, seed))
        bench.note(f"starting {PROCESSES} client processes")
        processes = await WriterProcesses.start(bench.cluster.addresses, table.name, writers, seed)
        try:
            bench.note("warming up")
            self._count([0], [await loop.run(WARM_UP_IN_FLIGHT, WARM_UP_S)])
            self._count(writers, await processes.run(IN_FLIGHT_EACH, WARM_UP_S / 2))
            measures = self._measures(loop, processes, disk, network)
            task = PeerTask(part="writes", in_flight=IN_FLIGHT, seconds=bench.settings.seconds)
            await bench.rounds("writes", measures, task)
        finally:
            await processes.stop()

    def _measures(
        self, loop: SingleWrites, processes: WriterProcesses, disk: BareDisk, network: BareNetwork
    ) -> list[ClusterMeasure]:
        report, seconds = self._report, self._bench.settings.seconds

        async def bare() -> None:
            report.fdatasync_4k_us.append(disk.sync_us())
            report.zmq_rtt_us.append(network.round_trip_us())

        async def one_process(in_flight: int) -> ClusterRound | None:
            samples = [await loop.run(in_flight, seconds)]
            return round_of(samples) if self._count([0], samples) else None

        async def eight_processes() -> ClusterRound | None:
            samples = await processes.run(IN_FLIGHT_EACH, seconds)
            for sample in samples:
                report.retries.update(sample.retries)  # Those of this process are counted by ``Bench.rounds``.
            return round_of(samples) if self._count(range(1, 1 + PROCESSES), samples) else None

        tablet_id = self._bench.cluster.tablet_id
        eight = ClusterMeasure(
            run=eight_processes, rounds=report.writes_8x8, tablet_id=tablet_id, further_clients=processes.pids
        )
        one = [
            ClusterMeasure(run=partial(one_process, n), rounds=report.writes[n], tablet_id=tablet_id) for n in IN_FLIGHT
        ]
        return [ClusterMeasure(run=bare), eight, *one]

    def _count(self, writers: Sequence[int], samples: Sequence[LoopSample]) -> bool:
        """Count the acknowledged rows; say whether there are no problems so far."""
        for writer, sample in zip(writers, samples, strict=True):
            self._acked[writer] += len(sample.latencies_ms)
            self._report.problems += sample.problems
        return self._report.is_sound

    async def _verify(self, table: AsyncTable) -> None:
        bench, report = self._bench, self._report
        bench.note("reading every row back")
        found = Verification(self._acked)
        async for batch in table.scan(KEY):
            bench.cluster.check()
            found.add(batch.column(0).to_pylist())
        tally = found.tally()
        report.rows_acked = sum(self._acked.values())
        report.rows_read = tally.read
        if tally.missing:
            report.problems.append(f"{tally.missing} acknowledged rows are missing")
        if tally.unexpected and report.is_sound:
            # After a write that failed, there may be rows that were not acknowledged.
            report.problems.append(f"{tally.unexpected} rows were read that were never written, or were read twice")
