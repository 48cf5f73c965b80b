"""Our log engines, opened and driven as a node does it: its machine, its driver, its writer."""

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
"""So much is acknowledged of a log between two collections, as a node's logs are collected after each flush: beside
appends, and what remains of all logs together between two slots. So a large segment may get the space of the one
before, and a run needs little disk."""

_ANY = 0
"""In place of a size: entries of any."""

CLOSE_TIMEOUT_S = 30.0
"""For the last groups; a thread that has failed never says that it is done."""


class Recorder:
    """Stands before an engine: notes what each group holds and how long it takes, and syncs as the mode says."""

    def __init__(self, engine: WalEngine) -> None:
        self._engine = engine
        self.start(SyncMode.ALWAYS)

    def start(self, mode: SyncMode) -> None:
        """Begin a slot."""
        self.groups: list[int] = []
        self.commits_us: list[float] = []
        self._mode = mode
        self._pace = SyncPace(mode, time.monotonic())

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Commit as the engine does; the writer asks for every group to be synced."""
        began = time.perf_counter()
        outcomes = self._commit(group, sync=sync)
        self._note(group, began)
        return outcomes

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a commit as the engine does, where every group is to be synced."""
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
            self.settle()
        return outcomes

    def settle(self) -> None:
        """Make durable what was written."""
        self._engine.commit({}, sync=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class LogBroke(StelaeError):
    """A log's thread, or a call on the loop, raised what nobody may raise."""

    code = "BENCH_LOG_BROKE"


class Desk:
    """The machine that all engines of a run share: a context of the task that measures.

    The task is cancelled when a thread of a log or a call on the loop fails, because what it waits for may never come;
    leaving the context then raises ``LogBroke``. ``fast``: the engines are written to by the preset ``[log] fast``."""

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
        """How an engine is written to; one for each engine, as a node has one."""
        return self.machine.log_path(LogSettings(fast=self.fast))

    def open(self, engine: type[WalEngine], directory: Path, path: LogPath | None = None) -> WalEngine:
        """Open an engine with its default settings, as a node would."""
        return (path or self.log_path()).engine(engine).open(str(directory), engine.Config(), self.services)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.stop()
        if self._defect is not None:
            raise LogBroke(f"a log's thread or the loop failed: {self._defect!r}") from self._defect

    def _failed(self, defect: BaseException) -> None:
        if self._defect is None and self._task is not None:
            self._defect = defect
            self._task.cancel()


class OpenLogs:
    """One engine with so many empty logs.

    Args:
        engine: its class.
        directory: where; must not exist.
        sizes: entries of each of these have logs of their own, so many again. What a log has taken before shows in
            what it takes now, and a tablet does not change its size of entries every second.
        collect_bytes: what is collected whenever so much was acknowledged of each log; ``math.inf``: nothing.
    """

    def __init__(
        self,
        desk: Desk,
        engine: type[WalEngine],
        directory: Path,
        tablets: int,
        *,
        sizes: Sequence[int] = (),
        collect_bytes: float = PAYLOAD_BYTES_MAX,
    ) -> None:
        self.name = engine.name
        path = desk.log_path()
        self._engine = desk.open(engine, directory, path)
        logs = {size: [LogId(TabletId(f"t{size}-{at:04}"), 1) for at in range(tablets)] for size in sizes or (_ANY,)}
        self.logs = list(chain(*logs.values()))
        for log in self.logs:
            self._engine.create(log, ZERO)
        self._recorder = Recorder(self._engine)
        self._driver = path.drive(cast(WalEngine, self._recorder), desk.apply)
        for log in self.logs:
            self.writer.open_log(log, ZERO)
        self._loops = {
            size: AppendLoop(self.writer, some, desk.turns.defer, self._collect, collect_bytes)
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
        """Append for a while, or so many entries; the last may be acknowledged a group later.

        What the mode left unsynced is synced after the time has been taken.

        Args:
            logs_of: append to the logs of this size, and not to those of the size of ``bodies``.
        """
        loop = self._loops.get(_ANY) or self._loops[logs_of or bodies.entry_bytes]
        self._recorder.start(sync)
        cpu_s = time.process_time()
        took_s = await loop.run(bodies, in_flight, seconds, entries_max)
        cpu_s = time.process_time() - cpu_s
        latencies_us = loop.latencies_us
        self._payload_bytes += len(latencies_us) * bodies.entry_bytes
        if sync is not SyncMode.ALWAYS:
            await self._job(lambda _engine: self._recorder.settle())
        return WalSample(
            seconds=took_s,
            cpu_s=cpu_s,
            latencies_us=latencies_us,
            groups=self._recorder.groups,
            commits_us=self._recorder.commits_us,
            problems=[f"{self.name}: {problem}" for problem in loop.problems],
        )

    async def tidy(self) -> None:
        """Collect everything once much has been written, or before another size of entries has its turn."""
        if self._payload_bytes > self._collect_bytes or len(self._loops) > 1:
            self._payload_bytes = 0.0
            for log, last in chain(*[loop.last.items() for loop in self._loops.values()]):
                await self._job(partial(_collect, log, last))

    async def close(self) -> None:
        """Commit what is under way, end the thread and close the engine."""
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
