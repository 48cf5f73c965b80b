"""What the parts of ``stelae bench cluster`` share: settings, the cluster that was started, the report."""

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
    """What the command line said.

    Attributes:
        seed: draws the rows, the keys, and the order within each round.
        rounds: how many rounds each part has.
        seconds: how long each load of writes, and each bulk load, runs in each round.
        slot_s: the same for reads and YCSB.
        in_flight: how many operations of YCSB are in flight, one after the other.
        bulk_rows_max: most rows that are loaded of each data set, in all rounds together.
        scale: TPC-H scale factor of ``lineitem``.
        cache: folder of generated tables.
        parts: what to measure.
        engines: kind to name, for the nodes.
        fast_log: ``[log] fast`` of the nodes.
        directory: on the disk to be measured; ``None``: where temporary files go.
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
        cluster: its nodes.
        client: connected to them.
        settings: what to do.
        report: what is found goes here.
        note: told how far it is.
        rng: draws orders.
    """

    cluster: LocalCluster
    client: AsyncClient
    settings: ClusterBenchSettings
    report: ClusterReport
    note: Callable[[str], None]
    rng: random.Random

    async def table(self, tablet_id: TabletId) -> AsyncTable:
        """Open a table of one tablet; waits for its leader."""
        return await self.client.table(tablet_id, timeout_s=START_TIMEOUT_S)

    async def rounds(self, what: str, measures: Sequence[Measure]) -> None:
        """Take every measure once in each round, in an order drawn anew; ends early at the first problem."""
        for number in range(self.settings.rounds):
            self.note(f"{what}: round {number + 1} of {self.settings.rounds}")
            for place in sorted(range(len(measures)), key=lambda _: self.rng.random()):
                self.cluster.check()
                if self.report.ok:
                    await measures[place]()

    async def agree(self, tablet_id: TabletId) -> None:
        """See that every replica has the same rows, by their logical checksums, once all have applied everything."""
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
            said = ", ".join(f"{name} at {one.applied} has {one.checksum[:12]}" for name, one in found.items())
            self.report.problems.append(f"{tablet_id}: the replicas do not hold the same rows: {said}")


AGREE_ATTEMPTS = 40
AGREE_PAUSE_S = 0.1
AGREE_DEADLINE_MS = 300_000
"""Three replicas hash millions of rows at the same time."""
