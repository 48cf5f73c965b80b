"""The run of ``stelae bench wal``: every participant in every case, in interleaved rounds.

Engines are opened once for each number of tablets and go on through all rounds; on one tablet, each size of entries has
a log of its own. Within a round all participants meet all cases in an order drawn anew, so that a slow minute meets all
of them alike. The bare loops and the databases replay the groups that the writer has formed for our engines, each
engine's for an equal part of the time. A short pass before the first round warms up and forms
the first groups."""

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
from stelae_bench.wal_life import measure_life
from stelae_bench.wal_open import Desk, OpenLogs
from stelae_bench.wal_others import RocksDb, Sqlite, versions
from stelae_bench.wal_queued import CrcQueued
from stelae_bench.wal_replay import GroupReplay, Raw, RawCrc, RawWritten, replay
from stelae_bench.wal_report import WalReport
from stelae_bench.wal_samples import WalSample, round_of

WARM_UP_S = 0.05
GROW_BYTES = 192 << 20
"""Written to each log on one tablet before the first round: by then its segments have their full length, and the
space of collected ones is used again, as in a log that has run for a while. On a slow disk less, see ``GROW_S``."""
GROW_S = 1.0
GROW_ENTRY_BYTES = 64 << 10
GROW_IN_FLIGHT = 8
"""Groups of half a megabyte: of one above two `segmented` does not note what it wrote, and reads the file later,
beside what is measured."""
Note = Callable[[str], None]


def run(settings: WalBenchSettings, note: Note) -> WalReport:
    """Measure; no process and no file is left behind, however it ends.

    Args:
        settings: what to do.
        note: told how far it is, and what is left out.

    Raises:
        UnknownEngine: one of the names is not installed; says which are.
        StelaeError: an engine cannot be loaded, opened or used.
        OSError: the directory cannot be written to.
    """
    described = machine.describe()
    with (
        tempfile.TemporaryDirectory(prefix="stelae-bench-", dir=settings.directory) as folder,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        report = runner.run(_Run(settings, note, Path(folder)).run())
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


class _Run:
    """One run in an empty folder."""

    def __init__(self, settings: WalBenchSettings, note: Note, folder: Path) -> None:
        self._settings = settings
        self._note = note
        self._folder = folder
        self._rng = random.Random(settings.seed)
        self._report = WalReport(engines=(*settings.engines, CEILING))
        self._bodies = {size: Bodies(size, settings.seed) for size in {case.entry_bytes for case in settings.cases}}
        self._engines: list[type[WalEngine]] = []
        self._queued: list[type[WalEngine]] = []  # what stands behind the kernel's writer
        self._ours: dict[tuple[str, int, bool], OpenLogs] = {}  # Each mode of sync has logs of its own.
        self._others: list[GroupReplay] = []
        self._groups: dict[tuple[str, WalCase], list[int]] = {}

    async def run(self) -> WalReport:
        self._choose()
        with Desk(fast=self._settings.fast) as desk:
            async with AsyncExitStack() as logs:
                self._open(desk, logs)
                await self._measure()
            if not self._settings.quick and self._report.ok:
                try:
                    await self._lives(desk)
                except (StelaeError, OSError) as error:  # What the rounds have found took half an hour, and stands.
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

    def _open(self, desk: Desk, stack: AsyncExitStack) -> None:
        for tablets, always in sorted({(case.tablets, case.sync is SyncMode.ALWAYS) for case in self._settings.cases}):
            unsynced = "" if always else ", not to sync always"
            self._note(f"opening the engines with {tablets} tablet{'s' * (tablets > 1)}{unsynced}")
            for engine in self._queued:
                place = self._folder / f"{engine.name}-{tablets}-{'always' if always else 'seldom'}"
                logs = OpenLogs(desk, engine, place, tablets, sizes=sorted(self._bodies) if tablets == 1 else ())
                stack.push_async_callback(logs.close)
                self._ours[engine.name, tablets, always] = logs
        desk.machine.settle()  # As a node does once all is open.
        for kind in (Raw, RawWritten, RawCrc, RocksDb, Sqlite):
            try:
                other = kind(self._folder)
            except MissingExtra as missing:
                self._leave_out(kind.name, missing)
                continue
            stack.callback(other.close)
            self._others.append(other)

    def _leave_out(self, name: str, missing: MissingExtra) -> None:
        self._report.left_out[name] = str(missing)
        self._note(f"{name} is left out: {missing}")

    # -- measuring -------------------------------------------------------------------------------

    async def _measure(self) -> None:
        self._note("warming up")
        await self._grow()
        for case in self._settings.cases:
            for engine in self._queued:
                await self._sample(engine.name, case, WARM_UP_S)
        for number in range(1, self._settings.rounds + 1):
            self._note(f"round {number} of {self._settings.rounds}")
            parts = [
                part
                for case in self._settings.cases
                for part in (
                    *[partial(self._measure_ours, engine.name, case) for engine in self._queued],
                    *[partial(self._measure_other, other, case) for other in self._others],
                )
            ]
            self._rng.shuffle(parts)
            for part in parts:
                await part()
                if self._report.problems:
                    return

    async def _grow(self) -> None:
        bodies = Bodies(GROW_ENTRY_BYTES, self._settings.seed)
        entries = GROW_BYTES // GROW_ENTRY_BYTES
        for logs in [logs for (_, tablets, _), logs in self._ours.items() if tablets == 1]:
            for size in self._bodies:
                sample = await logs.measure(bodies, GROW_IN_FLIGHT, GROW_S, entries_max=entries, logs_of=size)
                self._report.problems += sample.problems
                await logs.tidy()

    async def _measure_ours(self, name: str, case: WalCase) -> None:
        sample = await self._sample(name, case, self._settings.seconds)
        if not sample.problems:
            self._report.rounds[name, case].append(round_of([sample]))

    async def _sample(self, name: str, case: WalCase, seconds: float) -> WalSample:
        logs = self._ours[name, case.tablets, case.sync is SyncMode.ALWAYS]
        sample = await logs.measure(self._bodies[case.entry_bytes], case.in_flight, seconds, sync=case.sync)
        self._groups[name, case] = sample.groups
        self._report.problems += sample.problems
        await logs.tidy()
        _write_back(case.sync)
        return sample

    async def _measure_other(self, other: GroupReplay, case: WalCase) -> None:
        samples = []
        for engine in self._rng.sample(self._queued, len(self._queued)):
            seconds = self._settings.seconds / len(self._queued)
            groups, bodies = self._groups[engine.name, case], self._bodies[case.entry_bytes]
            sample = replay(other, groups, bodies, seconds, case.sync)
            self._report.replays[other.name, engine.name, case].append(round_of([sample]))
            samples.append(sample)
            await asyncio.sleep(0)
        other.tidy()
        _write_back(case.sync)
        self._report.rounds[other.name, case].append(round_of(samples))

    async def _lives(self, desk: Desk) -> None:
        for number in range(1, self._settings.rounds + 1):
            self._note(f"reads, restarts and collection, round {number} of {self._settings.rounds}")
            for engine in self._rng.sample(self._engines, len(self._engines)):
                directory = self._folder / f"life-{engine.name}"
                life = await measure_life(desk, engine, directory, self._settings.restart_bytes, self._settings.seed)
                self._report.lives[engine.name].append(life)


def _write_back(mode: SyncMode) -> None:
    """Have the system write what a mode left in its cache, which it would do beside whoever is measured next."""
    if mode is not SyncMode.ALWAYS:
        os.sync()
