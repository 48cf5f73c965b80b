"""A segment in the space of a collected one: what is written there, how it ends, and what recovery makes of that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from stelae.sim.disk import PowerLost, Survival
from stelae.spi.wal import Append
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entries
from stelae_shared.log_files.whole_blocks import BLOCK_BYTES
from stelae_wal_segmented import SegmentedConfig
from stelae_wal_segmented.decisions import SegmentFinding
from stelae_wal_segmented.fast import FastSegmentedWal
from stelae_wal_segmented.fast.kept_files import PIECE_BYTES
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    ENTRY_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
)
from stelae_wal_segmented.sectors import DIGEST_BYTES, SECTOR_BYTES, digests_of, space_within
from tests.unit.wal_segmented.scenes import OVERHEAD_BYTES, assert_opens_with
from tests.unit.wal_segmented.used import CONFIG, SEGMENT_BYTES, harness_of, in_used_space, is_used, newest, recovered


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of()


def test_a_segment_of_a_busy_log_gets_the_space_of_a_collected_one_and_no_zeros(harness: VirtualHarness) -> None:
    in_used_space(harness)
    path = newest(harness)
    assert is_used(harness, path)
    data = harness.disk.read_bytes(path)
    space = decode_segment_header(data, path).space
    assert (space.end, len(data)) == (SEGMENT_BYTES, SEGMENT_BYTES)
    assert space.data_start % SECTOR_BYTES == 0
    assert data[-100:].strip(b"\0"), "what stood there before still does"


LONG = pytest.mark.long

GROUPS = {
    "one empty entry": (1, 0),
    "an entry of a sector or so": (1, 600),
    "three small ones": (3, 40),
    "two large ones": (2, 1500),
    "up to the end of the space": (6, 1000),
    "beyond it": (2, 5000),
}


class Writing:
    """A commit into used space that is under way: what stood in the segment before and behind it.

    Args:
        count, size_bytes: entries of the group, and bytes of each.
        begin: offset of the group, if it matters; others are written up to there, one for each offset before.
        end: where it ends, if it matters.
        blank: zeros stood behind it before.
    """

    def __init__(
        self,
        count: int,
        size_bytes: int,
        *begin: int,
        end: int | None = None,
        blank: bool = False,
        config: SegmentedConfig = CONFIG,
    ) -> None:
        self.harness = harness_of(config)
        engine, self.model = in_used_space(self.harness, blank=blank)
        self.path = newest(self.harness)
        self.begin = recovered(self.harness).chain.segments[-1].end
        for offset in begin:
            filler = entries(self.model.last.index + 1, 1, size_bytes=offset - self.begin - OVERHEAD_BYTES)
            commit(engine, Append(entries=filler))
            self.model = self.model.append(Append(entries=filler))
            self.begin = offset
        if end is not None:
            size_bytes = (end - self.begin - GROUP_HEADER_BYTES - END_MARK_BYTES) // count - ENTRY_HEADER_BYTES
        self.last = Append(entries=entries(self.model.last.index + 1, count, size_bytes=size_bytes))
        self.before = self.harness.disk.read_bytes(self.path)
        commit(engine, self.last)
        self.after = self.harness.disk.read_bytes(self.path)
        self.harness.crash(engine, Survival.KEPT)
        self.end = recovered(self.harness).chain.segments[-1].end

    def cut_after(self, length: int) -> VirtualHarness:
        """A disk on which only this many bytes of the write are."""
        twin = self.harness.fork(length)
        self.cut(twin, length)
        return twin

    def cut(self, harness: VirtualHarness, length: int) -> None:
        """Leave only this many bytes of the write on a disk that has other ones of them."""
        at = self.begin + length
        harness.write(self.path, self.after[:at] + self.before[at:])


def check_cuts(writing: Writing) -> None:
    """However much of the group was written, recovery cuts it and damages nothing."""
    possible = [one.last for one in writing.model.possible_after(writing.last)]
    behind = writing.end - writing.begin + 2 * SECTOR_BYTES
    twin = writing.harness.fork(0)  # Recovery writes nothing before a log is opened, so one disk serves all lengths.
    for length in range(0, behind, 1 + behind // 1000):
        writing.cut(twin, length)
        found = recovered(twin)
        assert found.found[-1] in (SegmentFinding.TORN, SegmentFinding.CLEAN), (length, found.damage)
        assert found.last in possible
        if length % 97 == 0:
            kept = [e for e in writing.last.entries if e.op_id <= found.last]
            assert_opens_with(writing.cut_after(length), Model(writing.model.base, [*writing.model.held, *kept]))


def check_flips(writing: Writing) -> None:
    """Whatever bit changes of it, a group that was written is not cut away in silence."""
    mark_at = writing.end - END_MARK_BYTES
    step = 1 + (mark_at - writing.begin) // 800
    assert set(flipped(writing.harness, writing.path, range(writing.begin, mark_at, step))) == {SegmentFinding.CHANGED}
    for offset in range(mark_at, writing.end):
        twin = writing.harness.fork(0)
        twin.disk.damage(writing.path, offset)
        found = recovered(twin)
        assert (found.found[-1], found.last) == (SegmentFinding.TORN, writing.last.entries[-1].op_id)


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("shape", GROUPS)
def test_a_group_cut_at_any_byte_leaves_every_earlier_entry_and_a_clean_end(shape: str, blank: bool) -> None:
    check_cuts(Writing(*GROUPS[shape], blank=blank))


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("shape", GROUPS)
def test_a_changed_byte_in_the_last_group_is_damage_as_in_new_space(shape: str, blank: bool) -> None:
    """Where zeros had stood behind the group, zeros behind it once told nothing, and it was cut in silence."""
    check_flips(Writing(*GROUPS[shape], blank=blank))


@pytest.mark.parametrize("begin", [0, 1, 40, 460, 511])
def test_both_hold_wherever_in_a_sector_a_group_begins(begin: int) -> None:
    for size_bytes in (0, 100, 700):
        writing = Writing(1, size_bytes, 4 * SECTOR_BYTES + begin)
        assert writing.begin % SECTOR_BYTES == begin
        check_cuts(writing)
        check_flips(writing)


LARGER = SegmentedConfig(segment_bytes_first=32768, segment_bytes_max=32768, prewrite_bytes_min=32768)


@pytest.mark.parametrize("sector", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("begin", [40, pytest.param(0, marks=LONG), pytest.param(480, marks=LONG)])
def test_both_hold_behind_a_group_that_filled_its_block_with_zeros(sector: int, begin: int) -> None:
    """Once the first block of a write is known, writes end with a block: zeros stand there, and not what did before."""
    for size_bytes in (0, 400, 1500, 5000):
        at = 2 * BLOCK_BYTES + sector * SECTOR_BYTES + begin
        writing = Writing(1, size_bytes, BLOCK_BYTES + 1000, at, config=LARGER)
        filled = writing.before[at : -(-at // BLOCK_BYTES) * BLOCK_BYTES]
        assert not filled.strip(b"\0")
        check_cuts(writing)
        check_flips(writing)


@pytest.mark.parametrize("end", [-1025, -1024, -513, -512, -511, -100, -1, 0, 1, 511, 512, 600])
def test_both_hold_where_the_used_space_ends(end: int) -> None:
    writing = Writing(1, 0, SEGMENT_BYTES - 2500, end=SEGMENT_BYTES + end)
    assert writing.end == SEGMENT_BYTES + end
    check_cuts(writing)
    check_flips(writing)


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("shape", GROUPS)
def test_a_group_torn_into_sectors_leaves_a_prefix_of_it(shape: str, blank: bool) -> None:
    count, size_bytes = GROUPS[shape]
    harness = harness_of()
    engine, model = in_used_space(harness, blank=blank)
    last = Append(entries=entries(model.last.index + 1, count, size_bytes=size_bytes))

    def lose_power(operation: str, path: str) -> None:
        if (operation, path) == ("dsync", newest(harness)):
            raise PowerLost("the write is under way")

    harness.disk.faults.hook = lose_power
    with pytest.raises(PowerLost):
        commit(engine, last)
    harness.disk.faults.hook = None
    seen = set()
    for seed in range(100):
        twin = harness.fork(seed)
        twin.crash()
        found = recovered(twin)
        assert found.found[-1] in (SegmentFinding.TORN, SegmentFinding.CLEAN), found.damage
        assert found.last in [one.last for one in model.possible_after(last)]
        seen.add(found.last)
    assert {model.last, last.entries[-1].op_id} <= seen


def flipped(harness: VirtualHarness, path: str, offsets: range) -> Iterator[SegmentFinding]:
    twin = harness.fork(0)
    for offset in offsets:
        twin.disk.damage(path, offset, 1 << offset % 8)
        found = recovered(twin)
        assert found.damage is not None or found.found[-1] is SegmentFinding.TORN
        yield found.found[-1]
        twin.disk.damage(path, offset, 1 << offset % 8)  # The bit is what it was again.


def test_a_changed_byte_before_the_last_group_is_damage(harness: VirtualHarness) -> None:
    engine, model = in_used_space(harness)
    begin = decode_segment_header(harness.disk.read_bytes(newest(harness)), "").data_start
    end = recovered(harness).chain.segments[-1].end
    commit(engine, Append(entries=entries(model.last.index + 1, 1, size_bytes=150)))
    harness.crash(engine, Survival.KEPT)
    assert set(flipped(harness, newest(harness), range(begin, end))) == {SegmentFinding.BEFORE_SYNCED}


def test_what_stood_in_the_space_before_is_a_clean_end(harness: VirtualHarness) -> None:
    engine, model = in_used_space(harness)
    harness.crash(engine, Survival.KEPT)
    assert harness.disk.read_bytes(newest(harness))[-100:].strip(b"\0"), "something stands there"
    assert recovered(harness).found[-1] is SegmentFinding.CLEAN
    assert_opens_with(harness, model)


def test_a_log_that_went_on_behind_a_torn_end_in_used_space_is_recovered_again() -> None:
    writing = Writing(2, 1500)
    harness, model = writing.cut_after(700), writing.model
    for _ in range(3):
        engine = harness.open()
        check_holds(engine, model)
        more = Append(entries=entries(model.last.index + 1, 2, size_bytes=300))
        harness.disk.faults.lose_power_after(written_bytes=500)
        with pytest.raises(PowerLost):
            commit(engine, more)
        harness.crash(engine, Survival.KEPT)
        found = recovered(harness)
        assert found.damage is None
        model = next(one for one in model.possible_after(more) if one.last == found.last)
    assert_opens_with(harness, model)


@pytest.mark.parametrize("end", [0, 1, 7, 8, 9, 100, 511])
@pytest.mark.parametrize("lengths", [(40, 100), (300, 700), (0, 1500)])
def test_a_group_behind_one_that_followed_a_cut_may_be_torn_anywhere(lengths: tuple[int, int], end: int) -> None:
    """The space behind a cut is zeros again, whatever the table says, and the last group's tail stands in it."""
    writing = Writing(2, 1500)
    harness, model, path = writing.cut_after(700), writing.model, writing.path
    engine = harness.open()
    at = recovered(harness).chain.segments[-1].end
    for size_bytes in lengths:
        start, before = at, harness.disk.read_bytes(path)
        size_bytes += (end - (start + OVERHEAD_BYTES + size_bytes)) % SECTOR_BYTES
        more = Append(entries=entries(model.last.index + 1, 1, size_bytes=size_bytes))
        commit(engine, more)
        earlier, model, at = model, model.append(more), start + OVERHEAD_BYTES + size_bytes
    assert at % SECTOR_BYTES == end
    after = harness.disk.read_bytes(path)
    harness.crash(engine, Survival.KEPT)
    twin = harness.fork(0)
    for length in range(at - start + SECTOR_BYTES):
        twin.write(path, after[: start + length] + before[start + length :])
        found = recovered(twin)
        assert found.damage is None, (length, found.damage)
        assert found.last in (earlier.last, model.last)
    assert set(flipped(harness, path, range(start, at - END_MARK_BYTES))) == {SegmentFinding.CHANGED}


