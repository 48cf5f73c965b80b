"""Who has the log engine when: the loop where a commit can be begun, the thread for all else, never both."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.host.settings import LogSettings
from stelae.machine.event_loop import new_event_loop
from stelae.machine.fast_log.ring_driver import RingDriver
from stelae.machine.fast_log.ring_writes import BYTES_MAX, Failures
from stelae.machine.files import RealFiles
from stelae.machine.log_driver import EngineDriver
from stelae.machine.real import RealMachine
from stelae.spi.errors import StorageError, SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, Begun, Durable, Failed, Outcome, WalEngine, Write
from stelae.testing.wal_harness import fake_services
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_shared import SharedConfig, SharedWal

LOG = LogId(TabletId("tablet"), 1)


class Engine:
    """Says what is done to it, by whom, and that nobody comes while somebody is there."""

    def __init__(self) -> None:
        self.begins = True
        self.raises: Exception | None = None
        self.calls: list[str] = []
        self._loop_thread = threading.get_ident()
        self.busy = False

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        assert threading.get_ident() == self._loop_thread
        assert not self.busy, "begin while something has begun"
        if not self.begins:
            return None
        self.calls.append("begin")

        def finish(failures: Sequence[StorageError | None]) -> dict[LogId, Outcome]:
            blocks = any(failures)
            assert (threading.get_ident() == self._loop_thread) is not blocks
            self.busy = False
            self.calls.append("finish failed" if blocks else "finish")
            if self.raises is not None:
                raise self.raises
            return self._outcomes(group, next((one for one in failures if one is not None), None))

        def meanwhile() -> None:
            assert threading.get_ident() == self._loop_thread and self.busy
            self.calls.append("meanwhile")

        return Begun([Write(None, [b"data"], 0)], finish, meanwhile)  # type: ignore[arg-type]

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        assert sync and threading.get_ident() != self._loop_thread
        self._alone("commit")
        return self._outcomes(group, None)

    def work(self, _engine: object) -> str:
        assert threading.get_ident() != self._loop_thread
        self._alone("job")
        return "done"

    def _alone(self, call: str) -> None:
        assert not self.busy, f"{call} while something has begun"
        self.calls.append(call)

    def _outcomes(self, group: Mapping[LogId, Append], error: StorageError | None) -> dict[LogId, Outcome]:
        if error is not None:
            return {log: Failed(error, ZERO) for log in group}
        return {log: Durable(append.entries[-1].op_id) for log, append in group.items()}


class Ring:
    """Takes writes while it is ``open``; they are over when the test says so."""

    engine: Engine

    def __init__(self) -> None:
        self.open = True
        self.waiting: list[Callable[[Failures], None]] = []
        self.closed = False
        self.waited_for = -1
        self.left: Failures = (None,)

    def begin(self, writes: Sequence[Write], done: Callable[[Failures], None]) -> bool:
        if self.open:
            self.engine.busy = True
            self.waiting.append(done)
        return self.open

    def wait(self) -> list[Failures]:
        self.waited_for = len(self.waiting)
        return [self.left for _ in self.waiting]

    def close(self) -> None:
        self.closed = True

    def answer(self, failure: StorageError | None = None) -> None:
        """What is under way is over."""
        self.waiting.pop(0)([failure])


class Scene:
    """A driver of an engine, on a machine of its own."""

    def __init__(self, ring: Ring | None) -> None:
        self.machine = RealMachine()
        self.defects: list[BaseException] = []
        turns = self.machine.start(self.defects.append)
        self.engine = Engine()
        if ring is not None:
            ring.engine = self.engine
        kind: Callable[..., EngineDriver] = EngineDriver if ring is None else partial(RingDriver, ring, None)
        self.driver = kind(
            self.engine,
            pool=self.machine.pool("apply", 1),
            turns=turns,
            clock=self.machine.clock,
            metrics=self.machine.metrics,
            queue_bytes_max=8 << 20,
            group_bytes_max=8 << 20,
            on_crash=self.defects.append,
        )
        self.writer = self.driver.writer
        self.writer.open_log(LOG, ZERO)
        self.told: list[int | str] = []
        self._next = 1

    def append(self, body: bytes = b"body") -> None:
        index, self._next = self._next, self._next + 1
        entry = Entry(OpId(1, index), EntryKind.WRITE, index, body)

        def done(outcome: Outcome) -> None:
            self.told.append(outcome.last.index if isinstance(outcome, Durable) else "failed")

        self.writer.append_async(self.writer.reserve(LOG, entry.size_bytes), (entry,), done=done)

    def job(self) -> None:
        self.writer.submit_job(self.engine.work, self.told.append)

    async def settle(self, told: int) -> None:
        """Wait until this many outcomes have arrived."""
        async with asyncio.timeout(30):
            while len(self.told) < told and not self.defects:
                await asyncio.sleep(0.001)

    async def stop(self) -> None:
        closed = asyncio.get_running_loop().create_future()
        self.writer.close(closed.set_result)
        async with asyncio.timeout(30):
            await closed
        self.driver.stop()
        await asyncio.sleep(0)
        self.machine.stop()


def run(check: Callable[[Scene], Coroutine[Any, Any, None]], ring: Ring | None) -> Scene:
    async def whole() -> Scene:
        scene = Scene(ring)
        await check(scene)
        return scene

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(whole())


def test_what_can_be_begun_needs_no_thread() -> None:
    ring = Ring()

    async def check(scene: Scene) -> None:
        for round_ in range(3):
            scene.append()
            scene.append()
            await asyncio.sleep(0.01)
            scene.append()  # while the first two are under way
            assert len(ring.waiting) == 1
            assert len(scene.told) == round_ * 3
            ring.answer()
            await scene.settle(round_ * 3 + 2)
            ring.answer()
            await scene.settle(round_ * 3 + 3)
        await scene.stop()
        assert scene.told == list(range(1, 10))
        assert scene.engine.calls == ["begin", "meanwhile", "finish"] * 6
        assert ring.closed

    run(check, ring)


@pytest.mark.parametrize("who", ["engine", "ring", "rules for a disk that fails"])
def test_what_cannot_be_begun_is_committed_by_the_thread_and_the_next_is_begun_again(who: str) -> None:
    ring = Ring()

    async def check(scene: Scene) -> None:
        for share in range(6):
            able = share % 2 == 1
            if who == "engine":
                scene.engine.begins = able
            elif who == "ring":
                ring.open = able
            else:
                scene.driver._faults = SimpleNamespace(active=not able)  # type: ignore[assignment]
            scene.append()
            if able:
                await asyncio.sleep(0.01)
                ring.answer()
            await scene.settle(share + 1)
        await scene.stop()
        assert scene.told == [1, 2, 3, 4, 5, 6]
        ways = [call for call in scene.engine.calls if call not in ("begin", "meanwhile")]
        assert ways == ["commit", "finish"] * 3
        assert scene.defects == []

    run(check, ring)


def test_what_takes_long_to_encode_is_left_to_the_thread() -> None:
    ring = Ring()

    async def check(scene: Scene) -> None:
        scene.append(bytes(BYTES_MAX + 1))
        await scene.settle(1)
        scene.append(bytes(BYTES_MAX // 2))
        await asyncio.sleep(0.01)
        ring.answer()
        await scene.settle(2)
        await scene.stop()
        assert scene.engine.calls == ["commit", "begin", "meanwhile", "finish"]

    run(check, ring)


def test_a_job_waits_for_what_is_under_way_and_what_follows_for_the_job() -> None:
    ring = Ring()

    async def check(scene: Scene) -> None:
        scene.append()
        await asyncio.sleep(0.01)
        scene.job()
        scene.append()
        await asyncio.sleep(0.02)
        assert scene.told == []
        ring.answer()
        await scene.settle(2)
        await asyncio.sleep(0.01)
        ring.answer()
        await scene.settle(3)
        await scene.stop()
        assert scene.told == [1, "done", 2]
        assert scene.engine.calls == ["begin", "meanwhile", "finish", "job", "begin", "meanwhile", "finish"]

    run(check, ring)


def test_a_failure_is_dealt_with_off_the_loop_and_the_engine_goes_on() -> None:
    ring = Ring()

    async def check(scene: Scene) -> None:
        scene.append()
        await asyncio.sleep(0.01)
        scene.append()
        ring.answer(SyncFailed("the write failed", path="/log"))
        await scene.settle(2)
        assert scene.told == ["failed", "failed"]
        scene.job()
        await scene.settle(3)
        await scene.stop()
        assert scene.engine.calls == ["begin", "meanwhile", "finish failed", "job"]

    run(check, ring)


def test_an_engine_that_breaks_its_contract_is_reported() -> None:
    ring = Ring()

    async def check(scene: Scene) -> None:
        scene.engine.raises = RuntimeError("broken")
        scene.append()
        await asyncio.sleep(0.01)
        ring.answer()
        await scene.settle(1)
        assert [str(defect) for defect in scene.defects] == ["broken"]
        assert scene.told == []

    run(check, ring)


def test_what_is_under_way_when_a_node_crashes_is_waited_for_and_not_finished() -> None:
    ring = Ring()

    async def check(scene: Scene) -> None:
        scene.append()
        await asyncio.sleep(0.01)
        scene.append()
        await asyncio.to_thread(scene.driver.stop)
        assert ring.waited_for == 1
        ring.answer()
        scene.append()
        await asyncio.sleep(0.02)
        assert scene.engine.calls == ["begin", "meanwhile"]
        assert scene.told == []
        scene.machine.stop()

    run(check, ring)


@pytest.mark.parametrize("answered", [False, True])
def test_what_failed_when_a_node_crashes_is_finished_and_nobody_is_told(answered: bool) -> None:
    """Else the engine would close its logs as if they were whole, and the next start believe that."""
    ring = Ring()
    failure = SyncFailed("the write failed", path="/log")

    async def check(scene: Scene) -> None:
        scene.append()
        await asyncio.sleep(0.01)
        stopping = threading.Thread(target=scene.driver.stop)
        if answered:
            ring.answer(failure)  # Its turn on the loop comes too late.
        else:
            ring.left = (failure,)
        stopping.start()
        stopping.join()
        await asyncio.sleep(0.02)
        assert scene.engine.calls == ["begin", "meanwhile", "finish failed"]
        assert scene.told == [] and scene.defects == []
        scene.machine.stop()

    run(check, ring)


def test_without_a_ring_the_thread_does_everything() -> None:
    async def check(scene: Scene) -> None:
        for _ in range(20):
            scene.append()
            scene.job()
            await asyncio.sleep(0)
        await scene.settle(40)
        await scene.stop()
        assert [one for one in scene.told if one != "done"] == list(range(1, 21))
        assert set(scene.engine.calls) == {"commit", "job"}

    run(check, None)


# -- with real engines, and whatever this system has -----------------------------------------------

SEGMENTED = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=16384, prewrite_bytes_min=8192)
SHARED = SharedConfig(segment_bytes_first=8192, segment_bytes_max=32768, prewrite_bytes_min=8192)


class Writers:
    """Random appends and jobs on many logs of one engine; what was acknowledged is remembered."""

    cool_share = 0.1

    def __init__(self, driver: EngineDriver, logs: Sequence[LogId], seed: int) -> None:
        self.rng = random.Random(seed)
        self.driver = driver
        self.last = dict.fromkeys(logs, 0)
        self.durable = dict.fromkeys(logs, 0)
        self.problems: list[object] = []
        self.left = 0
        for log in logs:
            driver.writer.open_log(log, ZERO)

    async def run(self, count: int) -> None:
        self.left = count
        for _ in range(count):
            self._step()
            if self.rng.random() < 0.3:
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while self.left:
                await asyncio.sleep(0.001)

    def _step(self) -> None:
        log = self.rng.choice(list(self.last))
        if self.rng.random() < self.cool_share:
            self.driver.writer.submit_job(lambda engine: engine.cool(log), self._job_done)
            return
        first, count = self.last[log] + 1, self.rng.randint(1, 4)
        self.last[log] += count
        entries = tuple([entry_at(log, index) for index in range(first, first + count)])
        slot = self.driver.writer.reserve(log, sum([entry.size_bytes for entry in entries]))
        self.driver.writer.append_async(
            slot, entries, done=lambda outcome: self._appended(log, first + count - 1, outcome)
        )

    def _appended(self, log: LogId, last: int, outcome: Outcome) -> None:
        self.left -= 1
        if not isinstance(outcome, Durable) or outcome.last.index != last or self.durable[log] >= last:
            self.problems.append((log, last, outcome))
        self.durable[log] = last

    def _job_done(self, result: object) -> None:
        self.left -= 1
        if result is not None:
            self.problems.append(result)


def write_for_real(
    place: Path,
    engine_type: type[WalEngine],
    config: Any,
    settings: LogSettings,
    logs: Sequence[LogId],
    write: Callable[[EngineDriver], Coroutine[Any, Any, Writers]],
) -> dict[str, float]:
    """Have logs written on real files, and close them: nothing goes wrong. Returns the engine's figures."""

    async def whole() -> dict[str, float]:
        machine = RealMachine()
        defects: list[BaseException] = []
        machine.start(defects.append)
        workers = machine.pool("background", 2)
        services = EngineServices(machine.files, machine.clock, machine.metrics, workers)
        path = machine.log_path(settings)
        engine = path.engine(engine_type).open(str(place / "wals"), config, services)
        for log in logs:
            engine.create(log, ZERO)
        driver = path.drive(engine, workers)
        assert isinstance(driver, EngineDriver)
        writers = await write(driver)
        closed = asyncio.get_running_loop().create_future()
        driver.writer.close(closed.set_result)
        await closed
        driver.stop()
        figures = engine.stats()
        engine.close()
        machine.stop()
        assert (defects, writers.problems) == ([], [])
        assert writers.durable == writers.last
        return figures

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(whole())


def entry_at(log: LogId, index: int) -> Entry:
    """What stands there."""
    return Entry(OpId(1, index), EntryKind.WRITE, index, f"{log}/{index};".encode() * (index % 60))


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("engine_type", "config"), [(SegmentedWal, SEGMENTED), (SharedWal, SHARED)])
def test_all_that_was_acknowledged_is_there_again(
    tmp_path: Path, engine_type: type[WalEngine], config: Any, fast: bool
) -> None:
    logs = [LogId(TabletId(f"t{number}"), 1) for number in range(6)]

    async def write(driver: EngineDriver) -> Writers:
        writers = Writers(driver, logs, 7)
        await writers.run(600)
        return writers

    write_for_real(tmp_path, engine_type, config, LogSettings(fast=fast), logs, write)
    engine = engine_type.open(str(tmp_path / "wals"), config, fake_services(RealFiles()))
    for log in logs:
        last = engine.logs()[log].last.index
        assert last > 50
        assert engine.read(log, 1, last + 1, 1 << 30) == [entry_at(log, index) for index in range(1, last + 1)]
    engine.close()
