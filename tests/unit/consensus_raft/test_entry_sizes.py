"""The sizes of a log's newest entries: exact where they are known, and small in memory."""

from __future__ import annotations

import random
import tracemalloc

from stelae_consensus_raft.entry_sizes import ENTRIES_KEPT_MAX, EntrySizes

ESTIMATE = 100


def test_the_sizes_of_as_many_entries_as_are_remembered_take_eight_bytes_each() -> None:
    """They took five times as much: gigabytes on a node with a thousand tablets that are written to."""
    tracemalloc.start()
    try:
        sizes = EntrySizes(0, ESTIMATE)
        for _ in range(2 * ENTRIES_KEPT_MAX - 1):
            sizes.append(1 << 20)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 10 * 2 * ENTRIES_KEPT_MAX
    assert sizes.between(0, 2 * ENTRIES_KEPT_MAX - 1) == (2 * ENTRIES_KEPT_MAX - 1) << 20


def test_sizes_are_those_of_the_entries_after_appends_and_cuts() -> None:
    rng = random.Random(7)
    sizes, entries = EntrySizes(5, ESTIMATE), [ESTIMATE] * 5
    for _ in range(500):
        if rng.random() < 0.1:
            keep = rng.randrange(max(0, len(entries) - 8), len(entries) + 1)
            del entries[keep:]
            sizes.cut(keep + 1)
        else:
            entries.append(rng.randrange(1, 1 << 26))
            sizes.append(entries[-1])
        after = rng.randrange(len(entries) + 1)
        last = rng.randrange(after, len(entries) + 1)
        known = sizes._first - 1
        expected = sum(ESTIMATE if index <= known else entries[index - 1] for index in range(after + 1, last + 1))
        assert sizes.between(after, last) == expected
