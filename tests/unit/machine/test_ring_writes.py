"""Writes by a ring: what its answers come to. The ring is a double, which answers as it is told."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from stelae.machine.fast_log import direct_io, ring_writes
from stelae.machine.fast_log.direct_io import ArenaRange
from stelae.machine.fast_log.ring_writes import BYTES_MAX, Failures, RingWrites
from stelae.machine.files import RealFile, RealFiles
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import Full, StorageError, SyncFailed
from stelae.spi.wal import Write

SECTOR = 512


class FakeRing:
    """Writes nothing; takes ``room`` writes of each call, and answers when told."""

    entries = 4

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        self._answers: list[tuple[int, int]] = []
        self.calls: list[tuple[int, int, bytes | ArenaRange, int]] = []
        self.room = 99
        self.under_way = 0

    def fileno(self) -> int:
        return self._reading

    def write(self, writes: Sequence[tuple[int, int, bytes | ArenaRange, int]]) -> int:
        begun = writes[: self.room]
        self.calls += begun
        self.under_way += len(begun)
        return len(begun)

    def answer(self, position: int, result: int) -> None:
        """Answer the write that was begun as the ``position``-th."""
        if not self._answers:
            os.write(self._writing, b"!")
        self._answers.append((self.calls[position][0], result))

    def answers(self) -> list[tuple[int, int]]:
        if self._answers:
            os.read(self._reading, 9)
        found, self._answers = self._answers, []
        self.under_way -= len(found)
        return found

    def is_over(self) -> bool:
        return self.under_way == len(self._answers)

    def close(self) -> None:
        os.close(self._writing)
        os.close(self._reading)
        self._reading = -1


class Pool:
    """Runs what it is given later on, when told."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.refuses: Exception | None = None

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.waiting.append((work, done))

    def work(self) -> None:
        while self.waiting:
            work, done = self.waiting.pop(0)
            done(work())


class Scene:
    def __init__(self, directory: Path) -> None:
        self.ring = FakeRing()
        self.pool = Pool()
        self.defects: list[BaseException] = []
        self.writes = RingWrites(self.ring, asyncio.get_running_loop(), self.pool, self.defects.append)  # type: ignore[arg-type]
        self.files = [RealFiles().create(str(directory / f"{number}")) for number in range(3)]
        self.told: list[Failures] = []

    def write(self, number: int, data: bytes = b"data", offset: int = 10) -> Write:
        return Write(self.files[number], [data[:1], data[1:]], offset)

    def begin(self, *writes: Write) -> bool:
        return self.writes.begin(writes, self.told.append)

    async def answer(self, *results: int) -> None:
        """Answer the writes from the first one on, the last first."""
        for position, result in reversed(list(enumerate(results))):
            self.ring.answer(position, result)
        await asyncio.sleep(0.001)
        for _ in range(100):
            if not self.ring._answers:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("nobody took the answers")

    def write_blocks(self, number: int, letter: bytes = b"s", count: int = 1) -> Write:
        return Write(self.files[number], [letter * SECTOR, letter * SECTOR * (count - 1)], SECTOR, whole_blocks=True)


def run(directory: Path, check: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        scene = Scene(directory)
        await check(scene)
        scene.writes.close()

    asyncio.run(whole())


def test_all_are_over_when_the_last_one_is(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0), scene.write(1, b"longer"))
        assert [call[1:] for call in scene.ring.calls] == [
            (scene.files[0].fileno(), b"data", 10),
            (scene.files[1].fileno(), b"longer", 10),
        ]
        scene.ring.answer(0, 4)
        await asyncio.sleep(0.01)
        assert scene.told == []
        scene.ring.answer(1, 6)
        await asyncio.sleep(0.01)
        assert scene.told == [[None, None]]

    run(tmp_path, check)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EINTR, errno.EINVAL, errno.EOPNOTSUPP, errno.ECANCELED, -3, 0])
