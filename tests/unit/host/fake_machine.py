"""The least machine that a node can run on: a disk in memory, a clock that counts, no threads.

Work of pools and of the log runs in a later turn of the event loop. What a booting node never asks of a disk is not
there. Made of ``stelae.spi`` and ``stelae.host`` alone."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from stelae.host.log_writer import LogWriter
from stelae.host.settings import LogSettings
from stelae.spi.ids import LogId
from stelae.spi.services import Buffer
from stelae.spi.wal import WalEngine

WALL_US = 1_700_000_000_000_000


class FakeFile:
    def __init__(self, data: bytearray) -> None:
        self._data = data

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._data[offset : offset + size])

    def pwritev(self, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        data = b"".join(buffers)
        self._data[offset : offset + len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        pass


class FakeLock:
    def release(self) -> None:
        pass


class FakeFiles:
    """Files by path; a directory is a path that some file or ``make_directory`` named."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._directories = {"/"}

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def listdir(self, path: str) -> list[str]:
        return sorted(name.removeprefix(f"{path}/") for name in self._files if name.rpartition("/")[0] == path)

    def make_directory(self, path: str) -> None:
        self._directories.add(path)

    def sync_directory(self, path: str) -> None:
        pass

    def open(self, path: str, *, writable: bool = False) -> FakeFile:
        if path not in self._files:
            raise FileNotFoundError(path)
        return FakeFile(self._files[path])

    def read_bytes(self, path: str) -> bytes:
        with_file = self.open(path)
        return with_file.pread(with_file.size(), 0)

    def replace(self, path: str, data: Buffer) -> None:
        self._files[path] = bytearray(data)

    def lock(self, path: str) -> FakeLock:
        self._files[path] = bytearray()
        return FakeLock()


class FakeClock:
    """Every look at it finds a microsecond more."""

    def __init__(self) -> None:
        self._ticks = itertools.count(1)

    def monotonic_us(self) -> int:
        return next(self._ticks)

    def wall_us(self) -> int:
        return WALL_US + next(self._ticks)


class FakeMetrics:
    def count(self, name: str, amount: int = 1) -> None:
        pass

    def gauge(self, name: str, value: float) -> None:
        pass

    def histogram(self, name: str) -> Callable[[int], None]:
        return lambda _value: None


class FakeTurns:
    """Runs what was deferred in the loop's next turn; timers never run."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    def now_us(self) -> int:
        return self._clock.monotonic_us()

    def defer(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    defer_last = defer

    def call_at(self, when_us: int, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(3600, call)


class FakePool:
    def __init__(self, turns: FakeTurns) -> None:
        self._turns = turns

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._turns.defer(lambda: done(work()))

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        self.run("", work, done or (lambda _result: None))


class FakeLogDriver:
    """Commits to the engine in a later turn of the loop."""

    def __init__(self, engine: WalEngine, pool: FakePool, turns: FakeTurns, settings: LogSettings) -> None:
        self._engine, self._pool, self._turns = engine, pool, turns
        self.reader = self
        self.writer = LogWriter(
            lock=threading.Lock(),
            wake=self._wake,
            post=self._post,
            queue_bytes_max=settings.queue_bytes_max,
            group_bytes_max=settings.group_bytes_max,
        )

    def read(self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[Any], None]) -> None:
        self._pool.run(str(log), lambda: self._engine.read(log, first, end, bytes_max), done)

    def stop(self) -> None:
        pass

    def _wake(self) -> None:
        self._turns.defer(self._drain)

    def _drain(self) -> None:
        while (work := self.writer.take_work()) is not None:
            self.writer.post(self.writer.perform(work, self._engine))

    def _post(self, completions: Sequence[tuple[Callable[[Any], None], Any]]) -> None:
        for callback, argument in completions:
            callback(argument)


class FakeLogPath:
    def __init__(self, turns: FakeTurns, settings: LogSettings) -> None:
        self._turns = turns
        self._settings = settings

    def engine(self, engine: type[WalEngine]) -> type[WalEngine]:
        return engine

    def drive(self, engine: WalEngine, pool: Any) -> FakeLogDriver:
        return FakeLogDriver(engine, pool, self._turns, self._settings)


class FakeMachine:
    def __init__(self) -> None:
        self.files: Any = FakeFiles()
        self.clock = FakeClock()
        self.metrics = FakeMetrics()
        self.network_faults = None
        self.pid = 1
        self.rng = random.Random(1)
        self.threads: dict[str, int] = {}  #: Of each pool.

    def start(self, on_defect: Callable[[BaseException], None]) -> FakeTurns:
        self._turns = FakeTurns(self.clock)
        return self._turns

    def pool(self, name: str, threads_max: int) -> FakePool:
        self.threads[name] = threads_max
        return FakePool(self._turns)

    def log_path(self, settings: LogSettings) -> FakeLogPath:
        return FakeLogPath(self._turns, settings)

    async def off_loop(self, work: Callable[[], Any]) -> Any:
        return work()

    def settle(self) -> None:
        pass

    def stop(self) -> None:
        pass
