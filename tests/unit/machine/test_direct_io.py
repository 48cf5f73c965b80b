"""Direct I/O: where it is used, from which memory, and that the log is the same with it."""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stelae.host.settings import LogSettings
from stelae.machine.fast_log import direct_io
from stelae.machine.fast_log.direct_io import HUGE_PAGE_BYTES, Arena, DirectDescriptors, is_suited, open_direct
from stelae.machine.fast_log.io_uring import IoUring
from stelae.machine.files import RealFiles
from stelae.machine.log_driver import EngineDriver
from stelae.spi.ids import LogId, TabletId
from stelae.spi.wal import WalEngine
from stelae.testing.rings import ring_of_this_system
from stelae.testing.wal_harness import fake_services
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_shared import SharedConfig, SharedWal
from tests.unit.machine.test_io_uring import take
from tests.unit.machine.test_log_driver import Writers, entry_at, write_for_real

SECTOR = 512
MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
23 22 0:21 / /proc rw - proc proc rw
24 22 0:26 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw
25 22 8:1 / /a\\040dir rw master:2 - xfs /dev/sda1 rw
26 22 0:40 / /merged rw - overlay overlay rw,lowerdir=/x - ext4 y
27 22 254:0 /sub /elsewhere rw - ext4 /dev/vda rw
28 22 8:2 / /one rw - ext4 /dev/sdb rw
29 22 8:2 / /two rw - fuseblk /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("device", "suited"),
    [("254:0", True), ("8:1", True), ("0:21", False), ("0:26", False), ("0:40", False), ("8:2", False), ("9:9", False)],
)
def test_only_some_file_systems_have_direct_writes(device: str, suited: bool) -> None:
    assert is_suited(MOUNTS, device) is suited


def test_a_file_is_opened_once_more_for_it_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().create(str(tmp_path / "file"))
    descriptors = DirectDescriptors()
    fd = descriptors.of(file)
    assert descriptors.of(file) == fd
    if fd >= 0:
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        assert os.fstat(fd).st_ino == os.fstat(file.fileno()).st_ino
    descriptors.give_up(file)
    assert descriptors.of(file) == -1
    if fd >= 0:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    monkeypatch.setattr(direct_io, "_is_suited", lambda _device: False)
    assert open_direct(file.fileno()) == -1
    monkeypatch.setattr(direct_io, "_is_suited", lambda _device: True)
    monkeypatch.setattr(os, "O_DIRECT", os.O_DIRECTORY)
    assert open_direct(file.fileno()) == -1, "what the system refuses is not an error"
    file.close()


def test_a_file_in_memory_has_no_direct_writes() -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:  # On Linux, where alone there are such writes.
        assert open_direct(file.fileno()) == -1


def test_a_file_that_is_gone_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_io, "open_direct", os.dup)
    file = RealFiles().create(str(tmp_path / "file"))
    descriptors = DirectDescriptors()
    fd = descriptors.of(file)
    os.fstat(fd)
    file.close()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize("advice", [mmap.MADV_HUGEPAGE, 12_345])
def test_memory_is_lent_in_whole_pages_and_sectors_until_all_is_over(
    monkeypatch: pytest.MonkeyPatch, advice: int
) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", advice)  # A system without huge pages refuses it.
    arena = Arena(4 * SECTOR)
    one, two = arena.lend(bytes(SECTOR)), arena.lend(bytes(2 * SECTOR))
    assert one is not None and two is not None
    assert (one.address % HUGE_PAGE_BYTES, two.address - one.address, two.size) == (0, SECTOR, 2 * SECTOR)
    assert arena.lend(bytes(2 * SECTOR)) is None, "there is room for one more sector"
    arena.give_back()
    third = arena.lend(bytes(SECTOR))
    assert third is not None and third.address == two.address + two.size, "the second one is still under way"
    arena.give_back()
    arena.give_back()
    again = arena.lend(bytes(4 * SECTOR))
    assert again is not None and again.address == one.address


def test_memory_is_lent_in_turn_and_no_piece_of_it_twice_at_a_time() -> None:
    sectors = 32
    arena = Arena(sectors * SECTOR)
    first = arena.lend(bytes(SECTOR))
    assert first is not None
    rng = random.Random(7)
    lent: list[tuple[int, int]] = [(0, 1)]
    used_at: dict[int, int] = {}
    refused = 0
    for step in range(5000):
        if lent and rng.random() < 0.5:
            lent.pop(rng.randrange(len(lent)))
            arena.give_back()
        count = rng.randint(1, 12)
        found = arena.lend(rng.randbytes(SECTOR) * count)
        if found is None:
            assert lent, "nothing is under way, so all of it is free"
            refused += 1
            continue
        begin = (found.address - first.address) // SECTOR
        assert begin >= 0
        assert begin + count <= sectors
        assert all(begin + count <= other or begin >= other + size for other, size in lent)
        lent.append((begin, count))
        used_at |= dict.fromkeys(range(begin, begin + count), step)
    assert refused and len(used_at) == sectors


