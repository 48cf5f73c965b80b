"""All logs share one file, and still one log's failure is its own, as far as the disk allows."""

from __future__ import annotations

import pytest

from stelae.sim.disk import Survival
from stelae.spi.errors import CallerError, Corrupt, Full, StorageError, SyncFailed, TooLarge
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import ENTRY_BYTES_MAX, Entry, EntryKind
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import READ_BYTES, Model, check_holds, entries
from tests.unit.wal_shared.scenes import create_logs, extend, fill_segments, harness_of, log_number, segments

A, B, C = (log_number(number) for number in range(3))


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of()


def opened(harness: VirtualHarness) -> WalEngine:
    engine = harness.open()
    create_logs(engine, 3)
    extend(engine, [A, B, C], 2)
    return engine


def held(count: int) -> Model:
    return Model(ZERO, list(entries(1, count, size_bytes=200)))


def after(index: int, count: int = 1, size_bytes: int = 200) -> Append:
    return Append(entries=entries(index + 1, count, size_bytes=size_bytes))


def test_a_log_that_is_refused_costs_its_neighbours_nothing(harness: VirtualHarness) -> None:
    engine = opened(harness)
    too_large = Append(entries=(Entry(OpId(1, 3), EntryKind.WRITE, 1, bytes(ENTRY_BYTES_MAX + 1)),))
    outcomes = engine.commit({A: after(7), B: too_large, C: after(2), log_number(9): after(0)}, sync=True)
    for log, error in ((A, CallerError), (B, TooLarge), (log_number(9), CallerError)):
        outcome = outcomes[log]
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, error)
    assert outcomes[C] == Durable(OpId(1, 3))
    extend(engine, [A, B])
    for log in (A, B, C):
        check_holds(engine, held(3), log)
    engine.close()


def test_a_failed_sync_fails_the_group_and_what_was_not_synced_and_nobody_else(harness: VirtualHarness) -> None:
    engine = opened(harness)
    engine.commit({B: after(2)}, sync=False)
    harness.disk.faults.fail_syncs(harness.directory, 1)
    outcome = engine.commit({A: after(2)}, sync=True)[A]
    assert isinstance(outcome, Failed)
    assert outcome.durable == OpId(1, 2)
    for log in (A, B):
        with pytest.raises(SyncFailed):
            engine.repair(log)
        check_holds(engine, held(2), log)
    extend(engine, [C])
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    assert engine.logs()[A].damage is not None
    assert engine.logs()[B].damage is not None
    check_holds(engine, held(3), C)
    engine.close()


def test_behind_a_failed_sync_the_next_segment_says_where_the_bad_one_ends(harness: VirtualHarness) -> None:
    # The bytes behind that are on the disk after all; nobody may see them.
    engine = opened(harness)
    harness.disk.faults.fail_syncs(harness.directory, 1)
    engine.commit({A: after(2), B: after(2)}, sync=True)
    harness.disk.faults.heal()
    extend(engine, [C])
    harness.crash(engine, Survival.KEPT)
    engine = harness.open()
    for log in (A, B):
        assert engine.logs()[log].last == OpId(1, 2)
        with pytest.raises(Corrupt):
            engine.read(log, 3, 4, 1)
    engine.close()


def test_a_disk_that_goes_on_failing_fails_each_log_only_when_it_appends(harness: VirtualHarness) -> None:
    engine = opened(harness)
    harness.disk.faults.fail_syncs(harness.directory, 1000)
    for log in (A, B):
        assert isinstance(engine.commit({log: after(2)}, sync=True)[log], Failed)
    harness.disk.faults.heal()
    extend(engine, [C])
    check_holds(engine, held(3), C)
    engine.close()


def no_space(operation: str, path: str) -> None:
    """Fail writes as a file system does that copies on write: also where space was reserved."""
    if operation == "write":
        raise Full("no space", path=path)


