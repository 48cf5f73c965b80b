"""A log that is set aside in parts: appends to the other logs of the node wait for one part, and not for the log."""

from __future__ import annotations

import pytest

from stelae.sim.disk import Survival
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import WalEngine
from stelae.testing.wal_harness import VirtualHarness, fake_services
from stelae.testing.wal_model import Model, check_holds, entries
from stelae_wal_shared import SharedWal, export
from tests.unit.wal_shared import scenes

GONE, OTHER = scenes.log_number(0), scenes.log_number(1)
ASIDE = "/node/quarantine/a"
COUNT, PART = 100, 10


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> VirtualHarness:
    made = scenes.harness_of()
    engine = made.open()
    scenes.create_logs(engine, 2)
    for _ in range(COUNT // PART):
        scenes.extend(engine, [GONE, OTHER], PART, size_bytes=300)
    monkeypatch.setattr(export, "BATCH_BYTES", sum(entry.size_bytes for entry in entries(1, PART, size_bytes=300)))
    made.crash(engine, Survival.LOST)
    return made


def parts_of(engine: WalEngine) -> int:
    """Copy a log to its end; return the number of calls."""
    count = 1
    while engine.copy_aside(GONE, ASIDE):
        count += 1
    return count


def check_aside(harness: VirtualHarness, engine: WalEngine, first: int = 1) -> None:
    engine.set_aside(GONE, ASIDE)
    assert set(engine.logs()) == {OTHER}
    with SharedWal.opened_aside(ASIDE, GONE, scenes.SMALL, fake_services(harness.disk)) as (state, found):
        assert state.damage is None
        assert list(found) == list(entries(first, COUNT - first + 1, size_bytes=300))
    assert not harness.disk.exists(f"{ASIDE}/damage.txt")


def test_every_call_copies_a_part_and_the_other_logs_take_appends_in_between(harness: VirtualHarness) -> None:
    """One job copied the whole log, and the node acknowledged no write until it was done: 5 ms for each MiB."""
    engine = harness.open()
    for copied in range(PART, COUNT, PART):
        assert engine.copy_aside(GONE, ASIDE)
        assert engine._asides[GONE].logs()[GONE].last.index == copied  # type: ignore[attr-defined]
        scenes.extend(engine, [OTHER], 1, size_bytes=300)
    assert not engine.copy_aside(GONE, ASIDE)
    assert engine.logs()[GONE].last == OpId(1, COUNT)
    check_aside(harness, engine)
    check_holds(engine, Model(ZERO, list(entries(1, COUNT + COUNT // PART - 1, size_bytes=300))), OTHER)
    engine.close()


def test_a_process_that_died_between_two_parts_continues_after_the_last_one(harness: VirtualHarness) -> None:
    engine = harness.open()
    for _ in range(6):
        assert engine.copy_aside(GONE, ASIDE)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    assert parts_of(engine) == COUNT // PART - 6
    check_aside(harness, engine)
    engine.close()


def test_a_part_of_another_log_is_not_continued(harness: VirtualHarness) -> None:
    """An operator may have restored an older state of the node's disk, so the entries there may be others."""
    engine = harness.open()
    assert engine.copy_aside(GONE, ASIDE)
    engine.collect(GONE, 5)
    assert parts_of(engine) == -(-(COUNT - 5) // PART)
    check_aside(harness, engine, 6)
    engine.close()


def test_what_cannot_be_copied_is_left_to_the_call_that_reports_it(harness: VirtualHarness) -> None:
    engine = harness.open()
    assert engine.copy_aside(GONE, ASIDE)
    harness.disk.faults.capacity_bytes = 0
    assert parts_of(engine) < COUNT // PART
    harness.disk.faults.heal()
    check_aside(harness, engine)
    engine.close()


def test_an_unknown_log_needs_no_copy_and_a_closed_engine_keeps_none_open(harness: VirtualHarness) -> None:
    engine = harness.open()
    assert not engine.copy_aside(scenes.log_number(7), ASIDE)
    assert engine.copy_aside(GONE, ASIDE)
    assert engine.copy_aside(GONE, f"{ASIDE}-2")
    engine.close()
    for place in (ASIDE, f"{ASIDE}-2"):
        with SharedWal.opened_aside(place, GONE, scenes.SMALL, fake_services(harness.disk)) as (state, _):
            assert state.last.index == PART
