"""What a reader meets is damage only if the log still has the entry there; the log may change while it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.spi.errors import CallerError, Compacted, Corrupt
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, Model, check_holds, commit, entries
from stelae_wal_shared import reader
from tests.unit.wal_shared.scenes import harness_of, segments

OLD = entries(1, 5)
NEW = entries(4, 2, term=2)


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of()


def opened(harness: VirtualHarness) -> WalEngine:
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=OLD))
    return engine


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let a log change once, after the next reader has looked up its entries and before it reads them."""
    find = reader.find

    def looked_up(*arguments: Any) -> Any:
        monkeypatch.setattr(reader, "find", find)
        piece = find(*arguments)
        change()
        return piece

    monkeypatch.setattr(reader, "find", looked_up)


def damage(harness: VirtualHarness, body: bytes) -> None:
    (path,) = segments(harness.disk)
    harness.disk.damage(path, harness.disk.read_bytes(path).index(body))


@pytest.mark.parametrize("first", [1, 4])
def test_damage_where_an_entry_was_before_its_replacement_harms_nothing(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    engine = opened(harness)

    def change() -> None:
        commit(engine, Append(entries=NEW, replace_from=4))
        damage(harness, OLD[3].body)

    meanwhile(monkeypatch, change)
    model = Model(ZERO, [*OLD[:3], *NEW])
    assert engine.read(LOG, first, 6, READ_BYTES) == model.held[first - 1 :]
    check_holds(engine, model)
    commit(engine, Append(entries=entries(6, 1, term=2)))
    engine.close()


def test_damage_of_an_entry_that_was_collected_harms_nothing(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(harness)

    def change() -> None:
        assert engine.collect(LOG, 3) == OpId(1, 3)
        damage(harness, OLD[1].body)

    meanwhile(monkeypatch, change)
    with pytest.raises(Compacted):
        engine.read(LOG, 1, 6, READ_BYTES)
    check_holds(engine, Model(OpId(1, 3), list(OLD[3:])))
    engine.close()


def test_damage_of_a_log_that_was_dropped_is_no_entry(harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(harness)

    def change() -> None:
        engine.drop(LOG)
        damage(harness, OLD[1].body)

    meanwhile(monkeypatch, change)
    with pytest.raises(CallerError):
        engine.read(LOG, 1, 6, READ_BYTES)
    engine.close()


def test_damage_where_an_entry_still_is_ends_the_log_before_it(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(harness)

    def change() -> None:
        commit(engine, Append(entries=NEW, replace_from=4))
        damage(harness, OLD[1].body)

    meanwhile(monkeypatch, change)
    with pytest.raises(Corrupt):
        engine.read(LOG, 1, 6, READ_BYTES)
    assert engine.logs()[LOG].last == OpId(1, 1)
    engine.close()