@pytest.mark.parametrize("in_the_write", [False, True])
def test_a_full_disk_fails_the_group_until_repair_and_keeps_what_was_not_synced(
    harness: VirtualHarness, in_the_write: bool
) -> None:
    engine = opened(harness)
    engine.commit({B: after(2)}, sync=False)
    limit_space(harness, 0)
    if in_the_write:
        harness.disk.faults.hook = no_space
    size = 1 if in_the_write else 40
    outcomes = engine.commit({A: after(2, size), C: after(2, size)}, sync=True)
    for log in (A, C):
        outcome = outcomes[log]
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, Full)
        assert outcome.durable == OpId(1, 2)
    limit_space(harness, None)
    harness.disk.faults.hook = None
    check_holds(engine, held(3), B)
    again = engine.commit({A: after(2), B: after(3)}, sync=True)
    assert isinstance(again[A], Failed), "not before repair"
    assert again[B] == Durable(OpId(1, 4))
    for log in (A, C):
        assert engine.repair(log) == OpId(1, 2)
    extend(engine, [A, C])
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    for log, count in ((A, 3), (B, 4), (C, 3)):
        check_holds(engine, held(count), log)
    engine.close()


def test_after_a_crash_a_full_disk_forgets_that_it_was_full(harness: VirtualHarness) -> None:
    engine = opened(harness)
    limit_space(harness, 0)
    engine.commit({A: after(2, 160)}, sync=True)
    harness.crash(engine)
    limit_space(harness, None)
    engine = harness.open()
    extend(engine, [A])
    check_holds(engine, held(3), A)
    engine.close()


def test_damage_in_a_closed_segment_is_that_of_the_logs_whose_entries_it_hits(harness: VirtualHarness) -> None:
    engine = opened(harness)
    fill_segments(engine, C, 1)
    first = segments(harness.disk)[0]
    body = entries(2, 1, size_bytes=200)[0].body
    data = harness.disk.read_bytes(first)
    harness.disk.damage(first, data.index(body, data.index(body) + 1) + 3)  # The second log's.
    check_holds(engine, held(2), A)
    with pytest.raises(Corrupt):
        engine.read(B, 1, 3, 1 << 20)
    damage = engine.logs()[B].damage
    assert damage is not None
    assert (damage.path, damage.last_good) == (first, OpId(1, 1))
    outcomes = engine.commit({A: after(2), B: after(2)}, sync=True)
    assert isinstance(outcomes[A], Durable)
    assert isinstance(outcomes[B], Failed)
    fill_segments(engine, C, 1)
    harness.crash(engine)
    engine = harness.open()
    assert engine.logs()[B].damage is not None, "the head of a later segment remembers"
    check_holds(engine, held(3), A)
    engine.close()


def test_damage_met_by_a_reader_while_a_group_is_written_wins(harness: VirtualHarness) -> None:
    engine = opened(harness)
    (path,) = segments(harness.disk)
    data = harness.disk.read_bytes(path)
    harness.disk.damage(path, data.index(entries(1, 1, size_bytes=200)[0].body))

    def read_meanwhile(operation: str, _path: str) -> None:
        if operation == "dsync":
            harness.disk.faults.hook = None
            with pytest.raises(Corrupt):
                engine.read(A, 1, 2, 1)

    harness.disk.faults.hook = read_meanwhile
    outcomes = engine.commit({A: after(2), B: after(2)}, sync=True)
    assert isinstance(outcomes[A], Failed)
    assert outcomes[A].durable == engine.logs()[A].last == ZERO
    assert outcomes[B] == Durable(OpId(1, 3))
    engine.close()


def test_a_log_whose_creation_failed_does_not_exist(harness: VirtualHarness) -> None:
    engine = opened(harness)
    harness.disk.faults.fail_syncs(harness.directory, 1)
    new = log_number(5)
    with pytest.raises(StorageError):
        engine.create(new, ZERO)
    assert new not in engine.logs()
    engine.create(new, OpId(1, 7))
    for log in (A, B, C):
        check_holds(engine, held(2), log)
    harness.crash(engine, Survival.KEPT)
    engine = harness.open()
    check_holds(engine, Model(OpId(1, 7)), new)
    engine.close()


def test_a_log_that_could_not_be_dropped_is_still_there(harness: VirtualHarness) -> None:
    engine = opened(harness)
    harness.disk.faults.fail_syncs(harness.directory, 1)
    with pytest.raises(StorageError):
        engine.drop(A)
    check_holds(engine, held(2), A)
    extend(engine, [A, B])
    engine.drop(A)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    assert set(engine.logs()) == {B, C}
    engine.close()


