"""The context of the parts of ``stelae bench cluster``: settings, the started cluster, the report."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from stelae.client.async_client import AsyncClient
from stelae.client.table import AsyncTable
from stelae.local.cluster import LocalCluster
from stelae.spi.ids import TabletId
from stelae_bench.cluster_costs import CostMeter
from stelae_bench.measured_round import MeasuredRound
from stelae_bench.peers import PeerCommand, PeerFailed, PeerRound, PeerTask, run_peer
from stelae_bench.report import ClusterReport

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
        leases: leaders answer reads by a lease.
        peers: other systems that are measured beside Stelae.
        peer_timeout_s: how long the command of a peer may take, in seconds.
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
    leases: bool = False
    peers: Sequence[PeerCommand] = ()
    peer_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMeasure:
    """One measurement, which runs once in each round.

    Attributes:
        run: measures, and returns the result; ``None``: there is none.
        rounds: gets the results.
        tablet_id: the tablet that is used; ``None``: what the operations cost is not measured.
        further_clients: process ids of clients besides this process.
    """

    run: Callable[[], Awaitable[MeasuredRound | None]]
    rounds: list[Any] = field(default_factory=list)
    tablet_id: TabletId | None = None
    further_clients: Sequence[int] = ()


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
        meter: measures what operations cost.
        tables: the tables that were opened.
    """

    cluster: LocalCluster
    client: AsyncClient
    settings: ClusterBenchSettings
    report: ClusterReport
    note: Callable[[str], None]
    rng: random.Random
    meter: CostMeter
    tables: list[AsyncTable] = field(default_factory=list)

    async def table(self, tablet_id: TabletId) -> AsyncTable:
        """Open the table of one tablet, once all nodes name the same leader of it."""
        await self.meter.until_led(tablet_id)
        table = await self.client.table(tablet_id, timeout_s=START_TIMEOUT_S)
        self.tables.append(table)
        return table

    async def rounds(self, what: str, measures: Sequence[ClusterMeasure], task: PeerTask | None = None) -> None:
        """Run every measurement once in each round, in random order. The first problem ends the rounds.

        With a task, the peers measure the same in each round. Their order rotates: what runs first in one round runs
        last in the next one."""
        before = self._retries()
        peers = self.settings.peers if task is not None else ()
        for number in range(self.settings.rounds):
            self.note(f"{what}: round {number + 1} of {self.settings.rounds}")
            turns: list[PeerCommand | None] = [None, *peers]
            first = number % len(turns)
            for peer in (*turns[first:], *turns[:first]):
                if peer is None or task is None:
                    await self._round(measures, number)
                elif self.report.is_sound and not self.report.peers[peer.name].failure:
                    await self._peer_round(peer, task, number)
        self.report.retries.update(self._retries() - before)

    async def _round(self, measures: Sequence[ClusterMeasure], number: int) -> None:
        for place in sorted(range(len(measures)), key=lambda _: self.rng.random()):
            self.cluster.check()
            measure = measures[place]
            if not self.report.is_sound:
                return
            if measure.tablet_id is None:
                found = await measure.run()
            else:
                found, cost = await self.meter.measured(measure.tablet_id, measure.further_clients, measure.run)
                found = found and replace(found, cost=cost)
            if found is not None:
                measure.rounds.append(replace(found, number=number))

    async def _peer_round(self, peer: PeerCommand, task: PeerTask, number: int) -> None:
        """Run the command of a peer. Meanwhile the nodes of the benchmark are idle; their processor time is kept.

        A peer that fails has no further turn. What it and the others have measured so far took minutes, and is kept."""
        self.cluster.check()
        self.note(f"{task.part}: {peer.name}")
        figures = self.report.peers[peer.name]
        cpu_s, began = self.meter.nodes_cpu_s(), time.monotonic()
        directory, timeout_s = self.settings.directory, self.settings.peer_timeout_s
        try:
            lines = await run_peer(peer, task, number, directory=directory, timeout_s=timeout_s)
        except PeerFailed as error:
            figures.failure = f"round {number + 1} of {task.part}: {error}"
            self.note(f"{peer.name} is left out from now on: {figures.failure}")
            return
        for line in lines:
            figures.rounds.setdefault((line.work, line.in_flight), []).append(PeerRound(number=number, line=line))
        later_s = self.meter.nodes_cpu_s()
        if cpu_s is not None and later_s is not None:
            figures.idle_cpu_shares.append((later_s - cpu_s) / (time.monotonic() - began))

    def _retries(self) -> Counter[str]:
        """Return how many times this process has sent an operation again so far, by code."""
        return sum((Counter(table.retries) for table in self.tables), Counter())

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