def test_what_was_not_made_or_not_whole_is_made_again_by_a_thread(tmp_path: Path, number: int) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0), scene.write(1))
        await scene.answer(-number, 4)
        assert scene.told == []
        scene.pool.work()
        assert scene.told == [[None, None]]
        assert scene.files[0].pread(20, 0) == b"\0" * 10 + b"data"
        assert scene.files[1].size() == 0, "only that one is made again"

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, Full), (errno.EDQUOT, Full), (errno.EIO, SyncFailed), (errno.EBADF, SyncFailed)]
)
def test_a_disk_that_fails_is_believed_and_not_asked_again(
    tmp_path: Path, number: int, kind: type[StorageError]
) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0), scene.write(1))
        await scene.answer(4, -number)
        assert scene.pool.waiting == []
        ((first, second),) = scene.told
        assert first is None
        assert type(second) is kind
        assert (second.path, second.offset) == (scene.files[1].path, 10)
        assert os.strerror(number) in str(second)

    run(tmp_path, check)


def test_a_failure_when_it_is_made_again_is_told(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        file = RealFiles().open(scene.files[2].path)  # not for writing
        assert scene.writes.begin([Write(file, [b"data"], 0)], scene.told.append)
        await scene.answer(-errno.EAGAIN)
        scene.pool.work()
        assert isinstance(scene.told[0][0], SyncFailed)

    run(tmp_path, check)


def test_what_the_ring_has_no_room_for_is_made_by_a_thread(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        scene.ring.room = 1
        assert scene.begin(scene.write(0), scene.write(1))
        scene.pool.work()
        assert scene.told == []
        await scene.answer(4)
        assert scene.told == [[None, None]]
        assert scene.files[1].pread(4, 10) == b"data"
        scene.ring.room = 0
        assert not scene.begin(scene.write(0))
        assert scene.pool.waiting == []

    run(tmp_path, check)


def test_what_is_not_for_the_ring_is_not_begun(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        virtual = VirtualDisk().create("/file")
        assert not scene.begin(scene.write(0), Write(virtual, [b"data"], 0))
        assert not scene.begin(scene.write(0), scene.write(1, b"x" * (BYTES_MAX + 1)))
        assert not scene.begin(*[scene.write(0)] * 5)
        assert scene.begin(*[scene.write(0)] * 3)
        assert not scene.begin(*[scene.write(0)] * 2)
        assert len(scene.ring.calls) == 3
        await scene.answer(4, 4, 4)
        assert scene.begin(scene.write(1, b"x" * BYTES_MAX))

    run(tmp_path, check)


def test_an_answer_that_cannot_be_dealt_with_is_a_defect_and_nobody_waits_for_it(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0))
        scene.pool.refuses = RuntimeError("can't start new thread")
        await scene.answer(-errno.ENOMEM)
        assert scene.defects == [scene.pool.refuses]
        assert scene.told == []
        scene.writes.wait()

    run(tmp_path, check)


def test_who_waits_goes_on_when_nothing_is_under_way_any_more(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        scene.writes.wait()
        assert scene.begin(scene.write(0), scene.write(1))
        waiting = asyncio.ensure_future(asyncio.to_thread(scene.writes.wait))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        scene.ring.answer(0, 4)
        await asyncio.sleep(0.02)
        assert not waiting.done()
        scene.ring.answer(1, 1)  # not whole
        async with asyncio.timeout(30):
            await waiting
        assert (scene.pool.waiting, scene.told) == ([], [])
        assert waiting.result() == [(None, None)]
        assert scene.files[1].pread(4, 10) == b"data", "who waited has made it"

    run(tmp_path, check)


def test_who_waits_hears_what_failed_and_nobody_else_was_told(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0))
        await scene.answer(4)
        assert scene.begin(scene.write(0), scene.write(1), scene.write(2))
        scene.ring.answer(1, 4)
        scene.ring.answer(2, -errno.EIO)
        scene.ring.answer(3, -errno.EAGAIN)  # It may be made again later on, and there is no later.
        ((first, second, third),) = scene.writes.wait()
        assert (first, third) == (None, None)
        assert isinstance(second, SyncFailed) and second.path == scene.files[1].path
        assert scene.files[2].pread(4, 10) == b"data", "an engine that hears of no failure takes it for durable"
        await asyncio.sleep(0.01)
        assert (scene.told, scene.pool.waiting, scene.defects) == ([[None]], [], [])
        assert scene.writes.wait() == [(None, second, None)]

    run(tmp_path, check)


def test_who_waits_makes_what_the_loop_would_have_left_to_the_pool(tmp_path: Path) -> None:
    """The answer came between the end of the node and the wait."""

    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0), scene.write(1))
        scene.writes._closing = True
        await scene.answer(2, -errno.EAGAIN)
        assert (scene.told, scene.pool.waiting) == ([], [])
        assert scene.writes.wait() == [(None, None)]
        assert [scene.files[number].pread(4, 10) for number in (0, 1)] == [b"data"] * 2

    run(tmp_path, check)


