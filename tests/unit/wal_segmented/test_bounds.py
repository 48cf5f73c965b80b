"""What opening reads, what memory holds, what an idle log keeps, what a copy can rely on: all of it
bounded, whatever the length of the log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.services import Buffer
from stelae.spi.wal import Append
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries, entry
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_segmented.index import PAGE_ENTRIES
from stelae_wal_segmented.log import TabletLog

PLACE = "/node/wals/tablet-a"
KIB = 1024


class Reads:
    """Counts bytes read from segments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        pread = VirtualFile.pread

        def counting(file: VirtualFile, size: int, offset: int) -> bytes:
            found = pread(file, size, offset)
            self.bytes += len(found) if file.path.endswith(".seg") else 0
            return found

        monkeypatch.setattr(VirtualFile, "pread", counting)


class Handles:
    """Files that are open for writing or reading; locks are none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: dict[int, VirtualFile] = {}
        made, close = VirtualFile.__init__, VirtualFile.close

        def opened(file: VirtualFile, *args: object, **options: object) -> None:
            made(file, *args, **options)  # type: ignore[arg-type]
            self.open[id(file)] = file

        def closed(file: VirtualFile) -> None:
            self.open.pop(id(file), None)
            close(file)

        monkeypatch.setattr(VirtualFile, "__init__", opened)
        monkeypatch.setattr(VirtualFile, "close", closed)

    @property
    def paths(self) -> list[str]:
        return sorted(file.path for file in self.open.values() if not file.path.endswith("/lock"))


def a_harness(first: int = 16 * KIB, largest: int = 16 * KIB) -> VirtualHarness:
    return VirtualHarness(SegmentedWal, SegmentedConfig(segment_bytes_first=first, segment_bytes_max=largest))


def log_of(engine: object) -> TabletLog:
    assert isinstance(engine, SegmentedWal)
    return engine._logs[LOG]


def fill(engine: object, last: int, size_bytes: int, group: int = 20) -> None:
    """Append up to an index, from wherever the log ends."""
    assert isinstance(engine, SegmentedWal)
    for first in range(engine.logs()[LOG].last.index + 1, last + 1, group):
        commit(engine, Append(entries=entries(first, min(group, last + 1 - first), size_bytes=size_bytes)))


def started(harness: VirtualHarness) -> SegmentedWal:
    engine = harness.open()
    assert isinstance(engine, SegmentedWal)
    engine.create(LOG, ZERO)
    return engine


# -- opening (W11) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [0, 100, 5000])
def test_opening_reads_the_same_of_every_closed_segment_whatever_is_in_it(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    reads = Reads(monkeypatch)
    read: dict[int, int] = {}
    for count in (200, 1000):
        harness = a_harness()
        engine = started(harness)
        fill(engine, count, size_bytes)
        segments = len(log_of(engine).chain.segments)
        engine.close()
        reads.bytes = 0
        engine2 = harness.open()
        assert engine2.logs()[LOG].last == OpId(1, count)
        newest = log_of(engine2).chain.segments[-1]
        footer_bytes = len(harness.tree()[newest.path]) - newest.end
        read[segments] = reads.bytes - footer_bytes  # Nothing attests that it was synced, so all of it is looked at.
        engine2.close()
    for segments, count in read.items():
        assert count <= 350 * segments
    assert len({count / segments for segments, count in read.items()}) == 1


def test_a_tenfold_log_is_opened_after_a_crash_by_reading_its_last_segment_and_footers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads, harness = Reads(monkeypatch), a_harness()
    engine = started(harness)
    for tens in range(1, 11):
        fill(engine, 300 * tens, 400)
        closed = len(log_of(engine).chain.segments) - 1
        harness.crash(engine)
        total = sum(len(data) for data in harness.tree().values())
        reads.bytes = 0
        engine = harness.open()  # type: ignore[assignment]
        assert engine.logs()[LOG].last == OpId(1, 300 * tens)
        assert reads.bytes < 350 * closed + 4 * 16 * KIB
    assert total > 50 * 16 * KIB
    engine.close()


# -- memory ----------------------------------------------------------------------------------------


def test_closed_segments_keep_no_index_in_memory_whoever_reads_them() -> None:
    harness = a_harness(64 * KIB, 64 * KIB)
    engine = started(harness)
    fill(engine, 12_000, 0, group=500)
    for first in range(1, 12_001, 700):
        end = min(first + 700, 12_001)
        assert engine.read(LOG, first, end, READ_BYTES) == list(entries(first, end - first, size_bytes=0))
    *closed, newest = log_of(engine).chain.segments
    assert len(closed) >= 5
    assert all(segment.index is None for segment in closed)
    assert newest.index is not None
    engine.close()


@pytest.mark.parametrize("begin", [1, 2, PAGE_ENTRIES, PAGE_ENTRIES + 1, 3 * PAGE_ENTRIES - 1])
def test_reads_cross_the_pages_of_a_footer(begin: int) -> None:
    harness = a_harness(256 * KIB, 256 * KIB)
    engine = started(harness)
    fill(engine, 4 * PAGE_ENTRIES, 24, group=7)
    engine.cool(LOG)
    assert all(segment.index is None for segment in log_of(engine).chain.segments)
    for count in (1, 2, PAGE_ENTRIES - 1, PAGE_ENTRIES, PAGE_ENTRIES + 2):
        end = min(begin + count, 4 * PAGE_ENTRIES + 1)
        assert engine.read(LOG, begin, end, READ_BYTES) == list(entries(begin, end - begin))
    assert engine.read(LOG, begin, 4 * PAGE_ENTRIES + 1, 1) == [entry(begin)]
    engine.close()


def test_a_view_keeps_offsets_of_the_newest_segment_only_and_one_handle_a_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handles = Handles(monkeypatch)
    harness = a_harness()
    engine = started(harness)
    fill(engine, 600, 300)
    segments = len(log_of(engine).chain.segments)
    before = len(handles.paths)
    view = engine.snapshot(LOG, 1)
    parts = view._parts  # type: ignore[attr-defined]
    assert len(handles.paths) == before + segments
    assert [part.offsets is None for part in parts] == [True] * (segments - 1) + [False]
    assert list(view.entries()) == list(entries(1, 600, size_bytes=300))
    view.release()
    assert len(handles.paths) == before
    engine.close()


# -- idle logs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spare", ["ready", "under way", "none"])
def test_a_cold_log_holds_no_handle_no_index_and_no_byte_beyond_its_data(
    monkeypatch: pytest.MonkeyPatch, spare: str
) -> None:
    handles = Handles(monkeypatch)
    harness = a_harness()
    harness.workers.at_once = spare != "under way"
    engine = started(harness)
    fill(engine, 20 if spare == "none" else 30, 400, group=1)
    assert len(handles.paths) == (2 if spare == "ready" else 1), "the open segment, and the spare one"
    engine.cool(LOG)
    harness.workers.run()
    assert handles.paths == []
    assert engine.stats()["handles"] == 0
    assert harness.disk.listdir(PLACE) == ["g1-000000000001.seg", "g1.base"]
    (segment,) = log_of(engine).chain.segments
    assert segment.index is None
    assert segment.summary is not None
    length = len(harness.tree()[segment.path])
    assert segment.end < length < segment.end + 500, "its data and the footer"
    check_holds(engine, Model(ZERO, list(entries(1, engine.logs()[LOG].last.index, size_bytes=400))))
    assert handles.paths == [], "reading opens a file for the read alone"
    engine.close()


@pytest.mark.parametrize("end", ["cool", "close"])
def test_a_log_that_recovery_left_open_is_closed_when_it_is_idle_and_not_scanned_again(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    reads, harness = Reads(monkeypatch), a_harness()
    engine = started(harness)
    fill(engine, 20, 400)
    harness.crash(engine)
    engine = harness.open()  # type: ignore[assignment]
    if end == "cool":
        engine.cool(LOG)
        assert [segment.index for segment in log_of(engine).chain.segments] == [None]
        harness.crash(engine)
    else:
        engine.close()
    reads.bytes = 0
    engine = harness.open()  # type: ignore[assignment]
    (segment,) = log_of(engine).chain.segments
    footer_bytes = len(harness.tree()[segment.path]) - segment.end
    assert reads.bytes <= 350 + footer_bytes
    assert footer_bytes < 300
    check_holds(engine, Model(ZERO, list(entries(1, 20, size_bytes=400))))
    engine.close()


def test_a_segment_that_vanished_fails_its_own_log_when_the_engine_closes() -> None:
    harness = a_harness()
    engine = started(harness)
    fill(engine, 20, 400)
    harness.crash(engine)
    engine = harness.open()  # type: ignore[assignment]
    engine.create(OTHER, ZERO)
    commit(engine, Append(entries=entries(1, 3)), OTHER)
    harness.disk.remove(f"{PLACE}/g1-000000000001.seg")
    with pytest.raises(StorageError, match=f"{PLACE}.*not usable"):
        engine.close()
    engine = harness.open()  # type: ignore[assignment]
    check_holds(engine, Model(ZERO, list(entries(1, 3))), OTHER)
    engine.close()


# -- views for copies (W7, contract of snapshots) --------------------------------------------------


def test_a_view_survives_whatever_happens_to_the_log() -> None:
    harness = a_harness()
    engine = started(harness)
    fill(engine, 100, 400)
    held = list(entries(1, 100, size_bytes=400))
    engine.cool(LOG)
    views = [engine.snapshot(LOG, first) for first in (1, 40, 100)]

    def check() -> None:
        for view, first in zip(views, (1, 40, 100), strict=True):
            assert list(view.entries()) == held[first - 1 :]

    commit(engine, Append(entries=entries(60, 3, term=2), replace_from=60))  # Into the segment that goes on.
    check()
    engine.cool(LOG)
    commit(engine, Append(entries=(), replace_from=2))
    check()
    fill_after = entries(2, 300, term=3, size_bytes=400)
    commit(engine, Append(entries=fill_after))
    engine.cool(LOG)
    engine.collect(LOG, 301)
    check()
    engine.drop(LOG)
    check()
    engine.close()
    check()
    for view in views:
        view.release()
        view.release()


def test_a_view_of_the_open_segment_stands_still_while_it_goes_on() -> None:
    harness = a_harness(64 * KIB, 64 * KIB)
    engine = started(harness)
    fill(engine, 50, 100)
    view = engine.snapshot(LOG, 10)
    commit(engine, Append(entries=entries(20, 9, term=2), replace_from=20))
    engine.cool(LOG)
    commit(engine, Append(entries=entries(29, 9, term=2)))
    assert list(view.entries()) == list(entries(10, 41, size_bytes=100))
    view.release()
    engine.close()


@pytest.mark.parametrize("cold", [True, False])
def test_a_view_that_begins_behind_the_last_entry_is_empty(cold: bool) -> None:
    harness = a_harness()
    engine = started(harness)
    fill(engine, 5, 100)
    if cold:
        engine.cool(LOG)
    view = engine.snapshot(LOG, 6)
    assert list(view.entries()) == []
    view.release()
    engine.close()


# -- a file that vanished behind the engine's back -------------------------------------------------


@pytest.mark.parametrize("how", ["read", "view"])
def test_a_segment_that_vanished_is_damage_for_whoever_wants_it_and_nobody_waits_for_ever(how: str) -> None:
    harness = a_harness()
    engine = started(harness)
    fill(engine, 100, 400)
    second = log_of(engine).chain.segments[1]
    harness.disk.remove(second.path)
    with pytest.raises(Corrupt, match=rf"{second.path}@0: the segment is missing"):
        if how == "read":
            engine.read(LOG, second.first, second.first + 1, 1)
        else:
            engine.snapshot(LOG, 1)
    damage = engine.logs()[LOG].damage
    assert damage is not None
    assert damage.last_good == OpId(1, second.first - 1)
    assert engine.read(LOG, 1, second.first, READ_BYTES) == list(entries(1, second.first - 1, size_bytes=400))
    engine.close()


def test_a_footer_that_changed_is_damage_for_an_append_that_wants_to_go_on_in_its_segment() -> None:
    harness = a_harness()
    engine = started(harness)
    fill(engine, 3, 100)
    engine.cool(LOG)
    (segment,) = log_of(engine).chain.segments
    harness.disk.damage(segment.path, segment.end + 30)
    before = harness.disk.read_bytes(segment.path)
    outcome = engine.commit({LOG: Append(entries=entries(4, 1))}, sync=True)[LOG]
    assert isinstance(outcome.error, Corrupt)  # type: ignore[union-attr]
    assert outcome.error.offset == segment.end  # type: ignore[union-attr]
    state = engine.logs()[LOG]
    assert state.damage is not None
    assert state.last == state.damage.last_good == outcome.durable == ZERO  # type: ignore[union-attr]
    assert harness.disk.read_bytes(segment.path) == before
    engine.close()


@pytest.mark.parametrize("count", [511, 512, 700, 3000])
def test_a_group_of_many_entries_is_one_write_of_as_many_buffers_as_a_system_takes(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real disk makes a synchronous write of every 1024 buffers: a sync for each part of a group."""
    harness = a_harness(1 << 20, 1 << 20)
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 1)))
    writes: list[int] = []
    original = VirtualFile.pwritev

    def counting(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        writes.append(len(buffers))
        return original(file, buffers, offset, dsync=dsync)

    monkeypatch.setattr(VirtualFile, "pwritev", counting)
    commit(engine, Append(entries=entries(2, count, size_bytes=10)))
    assert len(writes) == 1
    assert 500 < writes[0] <= 1024
    harness.crash(engine)
    engine = harness.open()
    check_holds(engine, Model().append(Append(entries=entries(1, 1))).append(Append(entries=entries(2, count, 1, 10))))
    engine.close()
