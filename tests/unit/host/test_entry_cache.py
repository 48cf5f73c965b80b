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


def test_a_commit_waits_for_the_replacement_that_it_speaks_of() -> None:
    """Found by simulation: the entry that a new term replaced was applied in its stead, because
    the replacement waited for the term to be saved and the commit index did not."""
    bench = Bench()
    bench.run(Ready(id=1, append=append(new_entry(1))))
    replacement = append(new_entry(1, term=2, timestamp=7), replace_from=1)
    bench.run(Ready(id=2, hard_state=HardState(2, None), append=replacement, commit=1))
    assert not any(line.startswith("commit") for line in bench.log)
    bench.disk()
    bench.metadata()
    assert bench.log[-1] == "commit 1"
    assert bench.cache.op_id_at(1) == op(1, term=2)


def test_the_commit_hint_of_an_append_is_not_that_of_a_later_ready() -> None:
    """A hint that counts an entry which a later Ready replaces would apply it after a crash."""
    bench = Bench()
    bench.run(Ready(id=1, hard_state=HardState(2, None), append=append(new_entry(1))))
    replacement = append(new_entry(1, term=3, timestamp=7), replace_from=1)
    bench.run(Ready(id=2, append=replacement, commit=1))
    bench.metadata()
    hints = []
    while isinstance(group := bench.writer.take_work(), Group):
        hints.append(group.appends[LOG].commit_hint)
        bench.writer.complete(group, {LOG: Durable(group.appends[LOG].entries[-1].op_id)})
    assert hints == [0, 1]