def test_who_waits_hears_of_a_write_that_could_not_be_made_either(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        file = RealFiles().open(scene.files[2].path)  # not for writing
        assert scene.writes.begin([Write(file, [b"data"], 0)], scene.told.append)
        scene.ring.answer(0, 2)
        ((failure,),) = scene.writes.wait()
        assert isinstance(failure, SyncFailed)

    run(tmp_path, check)


def test_who_waits_hears_what_failed_when_it_was_made_again(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        file = RealFiles().open(scene.files[2].path)  # not for writing
        assert scene.writes.begin([Write(file, [b"data"], 0)], scene.told.append)
        await scene.answer(-errno.EAGAIN)
        ((work, _),) = scene.pool.waiting
        work()  # And the loop has not been told.
        ((failure,),) = scene.writes.wait()
        assert isinstance(failure, SyncFailed)

    run(tmp_path, check)


def test_who_waits_waits_for_what_is_made_again(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0))
        await scene.answer(1)
        waiting = asyncio.ensure_future(asyncio.to_thread(scene.writes.wait))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        scene.pool.work()
        async with asyncio.timeout(30):
            await waiting
        assert scene.told == [[None]]

    run(tmp_path, check)


def test_the_loop_itself_may_wait(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0))
        timer = threading.Timer(0.02, scene.ring.answer, (0, 4))
        timer.start()
        scene.writes.wait()
        timer.join()
        assert scene.told == []

    run(tmp_path, check)


def test_nothing_is_told_after_it_has_closed(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write(0))
        scene.ring.answer(0, 4)
        scene.writes.close()
        await asyncio.sleep(0.01)
        assert scene.told == []

    async def whole() -> None:
        await check(Scene(tmp_path))

    asyncio.run(whole())


