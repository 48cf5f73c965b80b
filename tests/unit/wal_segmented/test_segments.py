"""Segments on disk: how they are prepared, filled, closed, cooled and collected."""

from __future__ import annotations

import pytest

from stelae.sim.disk import Survival, VirtualDisk
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Foreign, FutureVersion, Overloaded, StorageError
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.wal import Append, Durable, WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, Model, check_holds, commit, entries, entry
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_segmented.format import SEGMENT_HEADER_BYTES
from stelae_wal_segmented.names import LogFileKind, parse
from tests.unit.wal_files import of_slot_version, put
from tests.unit.wal_segmented.scenes import OVERHEAD_BYTES

PLACE = "/node/wals/tablet-a"
KIB = 1024


def a_harness(first: int = 4 * KIB, largest: int = 64 * KIB, growth: int = 4) -> VirtualHarness:
    config = SegmentedConfig(segment_bytes_first=first, segment_bytes_max=largest, segment_growth=growth)
    return VirtualHarness(SegmentedWal, config)


def started(harness: VirtualHarness) -> WalEngine:
    engine = harness.open()
    engine.create(LOG, ZERO)
    return engine


def append_up_to(engine: WalEngine, first: int, last: int, size_bytes: int = 500) -> None:
    for index in range(first, last + 1):
        commit(engine, Append(entries=entries(index, 1, size_bytes=size_bytes)))


def segments(disk: VirtualDisk) -> dict[int, int]:
    """Length of each segment by its number."""
    names = [name for name in disk.listdir(PLACE) if name.endswith(".seg")]
    return {int(n[3:-4]): len(disk.read_bytes(f"{PLACE}/{n}")) for n in names}


def unborn(harness: VirtualHarness) -> list[str]:
    """Segments in the making."""
    return [name for name in harness.disk.listdir(PLACE) if name.endswith(".new")]


def operations(harness: VirtualHarness) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    harness.disk.faults.hook = lambda name, path: seen.append((name, path.rpartition("/")[2]))
    return seen


# -- the way of one commit -------------------------------------------------------------------------


def test_a_commit_is_one_synchronous_write_whatever_the_group() -> None:
    harness = a_harness(64 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 1)
    seen = operations(harness)
    commit(engine, Append(entries=entries(2, 1)))
    commit(engine, Append(entries=entries(3, 60), commit_hint=2))
    commit(engine, Append(entries=entries(9, 1, term=2), replace_from=9))
    assert seen == [("write", "g1-000000000001.seg"), ("dsync", "g1-000000000001.seg")] * 3
    engine.close()


def test_a_synced_commit_behind_an_unsynced_one_syncs_the_whole_file_cheaply() -> None:
    harness = a_harness(64 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 1)
    seen = operations(harness)
    engine.commit({LOG: Append(entries=entries(2, 1))}, sync=False)
    engine.commit({LOG: Append(entries=entries(3, 1))}, sync=True)
    engine.commit({LOG: Append(entries=entries(4, 1))}, sync=False)
    engine.commit({}, sync=True)
    engine.commit({}, sync=True)
    assert [name for name, _ in seen] == ["write", "write", "sync_data", "write", "sync_data"]
    engine.close()


def test_beyond_the_reserved_space_a_sync_covers_the_length_too() -> None:
    harness = a_harness()
    harness.workers.at_once = False
    engine = started(harness)
    append_up_to(engine, 1, 9)
    seen = operations(harness)
    engine.commit({LOG: Append(entries=entries(10, 1))}, sync=False)
    engine.commit({}, sync=True)
    assert [name for name, _ in seen] == ["write", "sync"]
    engine.close()


# -- preparing the next segment (W5) ---------------------------------------------------------------


def test_the_first_segment_is_small_and_those_behind_it_grow_to_the_maximum() -> None:
    harness = a_harness(4 * KIB, 32 * KIB, growth=4)
    engine = started(harness)
    append_up_to(engine, 1, 250)
    lengths = list(segments(harness.disk).values())
    for length, target in zip(lengths[:-1], (4, 16, 32, 32), strict=False):
        assert target * KIB <= length < (target + 2) * KIB
    assert len(lengths) > 4
    engine.close()


