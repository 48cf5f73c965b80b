"""A damaged log ends where everything before can be read, wherever its entries were moved to meanwhile."""

from __future__ import annotations

import dataclasses

import pytest

from stelae.sim.disk import Survival
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, WalEngine
from stelae.testing.conformance.wal_damage import check_damaged
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, Model, commit, entries
from stelae_wal_shared import SharedConfig
from tests.unit.wal_shared.scenes import SMALL, create_logs, extend, fill_segments, harness_of, log_number, segments

BUSY, IDLE, LATE = (log_number(number) for number in range(3))
MOVING = dataclasses.replace(SMALL, live_percent_max=90, move_percent_max=1000, move_bytes_max=1 << 20)


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of(MOVING)


def moved(harness: VirtualHarness) -> WalEngine:
    """The oldest entries of the idle log stand behind its younger ones: the second segment is full of these."""
    engine = harness.open()
    create_logs(engine, 3)
    extend(engine, [IDLE], 2)
    fill_segments(engine, BUSY, 1)
    extend(engine, [IDLE], 10)
    fill_segments(engine, BUSY, 1)
    engine.collect(BUSY, 8)
    assert engine.stats()["moved_entries"] > 0
    assert segments(harness.disk)[0].endswith("2.seg")
    return engine


def check_readable(engine: WalEngine) -> None:
    """What a log says that it holds can be read, damaged or not."""
    for log, state in engine.logs().items():
        assert state.damage is None or state.damage.last_good == state.last
        for index in range(state.base.index + 1, state.last.index + 1):
            engine.read(log, index, index + 1, READ_BYTES)


def test_of_two_bad_segments_the_one_with_the_older_entries_counts(harness: VirtualHarness) -> None:
    engine = moved(harness)
    fill_segments(engine, BUSY, 1)
    extend(engine, [LATE])
    harness.crash(engine, Survival.KEPT)
    paths = segments(harness.disk)
    for path in paths[:-1]:
        harness.disk.cut(path, 40)
    engine = harness.open()
    check_readable(engine)
    assert engine.logs()[IDLE].last == ZERO
    assert engine.logs()[LATE].damage is None
    engine.close()


@pytest.mark.parametrize("change", ["removed", "headless"])
def test_without_the_newest_segment_no_log_claims_what_went_with_older_ones(
    harness: VirtualHarness, change: str
) -> None:
    """Entries were moved into the newest segment, and the one they came from was removed."""
    engine = moved(harness)
    harness.crash(engine, Survival.KEPT)
    newest = segments(harness.disk)[-1]
    harness.disk.remove(newest) if change == "removed" else harness.disk.cut(newest, 40)
    before = segments(harness.disk)
    engine = harness.open()
    assert all(state.damage is not None for state in engine.logs().values())
    check_readable(engine)
    assert segments(harness.disk) == before
    engine.close()


def test_a_reader_that_meets_older_damage_later_ends_the_log_there(harness: VirtualHarness) -> None:
    engine = harness.open()
    create_logs(engine, 1)
    extend(engine, [BUSY], 9)
    (path,) = segments(harness.disk)
    for index, good in ((7, 6), (3, 2)):
        data = harness.disk.read_bytes(path)
        harness.disk.damage(path, data.index(entries(index, 1, size_bytes=200)[0].body))
        with pytest.raises(Corrupt):
            engine.read(BUSY, index, index + 1, READ_BYTES)
        state = engine.logs()[BUSY]
        assert state.damage is not None
        assert state.last == state.damage.last_good == OpId(1, good)
        check_readable(engine)
    harness.crash(engine)


def test_a_damaged_log_shows_nothing_that_was_replaced_behind_the_damage() -> None:
    """Entries of a suffix that a later term had replaced once counted as good where the damage stood between."""
    harness = harness_of(SharedConfig(segment_bytes_first=1 << 15, segment_bytes_max=1 << 15))
    engine = harness.open()
    engine.create(LOG, ZERO)
    model = Model()
    for first, term in ((1, 1), (13, 1), (25, 1), (9, 2), (21, 2), (17, 3), (29, 3), (5, 4), (17, 4)):
        given = Append(entries=entries(first, 12, term, size_bytes=24), replace_from=first)
        commit(engine, given)
        model = model.append(given)
    harness.crash(engine, Survival.KEPT)
    (path,) = segments(harness.disk)
    used = len(harness.disk.read_bytes(path).rstrip(bytes(1)))
    reported = 0
    for offset in range(1200, used - 12 * 100, 9):
        twin = harness.fork(0)
        twin.disk.damage(path, offset, 1 << (offset % 8))
        reported += check_damaged(twin, model, f"{path}@{offset}")
    assert reported > 300
