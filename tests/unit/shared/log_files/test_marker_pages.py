"""The markers of the engines' directories and pages of 4 KiB, which are written, lost and torn as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pytest

import stelae_wal_segmented.marker
import stelae_wal_shared.marker
from stelae.sim.disk import Survival, VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Foreign, StorageError, SyncFailed
from stelae.spi.ids import ZERO
from stelae.spi.services import Buffer
from stelae.spi.wal import Append, WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entries
from stelae_shared.lmdb_files.marker import EnvironmentMarker, ShutdownState
from stelae_store_lmdb.opening import OWNER as STORE_OWNER
from stelae_wal_lmdb.startup import OWNER as WAL_OWNER
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_shared import SharedConfig, SharedWal

PLACE = "/node/wals"
PAGE_BYTES = 4096


class Life(ABC):
    """One marker over several openings of its directory. ``step`` raises ``AssertionError`` if it went back."""

    name: ClassVar[str]

    @abstractmethod
    def step(self, disk: VirtualDisk) -> None:
        """Open the directory once, and check what the marker says against what it said before."""


class SegmentedLife(Life):
    """Numbers that no opening before drew."""

    name = "segmented"

    def __init__(self) -> None:
        self._drawn: set[int] = set()

    def step(self, disk: VirtualDisk) -> None:
        drawn = stelae_wal_segmented.marker.claim(disk, PLACE).draw("a segment")
        assert drawn not in self._drawn
        self._drawn.add(drawn)


class SharedLife(Life):
    """Numbers that no opening before drew, and the newest segment, which is never an older one."""

    name = "shared"

    def __init__(self) -> None:
        self._drawn: set[int] = set()
        self._newest = (0, 0)

    def step(self, disk: VirtualDisk) -> None:
        marker = stelae_wal_shared.marker.claim(disk, PLACE)
        drawn = marker.draw_nonce()
        assert drawn not in self._drawn
        self._drawn.add(drawn)
        assert (marker.newest, marker.newest_end) >= self._newest
        for newest in ((marker.newest + 1, 0), (marker.newest + 1, 900)):
            marker.note_newest(*newest)
            self._newest = newest


class LmdbLife(Life):
    """How the environment was left, in turn. One that is distrusted stays so."""

    name = "lmdb"
    owner = WAL_OWNER

    def __init__(self) -> None:
        self._may_be = {ShutdownState.OPEN}
        self._steps = 0

    def step(self, disk: VirtualDisk) -> None:
        marker = EnvironmentMarker(disk, PLACE, f"{PLACE}/env/data.mdb", self.owner)
        found = marker.claim()
        assert found in self._may_be
        self._steps += 1
        if found is ShutdownState.DISTRUSTED:
            return
        for left in (ShutdownState.OPEN, ShutdownState.CLEAN if self._steps < 4 else ShutdownState.DISTRUSTED):
            self._may_be = {found, left}
            marker.write(left)
            self._may_be = {left}
            found = left


class LmdbStoreLife(LmdbLife):
    """The same of a store's environment."""

    owner = STORE_OWNER


LIVES: tuple[type[Life], ...] = (SegmentedLife, SharedLife, LmdbLife, LmdbStoreLife)


def new_disk() -> VirtualDisk:
    disk = VirtualDisk()
    disk.make_directory("/node")
    disk.make_directory(PLACE)
    for path in ("/", "/node"):
        disk.sync_directory(path)
    return disk


class Writes:
    """The pages of the marker that each write in place touched; the write of number ``fatal`` does not happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: str, fatal: int, error: BaseException) -> None:
        self.pages: list[set[int]] = []
        original = VirtualFile.pwritev

        def pwritev(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
            if file.path == path:
                end = offset + sum(len(buffer) for buffer in buffers)
                self.pages.append(set(range(offset // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1)))
                if len(self.pages) == fatal:
                    raise error
            return original(file, buffers, offset, dsync=dsync)

        monkeypatch.setattr(VirtualFile, "pwritev", pwritev)


def spoil(disk: VirtualDisk, path: str, pages: set[int], filling: bytes) -> None:
    """Fill whole pages of a file."""
    data = bytearray(disk.read_bytes(path))
    for page in pages:
        start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(data))
        data[start:end] = (filling * PAGE_BYTES)[: end - start]
    disk.replace(path, bytes(data))


@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
@pytest.mark.parametrize("life_type", LIVES)
def test_power_lost_in_any_write_of_a_marker_may_cost_the_page_that_it_wrote(
    life_type: type[Life], filling: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was one record in one page: a torn page took it, and the node did not start any more."""
    fatal = 0
    while True:
        fatal += 1
        disk, life = new_disk(), life_type()
        with monkeypatch.context() as patch:
            path = f"{PLACE}/{life.name}"
            writes = Writes(patch, path, fatal, PowerLost("in the middle of a page"))
            try:
                for _ in range(4):
                    life.step(disk)
                break
            except PowerLost:
                assert len(writes.pages[-1]) == 1
        spoil(disk, path, writes.pages[-1], filling)
        for _ in range(3):
            life.step(disk)
    assert fatal > 3