def test_what_is_to_be_written_without_sync_is_synced_in_used_space(harness: VirtualHarness) -> None:
    engine, model = in_used_space(harness)
    given = Append(entries=entries(model.last.index + 1, 3, size_bytes=150))
    engine.commit({LOG: given}, sync=False)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, model.append(given))
    engine.close()


# -- the ends of a segment in used space -----------------------------------------------------------


def first_group() -> tuple[VirtualHarness, Model, str, bytes]:
    """Before the first group of a segment in used space is written: the disk, what it holds, and what is to come."""
    whole = harness_of()
    _, model = in_used_space(whole)
    path = newest(whole)
    harness = harness_of()

    def lose_power(operation: str, at: str) -> None:
        if (operation, at) == ("write", path):
            raise PowerLost("before the first group")

    harness.disk.faults.hook = lose_power
    with pytest.raises(PowerLost):
        in_used_space(harness)
    harness.disk.faults.hook = None
    harness.crash(survival=Survival.KEPT)
    return harness, model, path, whole.disk.read_bytes(path)


def test_the_first_group_of_a_segment_may_be_torn_anywhere() -> None:
    harness, model, path, after = first_group()
    before = harness.disk.read_bytes(path)
    start = decode_segment_header(before, path).data_start
    assert before[:start] == after[:start] and before[start:] != after[start:]
    for length in range(2 * SECTOR_BYTES + 1):
        twin = harness.fork(length)
        torn = after[: start + length] + before[start + length :]
        twin.write(path, torn)
        found = recovered(twin)
        assert found.damage is None, length
        end = start + OVERHEAD_BYTES - END_MARK_BYTES + 150  # Zeros may have stood there before, as they do now.
        assert found.last.index == model.last.index - (torn[:end] != after[:end])


