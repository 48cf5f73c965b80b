"""Runs ``stelae bench wal``: measures every participant in every case, in interleaved rounds.

Engines are opened once for each number of tablets and stay open in all rounds. On one tablet, each size of entries has
a log of its own. Each round measures all participants in all cases, in random order, so that a slow minute of the
machine affects all of them. The bare loops and the databases replay the groups that the writer has formed for the
engines, with an equal part of the time for each engine. A short pass before the first round warms up and forms the
first groups."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import cast

from stelae.config.contracts import EngineKind
from stelae.config.registry import Registry
from stelae.machine.event_loop import new_event_loop
from stelae.spi.errors import StelaeError
from stelae.spi.extras import MissingExtra
from stelae.spi.wal import WalEngine
from stelae_bench import machine
from stelae_bench.wal_cases import CEILING, INTERVAL_S, Bodies, SyncMode, WalBenchSettings, WalCase
from stelae_bench.wal_crc_queued import CrcQueued
from stelae_bench.wal_databases import RocksDb, Sqlite, versions
from stelae_bench.wal_large_log import measure_large_log
from stelae_bench.wal_open import BenchMachine, OpenLogs
from stelae_bench.wal_replay import GroupReplay, Raw, RawCrc, RawWritten, replay
from stelae_bench.wal_report import WalReport
from stelae_bench.wal_samples import WalSample, round_of

WARM_UP_S = 0.05
GROW_BYTES = 192 << 20
"""The bytes written to each log on one tablet before the first round. Then its segments have their full length, and the
space of collected ones is reused, as in a log that has run for a while. A slow disk writes less, see ``GROW_S``."""
GROW_S = 1.0
GROW_ENTRY_BYTES = 64 << 10
GROW_IN_FLIGHT = 8
"""Gives groups of half a megabyte. For a group above two, `segmented` keeps no digests of its writes and reads the file
later, during the measurement."""
Note = Callable[[str], None]


def run(settings: WalBenchSettings, note: Note) -> WalReport:
    """Measure, and return the report. However it ends, no process and no file is left.

    Args:
        settings: what to measure.
        note: called with messages about the progress and about participants that are left out.

    Raises:
        UnknownEngine: an engine is not installed; the message lists those that are.
        StelaeError: an engine cannot be loaded, opened or used.
        OSError: the directory cannot be written to.
    """
    described = machine.describe()
    with (
        tempfile.TemporaryDirectory(prefix="stelae-bench-", dir=settings.directory) as folder,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        report = runner.run(_WalBenchRun(settings, note, Path(folder)).run())
    report.machine = {
        **described,
        "versions": described["versions"] | versions(),
        "seed": settings.seed,
        "rounds": settings.rounds,
        "settings": {
            "round_seconds": settings.seconds,
            "log_fast": settings.fast,
            "log_sync": list(dict.fromkeys(case.sync.value for case in settings.cases)),
            "log_sync_interval_seconds": INTERVAL_S,
            "restart_bytes": 0 if settings.quick else settings.restart_bytes,
        },
    }
    return report


class _WalBenchRun:
    """One run in an empty folder."""

    def __init__(self, settings: WalBenchSettings, note: Note, folder: Path) -> None:
        self._settings = settings
        self._note = note
        self._folder = folder
        self._rng = random.Random(settings.seed)
        self._report = WalReport(engines=(*settings.engines, CEILING))
        self._bodies = {size: Bodies(size, settings.seed) for size in {case.entry_bytes for case in settings.cases}}
        self._engines: list[type[WalEngine]] = []
        self._queued: list[type[WalEngine]] = []  # The engines and the ceiling, behind the kernel's writer.
        self._open_logs: dict[
            tuple[str, int, bool], OpenLogs
        ] = {}  # Keyed by name, tablets, and whether every group is synced.
        self._references: list[GroupReplay] = []
        self._groups: dict[tuple[str, WalCase], list[int]] = {}

    async def run(self) -> WalReport:
        self._choose()
        with BenchMachine(fast=self._settings.fast) as bench_machine:
            async with AsyncExitStack() as logs:
                self._open(bench_machine, logs)
                await self._measure()
            if not self._settings.quick and self._report.ok:
                try:
                    await self._large_logs(bench_machine)
                except (StelaeError, OSError) as error:  # The results of the rounds took half an hour and are kept.
                    self._report.problems.append(f"reads, restarts and collection were not measured: {error}")
        return self._report

    def _choose(self) -> None:
        registry = Registry.installed()
        for name in self._settings.engines:
            try:
                self._engines.append(registry.engine(EngineKind.WAL, name))
            except MissingExtra as missing:
                self._leave_out(name, missing)
                if len(self._report.left_out) == len(self._settings.engines):
                    raise
        self._queued = [*self._engines, cast("type[WalEngine]", CrcQueued)]

    def _open(self, bench_machine: BenchMachine, stack: AsyncExitStack) -> None:
        for tablets, always in sorted({(case.tablets, case.sync is SyncMode.ALWAYS) for case in self._settings.cases}):
            unsynced = "" if always else ", for modes that do not always sync"
            self._note(f"opening the engines with {tablets} tablet{'s' * (tablets > 1)}{unsynced}")
            for engine in self._queued:
                place = self._folder / f"{engine.name}-{tablets}-{'always' if always else 'seldom'}"
                logs = OpenLogs(
                    bench_machine, engine, place, tablets, sizes=sorted(self._bodies) if tablets == 1 else ()
                )
                stack.push_async_callback(logs.close)
                self._open_logs[engine.name, tablets, always] = logs
        bench_machine.machine.settle()  # As a node does after its start.
        for kind in (Raw, RawWritten, RawCrc, RocksDb, Sqlite):
            try:
                other = kind(self._folder)
            except MissingExtra as missing:
                self._leave_out(kind.name, missing)
                continue
            stack.callback(other.close)
            self._references.append(other)

    def _leave_out(self, name: str, missing: MissingExtra) -> None:
        self._report.left_out[name] = str(missing)
        self._note(f"{name} is left out: {missing}")

    # -- measuring -------------------------------------------------------------------------------

    async def _measure(self) -> None:
        self._note("warming up")
        await self._grow()
        for case in self._settings.cases:
            for engine in self._queued:
                if self._report.problems:
                    return  # There may be no groups, which the bare loops could write.
                await self._sample(engine.name, case, WARM_UP_S)
        for number in range(1, self._settings.rounds + 1):
            self._note(f"round {number} of {self._settings.rounds}")
            parts = [
                part
                for case in self._settings.cases
                for part in (
                    *[partial(self._measure_engine, engine.name, case) for engine in self._queued],
                    *[partial(self._measure_reference, other, case) for other in self._references],
                )
            ]
            self._rng.shuffle(parts)
            for part in parts:
                if self._report.problems:
                    return
                await part()

    async def _grow(self) -> None:
        bodies = Bodies(GROW_ENTRY_BYTES, self._settings.seed)
        entries = GROW_BYTES // GROW_ENTRY_BYTES
        for logs in [logs for (_, tablets, _), logs in self._open_logs.items() if tablets == 1]:
            for size in self._bodies:
                sample = await logs.measure(bodies, GROW_IN_FLIGHT, GROW_S, entries_max=entries, logs_of=size)
                self._report.problems += sample.problems
                await logs.collect_all()

    async def _measure_engine(self, name: str, case: WalCase) -> None:
        sample = await self._sample(name, case, self._settings.seconds)
        if not sample.problems:
            self._report.rounds[name, case].append(round_of([sample]))

    async def _sample(self, name: str, case: WalCase, seconds: float) -> WalSample:
        logs = self._open_logs[name, case.tablets, case.sync is SyncMode.ALWAYS]
        sample = await logs.measure(self._bodies[case.entry_bytes], case.in_flight, seconds, sync=case.sync)
        self._groups[name, case] = sample.groups
        self._report.problems += sample.problems
        await logs.collect_all()
        _write_back(case.sync)
        return sample

    async def _measure_reference(self, other: GroupReplay, case: WalCase) -> None:
        samples = []
        for engine in self._rng.sample(self._queued, len(self._queued)):
            seconds = self._settings.seconds / len(self._queued)
            groups, bodies = self._groups[engine.name, case], self._bodies[case.entry_bytes]
            sample = replay(other, groups, bodies, seconds, case.sync)
            self._report.replays[other.name, engine.name, case].append(round_of([sample]))
            samples.append(sample)
            await asyncio.sleep(0)
        other.free_space()
        _write_back(case.sync)
        self._report.rounds[other.name, case].append(round_of(samples))

    async def _large_logs(self, bench_machine: BenchMachine) -> None:
        for number in range(1, self._settings.rounds + 1):
            self._note(f"reads, restarts and collection, round {number} of {self._settings.rounds}")
            for engine in self._rng.sample(self._engines, len(self._engines)):
                directory = self._folder / f"large-{engine.name}"
                found = await measure_large_log(
                    bench_machine, engine, directory, self._settings.restart_bytes, self._settings.seed
                )
                self._report.large_logs[engine.name].append(found)


def _write_back(mode: SyncMode) -> None:
    """Let the system write unsynced data now, so that it does not do so during the next measurement."""
    if mode is not SyncMode.ALWAYS:
        os.sync()