def test_the_last_segment_that_tells_of_the_logs_stays_when_the_next_one_could_not_be_made(
    harness: VirtualHarness,
) -> None:
    """No segment held an entry, and a name for the next one had been drawn: the only one was removed as superfluous."""
    engine = harness.open()
    create_logs(engine, 3)

    def no_names(operation: str, _path: str) -> None:
        if operation == "rename":
            raise StorageError("cannot use it: Input/output error")

    harness.disk.faults.hook = no_names
    harness.disk.faults.fail_syncs(harness.directory, 1)
    assert isinstance(engine.commit({A: after(0)}, sync=True)[A], Failed)
    engine.collect(B, 0)
    harness.disk.faults.hook = None
    assert segments(harness.disk)
    harness.crash(engine, Survival.KEPT)
    engine = harness.open()
    assert set(engine.logs()) == {A, B, C}
    extend(engine, [B, C])
    engine.close()


def damaged_in_the_head(harness: VirtualHarness) -> WalEngine:
    """Log A is damaged behind its first entry, and the head of the open segment says so."""
    engine = opened(harness)
    fill_segments(engine, C, 1)
    first = segments(harness.disk)[0]
    data = harness.disk.read_bytes(first)
    harness.disk.damage(first, data.index(entries(2, 1, size_bytes=200)[0].body))
    with pytest.raises(Corrupt):
        engine.read(A, 1, 3, 1 << 20)
    fill_segments(engine, C, 1)
    harness.crash(engine)
    engine = harness.open()
    assert engine.logs()[A].last == OpId(1, 1) and engine.logs()[A].damage is not None
    extend(engine, [B])
    return engine


@pytest.mark.parametrize("again", [False, True])
def test_a_damaged_log_keeps_the_segments_that_were_there_and_none_that_came_later(
    harness: VirtualHarness, again: bool
) -> None:
    """It once kept every segment until it was dropped: the log of the node grew without end."""
    engine = harness.open()
    create_logs(engine, 2)
    extend(engine, [A], 3)
    fill_segments(engine, B, 2)
    first = segments(harness.disk)[0]
    harness.disk.damage(first, harness.disk.read_bytes(first).index(entries(2, 1, size_bytes=200)[0].body) + 3)
    with pytest.raises(Corrupt):
        engine.read(A, 2, 3, READ_BYTES)
    kept = set(segments(harness.disk))
    fill_segments(engine, B, 1)
    if again:
        harness.crash(engine)
        engine = harness.open()
        assert engine.logs()[A].damage is not None
    for _ in range(6):
        fill_segments(engine, B, 2)
        engine.collect(B, engine.logs()[B].last.index)
        assert kept < set(segments(harness.disk)), "what is behind the damage may be all that is left of it"
    assert len(segments(harness.disk)) <= len(kept) + 3
    assert engine.read(A, 1, 2, READ_BYTES) == list(entries(1, 1, size_bytes=200))
    engine.drop(A)
    engine.close()
    engine = harness.open()
    fill_segments(engine, B, 1)
    engine.collect(B, engine.logs()[B].last.index)
    assert not kept & set(segments(harness.disk))
    engine.close()


def test_a_damaged_log_that_was_dropped_does_not_come_back_after_a_crash(harness: VirtualHarness) -> None:
    engine = damaged_in_the_head(harness)
    engine.drop(A)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    assert set(engine.logs()) == {B, C}
    check_holds(engine, held(3), B)
    engine.create(A, ZERO)
    extend(engine, [A])
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, held(1), A)
    engine.close()


def test_the_base_of_a_damaged_log_is_not_forgotten_by_a_crash(harness: VirtualHarness) -> None:
    engine = damaged_in_the_head(harness)
    assert engine.collect(A, 1) == OpId(1, 1)
    harness.crash(engine, Survival.LOST)
    state = harness.open().logs()[A]
    assert (state.base, state.last) == (OpId(1, 1), OpId(1, 1)) and state.damage is not None
