"""Every row of the recovery table: a situation, made by hand, and what recovery does about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

import stelae_wal_segmented
from stelae.sim.disk import PowerLost, Survival
from stelae.spi.errors import Corrupt, FutureVersion, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, Failed
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, Model, commit, entries, zeros_at_end
from stelae_shared.log_files.page_slots import SLOT_BYTES
from stelae_wal_segmented.base_file import LogUse, read_base, write_base
from stelae_wal_segmented.decisions import SegmentFinding, SegmentVerdict, table
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    FORMAT_VERSION,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    encode_group_header,
)
from stelae_wal_segmented.names import sequences_of
from stelae_wal_segmented.recovery import recover_log
from tests.unit.wal_segmented.scenes import (
    ALL,
    BASE,
    FIRST,
    PLACE,
    SECOND,
    assert_damage,
    assert_opens_with,
    data_end_of,
    filled,
    header_of,
    opened,
    pages_of,
    recovered,
    small_harness,
)


@pytest.fixture
def harness() -> VirtualHarness:
    return small_harness()


def test_row_a_a_file_in_the_making_is_removed(harness: VirtualHarness) -> None:
    filled(harness, 5).close()
    for name in ("g1-0123456789abcdef.new", ".g1.base.tmp", "g4-000000000000000a.new"):
        harness.write(f"{PLACE}/{name}", b"half of something")
    harness.disk.sync_directory(PLACE)
    assert_opens_with(harness, Model(ZERO, list(ALL[:5])))
    assert not [n for n in harness.disk.listdir(PLACE) if n.endswith((".new", ".tmp"))]


def test_row_b_a_collected_segment_that_is_still_there_is_removed(harness: VirtualHarness) -> None:
    engine = filled(harness)
    first = harness.disk.read_bytes(FIRST)
    base = engine.collect(LOG, 20)
    engine.close()
    harness.write(FIRST, first)
    assert SegmentFinding.COLLECTED in recovered(harness).found
    engine = harness.open()
    assert not harness.disk.exists(FIRST)
    assert engine.logs()[LOG].base == base != ZERO
    engine.close()


def test_row_c_a_removal_that_began_is_finished(harness: VirtualHarness) -> None:
    filled(harness).close()
    use(harness, LogUse.DROPPING)
    engine = harness.open()
    assert not engine.logs()
    assert harness.disk.listdir("/node/wals") == ["lock", "segmented"]
    engine.close()


def use(harness: VirtualHarness, value: LogUse, durable: OpId = ZERO) -> None:
    base = read_base(harness.disk, BASE)
    write_base(harness.disk, BASE, base.changed(use=value, durable=durable))


@pytest.mark.parametrize("how", ["missing", "damaged", "of another log"])
def test_row_d_without_a_valid_base_file_the_log_is_damaged(harness: VirtualHarness, how: str) -> None:
    filled(harness).close()
    if how == "missing":
        harness.disk.remove(BASE)
    elif how == "damaged":
        harness.disk.damage(BASE, 20)
        harness.disk.damage(BASE, SLOT_BYTES + 20)
    else:
        data = harness.disk.read_bytes(BASE)
        harness.disk.remove(BASE)
        harness.write(f"{PLACE}/g2.base", data)
        harness.disk.rename(f"{PLACE}/g2.base", BASE)
        harness.disk.make_directory("/node/wals/tablet-b")
        for name in harness.disk.listdir(PLACE):
            harness.disk.rename(f"{PLACE}/{name}", f"/node/wals/tablet-b/{name}")
        engine = harness.open()
        ((log, state),) = engine.logs().items()
        assert log.tablet_id == "tablet-b"
        assert state.damage is not None
        assert "row D" in state.damage.detail
        return
    assert_damage(recovered(harness), SegmentFinding.NO_BASE, BASE, ZERO)


def test_row_e_a_log_that_is_being_set_aside_is_not_used(harness: VirtualHarness) -> None:
    filled(harness).close()
    use(harness, LogUse.LEAVING)
    assert_damage(recovered(harness), SegmentFinding.LEAVING, BASE, OpId(1, 60))
    engine = harness.open()
    engine.set_aside(LOG, "/node/quarantine/1")
    assert not engine.logs()
    engine.close()


def test_row_f_after_a_failed_sync_nothing_behind_the_durable_entry_is_given_out(harness: VirtualHarness) -> None:
    filled(harness).close()
    use(harness, LogUse.SYNC_FAILED, OpId(1, 42))
    assert_damage(recovered(harness), SegmentFinding.SYNC_FAILED, BASE, OpId(1, 42))


@pytest.mark.parametrize("offset", [0, 3, 20, 155, SEGMENT_HEADER_BYTES - 1])
def test_row_g_an_invalid_segment_header_is_damage(harness: VirtualHarness, offset: int) -> None:
    filled(harness).close()
    harness.disk.damage(SECOND, offset)
    last = header_before(harness, SECOND)
    assert_damage(recovered(harness), SegmentFinding.BAD_HEADER, SECOND, last)


def header_before(harness: VirtualHarness, path: str) -> OpId:
    """Last op id of the segment before ``path``, which is the second one."""
    disk = harness.disk.clone()
    disk.remove(path)
    return recover_log(disk, PLACE, LOG, [1]).last


def test_row_g_a_segment_of_another_log_is_damage(harness: VirtualHarness) -> None:
    filled(harness).close()
    harness.disk.rename(SECOND, f"{PLACE}/g1-000000000009.seg")
    found = recovered(harness)
    assert found.found[-1] is SegmentFinding.BAD_HEADER or found.found[-1] is SegmentFinding.BROKEN_CHAIN
    assert found.damage is not None


def test_a_segment_of_a_newer_format_stops_the_node_and_touches_nothing(harness: VirtualHarness) -> None:
    filled(harness).close()
    data = bytearray(harness.disk.read_bytes(SECOND))
    header = header_of(harness, SECOND)
    newer = bytearray(header.encode())
    newer[8] = FORMAT_VERSION + 1
    newer[-4:] = crc32c(bytes(newer[:-4])).to_bytes(4, "little")
    data[: len(newer)] = newer
    harness.write(SECOND, bytes(data))
    before = harness.tree()
    with pytest.raises(FutureVersion, match=f"format {FORMAT_VERSION + 1} is newer"):
        harness.open()
    after = harness.tree()
    assert {path for path in before if before[path] != after[path]} == {"/node/wals/segmented"}


def test_row_g_a_segment_from_before_the_first_release_is_damage(harness: VirtualHarness) -> None:
    filled(harness).close()
    last = header_before(harness, SECOND)
    older = bytearray(header_of(harness, SECOND).encode())
    older[8] = FORMAT_VERSION - 1
    older[-4:] = crc32c(bytes(older[:-4])).to_bytes(4, "little")
    harness.write(SECOND, bytes(older) + harness.disk.read_bytes(SECOND)[len(older) :])
    assert_damage(recovered(harness), SegmentFinding.BAD_HEADER, SECOND, last)


def test_row_h_a_missing_segment_is_damage(harness: VirtualHarness) -> None:
    filled(harness).close()
    last = header_before(harness, SECOND)
    harness.disk.remove(SECOND)
    third = f"{PLACE}/g1-000000000003.seg"
    assert_damage(recovered(harness), SegmentFinding.BROKEN_CHAIN, third, last)
    harness.disk.remove(FIRST)
    assert_damage(recovered(harness), SegmentFinding.BROKEN_CHAIN, third, ZERO)


def test_row_i_a_closed_segment_is_taken_from_its_footer(harness: VirtualHarness) -> None:
    filled(harness).close()
    assert set(recovered(harness).found) == {SegmentFinding.FOOTER}
    assert_opens_with(harness, Model(ZERO, list(ALL)))


def without_footer(harness: VirtualHarness) -> None:
    """Cut the footer off the first segment, as a full disk leaves it."""
    harness.disk.cut(FIRST, header_of(harness, SECOND).previous_end)


def test_row_j_a_segment_without_footer_ends_where_its_successor_says(harness: VirtualHarness) -> None:
    filled(harness).close()
    without_footer(harness)
    assert recovered(harness).found[0] is SegmentFinding.SEALED
    assert_opens_with(harness, Model(ZERO, list(ALL)))


def test_row_k_a_segment_without_footer_is_invalid_before_that(harness: VirtualHarness) -> None:
    filled(harness).close()
    without_footer(harness)
    for change in (
        lambda disk: disk.damage(FIRST, 2000),
        lambda disk: disk.cut(FIRST, 2000),
        lambda disk: disk.damage(FIRST, SEGMENT_HEADER_BYTES + 3),
    ):
        twin = harness.fork(0)
        change(twin.disk)
        found = recovered(twin)
        assert found.found[-1] is SegmentFinding.BAD_SEALED
        assert found.damage is not None
        assert found.damage.path == FIRST
        assert SEGMENT_HEADER_BYTES <= found.damage.offset <= 2000
        assert found.last.index < 10


def test_row_l_a_damaged_footer_with_a_successor_is_damage(harness: VirtualHarness) -> None:
    filled(harness).close()
    end = header_of(harness, SECOND).previous_end
    pages = pages_of(harness)
    for offset in set(range(end, len(harness.disk.read_bytes(FIRST)))) - set(pages):
        twin = harness.fork(0)
        twin.disk.damage(FIRST, offset)
        assert_damage(recovered(twin), SegmentFinding.BAD_FOOTER, FIRST, header_before(harness, SECOND))


def test_a_damaged_page_of_a_footer_is_damage_for_whoever_reads_there(harness: VirtualHarness) -> None:
    filled(harness).close()
    for offset in pages_of(harness):
        twin = harness.fork(0)
        twin.disk.damage(FIRST, offset)
        engine = twin.open()
        with pytest.raises(Corrupt, match=rf"{FIRST}@{pages_of(harness).start}: .*page"):
            engine.read(LOG, 3, 4, 1)
        damage = engine.logs()[LOG].damage
        assert damage is not None
        assert (damage.path, damage.last_good) == (FIRST, ZERO)


def test_row_t_the_newest_segment_is_missed_whether_others_are_there_or_not(harness: VirtualHarness) -> None:
    engine = filled(harness)
    newest = max(sequences_of(harness.disk, PLACE, 1))
    engine.close()
    before = header_of(harness, f"{PLACE}/g1-{newest:012d}.seg").previous
    harness.disk.remove(f"{PLACE}/g1-{newest:012d}.seg")
    assert_damage(recovered(harness), SegmentFinding.MISSING, f"{PLACE}/g1-{newest:012d}.seg", before)
    for sequence in range(1, newest):
        harness.disk.remove(f"{PLACE}/g1-{sequence:012d}.seg")
    assert_damage(recovered(harness), SegmentFinding.MISSING, f"{PLACE}/g1-{newest:012d}.seg", ZERO)


def test_row_t_the_only_segment_of_a_log_is_missed_after_its_first_entry(harness: VirtualHarness) -> None:
    engine = harness.open()
    engine.create(LOG, OpId(3, 7))
    harness.crash(engine, Survival.KEPT)
    assert recovered(harness).damage is None, "a log without entries has no segment to miss"
    engine = harness.open()
    commit(engine, Append(entries=entries(8, 1, term=3)))
    harness.crash(engine, Survival.LOST)
    harness.disk.remove(FIRST)
    assert_damage(recovered(harness), SegmentFinding.MISSING, FIRST, OpId(3, 7))
    engine = harness.open()
    outcome = engine.commit({LOG: Append(entries=entries(8, 1, term=4))}, sync=True)[LOG]
    assert isinstance(outcome, Failed)
    assert "row T" in str(outcome.error)


def test_a_log_that_was_collected_to_its_end_misses_nothing(harness: VirtualHarness) -> None:
    engine = filled(harness)
    engine.cool(LOG)
    assert engine.collect(LOG, 60) == OpId(1, 60)
    assert sequences_of(harness.disk, PLACE, 1) == []
    harness.crash(engine, Survival.LOST)
    assert_opens_with(harness, Model(OpId(1, 60), []))


def test_a_new_segment_that_the_base_file_does_not_name_yet_holds_nothing_and_goes_on(harness: VirtualHarness) -> None:
    engine = filled(harness, 5)
    before = sequences_of(harness.disk, PLACE, 1)

    def lose_power_at_the_base(operation: str, path: str) -> None:
        if (operation, path) == ("write", BASE):
            raise PowerLost("before the base file names it")

    harness.disk.faults.hook = lose_power_at_the_base
    with pytest.raises(PowerLost):
        for first in range(5, 60, 5):
            commit(engine, Append(entries=ALL[first : first + 5], commit_hint=first))
    harness.disk.faults.hook = None
    assert len(sequences_of(harness.disk, PLACE, 1)) == len(before) + 1
    held = recovered(harness).last.index
    harness.crash(engine, Survival.KEPT)
    assert_opens_with(harness, Model(ZERO, list(ALL[:held])))
    newest = max(sequences_of(harness.disk, PLACE, 1))
    assert read_base(harness.disk, BASE).newest_sequence == newest, "the next group made up for it"


def test_row_m_a_footer_whose_file_was_not_cut_yet_is_cut_away(harness: VirtualHarness) -> None:
    filled(harness, 10).close()
    data = harness.disk.read_bytes(FIRST)
    harness.write(FIRST, data + bytes(1000))
    assert recovered(harness).found == [SegmentFinding.UNCUT_FOOTER]
    assert_opens_with(harness, Model(ZERO, list(ALL[:10])))


def overwrite(harness: VirtualHarness, offset: int, data: bytes) -> None:
    file = harness.disk.open(FIRST, writable=True)
    file.pwritev([data], offset)
    file.sync()


@pytest.mark.parametrize("row", ["beyond the end", "synced ahead", "does nothing", "wrong index", "wrong size"])
def test_row_n_a_valid_group_that_does_not_fit_is_damage(harness: VirtualHarness, row: str) -> None:
    end = opened(harness)
    nonce = header_of(harness, FIRST).nonce
    empty = GROUP_HEADER_BYTES + END_MARK_BYTES
    groups = {
        "beyond the end": GroupHeader(synced=end, commit_hint=0, replace_from=12, size=empty, count=0),
        "synced ahead": GroupHeader(synced=end + 1, commit_hint=0, replace_from=5, size=empty, count=0),
        "does nothing": GroupHeader(synced=end, commit_hint=0, replace_from=0, size=empty, count=0),
        "wrong index": GroupHeader(synced=end, commit_hint=0, replace_from=0, size=empty + 240, count=1),
        "wrong size": GroupHeader(synced=end, commit_hint=0, replace_from=5, size=empty + 1, count=0),
    }
    data = encode_group_header(groups[row], nonce)
    if row == "wrong index":
        whole = harness.disk.read_bytes(FIRST)
        start = SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES
        data += whole[start : start + 240]
    overwrite(harness, end, data)
    assert_damage(recovered(harness), SegmentFinding.UNFIT, FIRST, OpId(1, 10))


def test_row_o_zeros_before_a_recorded_synced_offset_are_damage(harness: VirtualHarness) -> None:
    opened(harness)
    overwrite(harness, 600, bytes(512))
    found = recovered(harness)
    assert found.found == [SegmentFinding.BEFORE_SYNCED]
    assert found.damage is not None
    assert found.damage.offset <= 600
    assert found.last.index < 5


def test_row_o_holds_for_any_byte_before_the_last_group(harness: VirtualHarness) -> None:
    end = opened(harness)
    second_group = (end - SEGMENT_HEADER_BYTES) // 2 + SEGMENT_HEADER_BYTES
    for offset in range(SEGMENT_HEADER_BYTES, second_group):
        twin = harness.fork(0)
        twin.disk.damage(FIRST, offset)
        assert recovered(twin).found == [SegmentFinding.BEFORE_SYNCED], offset


def test_row_o_what_is_cut_from_the_newest_segment_of_a_closed_log_is_missed(harness: VirtualHarness) -> None:
    filled(harness).close()
    path = f"{PLACE}/g1-{max(sequences_of(harness.disk, PLACE, 1)):012d}.seg"
    end, size = read_base(harness.disk, BASE).newest_end, len(harness.disk.read_bytes(path))
    assert SEGMENT_HEADER_BYTES < end < size
    for cut in range(SEGMENT_HEADER_BYTES, size, 7):
        twin = harness.fork(0)
        twin.disk.cut(path, cut)
        found = recovered(twin)
        if cut < end:
            assert_damage(found, SegmentFinding.BEFORE_SYNCED, path, found.last)
        else:
            assert (found.damage, found.last) == (None, ALL[-1].op_id), "only the footer is not whole"


def test_row_o_an_older_copy_of_the_newest_segment_is_noticed_although_it_is_whole(harness: VirtualHarness) -> None:
    engine = filled(harness, 5)
    engine.cool(LOG)
    older = harness.disk.read_bytes(FIRST)
    commit(engine, Append(entries=ALL[5:10]))
    engine.close()
    assert recovered(harness).found == [SegmentFinding.FOOTER]
    harness.write(FIRST, older)
    assert_damage(recovered(harness), SegmentFinding.BEFORE_SYNCED, FIRST, ALL[4].op_id)


def test_a_log_that_was_closed_and_killed_later_has_a_tail_that_may_be_torn(harness: VirtualHarness) -> None:
    filled(harness, 5).close()
    engine = harness.open()
    commit(engine, Append(entries=ALL[5:10]))
    harness.crash(engine, Survival.KEPT)
    harness.disk.cut(FIRST, data_end_of(harness) - END_MARK_BYTES - 1)
    assert recovered(harness).found == [SegmentFinding.TORN]
    assert_opens_with(harness, Model(ZERO, list(ALL[:9])))


def test_row_p_a_changed_byte_in_the_last_group_is_damage(harness: VirtualHarness) -> None:
    end = opened(harness)
    second_group = (end - SEGMENT_HEADER_BYTES) // 2 + SEGMENT_HEADER_BYTES
    rows = []
    for offset in range(second_group, end - END_MARK_BYTES):
        twin = harness.fork(0)
        twin.disk.damage(FIRST, offset)
        rows.append(recovered(twin).found[-1])
    assert set(rows) == {SegmentFinding.CHANGED}


def test_row_q_a_torn_tail_is_cut_and_never_read_again(harness: VirtualHarness) -> None:
    end = opened(harness)
    for keep in range(1, 240):
        twin = harness.fork(keep)
        size = len(twin.disk.read_bytes(FIRST))
        twin.write(FIRST, twin.disk.read_bytes(FIRST)[: end - keep] + bytes(size - end + keep))
        found = recovered(twin)
        assert found.found == [SegmentFinding.TORN]
        whole = 10 if keep <= END_MARK_BYTES + zeros_at_end(200) else 9
        assert found.last == OpId(1, whole)
        if keep % 40 == 1:
            assert_opens_with(twin, Model(ZERO, list(ALL[:whole])))


def test_row_q_holds_for_a_file_that_ends_in_the_tail(harness: VirtualHarness) -> None:
    end = opened(harness)
    for keep in range(1, 240):
        twin = harness.fork(keep)
        twin.disk.cut(FIRST, end - keep)
        assert recovered(twin).found == [SegmentFinding.TORN]


@pytest.mark.parametrize("rest", [0, 1, 100, 5000])
def test_row_r_zeros_or_nothing_behind_the_last_group_are_a_clean_end(harness: VirtualHarness, rest: int) -> None:
    end = opened(harness)
    harness.write(FIRST, harness.disk.read_bytes(FIRST)[:end] + bytes(rest))
    assert recovered(harness).found == [SegmentFinding.CLEAN]
    assert_opens_with(harness, Model(ZERO, list(ALL[:10])))


def test_a_tail_that_cannot_be_read_ends_the_start_and_is_no_damage(harness: VirtualHarness) -> None:
    """It once was, by row S: a replica was given up for one read that failed."""
    opened(harness)
    harness.disk.faults.fail_reads(FIRST, 1 << 30)
    with pytest.raises(StorageError) as caught:
        harness.open()
    assert caught.value.path == FIRST and not isinstance(caught.value, Corrupt)
    harness.disk.faults.heal()
    assert_opens_with(harness, Model(ZERO, list(ALL[:10])))


def test_row_s_a_tail_that_cannot_be_synced_is_damage(harness: VirtualHarness) -> None:
    opened(harness)
    harness.disk.faults.fail_syncs(FIRST)
    engine = harness.open()
    damage = engine.logs()[LOG].damage
    assert damage is not None
    assert damage.path == FIRST
    assert "row S" in damage.detail
    harness.crash(engine, Survival.KEPT)
    assert_opens_with(harness, Model(ZERO, list(ALL[:10])))


def test_row_u_the_file_of_a_collected_segment_that_was_kept_is_removed(harness: VirtualHarness) -> None:
    filled(harness).close()
    left = harness.disk.read_bytes(FIRST)
    for name in ("g1-000000000001.reuse", "g1-000000000009.reuse", "g4-000000000002.reuse"):
        harness.write(f"{PLACE}/{name}", left)
    harness.disk.sync_directory(PLACE)
    assert_opens_with(harness, Model(ZERO, list(ALL)))
    assert not [n for n in harness.disk.listdir(PLACE) if n.endswith(".reuse")]


# -- the table itself ------------------------------------------------------------------------------


def test_letters_are_consecutive_and_every_row_has_a_test() -> None:
    letters = [row.letter for row in table()]
    assert letters == [chr(ord("A") + position) for position in range(len(letters))]
    tested = {name.split("_")[2].upper() for name in globals() if name.startswith("test_row_")}
    assert tested == set(letters)


def test_the_readme_shows_the_table_as_it_is() -> None:
    readme = Path(stelae_wal_segmented.__file__).with_name("README.md").read_text()
    for row in table():
        assert f"| {row.letter} | {row.situation} | {row.verdict.name.lower()} |" in readme


def test_nothing_is_ever_removed_or_cut_that_was_known_to_be_durable() -> None:
    quiet = {found for found in SegmentFinding if found.value.verdict in (SegmentVerdict.CUT, SegmentVerdict.REMOVE)}
    assert quiet == {
        SegmentFinding.NEVER_RENAMED,
        SegmentFinding.KEPT,
        SegmentFinding.COLLECTED,
        SegmentFinding.DROPPED,
        SegmentFinding.UNCUT_FOOTER,
        SegmentFinding.TORN,
    }
