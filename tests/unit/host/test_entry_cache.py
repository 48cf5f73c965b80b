"""The entry cache: what is pinned stays, what was replaced goes."""

from __future__ import annotations

import pytest

from stelae.host.entry_cache import EntryCache
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind


def op(index: int, term: int = 1) -> OpId:
    return OpId(term, index)


def new_entry(index: int, term: int = 1) -> Entry:
    return Entry(op(index, term), EntryKind.WRITE, 0, b"x" * 10)


@pytest.mark.parametrize("evict_through", [0, 2, 5])
def test_the_cache_keeps_what_is_pinned(evict_through: int) -> None:
    cache = EntryCache(ZERO, 0)
    cache.append(tuple(new_entry(n) for n in range(1, 6)), None)
    cache.evict(evict_through)
    assert cache.first_index == evict_through + 1
    assert cache.end_index == 6


def test_the_cache_forgets_a_replaced_suffix() -> None:
    cache = EntryCache(op(3), 1000)
    cache.append((new_entry(4), new_entry(5)), None)
    cache.append((new_entry(4, 2),), 4)
    assert cache.op_id_at(4) == op(4, 2) and cache.op_id_at(5) is None
    cache.cut(2)
    assert cache.first_index == cache.end_index == 2
