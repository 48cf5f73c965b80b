"""What holds a log, and how much of it for peers that lag (W7)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from stelae.host.retention import MARK_BYTES, Retention
from stelae.spi.ids import OpId
from stelae.spi.log import Entry, EntryKind

KIB = 1 << 10
GROUP_BYTES_MAX = 5 * 9 * KIB
EVERYTHING = 1 << 40


def entries(first: int, *sizes: int) -> tuple[Entry, ...]:
    return tuple(Entry(OpId(1, index), EntryKind.WRITE, index, bytes(size)) for index, size in enumerate(sizes, first))


def held_bytes(log: Sequence[Entry], upto: int) -> int:
    """What is left of a log that is collected up to an index."""
    return sum(entry.size_bytes for entry in log if entry.op_id.index > upto)


def test_without_a_bound_the_slowest_peer_holds_all_that_it_lacks() -> None:
    retention = Retention(EVERYTHING, 0)
    retention.peers_have([9, 4])
    for index in range(1, 100):
        retention.appended(entries(index, 64 * KIB))
    assert retention.collectable() == 4
    retention.peers_have([])
    assert retention.collectable() == EVERYTHING


@pytest.mark.parametrize("bound", [1, 100 * KIB, MARK_BYTES, 3 * MARK_BYTES + 7])
def test_a_peer_that_lags_holds_no_more_than_its_bound(bound: int) -> None:
    rng = random.Random(bound)
    retention = Retention(EVERYTHING, 0, bound)
    retention.peers_have([0])
    log: list[Entry] = []
    step = min(MARK_BYTES, bound) + GROUP_BYTES_MAX
    for _ in range(600):
        group = entries(len(log) + 1, *(rng.randrange(8 * KIB) for _ in range(rng.randrange(1, 6))))
        retention.appended(group)
        log += group
        held = held_bytes(log, retention.collectable())
        assert held <= max(bound, step)
        assert held >= min(held_bytes(log, 0), bound) - step, "and not much less"
    retention.peers_have([len(log)])
    assert retention.collectable() == len(log), "one that has it all holds nothing"


def test_the_bound_is_for_peers_and_for_nobody_else() -> None:
    retention = Retention(50, 0, 100 * KIB)
    retention.peers_have([3])
    for index in range(1, 100):
        retention.appended(entries(index, 64 * KIB))
    assert retention.collectable() == 50, "what is not flushed is held"
    retention.flushed(99)
    assert 90 < retention.collectable() < 99
    retention.anchor("copy", 8)
    assert retention.collectable() == 7, "a copy that is under way needs what it began with"
    retention.release("copy")
    retention.config_appended(20)
    assert retention.collectable() == 19
    retention.config_durable(20)
    assert 90 < retention.collectable() < 99


def test_what_was_replaced_counts_no_more() -> None:
    retention = Retention(EVERYTHING, 0, 4 * MARK_BYTES)
    retention.peers_have([0])
    for index in range(1, 4):
        retention.appended(entries(index, MARK_BYTES))
    for _ in range(50):
        retention.replaced(3)
        retention.appended(entries(3, MARK_BYTES))
    assert retention.collectable() == 0, "three entries, and never more than that"
    for index in range(4, 9):
        retention.appended(entries(index, MARK_BYTES))
    assert 3 <= retention.collectable() <= 5
    retention.replaced(2)
    assert retention.collectable() == 1, "what comes instead is held again"