def closing_cut_after(length: int, survival: Survival) -> tuple[VirtualHarness, Model, bool]:
    """Lose power after this many bytes of closing a log in used space."""
    harness = harness_of()
    engine, model = in_used_space(harness)
    many = Append(entries=entries(model.last.index + 1, 120, size_bytes=0))
    commit(engine, many)
    model = model.append(many)
    harness.disk.faults.lose_power_after(written_bytes=length)
    try:
        engine.close()
        whole = True
    except PowerLost:
        whole = False
    harness.disk.faults.heal()
    harness.crash(survival=survival)
    return harness, model, whole


@pytest.mark.parametrize("survival", [Survival.KEPT, pytest.param(Survival.DRAWN, marks=LONG)])
def test_a_footer_in_used_space_may_be_torn_anywhere(survival: Survival) -> None:
    length, whole = 0, False
    while not whole:
        harness, model, whole = closing_cut_after(length, survival)
        assert recovered(harness).damage is None, length
        if length % 70 == 0:
            assert_opens_with(harness, model)
        length += 7
    assert length > 3 * SECTOR_BYTES, "the footer is longer than the zeros behind the last group"


def test_closing_in_used_space_can_be_interrupted_at_any_operation() -> None:
    for operations in range(12):
        for seed in range(12):
            harness = VirtualHarness(FastSegmentedWal, CONFIG, seed=seed)
            engine, model = in_used_space(harness)
            harness.disk.faults.lose_power_after(operations=operations)
            with suppress(PowerLost):
                engine.close()
            harness.disk.faults.heal()
            harness.crash()
            assert_opens_with(harness, model)