def test_appends_go_on_in_the_old_segment_until_the_next_is_ready() -> None:
    harness = a_harness()
    harness.workers.at_once = False
    engine = started(harness)
    append_up_to(engine, 1, 40)
    assert list(segments(harness.disk)) == [1]
    assert segments(harness.disk)[1] > 20 * KIB
    assert unborn(harness) == []
    assert harness.workers.run() == 1
    assert len(unborn(harness)) == 1
    append_up_to(engine, 41, 41)
    assert list(segments(harness.disk)) == [1, 2]
    assert segments(harness.disk)[2] == 16 * KIB
    check_holds(engine, Model(ZERO, list(entries(1, 41, size_bytes=500))))
    engine.close()


def test_a_segment_that_is_ready_early_waits_until_the_old_one_is_full() -> None:
    harness = a_harness()
    engine = started(harness)
    append_up_to(engine, 1, 7)
    assert list(segments(harness.disk)) == [1]
    (spare,) = unborn(harness)
    assert parse(spare) == (LogFileKind.NEW_SEGMENT, 1, 0)
    append_up_to(engine, 8, 10)
    assert harness.disk.listdir(PLACE) == [
        "g1-000000000001.seg", "g1-000000000002.seg", "g1.base",
    ]  # fmt: skip
    engine.close()


def test_a_closed_segment_is_cut_to_its_length_and_a_spare_one_is_given_back() -> None:
    harness = a_harness(64 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 100)
    assert unborn(harness)
    engine.close()
    assert harness.disk.listdir(PLACE) == ["g1-000000000001.seg", "g1.base"]
    assert 100 * 500 < segments(harness.disk)[1] < 100 * (500 + OVERHEAD_BYTES + 16)


@pytest.mark.parametrize("end", ["close", "cool", "drop"])
def test_a_spare_segment_that_comes_too_late_is_removed(end: str) -> None:
    harness = a_harness()
    harness.workers.at_once = False
    engine = started(harness)
    append_up_to(engine, 1, 9)
    if end == "close":
        engine.close()
    elif end == "cool":
        engine.cool(LOG)
    else:
        engine.drop(LOG)
    harness.workers.run()
    assert not [path for path in harness.tree() if path.endswith(".new")]
    engine.close()


def test_a_spare_segment_for_which_there_is_no_space_is_tried_again_later() -> None:
    harness = a_harness(4 * KIB, 4 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 1)
    harness.disk.faults.capacity_bytes = 23 * KIB
    append_up_to(engine, 2, 10)
    assert list(segments(harness.disk)) == [1]
    assert unborn(harness) == []
    harness.disk.faults.capacity_bytes = None
    append_up_to(engine, 11, 20)
    assert list(segments(harness.disk))[:2] == [1, 2]
    check_holds(engine, Model(ZERO, list(entries(1, 20, size_bytes=500))))
    engine.close()


def test_workers_that_are_overloaded_only_delay_the_next_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = a_harness()
    engine = started(harness)
    workers = harness.workers
    monkeypatch.setattr(workers, "submit", lambda _work, done: done(Overloaded("too much to do")), raising=True)
    append_up_to(engine, 1, 20)
    assert list(segments(harness.disk)) == [1]
    monkeypatch.undo()
    append_up_to(engine, 21, 40)
    assert len(segments(harness.disk)) > 1
    engine.close()


def test_without_space_to_reserve_the_disk_is_used_up_bit_by_bit() -> None:
    harness = a_harness(64 * KIB)
    engine = harness.open()
    engine.create(LOG, ZERO)
    append_up_to(engine, 1, 2)
    engine.close()
    harness.disk.faults.capacity_bytes = 28 * KIB
    engine = harness.open()
    append_up_to(engine, 3, 20)
    check_holds(engine, Model(ZERO, list(entries(1, 20, size_bytes=500))))
    engine.close()


# -- idle logs -------------------------------------------------------------------------------------


def test_a_cooled_log_holds_no_handle_no_spare_space_and_no_index() -> None:
    harness = a_harness(64 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 100)
    engine.cool(LOG)
    assert engine.stats()["handles"] == 0
    assert harness.disk.listdir(PLACE) == ["g1-000000000001.seg", "g1.base"]
    assert segments(harness.disk)[1] < 60 * KIB
    log = engine._logs[LOG]  # type: ignore[attr-defined]
    assert all(segment.index is None for segment in log.chain.segments)
    assert engine.read(LOG, 50, 51, 1) == [entry(50, size_bytes=500)]
    engine.close()