def test_memory_that_was_written_last_is_lent_again_last() -> None:
    arena = Arena(8 * SECTOR)
    places = []
    for _ in range(12):
        lent = arena.lend(bytes(3 * SECTOR))
        assert lent is not None
        places.append(lent.address)
        arena.give_back()
    assert places == [places[0], places[0] + 3 * SECTOR] * 6, "what is too short at the end is left out"


@pytest.mark.parametrize("direct", [True, False])
def test_what_is_lent_is_written_where_it_belongs(tmp_path: Path, direct: bool) -> None:
    ring: IoUring = ring_of_this_system(8)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(16 * SECTOR))
    os.fsync(fd)
    writing = open_direct(fd) if direct else -1
    arena = Arena(16 * SECTOR)
    calls = []
    for at in range(8):
        lent = arena.lend(bytes([65 + at]) * SECTOR)
        assert lent is not None
        calls.append((at, writing if writing >= 0 else fd, lent, 2 * at * SECTOR))
    assert ring.write(calls) == 8
    assert take(ring, 8) == dict.fromkeys(range(8), SECTOR)
    for at in range(8):
        assert os.pread(fd, 2 * SECTOR, 2 * at * SECTOR) == bytes([65 + at]) * SECTOR + bytes(SECTOR)
    for one in {fd, writing} - {-1}:
        os.close(one)
    ring.close()


SEGMENT_BYTES = 64 << 10
USED = SegmentedConfig(
    segment_bytes_first=SEGMENT_BYTES, segment_bytes_max=SEGMENT_BYTES, prewrite_bytes_min=SEGMENT_BYTES
)

ZEROS = SharedConfig(
    segment_bytes_first=8 * SEGMENT_BYTES, segment_bytes_max=8 * SEGMENT_BYTES, prewrite_bytes_min=SEGMENT_BYTES
)


class Collecting(Writers):
    """Lets logs go as they grow, and cools none."""

    cool_share = 0.0

    async def collect(self) -> None:
        for log, upto in self.durable.items():
            self.left += 1
            self.driver.writer.submit_job(lambda engine, log=log, upto=upto: engine.collect(log, upto), self._collected)
        async with asyncio.timeout(60):
            while self.left:
                await asyncio.sleep(0.001)

    def _collected(self, result: object) -> None:
        self._job_done(result if isinstance(result, Exception) else None)


def _through_the_cache(fd: int) -> int:
    return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)


@pytest.mark.parametrize("opens", [open_direct, _through_the_cache, lambda _fd: -1])
@pytest.mark.parametrize(("kind", "config"), [(SegmentedWal, USED), (SharedWal, ZEROS)])
def test_a_log_in_space_that_was_written_before_is_the_same_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[WalEngine], config: object, opens: Callable[[int], int]
) -> None:
    monkeypatch.setattr(direct_io, "open_direct", opens)
    lent: list[object] = []
    lend = Arena.lend
    monkeypatch.setattr(Arena, "lend", lambda arena, data: lent.append(lend(arena, data)) or lent[-1])
    logs = [LogId(TabletId(f"t{number}"), 1) for number in range(3)]

    async def write(driver: EngineDriver) -> Writers:
        writers = Collecting(driver, logs, 7)
        for _ in range(40):
            await writers.run(100)
            await writers.collect()
        await writers.run(200)
        return writers

    figures = write_for_real(tmp_path, kind, config, LogSettings(fast=True), logs, write)
    if kind is SegmentedWal:
        assert figures["segments_reused"] > 5
    if opens is _through_the_cache:
        assert len(lent) > 50
    engine = kind.open(str(tmp_path / "wals"), config, fake_services(RealFiles()))
    for log in logs:
        state = engine.logs()[log]
        assert state.damage is None and state.last.index > 500
        first = state.base.index + 1
        held = engine.read(log, first, state.last.index + 1, 1 << 30)
        assert held == [entry_at(log, index) for index in range(first, state.last.index + 1)]
    engine.close()
