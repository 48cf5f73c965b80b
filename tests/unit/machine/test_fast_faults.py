"""Disk faults on the fast way, through the system's own ring: each write fails in the kernel, and nothing is mocked.

The descriptor of the open segment is redirected (``dup2``): to ``/dev/full``, where a write finds no space, or to a
descriptor that is open for reading only, where the system refuses it. The ring writes to whatever the number means."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stelae.host.settings import LogSettings
from stelae.machine.event_loop import new_event_loop
from stelae.machine.fast_log.ring_driver import RingDriver
from stelae.machine.files import RealFile, RealFiles
from stelae.machine.real import RealMachine
from stelae.spi.errors import Full, SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.services import EngineServices
from stelae.spi.wal import Durable, Failed, Outcome, WalEngine
from stelae.testing.rings import ring_of_this_system
from stelae.testing.wal_harness import fake_services
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_shared import SharedConfig, SharedWal

LOG = LogId(TabletId("tablet"), 1)
TIMEOUT_S = 30
SEGMENT_BYTES = 256 << 10
CONFIGS: dict[type[WalEngine], Any] = {
    SegmentedWal: SegmentedConfig(
        segment_bytes_first=SEGMENT_BYTES, segment_bytes_max=SEGMENT_BYTES, prewrite_bytes_min=SEGMENT_BYTES
    ),
    SharedWal: SharedConfig(
        segment_bytes_first=SEGMENT_BYTES, segment_bytes_max=SEGMENT_BYTES, prewrite_bytes_min=SEGMENT_BYTES
    ),
}


def entry_at(index: int) -> Entry:
    return Entry(OpId(1, index), EntryKind.WRITE, index, f"<{index}>".encode() * 500)


class TracedFiles(RealFiles):
    """Real files that remember the one opened last for writing: the open segment."""

    segment: RealFile

    def open(self, path: str, *, writable: bool = False) -> RealFile:
        file = super().open(path, writable=writable)
        if writable and path.endswith(".seg"):
            self.segment = file
        return file


class Scene:
    """A node's log on the fast way, with one tablet."""

    def __init__(self, place: Path, kind: type[WalEngine]) -> None:
        self.files = TracedFiles()
        self.machine = RealMachine(files=self.files)
        self.defects: list[BaseException] = []
        self.machine.start(self.defects.append)
        path = self.machine.log_path(LogSettings(fast=True))
        pool = self.machine.pool("background", 2)
        services = EngineServices(self.files, self.machine.clock, self.machine.metrics, pool)
        self.engine = path.engine(kind).open(str(place / "wals"), CONFIGS[kind], services)
        self.engine.create(LOG, ZERO)
        driver = path.drive(self.engine, pool)
        assert isinstance(driver, RingDriver)
        self.driver = driver
        self.driver.writer.open_log(LOG, ZERO)
        self.by_ring = 0
        begin = driver._ring.begin

        def counting(*arguments: Any) -> bool:
            begun = begin(*arguments)
            self.by_ring += begun
            return begun

        driver._ring.begin = counting  # type: ignore[method-assign]
        self.next = 1

    async def append(self) -> Outcome:
        """Append one entry; its outcome."""
        writer = self.driver.writer
        entry, self.next = entry_at(self.next), self.next + 1
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        writer.append_async(writer.reserve(LOG, entry.size_bytes), (entry,), done=told.set_result)
        async with asyncio.timeout(TIMEOUT_S):
            return await told

    async def fill(self, count: int) -> None:
        """Append entries that are all durable."""
        for _ in range(count):
            outcome = await self.append()
            assert outcome == Durable(OpId(1, self.next - 1))

    async def repair(self) -> object:
        told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.driver.writer.repair(LOG, told.set_result)
        async with asyncio.timeout(TIMEOUT_S):
            return await told

    def redirect(self, target: int) -> Callable[[], None]:
        """Have the descriptors of the open segment mean another file; returns what undoes it."""
        file, direct = self.files.segment, self.driver._ring._direct
        numbers = [number for number in (file.fileno(), direct.of(file)) if number >= 0]
        saved = [os.dup(number) for number in numbers]
        for number in numbers:
            os.dup2(target, number)
        os.close(target)

        def undo() -> None:
            for number, was in zip(numbers, saved, strict=True):
                if number in (file._fd, direct.of(file) if file._fd >= 0 else -1):
                    os.dup2(was, number)  # Else the engine has closed it, and the number may mean another file.
                os.close(was)

        return undo

    async def stop(self) -> None:
        closed = asyncio.get_running_loop().create_future()
        self.driver.writer.close(closed.set_result)
        async with asyncio.timeout(TIMEOUT_S):
            await closed
        self.driver.stop()
        await asyncio.sleep(0)
        self.engine.close()
        self.machine.stop()
        assert not self.defects


def run(check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    ring_of_this_system(1).close()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(check())


def holds(place: Path, kind: type[WalEngine], last: int) -> None:
    """Both engines find all that was acknowledged, and no more."""
    for opened in (kind, kind.fast()):
        assert opened is not None
        engine = opened.open(str(place / "wals"), CONFIGS[kind], fake_services(RealFiles()))
        assert engine.logs()[LOG].last.index == last
        assert engine.read(LOG, 1, last + 1, 1 << 30) == [entry_at(index) for index in range(1, last + 1)]
        engine.close()


ROLLED = [3, 300]
"""Entries before the fault: in a file that was only reserved, and in one that was written with zeros."""


@pytest.mark.parametrize("before", ROLLED)
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_full_disk_fails_the_append_as_full_and_the_log_resumes_after_repair(
    tmp_path: Path, kind: type[WalEngine], before: int
) -> None:
    async def check() -> None:
        scene = Scene(tmp_path, kind)
        await scene.fill(before)
        assert scene.by_ring > 0
        undo, began = scene.redirect(os.open("/dev/full", os.O_RDWR)), scene.by_ring
        outcome = await scene.append()
        # The ring's own answer, taken before anything else asks the disk.
        assert scene.by_ring == began + 1
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, Full)
        assert outcome.durable == OpId(1, before)
        assert scene.engine.logs()[LOG].last == OpId(1, before)
        undo()
        assert await scene.repair() == OpId(1, before)
        scene.next = before + 1
        await scene.fill(20)
        await scene.stop()
        holds(tmp_path, kind, before + 20)

    run(check)


@pytest.mark.parametrize("before", ROLLED)
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_write_that_the_system_refuses_fails_the_log_for_good(
    tmp_path: Path, kind: type[WalEngine], before: int
) -> None:
    async def check() -> None:
        scene = Scene(tmp_path, kind)
        await scene.fill(before)
        undo = scene.redirect(os.open(scene.files.segment.path, os.O_RDONLY))
        began = scene.by_ring
        outcome = await scene.append()
        assert scene.by_ring == began + 1
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, SyncFailed)
        assert "Bad file descriptor" in str(outcome.error)
        assert outcome.durable == OpId(1, before)
        undo()
        assert isinstance(await scene.repair(), SyncFailed)
        with pytest.raises(SyncFailed):  # Also with a disk that works again.
            await scene.append()
        await scene.stop()
        engine = kind.open(str(tmp_path / "wals"), CONFIGS[kind], fake_services(RealFiles()))
        state = engine.logs()[LOG]
        assert state.damage is not None and state.damage.last_good == OpId(1, before)
        engine.close()

    run(check)