def test_a_log_that_was_just_opened_holds_no_handle_either() -> None:
    harness = a_harness()
    engine = started(harness)
    append_up_to(engine, 1, 3)
    harness.crash(engine)
    engine = harness.open()
    assert engine.stats()["handles"] == 0
    engine.close()


def test_a_small_segment_goes_on_after_it_was_cooled_and_a_large_one_does_not() -> None:
    harness = a_harness(4 * KIB)
    engine = started(harness)
    for index in range(1, 5):
        append_up_to(engine, index, index)
        engine.cool(LOG)
    assert list(segments(harness.disk)) == [1]
    append_up_to(engine, 5, 6)
    engine.cool(LOG)
    append_up_to(engine, 7, 7)
    assert list(segments(harness.disk)) == [1, 2]
    engine = _crashed(harness, engine)
    check_holds(engine, Model(ZERO, list(entries(1, 7, size_bytes=500))))
    engine.close()


def test_opening_reads_headers_and_footers_of_closed_segments_only(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = a_harness(64 * KIB, 64 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 300, size_bytes=2000)
    engine.close()
    total = sum(segments(harness.disk).values())
    read_bytes = 0
    pread = VirtualFile.pread

    def counting(self: VirtualFile, size: int, offset: int) -> bytes:
        nonlocal read_bytes
        found = pread(self, size, offset)
        read_bytes += len(found)
        return found

    monkeypatch.setattr(VirtualFile, "pread", counting)
    engine = harness.open()
    assert engine.logs()[LOG].last == entry(300).op_id
    assert read_bytes < total // 50
    engine.close()


# -- collection ------------------------------------------------------------------------------------


def test_collection_removes_whole_segments_from_the_front_and_never_the_open_one() -> None:
    harness = a_harness(4 * KIB, 4 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 40)
    present = list(segments(harness.disk))
    base = engine.collect(LOG, 20)
    assert 0 < base.index <= 20
    assert min(segments(harness.disk)) > 1
    engine.collect(LOG, 40)
    assert list(segments(harness.disk)) == present[-1:]
    check_holds(engine, Model(ZERO, list(entries(1, 40, size_bytes=500))))
    engine.close()


def test_the_base_is_durable_before_a_segment_is_removed() -> None:
    harness = a_harness(4 * KIB, 4 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 40)
    seen = operations(harness)
    engine.collect(LOG, 30)
    assert [name for name, _ in seen[:3]] == ["write", "dsync", "remove"]
    assert seen[1][1] == "g1.base"
    engine.close()


def test_a_collected_segment_that_cannot_be_removed_now_goes_at_the_next_start() -> None:
    harness = a_harness(4 * KIB, 4 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 40)
    harness.disk.faults.hook = _refuse_removal
    base = engine.collect(LOG, 30)
    harness.disk.faults.hook = None
    assert engine.logs()[LOG].base == base
    assert 1 in segments(harness.disk)
    engine.close()
    engine = harness.open()
    assert 1 not in segments(harness.disk)
    engine.close()


def _refuse_removal(operation: str, path: str) -> None:
    if operation == "remove":
        raise StorageError("not now", path=path)


def test_reading_beside_collection_says_compacted_and_never_fails_otherwise() -> None:
    harness = a_harness(4 * KIB, 4 * KIB)
    engine = started(harness)
    append_up_to(engine, 1, 40)
    view = engine.snapshot(LOG, 1)
    engine.collect(LOG, 40)
    assert list(view.entries()) == list(entries(1, 40, size_bytes=500))
    view.release()
    engine.close()


# -- whose bytes these are (durability rule 6) -----------------------------------------------------


def test_bytes_of_another_segment_in_reserved_space_never_pass_for_entries() -> None:
    harness = a_harness()
    other = LogId(TabletId("tablet-b"), 1)
    engine = started(harness)
    engine.create(other, ZERO)
    held = entries(1, 4, size_bytes=100)
    for one in held:
        commit(engine, Append(entries=(one,)))
        commit(engine, Append(entries=(one,)), other)
    more = entries(5, 3, size_bytes=100)
    before = harness.tree()[f"{PLACE}/g1-000000000001.seg"]
    commit(engine, Append(entries=more), other)
    theirs = harness.tree()["/node/wals/tablet-b/g1-000000000001.seg"]
    end = SEGMENT_HEADER_BYTES + 4 * (OVERHEAD_BYTES + 100)
    harness.crash(engine, Survival.KEPT)
    harness.write(f"{PLACE}/g1-000000000001.seg", before[:end] + theirs[end:])
    engine = harness.open()
    state = engine.logs()[LOG]
    assert state.last == held[-1].op_id
    assert state.damage is not None, "bytes that no crash of ours leaves"
    engine.close()


def test_every_segment_has_a_nonce_of_its_own_also_after_crashes_and_recreation() -> None:
    harness = a_harness(4 * KIB, 4 * KIB)
    nonces = []
    for life in range(6):
        engine = harness.open()
        if LOG not in engine.logs():
            engine.create(LOG, ZERO)
        last = engine.logs()[LOG].last.index
        append_up_to(engine, last + 1, last + 12)
        log = engine._logs[LOG]  # type: ignore[attr-defined]
        nonces.extend({segment.header.nonce for segment in log.chain.segments[-1:]})
        if life % 2:
            engine.drop(LOG)
        harness.crash(engine)
    assert len(set(nonces)) == len(nonces)


# -- the directory ---------------------------------------------------------------------------------


def test_a_directory_with_something_else_in_it_is_foreign() -> None:
    harness = a_harness()
    harness.disk.make_directory(harness.directory)
    harness.write(f"{harness.directory}/data.mdb", b"LMDB")
    with pytest.raises(Foreign, match=r"data\.mdb"):
        harness.open()
    harness.disk.remove(f"{harness.directory}/data.mdb")
    harness.write(f"{harness.directory}/segmented", b"not ours at all")
    with pytest.raises(Foreign, match="not ours"):
        harness.open()


def test_a_directory_of_a_newer_release_is_refused_and_the_lock_given_back() -> None:
    harness = a_harness()
    harness.open().close()
    path = f"{harness.directory}/segmented"
    put(harness, path, of_slot_version(200)(harness.disk.read_bytes(path)))
    for _ in range(2):
        with pytest.raises(FutureVersion, match="200"):
            harness.open()


def test_a_damaged_slot_of_the_opening_count_does_not_stop_the_node() -> None:
    harness = a_harness()
    engine = started(harness)
    append_up_to(engine, 1, 3)
    engine.close()
    harness.disk.damage(f"{harness.directory}/segmented", 17)
    engine = harness.open()
    check_holds(engine, Model(ZERO, list(entries(1, 3, size_bytes=500))))
    append_up_to(engine, 4, 20)
    engine.close()


def test_names_that_are_not_ours_are_left_alone() -> None:
    harness = a_harness()
    engine = started(harness)
    append_up_to(engine, 1, 3)
    engine.close()
    harness.disk.make_directory(f"{harness.directory}/.snapshots")
    harness.write(f"{harness.directory}/README", b"by the operator")
    harness.write(f"{PLACE}/notes.txt", b"by the operator")
    engine = harness.open()
    assert set(engine.logs()) == {LOG}
    engine.drop(LOG)
    assert harness.disk.listdir(PLACE) == ["notes.txt"]
    engine.close()


def test_logs_of_two_generations_share_a_directory_and_nothing_else() -> None:
    harness = a_harness()
    engine = started(harness)
    newer = LogId(LOG.tablet_id, 2)
    engine.create(newer, ZERO)
    append_up_to(engine, 1, 20)
    commit(engine, Append(entries=entries(1, 3, term=5)), newer)
    engine.drop(LOG)
    engine = _crashed(harness, engine)
    check_holds(engine, Model(ZERO, list(entries(1, 3, term=5))), newer)
    assert set(engine.logs()) == {newer}
    engine.drop(newer)
    assert harness.disk.listdir(harness.directory) == ["lock", "segmented"]
    engine.close()


def test_one_log_whose_directory_vanished_fails_alone() -> None:
    harness = a_harness()
    engine = started(harness)
    other = LogId(TabletId("tablet-b"), 1)
    engine.create(other, ZERO)
    harness.disk.remove_tree(PLACE)
    outcomes = engine.commit({LOG: Append(entries=entries(1, 1)), other: Append(entries=entries(1, 1))}, sync=True)
    assert isinstance(outcomes[other], Durable)
    assert not isinstance(outcomes[LOG], Durable)
    assert engine.read(other, 1, 2, READ_BYTES)
    engine.close()


def _crashed(harness: VirtualHarness, engine: WalEngine) -> WalEngine:
    harness.crash(engine)
    return harness.open()
