"""The run: three nodes, one tablet, loads of several sizes in interleaved rounds, a final scan.

Every round measures each load and the bare machine once, in an order drawn anew, so that a slow
minute of the machine meets all of them alike. Nothing is measured before a warm-up."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from stelae.client.client import Client, Tablet
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.spi.errors import RetryableError, Unavailable
from stelae.spi.ids import TabletId
from stelae.spi.scan import ScanSpec
from stelae_bench import machine
from stelae_bench.bare import Disk, Network
from stelae_bench.closed_loop import ClosedLoop, Sample
from stelae_bench.fleet import Fleet
from stelae_bench.report import Report, round_of
from stelae_bench.rows import COLUMNS, KEY, RowSource
from stelae_bench.verify import Verification

IN_FLIGHT = (1, 16, 64, 256)
PROCESSES = 8
IN_FLIGHT_EACH = 8
NODES = 3
WARM_UP_IN_FLIGHT = 64
WARM_UP_S = 1.0
START_TIMEOUT_S = 20.0

_Part: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line said.

    Attributes:
        seed: draws the rows and the order within each round.
        rounds: how many rounds.
        seconds: how long each load writes in each round.
        engines: kind to name, for the nodes.
        directory: on the disk to be measured; ``None``: where temporary files go.
    """

    seed: int
    rounds: int
    seconds: float
    engines: Mapping[str, str]
    directory: Path | None


def run(settings: Settings, note: Callable[[str], None]) -> Report:
    """Measure; no process and no file is left behind, however it ends.

    Args:
        settings: what to do.
        note: told how far it is.

    Raises:
        StelaeError: the cluster could not be started, or a process of the benchmark ended.
        OSError: the directory cannot be written to.
    """
    described = machine.describe()
    with tempfile.TemporaryDirectory(prefix="stelae-bench-", dir=settings.directory) as folder:
        note(f"starting {NODES} nodes")
        spec = TabletSpec(tablet_id=TabletId("bench"), columns=COLUMNS, key=KEY)
        options = ClusterOptions(node_count=NODES, engines=settings.engines)
        cluster = LocalCluster.create(Path(folder) / "cluster", spec, options)
        try:
            cluster.start()
            report = asyncio.run(_Run(cluster, settings, note).run())
        finally:
            cluster.stop()
    report.machine = {
        **described,
        "seed": settings.seed,
        "rounds": settings.rounds,
        "settings": {
            "nodes": NODES,
            "columns": len(COLUMNS),
            "round_seconds": settings.seconds,
            "log_sync": "always",
            **{f"{kind}_engine": name for kind, name in settings.engines.items()},
        },
    }
    return report


class _Run:
    """One run on a cluster that was started."""

    def __init__(self, cluster: LocalCluster, settings: Settings, note: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._note = note
        self._report = Report(writes={in_flight: [] for in_flight in IN_FLIGHT})
        self._rng = random.Random(settings.seed)
        self._acked = dict.fromkeys(range(1 + PROCESSES), 0)

    async def run(self) -> Report:
        async with await self._connect() as client:
            tablet = await client.tablet(self._cluster.tablet_id, timeout_s=START_TIMEOUT_S)
            disk, network = Disk(self._cluster.directory), Network()
            try:
                await self._measure(tablet, disk, network)
            finally:
                network.close()
                disk.close()
            self._report.retries = tablet.retries
            await self._verify(tablet)
        return self._report

    async def _connect(self) -> Client:
        """Connect as soon as a node answers; one that ends meanwhile is reported at once."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            self._cluster.check()
            try:
                return await Client.connect(self._cluster.addresses, timeout_s=1.0)
            except RetryableError as error:
                if time.monotonic() > deadline:
                    raise Unavailable(f"the nodes do not serve: {error}") from error

    # -- measuring -------------------------------------------------------------------------------

    async def _measure(self, tablet: Tablet, disk: Disk, network: Network) -> None:
        writers, seed = range(1, 1 + PROCESSES), self._settings.seed
        loop = ClosedLoop(tablet, RowSource(0, seed))
        self._note(f"starting {PROCESSES} client processes")
        fleet = await Fleet.start(self._cluster.addresses, tablet.tablet_id, writers, seed)
        try:
            self._note("warming up")
            self._count([0], [await loop.run(WARM_UP_IN_FLIGHT, WARM_UP_S)])
            self._count(writers, await fleet.run(IN_FLIGHT_EACH, WARM_UP_S / 2))
            for number in range(self._settings.rounds):
                if self._report.ok:
                    self._note(f"round {number + 1} of {self._settings.rounds}")
                    await self._one_round(loop, fleet, disk, network)
        finally:
            await fleet.stop()

    async def _one_round(self, loop: ClosedLoop, fleet: Fleet, disk: Disk, network: Network) -> None:
        report = self._report

        async def bare() -> None:
            report.fdatasync_4k_us.append(disk.sync_us())
            report.zmq_rtt_us.append(network.round_trip_us())

        async def alone(in_flight: int) -> None:
            samples = [await loop.run(in_flight, self._settings.seconds)]
            if self._count([0], samples):
                report.writes[in_flight].append(round_of(samples))

        async def side_by_side() -> None:
            samples = await fleet.run(IN_FLIGHT_EACH, self._settings.seconds)
            if self._count(range(1, 1 + PROCESSES), samples):
                report.writes_8x8.append(round_of(samples))

        parts: list[_Part] = [bare, side_by_side, *(partial(alone, n) for n in IN_FLIGHT)]
        for part in _shuffled(parts, self._rng):
            self._cluster.check()
            await part()

    def _count(self, writers: Sequence[int], samples: Sequence[Sample]) -> bool:
        """Take note of what was acknowledged; say whether all went well."""
        for writer, sample in zip(writers, samples, strict=True):
            self._acked[writer] += len(sample.latencies_ms)
            self._report.problems += sample.problems
        return self._report.ok

    # -- the end ---------------------------------------------------------------------------------

    async def _verify(self, tablet: Tablet) -> None:
        self._note("reading every row back")
        found = Verification(self._acked)
        (key,) = tablet.schema.key
        async for batch in tablet.scan(ScanSpec(columns=(key,))):
            self._cluster.check()
            found.take(batch.values(0))
        tally, report = found.tally(), self._report
        report.rows_acked = sum(self._acked.values())
        report.rows_read = tally.read
        if tally.lost:
            report.problems.append(f"{tally.lost} acknowledged rows are missing")
        if tally.strange and report.ok:
            # After a write that failed, rows may be there that were not acknowledged.
            report.problems.append(f"{tally.strange} rows are there that nobody wrote, or twice")


def _shuffled(parts: Sequence[_Part], rng: random.Random) -> list[_Part]:
    order = sorted(range(len(parts)), key=lambda _: rng.random())
    return [parts[place] for place in order]