@pytest.mark.parametrize("page", range(2))
@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
@pytest.mark.parametrize("life_type", LIVES)
def test_a_page_of_a_marker_that_is_lost_later_costs_nothing_and_is_written_again(
    life_type: type[Life], filling: bytes, page: int
) -> None:
    disk, life = new_disk(), life_type()
    path = f"{PLACE}/{life.name}"
    for _ in range(4):
        life.step(disk)
        assert len(disk.read_bytes(path)) == 2 * PAGE_BYTES
        spoil(disk, path, {page}, filling)


@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
@pytest.mark.parametrize("life_type", LIVES)
def test_a_failed_sync_of_a_marker_may_cost_the_page_that_it_was_for(
    life_type: type[Life], filling: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal = 0
    while True:
        fatal += 1
        disk, life = new_disk(), life_type()
        path = f"{PLACE}/{life.name}"
        with monkeypatch.context() as patch:
            writes = Writes(patch, path, fatal, SyncFailed("the disk did not take it", path=path))
            try:
                for _ in range(4):
                    life.step(disk)
                break
            except StorageError:
                pass
        spoil(disk, path, writes.pages[-1], filling)
        life.step(disk)
    assert fatal > 3


@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
@pytest.mark.parametrize("life_type", LIVES)
def test_a_marker_of_which_both_pages_are_lost_is_refused_and_left_alone(life_type: type[Life], filling: bytes) -> None:
    disk, life = new_disk(), life_type()
    path = f"{PLACE}/{life.name}"
    for _ in range(2):
        life.step(disk)
    spoil(disk, path, {0, 1}, filling)
    before = disk.tree()
    with pytest.raises(Foreign, match="neither of its two slots") as caught:
        life.step(disk)
    assert caught.value.path == path
    assert disk.tree() == before


@pytest.mark.parametrize("life_type", LIVES)
def test_a_marker_from_before_the_first_release_is_refused_and_says_so(life_type: type[Life]) -> None:
    """It had one record, of a few bytes."""
    disk, life = new_disk(), life_type()
    path = f"{PLACE}/{life.name}"
    life.step(disk)
    disk.replace(path, disk.read_bytes(path)[:8] + b"\x01\0" + bytes(20))
    with pytest.raises(Foreign, match="no release wrote format 1; the first one wrote 2") as caught:
        life.step(disk)
    assert (caught.value.path, caught.value.offset) == (path, 8)


@pytest.mark.parametrize(
    ("engine_type", "config"),
    [
        (SegmentedWal, SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=4096)),
        (SharedWal, SharedConfig(segment_bytes_first=4096, segment_bytes_max=4096)),
    ],
)
def test_logs_beside_a_marker_with_one_page_left_are_whole_and_beside_none_are_not_taken_for_empty(
    engine_type: type[WalEngine], config: object
) -> None:
    harness = VirtualHarness(engine_type, config)
    engine = harness.open()
    engine.create(LOG, ZERO)
    model = Model()
    path = f"{harness.directory}/{engine.name}"
    for first in range(1, 61, 3):
        append = Append(entries=entries(first, 3, size_bytes=200))
        commit(engine, append)
        model.held.extend(append.entries)
        if first % 15 == 1:
            harness.crash(engine, Survival.LOST)
            spoil(harness.disk, path, {first // 15 % 2}, b"\0")
            engine = harness.open()
            check_holds(engine, model)
    engine.close()
    spoil(harness.disk, path, {0, 1}, b"\0")
    for name in harness.disk.listdir(harness.directory):
        if name.endswith(".seg"):
            harness.disk.remove(f"{harness.directory}/{name}")
    with pytest.raises(Foreign):
        harness.open()
