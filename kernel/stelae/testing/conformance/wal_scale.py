"""Conformance check for log engines: a log of a million entries, on a real disk (W10, W11). It takes seconds."""

from __future__ import annotations

from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Append
from stelae.testing.conformance.wal_basics import reopened
from stelae.testing.wal_harness import WalHarness
from stelae.testing.wal_model import LOG, commit

ENTRIES = 1_000_000
GROUP = 4000


class WalScale:
    """Checks with many entries. The fixture ``harness`` is any :class:`WalHarness` with production settings."""

    def test_a_million_entries_are_kept_found_by_index_and_collected(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        for first in range(1, ENTRIES + 1, GROUP):
            commit(engine, Append(entries=tuple(_entry(index) for index in range(first, first + GROUP))))
        engine = reopened(harness, engine)
        assert engine.logs()[LOG].last == _op_id(ENTRIES)
        for index in (1, GROUP, GROUP + 1, ENTRIES // 3, ENTRIES):
            assert engine.op_id_at(LOG, index) == _op_id(index)
            assert engine.read(LOG, index, index + 1, 1) == [_entry(index)]
        some = engine.read(LOG, ENTRIES - 5000, ENTRIES + 1, 1 << 30)
        assert some == [_entry(index) for index in range(ENTRIES - 5000, ENTRIES + 1)]
        base = engine.collect(LOG, ENTRIES // 2)
        assert base.index <= ENTRIES // 2
        state = engine.logs()[LOG]
        assert (state.base, state.last) == (base, _op_id(ENTRIES))
        assert engine.read(LOG, ENTRIES // 2 + 1, ENTRIES // 2 + 2, 1) == [_entry(ENTRIES // 2 + 1)]
        engine.close()


def _op_id(index: int) -> OpId:
    return OpId(1 + index // GROUP, index)


def _entry(index: int) -> Entry:
    """Return an entry. Every other body is empty; the others repeat after a thousand, because making them is slow."""
    return Entry(_op_id(index), EntryKind.WRITE, index, _BODIES[index % len(_BODIES)])


_BODIES = tuple(b"%d" % number if number % 2 else b"" for number in range(1000))
