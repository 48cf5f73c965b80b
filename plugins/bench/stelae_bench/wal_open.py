"""Opens and drives log engines as a node does, with its machine, its driver and its writer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self, cast

from stelae.host.log_writer import LogWriter
from stelae.host.machine import LogPath
from stelae.host.settings import LogSettings, WorkerSettings
from stelae.machine.real import RealMachine
from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, Begun, Outcome, WalEngine
from stelae_bench.wal_cases import Bodies, SyncMode, SyncPace
from stelae_bench.wal_loop import AppendLoop
from stelae_bench.wal_samples import WalSample

PAYLOAD_BYTES_MAX = 64 << 20
"""The bytes of bodies that are acknowledged in a log between two collections.

Nodes collect their logs after each flush, during appends. Between two slots, all logs are collected once they reach
this size together. So a large segment may reuse the space of the one before, and a run needs little disk space."""

_ANY = 0
"""Instead of a size: entries of any size."""

CLOSE_TIMEOUT_S = 30.0
"""The timeout of the last groups. A thread that has failed never completes them."""


class GroupRecorder:
    """Wraps an engine: records the size and the time of each group, and syncs as the mode requires."""

    def __init__(self, engine: WalEngine) -> None:
        self._engine = engine
        self.start(SyncMode.ALWAYS)

    def start(self, mode: SyncMode) -> None:
        """Begin a slot with empty records."""
        self.groups: list[int] = []
        self.commits_us: list[float] = []
        self._mode = mode
        self._pace = SyncPace(mode, time.monotonic())

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Commit a group, and record it. The writer requests a sync of every group."""
        began = time.perf_counter()
        outcomes = self._commit(group, sync=sync)
        self._note(group, began)
        return outcomes

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a commit, if every group is to be synced, and record it."""
        began = time.perf_counter()
        begun = self._engine.begin(group) if self._mode is SyncMode.ALWAYS else None
        if begun is None:
            return None

        def finish(failures: Sequence[StorageError | None]) -> dict[LogId, Outcome]:
            outcomes = begun.finish(failures)
            self._note(group, began)
            return outcomes

        return begun._replace(finish=finish)

    def _note(self, group: Mapping[LogId, Append], began: float) -> None:
        self.commits_us.append((time.perf_counter() - began) * 1e6)
        self.groups.append(sum([len(append.entries) for append in group.values()]))

    def _commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        if self._mode is SyncMode.ALWAYS:
            return self._engine.commit(group, sync=sync)
        outcomes = self._engine.commit(group, sync=False)
        if self._pace.due(time.monotonic()):
            self.sync_all()
        return outcomes

    def sync_all(self) -> None:
        """Sync everything that was written."""
        self._engine.commit({}, sync=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class LogThreadFailed(StelaeError):
    """A log's thread, or a call on the event loop, raised an unexpected error."""

    code = "BENCH_LOG_BROKE"


class BenchMachine:
    """The machine that all engines of a run share. A context manager of the task that measures.

    The task is cancelled when a thread of a log or a call on the event loop fails, because what it waits for may never
    come. Leaving the context then raises ``LogThreadFailed``.

    Args:
        fast: the engines use the preset ``[log] fast``.
    """

    def __init__(self, *, fast: bool = False) -> None:
        self.fast = fast
        self._defect: BaseException | None = None
        self._task = asyncio.current_task()
        self.machine = RealMachine()
        self.turns = self.machine.start(self._failed)
        threads = WorkerSettings()
        self.apply = self.machine.pool("apply", threads.apply_threads)
        workers = self.machine.pool("background", threads.background_threads)
        self.services = EngineServices(
            files=self.machine.files, clock=self.machine.clock, metrics=self.machine.metrics, workers=workers
        )

    def log_path(self) -> LogPath:
        """Return a new log path. Each engine has its own, as on a node."""
        return self.machine.log_path(LogSettings(fast=self.fast))

    def open(self, engine: type[WalEngine], directory: Path, path: LogPath | None = None) -> WalEngine:
        """Open an engine with its default settings, as a node does."""
        return (path or self.log_path()).engine(engine).open(str(directory), engine.Config(), self.services)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.stop()
        if self._defect is not None:
            raise LogThreadFailed(f"a log's thread or the event loop failed: {self._defect!r}") from self._defect

    def _failed(self, defect: BaseException) -> None:
        if self._defect is None and self._task is not None:
            self._defect = defect
            self._task.cancel()