# -- the table -------------------------------------------------------------------------------------


def test_digests_tell_equal_sectors_from_others() -> None:
    rng = random.Random(1)
    data = rng.randbytes(PIECE_BYTES + 3 * SECTOR_BYTES)
    digests = digests_of(data)
    assert len(digests) == len(data) // SECTOR_BYTES * DIGEST_BYTES
    for sector in (0, 1, PIECE_BYTES // SECTOR_BYTES, len(data) // SECTOR_BYTES - 1):
        one = digests[sector * DIGEST_BYTES : (sector + 1) * DIGEST_BYTES]
        begin = sector * SECTOR_BYTES
        assert digests_of(data[begin : begin + SECTOR_BYTES]) == one
        for bit in range(0, 8 * SECTOR_BYTES, 13):
            changed = bytearray(data[begin : begin + SECTOR_BYTES])
            changed[bit // 8] ^= 1 << bit % 8
            assert digests_of(bytes(changed)) != one
    constant = {digests_of(bytes([value]) * SECTOR_BYTES) for value in range(256)}
    assert len(constant) == 256
    assert digests_of(data[8:SECTOR_BYTES] + data[:8]) != digests_of(data[:SECTOR_BYTES]), "the order counts"


@pytest.mark.parametrize("size", [1024, 4096, 4097, 8191, 8192, 100_000, 64 << 20])
def test_a_table_covers_a_file_to_its_last_whole_sector(size: int) -> None:
    sectors, start = space_within(SEGMENT_HEADER_BYTES, size)
    assert start % SECTOR_BYTES == 0
    assert start + sectors * SECTOR_BYTES == size - size % SECTOR_BYTES
    assert SEGMENT_HEADER_BYTES + sectors * DIGEST_BYTES <= start
    assert start <= 160 + sectors * DIGEST_BYTES + 2 * SECTOR_BYTES


def test_where_nothing_is_to_be_cut_a_damaged_table_is_not_missed(harness: VirtualHarness) -> None:
    engine, model = in_used_space(harness)
    path = newest(harness)
    engine.close()
    harness.disk.damage(path, SEGMENT_HEADER_BYTES + 1)
    assert recovered(harness).found[-1] is SegmentFinding.FOOTER
    assert_opens_with(harness, model)