def test_a_closed_file_is_not_written(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        file: RealFile = scene.files[0]
        file.close()
        with pytest.raises(ValueError, match="is closed"):
            scene.begin(scene.write(0))

    run(tmp_path, check)


# -- direct I/O ------------------------------------------------------------------------------------


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file can be opened for direct writes."""
    monkeypatch.setattr(direct_io, "open_direct", os.dup)


def lent_of(scene: Scene, position: int) -> ArenaRange:
    data = scene.ring.calls[position][2]
    assert isinstance(data, ArenaRange)
    return data


def contents(lent: ArenaRange) -> bytes:
    return ctypes.string_at(lent.address, lent.size)


@pytest.mark.usefixtures("direct")
def test_whole_sectors_are_written_directly_and_others_through_the_cache(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write_blocks(0), scene.write(1), scene.write_blocks(2, b"t", 3))
        assert contents(lent_of(scene, 0)) == b"s" * SECTOR
        assert scene.ring.calls[1][1:] == (scene.files[1].fileno(), b"data", 10)
        assert contents(lent_of(scene, 2)) == b"t" * 3 * SECTOR
        assert scene.ring.calls[2][1] == scene.writes._direct.of(scene.files[2]) != scene.files[2].fileno()
        await scene.answer(SECTOR, 4, 3 * SECTOR)
        assert scene.told == [[None, None, None]]

    run(tmp_path, check)


def test_a_file_without_direct_io_is_written_through_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_io, "open_direct", lambda _fd: -1)

    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write_blocks(0))
        assert scene.ring.calls[0][1:] == (scene.files[0].fileno(), b"s" * SECTOR, SECTOR)
        await scene.answer(SECTOR)
        assert scene.told == [[None]]

    run(tmp_path, check)


@pytest.mark.usefixtures("direct")
def test_what_the_system_does_not_take_is_made_again_and_not_tried_that_way_any_more(tmp_path: Path) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write_blocks(0))
        await scene.answer(-errno.EINVAL)
        scene.pool.work()
        assert scene.told == [[None]]
        assert scene.files[0].pread(2 * SECTOR, 0) == bytes(SECTOR) + b"s" * SECTOR
        assert scene.begin(scene.write_blocks(0, b"t"), scene.write_blocks(1))
        assert scene.ring.calls[1][1:] == (scene.files[0].fileno(), b"t" * SECTOR, SECTOR)
        assert contents(lent_of(scene, 2)) == b"s" * SECTOR, "another file may be elsewhere"

    run(tmp_path, check)


@pytest.mark.parametrize("result", [-errno.EAGAIN, SECTOR, 0])
@pytest.mark.usefixtures("direct")
def test_one_that_was_not_whole_is_made_again_by_a_thread(tmp_path: Path, result: int) -> None:
    async def check(scene: Scene) -> None:
        assert scene.begin(scene.write_blocks(0, b"u", 2))
        await scene.answer(result)
        scene.pool.work()
        assert scene.told == [[None]]
        assert scene.files[0].pread(3 * SECTOR, 0) == bytes(SECTOR) + b"u" * 2 * SECTOR
        assert scene.writes._direct.of(scene.files[0]) >= 0

    run(tmp_path, check)


@pytest.mark.usefixtures("direct")
def test_memory_is_free_again_when_all_is_over_and_what_finds_none_goes_as_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_writes, "ARENA_BYTES", 2 * BYTES_MAX)
    sectors = BYTES_MAX // SECTOR

    async def check(scene: Scene) -> None:
        for _ in range(3):
            scene.ring.calls.clear()
            writes = [scene.write_blocks(number, b"v", sectors) for number in range(3)]
            assert scene.begin(*writes)
            assert [isinstance(call[2], ArenaRange) for call in scene.ring.calls] == [True, True, False]
            assert lent_of(scene, 0).address == lent_of(scene, 1).address - BYTES_MAX
            await scene.answer(BYTES_MAX, BYTES_MAX, BYTES_MAX)
        assert scene.told == [[None] * 3] * 3

    run(tmp_path, check)


@pytest.mark.parametrize("room", [0, 1])
@pytest.mark.usefixtures("direct")
def test_memory_of_what_the_ring_did_not_take_is_free_again(tmp_path: Path, room: int) -> None:
    async def check(scene: Scene) -> None:
        for _ in range(5):
            scene.ring.calls.clear()
            scene.ring.room = room
            half = BYTES_MAX // SECTOR
            begun = scene.begin(scene.write_blocks(0, b"w", half), scene.write_blocks(1, b"x", half))
            assert begun is (room > 0)
            if room:
                assert contents(lent_of(scene, 0)) == b"w" * BYTES_MAX
                await scene.answer(BYTES_MAX)
                scene.pool.work()
        scene.ring.room = 99
        scene.ring.calls.clear()
        assert scene.begin(scene.write_blocks(0, b"y", BYTES_MAX // SECTOR))
        assert contents(lent_of(scene, 0)) == b"y" * BYTES_MAX

    run(tmp_path, check)
