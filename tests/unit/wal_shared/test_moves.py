"""A few live entries do not pin a segment: they move, and moving changes nothing but their place."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stelae.sim.disk import Survival
from stelae.spi.errors import Corrupt, Full
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, Failed, WalEngine
from stelae.testing.wal_harness import PowerLost, VirtualHarness
from stelae.testing.wal_model import READ_BYTES, Model, check_holds, commit, entries
from tests.unit.wal_shared.scenes import SMALL, create_logs, extend, fill_segments, harness_of, log_number, segments

MOVING = dataclasses.replace(SMALL, live_percent_max=50, move_percent_max=100)

BUSY, IDLE = log_number(0), log_number(1)


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of(MOVING)


def with_pinned_segments(harness: VirtualHarness, closed: int = 4) -> WalEngine:
    """An engine whose closed segments all hold one entry of an idle log; the rest can go."""
    engine = harness.open()
    create_logs(engine, 2)
    for _ in range(closed):
        extend(engine, [IDLE], size_bytes=50)
        fill_segments(engine, BUSY, 1)
    extend(engine, [BUSY])
    return engine


def collect_busy(engine: WalEngine) -> None:
    engine.collect(BUSY, engine.logs()[BUSY].last.index)


def held(count: int) -> Model:
    return Model(ZERO, [one for index in range(1, count + 1) for one in entries(index, 1, size_bytes=50)])


def test_entries_of_an_idle_log_move_and_their_segments_go(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    assert len(segments(harness.disk)) == 5
    collect_busy(engine)
    assert len(segments(harness.disk)) == 1
    assert engine.stats()["moved_entries"] == 4
    check_holds(engine, held(4), IDLE)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, held(4), IDLE)
    engine.close()


@pytest.mark.parametrize("which", range(4))
def test_a_segment_that_cannot_be_read_keeps_no_other_from_being_emptied(harness: VirtualHarness, which: int) -> None:
    """It once ended every attempt to move anything, and the log of the node grew until the next start."""
    engine = with_pinned_segments(harness)
    bad = segments(harness.disk)[which]
    harness.disk.faults.fail_reads(bad, 1 << 30)
    collect_busy(engine)
    assert engine.stats()["moved_entries"] == 3
    assert len(segments(harness.disk)) == 2 and bad in segments(harness.disk)
    harness.disk.faults.heal()
    collect_busy(engine)
    assert len(segments(harness.disk)) == 1
    check_holds(engine, held(4), IDLE)
    engine.close()


def test_an_entry_that_is_too_large_to_move_keeps_no_other_from_moving() -> None:
    sizes = {"segment_bytes_first": 16384, "segment_bytes_max": 16384, "move_bytes_max": 4096}
    harness = harness_of(dataclasses.replace(MOVING, **sizes, move_percent_max=1000))
    engine = harness.open()
    create_logs(engine, 3)
    large = log_number(2)
    extend(engine, [large], size_bytes=5000)
    fill_segments(engine, BUSY, 1)
    extend(engine, [IDLE], 4, size_bytes=50)
    fill_segments(engine, BUSY, 1)
    extend(engine, [BUSY])
    collect_busy(engine)
    assert engine.stats()["moved_entries"] == 4
    check_holds(engine, Model(ZERO, list(entries(1, 4, size_bytes=50))), IDLE)
    check_holds(engine, Model(ZERO, list(entries(1, 1, size_bytes=5000))), large)
    engine.close()


def test_a_segment_that_is_mostly_live_stays_where_it_is() -> None:
    harness = harness_of(dataclasses.replace(MOVING, live_percent_max=1))
    engine = with_pinned_segments(harness)
    collect_busy(engine)
    assert engine.stats()["moved_entries"] == 0
    assert len(segments(harness.disk)) == 5
    engine.close()


def test_an_entry_that_replaces_a_moved_one_stays_the_winner_after_a_crash(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    collect_busy(engine)
    commit(engine, Append(entries=entries(3, 2, term=2), replace_from=3), IDLE)
    model = Model(ZERO, [*held(2).held, *entries(3, 2, term=2)])
    check_holds(engine, model, IDLE)
    harness.crash(engine)
    engine = harness.open()
    check_holds(engine, model, IDLE)
    engine.close()


def test_moving_what_is_left_of_a_replaced_suffix_does_not_bring_the_suffix_back(harness: VirtualHarness) -> None:
    # The trap: the segment with the replacement goes, the one with the replaced suffix is still there.
    engine = harness.open()
    create_logs(engine, 3)
    keeper = log_number(2)
    extend(engine, [keeper], 12, size_bytes=100)
    extend(engine, [IDLE], 5, size_bytes=50)
    fill_segments(engine, BUSY, 1)
    commit(engine, Append(entries=entries(3, 1, term=2, size_bytes=50), replace_from=3), IDLE)
    fill_segments(engine, BUSY, 1)
    extend(engine, [BUSY])
    with_replacement = segments(harness.disk)[1]
    collect_busy(engine)
    assert engine.stats()["moved_entries"] > 0
    assert with_replacement not in segments(harness.disk)
    model = Model(ZERO, [*entries(1, 2, size_bytes=50), *entries(3, 1, term=2, size_bytes=50)])
    check_holds(engine, model, IDLE)
    for survival in (Survival.KEPT, Survival.LOST):
        harness.crash(engine, survival)
        engine = harness.open()
        check_holds(engine, model, IDLE)
        check_holds(engine, Model(ZERO, list(entries(1, 12, size_bytes=100))), keeper)
    engine.close()


def test_power_lost_at_any_operation_of_a_move_loses_nothing(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    last = engine.logs()[BUSY].last
    harness.crash(engine, Survival.KEPT)
    operations, done = 0, False
    while not done:
        for seed, survival in enumerate((Survival.KEPT, Survival.LOST, Survival.DRAWN, Survival.DRAWN)):
            twin = harness.fork(seed)
            engine = twin.open()
            twin.disk.faults.lose_power_after(operations=operations)
            try:
                collect_busy(engine)
                extend(engine, [BUSY])
                done = True
            except PowerLost:
                pass
            twin.crash(survival=survival)
            engine = twin.open()
            check_holds(engine, held(4), IDLE)
            assert engine.logs()[BUSY].last.index >= last.index
            assert engine.logs()[BUSY].damage is None
            extend(engine, [IDLE, BUSY], size_bytes=50)
            engine.close()
        operations += 1
    assert operations > 8


def test_bytes_moved_stay_within_their_share_of_those_appended() -> None:
    config = dataclasses.replace(SMALL, live_percent_max=90, move_percent_max=20, move_bytes_max=4096)
    harness = harness_of(config)
    engine = harness.open()
    logs = create_logs(engine, 12)
    for turn in range(300):
        extend(engine, [logs[turn % 12], logs[turn % 5], logs[0]][: 1 + turn % 3], size_bytes=120)
        state = engine.logs()[logs[0]]
        engine.collect(logs[0], state.last.index)
        figures = engine.stats()
        assert figures["moved_bytes"] <= 0.2 * figures["entry_bytes"]
    assert engine.stats()["moved_bytes"] > 0.15 * engine.stats()["entry_bytes"], "the bound was never reached"
    engine.close()


def test_one_call_moves_no_more_than_its_limit() -> None:
    config = dataclasses.replace(MOVING, live_percent_max=90, move_percent_max=1000, move_bytes_max=4096)
    harness = harness_of(config)
    engine = harness.open()
    logs = create_logs(engine, 2)
    for _ in range(60):
        extend(engine, logs, size_bytes=300)
    moved = 0.0
    while True:
        collect_busy(engine)
        now = engine.stats()["moved_bytes"]
        assert now - moved <= 4096
        if now == moved:
            break
        moved = now
    assert moved > 3 * 4096
    check_holds(engine, Model(ZERO, [one for i in range(1, 61) for one in entries(i, 1, size_bytes=300)]), IDLE)
    engine.close()


def test_space_taken_is_bounded_when_tablets_append_in_turn_and_collect() -> None:
    harness = harness_of(MOVING)
    engine = harness.open()
    logs = create_logs(engine, 20)
    most = 0.0
    for turn in range(600):
        log = logs[turn * 7 % 20]
        extend(engine, [log], size_bytes=150)
        state = engine.logs()[log]
        engine.collect(log, max(0, state.last.index - 2))
        most = max(most, engine.stats()["segments"])
    assert most <= 12, "40 live entries of 210 bytes are two segments' worth"
    engine.close()


def test_damage_that_moving_meets_is_that_logs_alone(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    first = segments(harness.disk)[0]
    at = harness.disk.read_bytes(first).index(entries(1, 1, size_bytes=50)[0].body)
    harness.disk.damage(first, at)
    collect_busy(engine)
    damage = engine.logs()[IDLE].damage
    assert damage is not None
    assert (damage.path, damage.last_good) == (first, ZERO)
    with pytest.raises(Corrupt):
        engine.read(IDLE, 1, 2, 1)
    assert engine.logs()[BUSY].damage is None
    extend(engine, [BUSY])
    harness.crash(engine)
    engine = harness.open()
    with pytest.raises(Corrupt):
        engine.read(IDLE, 1, 2, 1)
    assert engine.logs()[IDLE].damage is not None
    engine.close()


def test_a_full_disk_stops_moving_and_fails_no_log(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    harness.disk.faults.capacity_bytes = 0
    collect_busy(engine)
    harness.disk.faults.capacity_bytes = None
    check_holds(engine, held(4), IDLE)
    extend(engine, [BUSY, IDLE], size_bytes=50)
    check_holds(engine, held(5), IDLE)
    engine.close()


def test_a_failed_sync_while_moving_costs_no_log_anything(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    engine.collect(BUSY, 1)  # The base is durable; what follows syncs for moving.
    seen = 0

    def fail_second(operation: str, path: str) -> None:
        nonlocal seen
        seen += operation == "dsync"
        if operation == "dsync" and seen == 2:
            harness.disk.faults.fail_syncs(harness.directory, 1)

    harness.disk.faults.hook = fail_second
    collect_busy(engine)
    harness.disk.faults.hook = None
    assert seen >= 2
    for log in (BUSY, IDLE):
        assert engine.logs()[log].damage is None
    extend(engine, [BUSY, IDLE], size_bytes=50)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, held(5), IDLE)
    engine.close()


def with_failed_idle_log(harness: VirtualHarness) -> WalEngine:
    """A sync of the idle log has failed for good: it ends at its last durable entry, the fourth."""
    engine = with_pinned_segments(harness)
    harness.disk.faults.fail_syncs(harness.directory, 1)
    failed = engine.commit({IDLE: Append(entries=entries(5, 1, size_bytes=50))}, sync=True)[IDLE]
    assert isinstance(failed, Failed) and failed.durable == OpId(1, 4)
    harness.disk.faults.heal()
    return engine


@pytest.mark.parametrize("closes", [False, True])
def test_the_entries_of_a_log_whose_sync_failed_stay_where_they_are(harness: VirtualHarness, closes: bool) -> None:
    """They moved, and their segments were removed. The next start took no moved entry of a log that had failed, so the
    log ended at its base."""
    engine = with_failed_idle_log(harness)
    held_before = set(segments(harness.disk)[:-1])  # The last one was begun after the failure.
    for _ in range(3):
        fill_segments(engine, BUSY, 2)
        collect_busy(engine)
        assert held_before < set(segments(harness.disk))
        assert engine.read(IDLE, 1, 5, READ_BYTES) == held(4).held
    assert len(segments(harness.disk)) <= len(held_before) + 3, "later segments can go"
    for _ in range(2):
        if closes:
            engine.close()
        else:
            harness.crash(engine, Survival.KEPT)
        engine = harness.open()
        state = engine.logs()[IDLE]
        assert state.last == OpId(1, 4) and state.damage is not None
        assert engine.read(IDLE, 1, 5, READ_BYTES) == held(4).held
        extend(engine, [BUSY])
        collect_busy(engine)
    engine.drop(IDLE)
    engine.close()
    engine = harness.open()
    fill_segments(engine, BUSY, 1)
    collect_busy(engine)
    assert not held_before & set(segments(harness.disk))
    engine.close()


def test_a_log_that_a_full_disk_has_stopped_pins_no_segment(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    harness.disk.faults.capacity_bytes = 0
    outcome = engine.commit({IDLE: Append(entries=entries(5, 90, size_bytes=2000))}, sync=True)[IDLE]
    assert isinstance(outcome, Failed) and isinstance(outcome.error, Full)
    harness.disk.faults.capacity_bytes = None
    extend(engine, [BUSY])
    collect_busy(engine)
    assert engine.stats()["moved_entries"] == 4
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, held(4), IDLE)
    engine.close()


def test_what_was_read_of_a_log_before_its_damage_was_found_does_not_move(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader meets damage while entries are being moved, and the next segment begins with a head that says so."""
    engine: Any = with_pinned_segments(harness)
    third = segments(harness.disk)[2]
    harness.disk.damage(third, harness.disk.read_bytes(third).index(entries(3, 1, size_bytes=50)[0].body))
    tail = engine._tail
    writer_for = tail.writer_for

    def read_meanwhile(size: int) -> Any:
        monkeypatch.setattr(tail, "writer_for", writer_for)
        with pytest.raises(Corrupt):
            engine.read(IDLE, 3, 4, READ_BYTES)
        tail.seal()
        return tail.begin_segment()

    monkeypatch.setattr(tail, "writer_for", read_meanwhile)
    collect_busy(engine)
    for _ in range(3):
        fill_segments(engine, BUSY, 2)
        collect_busy(engine)
        assert engine.read(IDLE, 1, 3, READ_BYTES) == held(2).held
    harness.crash(engine, Survival.KEPT)
    engine = harness.open()
    assert engine.logs()[IDLE].last == OpId(1, 2)
    assert engine.read(IDLE, 1, 3, READ_BYTES) == held(2).held
    engine.close()


def test_a_snapshot_goes_on_reading_what_moved_and_went(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    view = engine.snapshot(IDLE, 1)
    collect_busy(engine)
    engine.drop(IDLE)
    assert list(view.entries()) == held(4).held
    view.release()
    engine.close()


def test_moved_entries_have_their_terms_and_places_after_closing(harness: VirtualHarness) -> None:
    engine = with_pinned_segments(harness)
    collect_busy(engine)
    engine.close()
    engine = harness.open()
    check_holds(engine, held(4), IDLE)
    assert engine.op_id_at(IDLE, 3) == OpId(1, 3)
    engine.close()
