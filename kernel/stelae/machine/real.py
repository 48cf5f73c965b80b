"""The production ``Machine`` (see ``stelae.host.machine``): this process, its event loop and its threads."""

import asyncio
import gc
import os
import random
import secrets
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stelae.host.machine import FaultSeam, LogPath, NodeTurns
from stelae.host.settings import LogSettings
from stelae.machine.faulty_files import FaultyFiles
from stelae.machine.files import RealFiles
from stelae.machine.log_path import PlainLogPath
from stelae.machine.loop_turns import LagProbe, LoopTurns
from stelae.machine.metrics import NodeMetrics
from stelae.machine.system_clock import SystemClock
from stelae.machine.workers import WorkerPool
from stelae.spi.services import Clock, Files, Metrics

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter lock. With Python's default, a finished sync waits 10 ms for it."""

GC_THRESHOLDS = (50_000, 20, 20)
"""Thresholds of Python's cycle collector. With the defaults it often walks all rows in memory, which takes 60 ms."""

Result = TypeVar("Result")


class RealMachine:
    """This process, its event loop and its threads, for one node.

    ``start`` sets the interpreter's switch interval and collector for a server's work. ``files`` and ``clock`` are
    the machine's unless others are given; ``network_faults``, if any, are between its messages and the network."""

    def __init__(
        self, *, files: Files | None = None, clock: Clock | None = None, network_faults: FaultSeam | None = None
    ) -> None:
        self.files: Files = RealFiles() if files is None else files
        self.clock: Clock = SystemClock() if clock is None else clock
        self.figures = NodeMetrics()
        self.metrics: Metrics = self.figures
        self.network_faults = network_faults
        self.pid = os.getpid()
        self.rng: random.Random = secrets.SystemRandom()
        self._pools: list[WorkerPool] = []

    def start(self, on_defect: Callable[[BaseException], None]) -> NodeTurns:
        """Start on the running loop, and measure its lag until ``stop``."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.set_threshold(*GC_THRESHOLDS)
        self._on_defect = on_defect
        self._turns = LoopTurns(asyncio.get_running_loop(), self.clock, on_defect)
        self._probe = LagProbe(self._turns, self.metrics)
        self._probe.start()
        return self._turns

    def pool(self, name: str, threads_max: int) -> WorkerPool:
        """Make a pool of threads."""
        pool = WorkerPool(threads_max, name, self._turns.post)
        self._pools.append(pool)
        return pool

    @property
    def pools(self) -> tuple[WorkerPool, ...]:
        """All pools that were made so far."""
        return tuple(self._pools)

    def log_path(self, settings: LogSettings) -> LogPath:
        """Return the path that ``[log] fast`` chooses. Without the setting, the fast code is not imported."""
        plain = PlainLogPath(
            settings=settings, turns=self._turns, clock=self.clock, metrics=self.metrics, on_crash=self._on_defect
        )
        self.metrics.gauge("log_fast", 0)
        if not settings.fast:
            return plain
        from stelae.machine.fast_log.path import FastLogPath

        return FastLogPath(plain, self.files.seam if isinstance(self.files, FaultyFiles) else None)

    def off_loop(self, work: Callable[[], Result]) -> Awaitable[Result]:
        """Run ``work`` on a thread of the loop's own executor."""
        return asyncio.to_thread(work)

    def settle(self) -> None:
        """Exclude the objects that recovery built from later garbage collections."""
        gc.collect()
        gc.freeze()

    def stop(self) -> None:
        """Stop measuring and end the pools."""
        self._turns.post(self._probe.stop)
        for pool in reversed(self._pools):
            pool.close()
