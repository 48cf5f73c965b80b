"""Segments in the making: several may be under way at once, and each keeps to its own file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Full
from stelae.spi.ids import ZERO
from stelae.spi.services import Buffer
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_room
from stelae.testing.wal_harness import QueuedWorkers, VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entries, entry
from stelae_wal_segmented import SegmentedConfig, SegmentedWal, spare

PLACE = "/node/wals/tablet-a"


def started() -> tuple[VirtualHarness, WalEngine]:
    config = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=4096)
    harness = VirtualHarness(SegmentedWal, config)
    harness.workers.at_once = False
    engine = harness.open()
    engine.create(LOG, ZERO)
    return harness, engine


def fill(engine: WalEngine, last: int) -> None:
    for index in range(engine.logs()[LOG].last.index + 1, last + 1):
        commit(engine, Append(entries=entries(index, 1, size_bytes=500)))


def check(harness: VirtualHarness, engine: WalEngine, last: int) -> None:
    check_holds(engine, Model(ZERO, list(entries(1, last, size_bytes=500))))
    engine.close()
    harness.workers.run()
    assert not [name for name in harness.disk.listdir(PLACE) if name.endswith(".new")]
    reopened = harness.open()
    check_holds(reopened, Model(ZERO, list(entries(1, last, size_bytes=500))))
    reopened.close()


class Halfway:
    """Stops the making of a spare behind the creation of its file, and does something meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: QueuedWorkers) -> None:
        self._monkeypatch = monkeypatch
        self._workers = workers

    def run(self, meanwhile: Callable[[], None]) -> None:
        make_file = spare.make_file

        def interrupted(*args: Any) -> Any:
            file = make_file(*args)
            self._monkeypatch.setattr(spare, "make_file", make_file)
            meanwhile()
            return file

        self._monkeypatch.setattr(spare, "make_file", interrupted)
        assert self._workers.run() >= 1


def test_a_spare_that_was_given_up_half_way_does_not_take_the_file_of_a_fresh_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, engine = started()
    fill(engine, 7)

    def fill_the_disk_and_repair() -> None:
        limit_room(harness, 100)
        outcome: object = None
        while not isinstance(outcome, Failed):
            last = engine.logs()[LOG].last.index
            outcome = engine.commit({LOG: Append(entries=entries(last + 1, 1, size_bytes=500))}, sync=True)[LOG]
        assert isinstance(outcome.error, Full)
        limit_room(harness, None)
        before = len(made)
        engine.repair(LOG)
        (fresh,) = made[before:]
        assert fresh not in made[:before], "the spare under way has another name"

    made: list[str] = []
    create = harness.disk.create

    def created(path: str) -> Any:
        made.append(path)
        return create(path)

    monkeypatch.setattr(harness.disk, "create", created)
    Halfway(monkeypatch, harness.workers).run(fill_the_disk_and_repair)
    last = engine.logs()[LOG].last.index
    fill(engine, last + 10)
    check(harness, engine, last + 10)


def test_a_spare_that_was_given_up_half_way_does_not_take_the_file_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, engine = started()
    fill(engine, 3)
    engine.cool(LOG)
    fill(engine, 7)

    def another_spare() -> None:
        """Give the first up, and have the second made, while the first is under way."""
        engine.cool(LOG)
        fill(engine, 14)
        assert harness.workers.run() == 1

    Halfway(monkeypatch, harness.workers).run(another_spare)
    fill(engine, 30)
    check(harness, engine, 30)


@pytest.mark.parametrize("end", ["drop", "set_aside"])
def test_a_spare_that_goes_by_itself_does_not_disturb_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    harness, engine = started()
    fill(engine, 7)
    listdir = harness.disk.listdir

    def stale(path: str) -> list[str]:
        """What a listing says that was made just before the worker removed its file."""
        names = listdir(path)
        return [*names, "g1-00000000000000ff.new"] if "g1.base" in names and path == PLACE else names

    monkeypatch.setattr(harness.disk, "listdir", stale)
    if end == "drop":
        engine.drop(LOG)
    else:
        engine.set_aside(LOG, "/node/quarantine/a.1")
        assert [n for n in harness.disk.listdir("/node/quarantine/a.1") if n.endswith(".new")] == []
    assert LOG not in engine.logs()
    assert not harness.disk.exists(PLACE)
    assert isinstance(engine.commit({}, sync=True), dict)
    engine.create(LOG, ZERO)
    assert isinstance(engine.commit({LOG: Append(entries=entries(1, 1))}, sync=True)[LOG], Durable)
    engine.close()