class OpenLogs:
    """One engine, open with ``tablets`` empty logs.

    Args:
        machine: the machine.
        engine: the engine's class.
        directory: the engine's directory, which must not exist.
        tablets: the number of logs.
        sizes: sizes of entries with logs of their own, ``tablets`` for each. Earlier entries of a log affect later
            ones, and a real tablet does not change the size of its entries every second.
        collect_bytes: the acknowledged bytes of each log between two collections; ``math.inf``: never collect.
    """

    def __init__(
        self,
        machine: BenchMachine,
        engine: type[WalEngine],
        directory: Path,
        tablets: int,
        *,
        sizes: Sequence[int] = (),
        collect_bytes: float = PAYLOAD_BYTES_MAX,
    ) -> None:
        self.name = engine.name
        path = machine.log_path()
        self._engine = machine.open(engine, directory, path)
        logs = {size: [LogId(TabletId(f"t{size}-{at:04}"), 1) for at in range(tablets)] for size in sizes or (_ANY,)}
        self.logs = list(chain(*logs.values()))
        for log in self.logs:
            self._engine.create(log, ZERO)
        self._recorder = GroupRecorder(self._engine)
        self._driver = path.drive(cast(WalEngine, self._recorder), machine.apply)
        for log in self.logs:
            self.writer.open_log(log, ZERO)
        self._loops = {
            size: AppendLoop(self.writer, some, machine.turns.defer, self._collect, collect_bytes)
            for size, some in logs.items()
        }
        self._collect_bytes = collect_bytes
        self._payload_bytes = 0.0

    @property
    def writer(self) -> LogWriter:
        """The kernel's log writer."""
        return self._driver.writer

    async def measure(
        self,
        bodies: Bodies,
        in_flight: int,
        seconds: float,
        *,
        sync: SyncMode = SyncMode.ALWAYS,
        entries_max: float = math.inf,
        logs_of: int | None = None,
    ) -> WalSample:
        """Append for ``seconds``, or ``entries_max`` entries. The last ones may be acknowledged a group later.

        Unsynced writes of the mode are synced after the measurement.

        Args:
            bodies: the bodies of the entries.
            in_flight: the number of appends under way on each log.
            seconds: how long to append.
            sync: when writes are synced.
            entries_max: the most entries.
            logs_of: append to the logs of entries of this size, instead of the size of ``bodies``.
        """
        loop = self._loops.get(_ANY) or self._loops[logs_of or bodies.entry_bytes]
        self._recorder.start(sync)
        cpu_s = time.process_time()
        took_s = await loop.run(bodies, in_flight, seconds, entries_max)
        cpu_s = time.process_time() - cpu_s
        latencies_us = loop.latencies_us
        self._payload_bytes += len(latencies_us) * bodies.entry_bytes
        if sync is not SyncMode.ALWAYS:
            await self._job(lambda _engine: self._recorder.sync_all())
        return WalSample(
            seconds=took_s,
            cpu_s=cpu_s,
            latencies_us=latencies_us,
            groups=self._recorder.groups,
            commits_us=self._recorder.commits_us,
            problems=[f"{self.name}: {problem}" for problem in loop.problems],
        )

    async def collect_all(self) -> None:
        """Collect all logs if enough has been written, or if there are several sizes of entries."""
        if self._payload_bytes > self._collect_bytes or len(self._loops) > 1:
            self._payload_bytes = 0.0
            for log, last in chain(*[loop.last.items() for loop in self._loops.values()]):
                await self._job(partial(_collect, log, last))

    async def close(self) -> None:
        """Commit the appends under way, end the thread and close the engine."""
        closed = asyncio.get_running_loop().create_future()
        self.writer.close(closed.set_result)
        try:
            await asyncio.wait_for(closed, CLOSE_TIMEOUT_S)
        finally:
            self._driver.stop()
            self._engine.close()

    def _collect(self, log: LogId, upto: int) -> None:
        self._payload_bytes -= self._collect_bytes
        loop = next(loop for loop in self._loops.values() if log in loop.last)
        self.writer.submit_job(partial(_collect, log, upto), loop.collected)

    async def _job(self, work: Callable[[WalEngine], object]) -> None:
        done = asyncio.get_running_loop().create_future()
        self.writer.submit_job(work, done.set_result)
        result = await done
        if isinstance(result, BaseException):
            raise result


def _collect(log: LogId, last: int, engine: WalEngine) -> object:
    return engine.collect(log, last)
