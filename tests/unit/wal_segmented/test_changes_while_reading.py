"""What a reader meets is damage only if the log still has the entry there; the log may change while it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.sim.disk import Survival
from stelae.spi.errors import CallerError, Compacted, Corrupt, Full
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, Model, check_holds, commit, entries
from stelae_wal_segmented import SegmentedConfig, SegmentedWal, reader

LARGE = SegmentedConfig(segment_bytes_first=8192, segment_bytes_max=8192)


@pytest.fixture
def harness() -> VirtualHarness:
    return VirtualHarness(SegmentedWal, LARGE)


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let a log change once, after the next reader has looked up its entries and before it reads them."""
    read_at = reader._read_at

    def looked_up(*arguments: Any) -> Any:
        monkeypatch.setattr(reader, "_read_at", read_at)
        piece = read_at(*arguments)
        change()
        return piece

    monkeypatch.setattr(reader, "_read_at", looked_up)


def path_of(harness: VirtualHarness, body: bytes) -> tuple[str, int]:
    """Return the file of an entry and the offset of its body."""
    return next((path, data.index(body)) for path, data in harness.tree().items() if body in data)


def check_goes_on(harness: VirtualHarness, engine: WalEngine, model: Model) -> None:
    """Check that a log has these entries and no damage, takes another one, and is intact after a crash."""
    check_holds(engine, model)
    given = Append(entries=entries(model.last.index + 1, 1, term=model.last.term))
    commit(engine, given)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, model.append(given))
    engine.close()


def repaired_after_full(harness: VirtualHarness, engine: WalEngine) -> None:
    """Cut the entries of a log that were not synced: a full disk stops the log, and it is repaired."""
    limit_space(harness, 0)
    failed = engine.commit({LOG: Append(entries=entries(5, 60, size_bytes=500))}, sync=True)[LOG]
    assert isinstance(failed, Failed) and isinstance(failed.error, Full)
    limit_space(harness, None)
    assert engine.repair(LOG) == OpId(1, 2)


def with_unsynced(harness: VirtualHarness) -> WalEngine:
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 2)))
    engine.commit({LOG: Append(entries=entries(3, 2))}, sync=False)
    return engine


def test_entries_that_were_cut_and_written_again_are_read_where_they_are_now(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader took the zeros in their old place for damage, and the replica had to be replaced."""
    engine = with_unsynced(harness)
    again = entries(3, 5, term=2)

    def change() -> None:
        repaired_after_full(harness, engine)
        commit(engine, Append(entries=again))

    meanwhile(monkeypatch, change)
    assert engine.read(LOG, 2, 5, READ_BYTES) == [*entries(2, 1), *again[:2]]
    check_goes_on(harness, engine, Model(ZERO, [*entries(1, 2), *again]))


def test_entries_that_were_cut_are_beyond_the_end(harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = with_unsynced(harness)
    meanwhile(monkeypatch, lambda: repaired_after_full(harness, engine))
    with pytest.raises(CallerError):
        engine.read(LOG, 2, 5, READ_BYTES)
    check_goes_on(harness, engine, Model(ZERO, list(entries(1, 2))))


def test_damage_where_an_entry_was_before_its_replacement_harms_nothing(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = harness.open()
    engine.create(LOG, ZERO)
    old = entries(1, 5)
    commit(engine, Append(entries=old))
    new = entries(4, 2, term=2)

    def change() -> None:
        commit(engine, Append(entries=new, replace_from=4))
        harness.disk.damage(*path_of(harness, old[3].body))

    meanwhile(monkeypatch, change)
    assert engine.read(LOG, 1, 6, READ_BYTES) == [*old[:3], *new]
    assert engine.logs()[LOG].damage is None
    engine.close()


def closed_by_a_second_segment(harness: VirtualHarness) -> WalEngine:
    """An engine whose log has its first entries in a closed segment with a footer."""
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 40, size_bytes=300)))
    engine.cool(LOG)
    commit(engine, Append(entries=entries(41, 3, size_bytes=300)))
    return engine


def test_damage_of_an_entry_that_was_collected_harms_nothing(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = closed_by_a_second_segment(harness)
    place = path_of(harness, entries(5, 1, size_bytes=300)[0].body)

    def change() -> None:
        harness.disk.damage(*place)
        assert engine.collect(LOG, 40) == OpId(1, 40)

    meanwhile(monkeypatch, change)
    with pytest.raises(Compacted):
        engine.read(LOG, 1, 10, READ_BYTES)
    check_goes_on(harness, engine, Model(OpId(1, 40), list(entries(41, 3, size_bytes=300))))


def test_damage_of_the_footer_behind_which_everything_was_replaced_harms_nothing(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = closed_by_a_second_segment(harness)
    path = path_of(harness, entries(5, 1, size_bytes=300)[0].body)[0]
    new = entries(3, 40, term=2)
    read_window = reader.read_window

    def replaced(*arguments: Any) -> Any:
        monkeypatch.setattr(reader, "read_window", read_window)
        commit(engine, Append(entries=new, replace_from=3))
        raise Corrupt("a page of the footer fails its checksum", path=path, offset=0)

    monkeypatch.setattr(reader, "read_window", replaced)
    assert engine.read(LOG, 5, 10, READ_BYTES) == list(new[2:7])
    check_goes_on(harness, engine, Model(ZERO, [*entries(1, 2, size_bytes=300), *new]))


def test_damage_where_an_entry_still_is_ends_the_log_before_it(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 5)))

    def change() -> None:
        commit(engine, Append(entries=entries(5, 2, term=2), replace_from=5))
        harness.disk.damage(*path_of(harness, entries(4, 1)[0].body))

    meanwhile(monkeypatch, change)
    with pytest.raises(Corrupt):
        engine.read(LOG, 1, 6, READ_BYTES)
    assert engine.logs()[LOG].last == OpId(1, 3)
    engine.close()
