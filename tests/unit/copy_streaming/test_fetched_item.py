"""One item while it is fetched: whatever arrives in whatever order, it is written once, in order, without gaps."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stelae.testing.conformance.copy_harness import data_of
from stelae.testing.copy_world import unit_of
from stelae_copy_streaming.fetched_item import FetchedItem


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(0, 1 << 32))
def test_every_byte_is_written_in_order(size_bytes: int, chunk_bytes: int, seed: int) -> None:
    rng, data, written = random.Random(seed), data_of(size_bytes), bytearray()
    item = FetchedItem(unit_of("rows/a", data), 0)
    asked: list[tuple[int, int]] = []
    restarts = 2
    while item.bytes_left:
        if (found := item.next_range(chunk_bytes)) is not None and (not asked or rng.random() < 0.6):
            assert 0 < found[1] <= chunk_bytes
            item.asked(*found)
            asked.append(found)
            continue
        offset, count = asked.pop(rng.randrange(len(asked)))
        if rng.random() < 0.2:
            item.missing(offset, count)
            continue
        short = rng.randrange(1, count + 1) if rng.random() < 0.3 else count
        for at, part in item.arrived(offset, count, data[offset : offset + short]):
            assert at == len(written)
            written += part
        if restarts and rng.random() < 0.05:
            restarts -= 1
            item.restart()
            asked.clear()
            written.clear()
    assert bytes(written) == data
    assert not asked
    assert item.next_range(chunk_bytes) is None
    assert item.buffered == 0


def test_a_part_of_an_earlier_run_counts_and_is_not_asked_for() -> None:
    item = FetchedItem(unit_of("rows/a", data_of(100)), 40)
    assert item.unchecked
    assert not item.of_one_source
    assert item.next_range(1000) == (40, 60)
    item.restart()
    assert item.of_one_source
    assert not item.unchecked
    assert item.next_range(1000) == (0, 100)


def test_answers_from_before_an_item_was_begun_again_are_told_apart() -> None:
    item = FetchedItem(unit_of("rows/a", data_of(100)), 0)
    item.asked(0, 50)
    item.arrived(0, 50, data_of(100)[:50])
    before = item.epoch
    item.restart()
    assert item.epoch > before
    assert item.next_range(1000) == (0, 100)
