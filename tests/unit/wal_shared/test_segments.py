"""Segments: heads, footers, rolling, what opening reads, and what a thousand logs cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from stelae.sim.disk import Survival
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, OpId
from stelae.spi.services import Buffer
from stelae.spi.wal import Append
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import Model, check_holds, commit, entries, entry
from stelae_wal_shared import SharedConfig, SharedWal
from stelae_wal_shared.footer import load_footer
from stelae_wal_shared.scan import ValidRecord, index_by_scan, scan
from tests.unit.wal_shared.scenes import (
    PLACE,
    SMALL,
    create_logs,
    extend,
    fill_segments,
    harness_of,
    log_number,
    recovered,
    segments,
)

A, B = log_number(0), log_number(1)


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of()


class Traffic:
    """Counts the bytes that are read, by the name of the file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: dict[str, int] = {}
        original = VirtualFile.pread

        def counting(file: VirtualFile, size: int, offset: int) -> bytes:
            data = original(file, size, offset)
            name = file.path.rpartition("/")[2]
            self.read[name] = self.read.get(name, 0) + len(data)
            return data

        monkeypatch.setattr(VirtualFile, "pread", counting)


def test_opening_reads_heads_of_closed_segments_and_records_of_none(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = harness.open()
    create_logs(engine, 2)
    for _ in range(3):
        fill_segments(engine, A, 1)
    harness.crash(engine, Survival.KEPT)
    closed = [path.rpartition("/")[2] for path in segments(harness.disk)[:-1]]
    assert len(closed) == 3
    traffic = Traffic(monkeypatch)
    engine = harness.open()
    assert [traffic.read[name] for name in closed] == [48] * 3
    engine.read(A, 1, 2, 1)
    assert traffic.read[closed[0]] < len(harness.disk.read_bytes(f"{PLACE}/{closed[0]}")) // 2
    engine.close()


def test_footer_and_scan_tell_the_same(harness: VirtualHarness) -> None:
    engine = harness.open()
    create_logs(engine, 2)
    extend(engine, [A, B], 3)
    commit(engine, Append(entries=entries(2, 1, term=2), replace_from=2), A)
    commit(engine, Append(entries=(), replace_from=3), B)
    commit(engine, Append(entries=entries(3, 2, term=3)), B)
    engine.drop(A)
    engine.create(A, OpId(3, 8))
    commit(engine, Append(entries=entries(9, 3, term=4)), A)
    fill_segments(engine, B, 1)
    first = segments(harness.disk)[0]
    state, _ = recovered(harness)
    segment = state.segments[1]
    footer = load_footer(harness.disk, first, segment.nonce)
    assert footer is not None
    data = harness.disk.read_bytes(first)[segment.start : segment.end]
    scanned = index_by_scan(data, segment.start, segment.nonce)
    for log in (state.logs[A], state.logs[B]):
        (extent,) = [one for one in log.extents if one.segment is segment]
        spans = footer.spans(log.number, extent.first, extent.end, 1 << 30)
        assert spans is not None and len(spans.offsets) == extent.end - extent.first
        assert spans == scanned.spans(log.number, extent.first, extent.end, 1 << 30)
    engine.close()


def test_a_segment_with_a_bad_or_missing_footer_is_read_by_scanning_it(harness: VirtualHarness) -> None:
    engine = harness.open()
    create_logs(engine, 2)
    extend(engine, [A, B], 5)
    fill_segments(engine, B, 1)
    harness.crash(engine, Survival.KEPT)
    first = segments(harness.disk)[0]
    state, _ = recovered(harness)
    end = state.segments[1].end
    for damage in (lambda disk: disk.damage(first, end + 30), lambda disk: disk.cut(first, end)):
        twin = harness.fork(0)
        damage(twin.disk)
        engine = twin.open()
        check_holds(engine, Model(ZERO, list(entries(1, 5, size_bytes=200))), A)
        engine.close()


def test_a_bad_record_in_a_segment_without_a_footer_is_damage_of_its_log(harness: VirtualHarness) -> None:
    engine = harness.open()
    create_logs(engine, 2)
    extend(engine, [A], 1)
    extend(engine, [B], 1)
    fill_segments(engine, B, 1)
    harness.crash(engine, Survival.KEPT)
    first = segments(harness.disk)[0]
    state, _ = recovered(harness)
    segment = state.segments[1]
    index = load_footer(harness.disk, first, segment.nonce)
    assert index is not None
    spans = index.spans(state.logs[A].number, 1, 2, 1)
    assert spans is not None
    (offset,) = spans.offsets
    harness.disk.cut(first, segment.end)
    harness.disk.damage(first, offset + 3)
    engine = harness.open()
    with pytest.raises(Corrupt):
        engine.read(A, 1, 2, 1)
    assert engine.logs()[A].damage is not None
    assert engine.read(B, 1, 2, 1) == list(entries(1, 1, size_bytes=200))
    engine.close()


def test_records_that_another_segment_left_in_the_same_space_are_none_of_this_one(harness: VirtualHarness) -> None:
    engine = harness.open()
    create_logs(engine, 1)
    fill_segments(engine, A, 2)
    state, _ = recovered(harness)
    old, new = state.segments[1], state.segments[2]
    data = harness.disk.read_bytes(old.path)[old.start : old.end]
    assert [found for found in scan(data, old.start, old.nonce) if isinstance(found, ValidRecord)]
    assert not [found for found in scan(data, old.start, new.nonce) if isinstance(found, ValidRecord)]
    assert len({one.nonce for one in state.segments.values()}) == len(state.segments)
    engine.close()


def test_appends_go_on_in_the_old_segment_while_the_next_is_made(harness: VirtualHarness) -> None:
    harness.workers.at_once = False
    engine = harness.open()
    create_logs(engine, 2)
    for _ in range(60):
        extend(engine, [A], size_bytes=300)
    (only,) = segments(harness.disk)
    harness.workers.run()
    extend(engine, [A], size_bytes=300)
    extend(engine, [A], size_bytes=300)
    assert len(segments(harness.disk)) == 2
    state, _ = recovered(harness)
    assert len(harness.disk.read_bytes(only)) < state.segments[1].end + 2000, "cut to its length"
    check_holds(engine, Model(ZERO, [e for i in range(1, 63) for e in entries(i, 1, size_bytes=300)]), A)
    engine.close()


def test_a_worker_that_comes_late_harms_no_segment_that_was_begun_meanwhile(harness: VirtualHarness) -> None:
    harness.workers.at_once = False
    engine = harness.open()
    create_logs(engine, 2)
    for _ in range(40):
        extend(engine, [A], size_bytes=300)
    harness.disk.faults.fail_syncs(harness.directory, 1)
    engine.commit({B: Append(entries=entries(1, 1))}, sync=True)  # Fails; a fresh segment follows.
    harness.workers.run()
    extend(engine, [A], size_bytes=300)
    assert not [name for name in harness.disk.listdir(PLACE) if name.endswith(".new")]
    harness.crash(engine, Survival.KEPT)
    engine = harness.open()
    assert engine.logs()[A].last == OpId(1, 41)
    engine.close()


def test_a_thousand_idle_logs_cost_no_file_and_one_record_each_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = VirtualHarness(SharedWal, SharedConfig(segment_bytes_first=1 << 16))
    engine = harness.open()
    logs = create_logs(engine, 1000)
    extend(engine, logs, size_bytes=50)
    assert len(harness.disk.listdir(PLACE)) <= 6
    engine.close()
    traffic = Traffic(monkeypatch)
    before = harness.disk.faults.operations
    engine = harness.open()
    assert len(engine.logs()) == 1000
    assert harness.disk.faults.operations - before <= 10
    assert sum(traffic.read.values()) < 1000 * 400
    for log in logs[::97]:
        check_holds(engine, Model(ZERO, list(entries(1, 1, size_bytes=50))), log)
    before = harness.disk.faults.operations
    for log in logs:
        engine.cool(log)
    assert harness.disk.faults.operations == before
    engine.close()


def test_a_group_over_a_hundred_logs_is_one_write_and_one_sync() -> None:
    harness = VirtualHarness(SharedWal)
    engine = harness.open()
    logs = create_logs(engine, 100)
    extend(engine, logs, size_bytes=4096)
    before = harness.disk.faults.operations
    extend(engine, logs, size_bytes=4096)
    assert harness.disk.faults.operations - before == 2
    engine.close()


def test_a_segment_is_many_times_as_long_as_its_head() -> None:
    harness = harness_of(SMALL)
    engine = harness.open()
    logs = create_logs(engine, 200)
    extend(engine, logs, size_bytes=10)
    fill_segments(engine, logs[0], 3)
    state, _ = recovered(harness)
    for segment in list(state.segments.values())[1:-1]:
        assert segment.end >= 6 * segment.start
    engine.close()


def test_indexes_of_closed_segments_are_kept_in_memory_up_to_their_limit() -> None:
    harness = harness_of(dataclasses.replace(SMALL, indexes_max=2))
    engine = harness.open()
    create_logs(engine, 1)
    for _ in range(6):
        fill_segments(engine, A, 1)
    last = engine.logs()[A].last.index
    assert isinstance(engine, SharedWal)
    for _ in range(2):
        for first in range(1, last + 1):
            assert engine.read(A, first, first + 1, 1) == list(entries(first, 1, size_bytes=300))
            held = [one for one in engine._state.segments.values() if one.index is not None]
            assert len(held) <= 3, "two, and that of the open one"
    engine.close()


def test_a_log_set_aside_is_a_directory_that_this_engine_opens(harness: VirtualHarness) -> None:
    engine = harness.open()
    engine.create(A, OpId(2, 40))
    commit(engine, Append(entries=entries(41, 30, term=3, size_bytes=200), commit_hint=55), A)
    commit(engine, Append(entries=entries(60, 2, term=4), replace_from=60), A)
    model = Model(OpId(2, 40), [*entries(41, 19, term=3, size_bytes=200), *entries(60, 2, term=4)])
    engine.set_aside(A, "/node/quarantine/a")
    engine.close()
    services_harness = Elsewhere(harness)
    aside = services_harness.open()
    check_holds(aside, model, A)
    assert aside.logs()[A].commit_hint == 55
    aside.close()


def test_a_damaged_log_is_set_aside_as_far_as_it_is_whole_with_a_note(harness: VirtualHarness) -> None:
    engine = harness.open()
    create_logs(engine, 2)
    extend(engine, [A, B], 6)
    (path,) = segments(harness.disk)
    harness.disk.damage(path, harness.disk.read_bytes(path).index(entries(4, 1, size_bytes=200)[0].body))
    engine.set_aside(A, "/node/quarantine/a")
    assert set(engine.logs()) == {B}
    check_holds(engine, Model(ZERO, list(entries(1, 6, size_bytes=200))), B)
    note = harness.disk.read_bytes("/node/quarantine/a/damage.txt").decode()
    assert "1.3" in note
    assert path in note
    aside = Elsewhere(harness).open()
    check_holds(aside, Model(ZERO, list(entries(1, 3, size_bytes=200))), A)
    aside.close()
    engine.close()


class Elsewhere(VirtualHarness):
    """Opens what was set aside."""

    def __init__(self, harness: VirtualHarness) -> None:
        super().__init__(SharedWal, harness.config, disk=harness.disk)

    @property
    def directory(self) -> str:
        return "/node/quarantine/a"


def test_a_dropped_log_takes_its_number_with_it(harness: VirtualHarness) -> None:
    engine = harness.open()
    create_logs(engine, 1)
    extend(engine, [A], 3)
    for _ in range(3):
        engine.drop(A)
        engine.create(A, ZERO)
        harness.crash(engine, Survival.KEPT)
        engine = harness.open()
        check_holds(engine, Model(), A)
    state, _ = recovered(harness)
    assert state.logs[A].number == 4
    engine.close()


@pytest.mark.parametrize("logs", [511, 512, 1500])
def test_a_group_over_many_logs_is_one_write_of_as_many_buffers_as_a_system_takes(
    logs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real disk makes a synchronous write of every 1024 buffers: a sync for each part of a group."""
    harness = harness_of(SharedConfig(segment_bytes_first=1 << 24, segment_bytes_max=1 << 24))
    engine = harness.open()
    names = create_logs(engine, logs)
    writes: list[int] = []
    original = VirtualFile.pwritev

    def counting(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        writes.append(len(buffers))
        return original(file, buffers, offset, dsync=dsync)

    monkeypatch.setattr(VirtualFile, "pwritev", counting)
    extend(engine, names, size_bytes=20)
    assert len(writes) == 1
    assert 500 < writes[0] <= 1024
    harness.crash(engine)
    engine = harness.open()
    for name in names:
        assert engine.read(name, 1, 2, 1 << 20) == list(entries(1, 1, size_bytes=20))
    engine.close()


@pytest.mark.parametrize("terms", [(1, 1, 1), (1, 1, 2), (1, 2, 3), (3, 3, 3)])
def test_a_run_of_entries_is_known_as_if_each_had_come_alone(terms: tuple[int, ...]) -> None:
    run = tuple(entry(index, term) for index, term in enumerate(terms, 3))
    states = []
    for appends in ([run], [(one,) for one in run]):
        harness = harness_of()
        engine = harness.open()
        create_logs(engine, 1)
        extend(engine, [A], 2)
        for some in appends:
            commit(engine, Append(entries=some), log=A)
        states.append((engine.logs()[A], [engine.op_id_at(A, index) for index in range(6)], engine.read(A, 1, 6, 9999)))
        state, _ = recovered(harness)
        states.append((state.logs[A].state(), [state.logs[A].op_id_at(index) for index in range(6)], states[-1][2]))
        assert engine.stats()["entries_live"] == engine.stats()["entries_held"] == 5
        engine.close()
    assert states.count(states[0]) == 4
