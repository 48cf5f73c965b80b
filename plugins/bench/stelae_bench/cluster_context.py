"""The context of the parts of ``stelae bench cluster``: settings, the started cluster, the report."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from stelae.client.async_client import AsyncClient
from stelae.client.table import AsyncTable
from stelae.local.cluster import LocalCluster
from stelae.spi.ids import TabletId
from stelae_bench.report import ClusterReport

Measure: TypeAlias = Callable[[], Awaitable[None]]

START_TIMEOUT_S = 20.0


class BenchPart(StrEnum):
    """A part of the benchmark, in the order in which they run."""

    WRITES = "writes"
    BULK = "bulk"
    SCAN = "scan"
    READS = "reads"
    YCSB = "ycsb"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBenchSettings:
    """The settings of a run, from the command line.

    Attributes:
        seed: of the rows, the keys, and the order within each round.
        rounds: the number of rounds of each part.
        seconds: how long each load of writes, and each bulk load, runs in each round.
        slot_s: how long each load of reads or YCSB runs in each round, in seconds.
        in_flight: the numbers of YCSB operations in flight that are measured.
        bulk_rows_max: the most rows of each data set that are loaded, in all rounds together.
        scale: the TPC-H scale factor of ``lineitem``.
        cache: the folder of generated tables.
        parts: the parts to measure.
        engines: the engine's name by kind, for the nodes.
        fast_log: ``[log] fast`` of the nodes.
        directory: a directory on the disk to measure; ``None``: the one of temporary files.
    """

    seed: int
    rounds: int
    seconds: float
    slot_s: float
    in_flight: Sequence[int]
    bulk_rows_max: int
    scale: float
    cache: Path
    parts: frozenset[BenchPart]
    engines: Mapping[str, str]
    fast_log: bool
    directory: Path | None


@dataclass(slots=True, kw_only=True)
class Bench:
    """One run on a cluster that was started.

    Attributes:
        cluster: the nodes.
        client: a client that is connected to them.
        settings: what to measure.
        report: gets the results.
        note: called with messages about the progress.
        rng: draws the orders.
    """

    cluster: LocalCluster
    client: AsyncClient
    settings: ClusterBenchSettings
    report: ClusterReport
    note: Callable[[str], None]
    rng: random.Random

    async def table(self, tablet_id: TabletId) -> AsyncTable:
        """Open the table of one tablet. Waits for its leader."""
        return await self.client.table(tablet_id, timeout_s=START_TIMEOUT_S)

    async def rounds(self, what: str, measures: Sequence[Measure]) -> None:
        """Run every measurement once in each round, in random order. The first problem ends the rounds."""
        for number in range(self.settings.rounds):
            self.note(f"{what}: round {number + 1} of {self.settings.rounds}")
            for place in sorted(range(len(measures)), key=lambda _: self.rng.random()):
                self.cluster.check()
                if self.report.ok:
                    await measures[place]()

    async def compare_replicas(self, tablet_id: TabletId) -> None:
        """Compare the logical checksums of all replicas, once all have applied the same entries."""
        found = {}
        for _ in range(AGREE_ATTEMPTS):
            self.cluster.check()
            ask = self.client.connection.checksum
            asked = [ask(node.node_id, tablet_id, deadline_ms=AGREE_DEADLINE_MS) for node in self.cluster.nodes]
            found = dict(zip((node.name for node in self.cluster.nodes), await asyncio.gather(*asked), strict=True))
            if len({one.applied for one in found.values()}) == 1:
                break
            await asyncio.sleep(AGREE_PAUSE_S)
        if len({(one.checksum, one.applied) for one in found.values()}) != 1:
            checksums = ", ".join(f"{name} at {one.applied} has {one.checksum[:12]}" for name, one in found.items())
            self.report.problems.append(f"{tablet_id}: the replicas do not hold the same rows: {checksums}")


AGREE_ATTEMPTS = 40
AGREE_PAUSE_S = 0.1
AGREE_DEADLINE_MS = 300_000
"""The deadline is long, because three replicas hash millions of rows at the same time."""
