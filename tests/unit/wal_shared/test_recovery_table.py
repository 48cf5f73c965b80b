"""Every row of the recovery table: a situation, made by hand, and what recovery does about it."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

import stelae_wal_shared
from stelae.sim.disk import Survival
from stelae.spi.errors import Foreign
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.wal import Append, WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import Model, check_holds, entries, zeros_at_end
from stelae_wal_shared.decisions import SharedFinding, SharedVerdict, table
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.format import END_MARK_BYTES, GROUP_BYTES, RECORD_BYTES, RecordKind
from stelae_wal_shared.group import RecordGroup
from stelae_wal_shared.head import PAGE_BYTES, SECTOR_BYTES, read_head
from stelae_wal_shared.marker import MARKER_NAME
from stelae_wal_shared.segment import SharedSegment
from tests.unit.unread_pages import UnreadPages
from tests.unit.wal_shared.scenes import (
    PLACE,
    create_logs,
    extend,
    fill_segments,
    harness_of,
    log_number,
    recovered,
    segments,
)

A, B, C = (log_number(number) for number in range(3))


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of()


def lived(harness: VirtualHarness, *, crash: bool = True) -> WalEngine:
    """Three logs in one segment: A and B with four entries in turn, then C with one."""
    engine = harness.open()
    create_logs(engine, 3)
    for _ in range(4):
        extend(engine, [A, B])
    extend(engine, [C])
    if crash:
        harness.crash(engine, Survival.KEPT)
    return engine


def newest(harness: VirtualHarness) -> SharedSegment:
    """The newest segment as recovery sees it, with an index."""
    state, _ = recovered(harness)
    segment = state.segments[max(state.segments)]
    state.load(segment)
    return segment


def place_of(harness: VirtualHarness, log: LogId, index: int) -> int:
    """Offset of the record of an entry in the newest segment."""
    state, _ = recovered(harness)
    segment = newest(harness)
    assert segment.index is not None
    spans = segment.index.spans(state.logs[log].number, index, index + 1, 1)
    assert spans is not None
    return spans.offsets[0]


def write_at(harness: VirtualHarness, path: str, offset: int, data: bytes) -> None:
    file = harness.disk.open(path, writable=True)
    file.pwritev([data], offset)
    file.sync()
    file.close()


def append_group(harness: VirtualHarness, log: LogId, kind: RecordKind, op_id: OpId, order: int) -> None:
    """Write a group of one record, valid in itself, behind the last one of the newest segment."""
    state, _ = recovered(harness)
    segment = newest(harness)
    group = RecordGroup(segment.nonce, segment.end, segment.start)
    group.add(kind, state.logs[log].number, state.logs[log].order + order, op_id)
    write_at(harness, segment.path, segment.end, b"".join(group.buffers()))


def assert_damage(state: EngineState, log: LogId, row: SharedFinding, path: str, last_good: OpId) -> None:
    damage = state.logs[log].damage
    assert damage is not None
    assert f"row {row.value.letter}:" in damage.detail
    assert (damage.path, damage.last_good) == (path, last_good)
    assert state.logs[log].last == last_good


def assert_whole(harness: VirtualHarness, counts: dict[LogId, int]) -> None:
    """The logs have this many entries, and take more, which stay."""
    engine = harness.open()
    for log, count in counts.items():
        check_holds(engine, held(count), log)
        extend(engine, [log])
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    for log, count in counts.items():
        check_holds(engine, held(count + 1), log)
    engine.close()


def held(count: int) -> Model:
    return Model(ZERO, list(entries(1, count, size_bytes=200)))


def test_row_a_a_file_in_the_making_is_removed(harness: VirtualHarness) -> None:
    lived(harness)
    harness.write(f"{PLACE}/00000000000000aa.new", b"half of something")
    harness.write(f"{PLACE}/.{MARKER_NAME}.tmp", b"half of a marker")
    _, found = recovered(harness)
    assert found.count(SharedFinding.NEVER_RENAMED) == 2
    assert_whole(harness, {A: 4, B: 4, C: 1})
    assert not [name for name in harness.disk.listdir(PLACE) if name.endswith((".new", ".tmp"))]


def test_row_b_a_segment_that_nobody_needs_is_removed(harness: VirtualHarness) -> None:
    engine = lived(harness, crash=False)
    fill_segments(engine, A, 2)
    extend(engine, [A])
    first = segments(harness.disk)[1]
    contents = harness.disk.read_bytes(first)
    last = engine.logs()[A].last.index
    engine.collect(A, last)
    assert not harness.disk.exists(first)
    harness.crash(engine, Survival.KEPT)
    harness.write(first, contents)
    _, found = recovered(harness)
    assert SharedFinding.COLLECTED in found
    engine = harness.open()
    assert not harness.disk.exists(first)
    assert engine.logs()[A].base.index == last
    engine.close()


def test_row_c_a_directory_without_any_head_is_not_taken_for_an_empty_one(harness: VirtualHarness) -> None:
    lived(harness)
    (path,) = segments(harness.disk)
    for offset in (0, PAGE_BYTES):
        harness.disk.damage(path, offset + 20)
    with pytest.raises(Foreign, match="row C"):
        harness.open()
    harness.disk.remove(path)
    with pytest.raises(Foreign, match="row C"):
        harness.open()


def test_row_d_a_newest_segment_that_is_missing_damages_every_log(harness: VirtualHarness) -> None:
    engine = lived(harness, crash=False)
    fill_segments(engine, A, 1)
    harness.crash(engine, Survival.KEPT)
    path = segments(harness.disk)[-1]
    harness.disk.remove(path)
    state, found = recovered(harness)
    assert SharedFinding.NEWEST_MISSING in found
    for log in (B, C):
        assert_damage(state, log, SharedFinding.NEWEST_MISSING, path, state.logs[log].last)
    assert state.logs[C].last == OpId(1, 1)


def test_row_e_a_newest_segment_without_a_head_damages_every_log(harness: VirtualHarness) -> None:
    engine = lived(harness, crash=False)
    fill_segments(engine, A, 1)
    harness.crash(engine, Survival.KEPT)
    path = segments(harness.disk)[-1]
    for offset in (0, PAGE_BYTES):
        harness.disk.damage(path, offset + 20)
    state, found = recovered(harness)
    assert SharedFinding.NEWEST_HEADLESS in found
    for log, count in ((B, 4), (C, 1)):
        assert_damage(state, log, SharedFinding.NEWEST_HEADLESS, path, OpId(1, count))
    assert harness.open().read(B, 1, 5, 1 << 20) == held(4).held


def test_one_bad_copy_of_a_head_or_of_its_image_costs_nothing(harness: VirtualHarness) -> None:
    engine = lived(harness, crash=False)
    fill_segments(engine, A, 1)
    count = engine.logs()[A].last.index
    harness.crash(engine, Survival.KEPT)
    path = segments(harness.disk)[-1]
    with closing(harness.disk.open(path)) as file:
        head = read_head(file, image=True)
    assert head is not None
    assert head.image is not None
    for copy in (0, 1):
        twin = harness.fork(copy)
        twin.disk.damage(path, copy * PAGE_BYTES + 20)
        twin.disk.damage(path, copy * PAGE_BYTES + SECTOR_BYTES + 30)
        state, found = recovered(twin)
        assert found == [SharedFinding.CLEAN]
        assert {log.name: log.last.index for log in state.logs.values()} == {A: count, B: 4, C: 1}


def test_row_f_a_closed_engine_opens_without_reading_a_record(harness: VirtualHarness) -> None:
    lived(harness, crash=False).close()
    segment = newest(harness)
    harness.disk.damage(segment.path, segment.start + GROUP_BYTES + 3)  # Would be found by reading it.
    state, found = recovered(harness)
    assert found == [SharedFinding.CLOSED]
    assert all(log.damage is None for log in state.logs.values())


def test_row_g_a_footer_that_was_cut_short_attests_the_records_before_it(harness: VirtualHarness) -> None:
    lived(harness, crash=False).close()
    (path,) = segments(harness.disk)
    harness.disk.cut(path, len(harness.disk.read_bytes(path)) - 7)
    _, found = recovered(harness)
    assert found == [SharedFinding.SEALED]
    assert_whole(harness, {A: 4, B: 4, C: 1})


def test_row_h_space_that_was_never_written_is_cut_away(harness: VirtualHarness) -> None:
    lived(harness)
    (path,) = segments(harness.disk)
    before = len(harness.disk.read_bytes(path))
    _, found = recovered(harness)
    assert found == [SharedFinding.CLEAN]
    harness.crash(harness.open(), Survival.KEPT)
    assert len(harness.disk.read_bytes(path)) < before
    assert_whole(harness, {A: 4, B: 4, C: 1})


def test_row_i_a_torn_write_is_cut_away_whatever_of_it_is_there(harness: VirtualHarness) -> None:
    lived(harness)
    at = place_of(harness, C, 1)
    segment = newest(harness)
    for kept in range(at - GROUP_BYTES, segment.end, 7):
        twin = harness.fork(kept)
        write_at(twin, segment.path, kept, bytes(segment.end - kept))
        _, found = recovered(twin)
        torn = kept > at - GROUP_BYTES
        whole = kept >= segment.end - END_MARK_BYTES - zeros_at_end(200)
        assert found == [SharedFinding.TORN if torn and not whole else SharedFinding.CLEAN]
        assert_whole(twin, {A: 4, B: 4, C: int(whole)})


def test_row_j_a_bad_body_damages_its_log_and_no_other(harness: VirtualHarness) -> None:
    lived(harness)
    at = place_of(harness, A, 2)
    (path,) = segments(harness.disk)
    harness.disk.damage(path, at + RECORD_BYTES + 5)
    state, found = recovered(harness)
    assert found == [SharedFinding.BAD_BODY, SharedFinding.CLEAN]
    assert_damage(state, A, SharedFinding.BAD_BODY, path, OpId(1, 1))
    assert_whole(harness, {B: 4, C: 1})
    assert harness.open().logs()[A].damage is not None, "damage is remembered by what follows"


def test_row_k_bad_bytes_damage_the_logs_of_which_nothing_whole_follows(harness: VirtualHarness) -> None:
    lived(harness)
    at = place_of(harness, A, 4)
    (path,) = segments(harness.disk)
    harness.disk.damage(path, at + 9)
    state, found = recovered(harness)
    assert SharedFinding.BAD_RECORD in found
    assert_damage(state, A, SharedFinding.BAD_RECORD, path, OpId(1, 3))
    assert_damage(state, B, SharedFinding.BAD_RECORD, path, OpId(1, 3))
    assert state.logs[C].damage is None, "its first entry follows, and it is the first"
    assert_whole(harness, {C: 1})


def test_row_k_bad_bytes_in_the_last_group_are_not_taken_for_a_tail(harness: VirtualHarness) -> None:
    lived(harness)
    at = place_of(harness, C, 1)
    (path,) = segments(harness.disk)
    harness.disk.damage(path, at - GROUP_BYTES + 9)
    state, found = recovered(harness)
    assert found == [SharedFinding.BAD_RECORD]
    assert_damage(state, C, SharedFinding.BAD_RECORD, path, ZERO)


def test_row_k_what_is_cut_from_the_newest_segment_of_a_closed_log_damages_every_log(harness: VirtualHarness) -> None:
    lived(harness, crash=False).close()
    end, at = newest(harness).end, place_of(harness, C, 1)
    (path,) = segments(harness.disk)
    size = len(harness.disk.read_bytes(path))
    for cut in range(newest(harness).start, size, 5):
        twin = harness.fork(0)
        twin.disk.cut(path, cut)
        state, _ = recovered(twin)
        bad = {log for log, one in state.logs.items() if one.damage is not None}
        if cut >= end - END_MARK_BYTES:
            assert not bad, "only the footer is not whole, or the mark before it"
        elif cut < at - GROUP_BYTES:
            assert bad == set(state.logs), cut
        elif cut < at + RECORD_BYTES:
            assert bad == {A, B, C}, "nothing says whose record was cut"
        else:
            assert bad == {C}, "whose it was stands before its body"
        engine = twin.open()
        assert {log for log, state in engine.logs().items() if state.damage is not None} == bad
        engine.close()
        if cut < end - END_MARK_BYTES - zeros_at_end(200):  # Zeros that were cut stand there again.
            bad_later = {log for log, one in recovered(twin)[0].logs.items() if one.damage is not None}
            assert bad_later == bad, "remembered"


def test_row_k_an_older_copy_of_the_newest_segment_is_noticed_although_it_is_whole(harness: VirtualHarness) -> None:
    engine = lived(harness, crash=False)
    (path,) = segments(harness.disk)
    older = harness.disk.read_bytes(path)
    extend(engine, [C])
    engine.close()
    harness.write(path, older)
    state, _ = recovered(harness)
    assert all(log.damage is not None for log in state.logs.values())


def test_a_log_that_was_closed_and_killed_later_has_a_tail_that_may_be_torn(harness: VirtualHarness) -> None:
    lived(harness, crash=False).close()
    engine = harness.open()
    extend(engine, [A])
    harness.crash(engine, Survival.KEPT)
    path = segments(harness.disk)[-1]
    harness.disk.cut(path, place_of(harness, A, 5) + RECORD_BYTES + 9)
    assert recovered(harness)[1] == [SharedFinding.TORN]
    assert_whole(harness, {A: 4, B: 4, C: 1})


def test_row_l_a_log_of_which_records_are_missing_is_damaged(harness: VirtualHarness) -> None:
    lived(harness)
    (path,) = segments(harness.disk)
    harness.disk.damage(path, place_of(harness, A, 2) + 9)
    state, found = recovered(harness)
    assert SharedFinding.MISSED in found
    assert_damage(state, A, SharedFinding.MISSED, path, OpId(1, 1))
    assert_damage(state, B, SharedFinding.MISSED, path, OpId(1, 1))
    assert state.logs[C].damage is None


@pytest.mark.parametrize(
    ("kind", "op_id"),
    [
        (RecordKind.ENTRY, OpId(1, 6)),
        (RecordKind.ENTRY, OpId(1, 0)),
        (RecordKind.MOVED, OpId(1, 5)),
        (RecordKind.MOVED, OpId(2, 4)),
        (RecordKind.VOID, OpId(0, 6)),
        (RecordKind.BASE, OpId(1, 5)),
        (RecordKind.BASE, OpId(3, 4)),
        (99, OpId(1, 1)),
    ],
)
def test_row_m_a_record_that_does_not_fit_its_log_damages_it(
    harness: VirtualHarness, kind: RecordKind, op_id: OpId
) -> None:
    lived(harness)
    append_group(harness, A, kind, op_id, order=1)
    (path,) = segments(harness.disk)
    state, found = recovered(harness)
    assert found == [SharedFinding.UNFIT, SharedFinding.CLEAN]
    assert_damage(state, A, SharedFinding.UNFIT, path, OpId(1, 4))
    assert_whole(harness, {B: 4, C: 1})


def test_row_n_an_end_that_cannot_be_synced_damages_the_logs_it_holds(harness: VirtualHarness) -> None:
    lived(harness)
    (path,) = segments(harness.disk)
    harness.disk.faults.fail_syncs(path, 1)
    engine = harness.open()
    damage = engine.logs()[C].damage
    assert damage is not None
    assert "row N:" in damage.detail
    assert damage.last_good == ZERO
    for log in (A, B):
        check_holds(engine, held(4), log)
        extend(engine, [log])
    engine.close()


@pytest.mark.parametrize(
    ("row", "size"), [(SharedFinding.MISSING, None), (SharedFinding.BAD_SEGMENT, 0), (SharedFinding.BAD_SEGMENT, 2000)]
)
def test_rows_o_and_p_a_segment_that_is_missing_or_cut_damages_the_logs_in_it(
    harness: VirtualHarness, row: SharedFinding, size: int | None
) -> None:
    engine = lived(harness, crash=False)
    fill_segments(engine, A, 1)
    first = engine.logs()[A].last.index
    fill_segments(engine, A, 1)
    extend(engine, [B])
    harness.crash(engine, Survival.KEPT)
    path = segments(harness.disk)[1]
    if size is None:
        harness.disk.remove(path)
    else:
        harness.disk.cut(path, size)
    state, found = recovered(harness)
    assert row in found
    damage = state.logs[A].damage
    assert damage is not None
    assert f"row {row.value.letter}:" in damage.detail
    assert first - 1 <= damage.last_good.index <= first
    check_holds(harness.open(), held(5), B)
    assert state.logs[C].damage is None


def test_what_stands_behind_damage_stays_on_the_disk_until_the_log_is_dropped(harness: VirtualHarness) -> None:
    """Recovery once removed the whole segments behind a bad one, as if nobody had ever needed them."""
    engine = lived(harness, crash=False)
    fill_segments(engine, A, 3)
    count = engine.logs()[A].last.index
    harness.crash(engine, Survival.KEPT)
    paths = segments(harness.disk)
    whole = harness.disk.read_bytes(paths[1])
    harness.disk.cut(paths[1], 2000)
    engine = harness.open()
    damage = engine.logs()[A].damage
    assert damage is not None and damage.path == paths[1]
    assert segments(harness.disk) == paths
    harness.crash(engine, Survival.KEPT)
    harness.write(paths[1], whole)
    assert recovered(harness)[0].logs[A].last.index == count, "put back in time, it is whole again"
    harness.disk.cut(paths[1], 2000)
    engine = harness.open()
    extend(engine, [B])
    engine.drop(A)
    engine.close()
    engine = harness.open()
    assert not harness.disk.exists(paths[2])
    check_holds(engine, held(5), B)
    engine.close()


def test_row_p_a_segment_under_the_name_of_another_is_noticed(harness: VirtualHarness) -> None:
    engine = lived(harness, crash=False)
    fill_segments(engine, A, 2)
    harness.crash(engine, Survival.KEPT)
    first, second, _ = segments(harness.disk)
    contents = harness.disk.read_bytes(second)
    harness.disk.cut(first, 0)
    write_at(harness, first, 0, contents)
    state, found = recovered(harness)
    assert SharedFinding.BAD_SEGMENT in found
    assert_damage(state, B, SharedFinding.BAD_SEGMENT, first, ZERO)


def test_row_q_a_log_whose_sync_failed_is_remembered_as_damaged(harness: VirtualHarness) -> None:
    engine = lived(harness, crash=False)
    harness.disk.faults.fail_syncs(PLACE, 1)
    outcomes = engine.commit({A: Append(entries=entries(5, 1))}, sync=True)
    assert not hasattr(outcomes[A], "last")
    harness.crash(engine, Survival.KEPT)
    state, _ = recovered(harness)
    damage = state.logs[A].damage
    assert damage is not None
    assert f"row {SharedFinding.SYNC_FAILED.value.letter}" in damage.detail
    assert damage.last_good == OpId(1, 4)
    assert_whole(harness, {B: 4, C: 1})


def test_row_r_an_older_segment_whose_head_is_not_read_damages_no_log(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = lived(harness, crash=False)
    fill_segments(engine, A, 1)
    harness.crash(engine, Survival.KEPT)
    UnreadPages(monkeypatch).paths[segments(harness.disk)[0]] = (0, 1)
    state, found = recovered(harness)
    assert SharedFinding.UNREAD in found
    assert not [log for log in state.logs.values() if log.damage is not None]
    check_holds(harness.open(), held(4), B)


# -- the table itself ------------------------------------------------------------------------------


def test_rows_are_lettered_without_gaps_and_say_what_becomes_of_what() -> None:
    rows = table()
    assert [row.letter for row in rows] == [chr(ord("A") + position) for position in range(len(rows))]
    assert {row.verdict for row in rows} == set(SharedVerdict)


def test_every_row_has_a_test_here() -> None:
    text = Path(__file__).read_text()
    for row in table():
        pattern = rf"def test_rows?_(\w_and_)?{row.letter.lower()}_"
        assert re.search(pattern, text), f"no test of row {row.letter}: {row.situation}"


def test_the_readme_has_the_table() -> None:
    text = (Path(stelae_wal_shared.__file__).parent / "README.md").read_text()
    for row in table():
        assert f"| {row.letter} | {row.situation} | {row.verdict.name.lower()} |" in text