class Zeros:
    """Notes every write into a file that has no name yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[tuple[int, int, bool]] = []
        original = VirtualFile.pwritev

        def noting(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
            data = b"".join(buffers)
            if file.path.endswith(".new") and not data.strip(b"\0"):
                self.writes.append((offset, len(data), dsync))
            return original(file, buffers, offset, dsync=dsync)

        monkeypatch.setattr(VirtualFile, "pwritev", noting)

    @property
    def bytes(self) -> int:
        """How much was written, without a gap and durably."""
        end = 0
        for offset, size, dsync in self.writes:
            assert dsync
            assert size <= 1 << 20
            assert offset in (0, end)
            end = offset + size
        return sum(size for _, size, _ in self.writes)


def test_the_space_of_a_large_segment_is_written_before_it_is_used_and_that_of_a_small_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zeros = Zeros(monkeypatch)
    config = SegmentedConfig(segment_bytes_first=1 << 16, segment_bytes_max=1 << 20, prewrite_bytes_min=1 << 20)
    harness = VirtualHarness(SegmentedWal, config)
    engine = harness.open()
    engine.create(LOG, ZERO)
    segments = 1
    for index in range(1, 200):
        commit(engine, Append(entries=(entry(index, 1, 1 << 14),)))
        if zeros.writes:
            break
        segments = sum(name.endswith(".seg") for name in harness.disk.listdir(PLACE))
    assert segments == 2, "64 KiB, 256 KiB; the third has a mebibyte"
    assert zeros.bytes == 1 << 20
    assert (
        harness.disk.read_bytes(f"{PLACE}/{next(n for n in harness.disk.listdir(PLACE) if n.endswith('.new'))}").count(
            0
        )
        == 1 << 20
    )
    engine.close()


def test_a_disk_that_is_full_while_space_is_written_beforehand_costs_the_spare_and_no_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file system that copies on write may find no space for zeros within space that it has reserved."""
    original = VirtualFile.pwritev
    refused: list[str] = []

    def full(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        if file.path.endswith(".new") and offset == 0 and len(refused) < 2 and not b"".join(buffers).strip(b"\0"):
            refused.append(file.path)
            raise Full("no space", path=file.path)
        return original(file, buffers, offset, dsync=dsync)

    monkeypatch.setattr(VirtualFile, "pwritev", full)
    harness = VirtualHarness(
        SegmentedWal, SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=4096, prewrite_bytes_min=4096)
    )
    engine = harness.open()
    engine.create(LOG, ZERO)
    for index in range(1, 90):
        commit(engine, Append(entries=(entry(index, 1, 200),)))
    assert len(refused) == 2
    assert not [path for path in refused if harness.disk.exists(path)]
    harness.crash(engine)
    engine = harness.open()
    check_holds(engine, Model(ZERO, [entry(index, 1, 200) for index in range(1, 90)]))
    engine.close()


def test_a_spare_that_was_given_up_is_not_written_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = Zeros(monkeypatch)
    config = SegmentedConfig(
        segment_bytes_first=1 << 16, segment_bytes_max=4 << 20, segment_growth=64, prewrite_bytes_min=4 << 20
    )
    harness = VirtualHarness(SegmentedWal, config)
    harness.workers.at_once = False
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=(entry(1, 1, 50_000),)))
    commit(engine, Append(entries=(entry(2, 1, 100),)))
    noting = VirtualFile.pwritev

    def closing(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        if file.path.endswith(".new") and offset == 1 << 20:
            engine.close()
        return noting(file, buffers, offset, dsync=dsync)

    monkeypatch.setattr(VirtualFile, "pwritev", closing)
    assert harness.workers.run() == 1
    assert zeros.bytes == 2 << 20
    assert not [name for name in harness.disk.listdir(PLACE) if name.endswith(".new")]
