"""Bytes behind an index of a log, in bounded memory."""

from __future__ import annotations

import random

import pytest

from stelae.host.log_sizes import MARKS_MAX, LogSizes
from stelae.spi.ids import OpId
from stelae.spi.log import Entry, EntryKind


def entry(index: int, size: int) -> Entry:
    return Entry(OpId(1, index), EntryKind.WRITE, index, bytes(size))


@pytest.mark.parametrize("count", [10, MARKS_MAX, 30_000])
def test_the_first_position_within_a_bound_is_known_but_for_a_small_part_of_all(count: int) -> None:
    rng = random.Random(count)
    log = [entry(index, rng.randrange(100)) for index in range(1, count + 1)]
    total = sum(one.size_bytes for one in log)
    for part in (0.01, 0.3, 0.9):
        sizes = LogSizes(0)
        for one in log:
            sizes.appended((one,))
        sizes.keep(int(total * part))
        behind = sum(one.size_bytes for one in log if one.op_id.index > sizes.first_index)
        # Never more than the bound, unless the last position alone is left.
        assert behind <= total * part
        assert behind >= total * part - 2 * total / MARKS_MAX * 2 - 200


def test_memory_is_bounded_however_long_the_log_is() -> None:
    sizes = LogSizes(0)
    for index in range(1, 5 * MARKS_MAX):
        sizes.appended((entry(index, 10),))
        assert len(sizes._indexes) == len(sizes._sums) <= MARKS_MAX
    assert sizes.first_index == 0


def test_positions_before_an_index_can_be_forgotten_but_for_the_last_of_them() -> None:
    sizes = LogSizes(0)
    for index in (3, 6, 9):
        sizes.appended((entry(index, 10),))
    sizes.forget(7)
    assert sizes.first_index == 6
    sizes.forget(2)
    assert sizes.first_index == 6


def test_after_a_cut_below_all_positions_the_log_begins_there() -> None:
    sizes = LogSizes(5)
    sizes.appended((entry(6, 10), entry(7, 10)))
    sizes.cut(7)
    assert sizes.first_index == 5
    sizes.keep(10)
    assert sizes.first_index == 5, "what is gone counts no more"
    sizes.cut(3)
    assert sizes.first_index == 2
