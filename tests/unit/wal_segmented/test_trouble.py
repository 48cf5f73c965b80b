"""Trouble that passes leaves no trace; of two bad places in a log the earlier one counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.errors import Corrupt, Full, StorageError, SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.wal import Append, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.conformance.wal_set_aside import check_aside, quarantine_of
from stelae.testing.wal_harness import PowerLost, VirtualHarness, fake_services
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from tests.unit.wal_segmented.scenes import ALL, BASE, FIRST, PLACE, filled, small_harness


def test_a_log_that_found_no_handle_goes_on_when_there_are_some_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with too many tablets for its limit of handles once gave up every replica that it opened a file for."""
    harness = small_harness()
    engine = filled(harness)
    engine.cool(LOG)
    opened = VirtualDisk.open

    def no_handle(disk: VirtualDisk, path: str, *, writable: bool = False) -> object:
        if path.startswith(PLACE):
            raise Full("no handle or no memory: Too many open files; raise the limit", path=path)
        return opened(disk, path, writable=writable)

    given = Append(entries=entries(61, 1))
    with monkeypatch.context() as patch:
        patch.setattr(VirtualDisk, "open", no_handle)
        outcome = engine.commit({LOG: given}, sync=True)[LOG]
        assert isinstance(outcome, Failed) and isinstance(outcome.error, Full)
        assert outcome.durable == ALL[-1].op_id
    assert engine.repair(LOG) == ALL[-1].op_id
    commit(engine, given)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, Model(ZERO, [*ALL, *given.entries]))
    engine.close()


def with_other(harness: VirtualHarness) -> None:
    """Two logs of an engine that was ended by a crash."""
    engine = filled(harness, 10)
    engine.create(OTHER, ZERO)
    commit(engine, Append(entries=entries(1, 3)), OTHER)
    harness.crash(engine, Survival.KEPT)


def one_of_two_unread(path: str) -> tuple[VirtualHarness, WalEngine]:
    """An engine of two logs, one of which has a file that the disk does not give back."""
    harness = small_harness()
    with_other(harness)
    harness.disk.faults.fail_reads(path, 1 << 30)
    return harness, harness.open()


@pytest.mark.parametrize("path", [FIRST, BASE])
def test_a_log_that_cannot_be_read_beside_one_that_can_is_out_of_use_until_the_next_start(path: str) -> None:
    """One sector of one tablet's log once kept a node with all its tablets from starting."""
    harness, engine = one_of_two_unread(path)
    state = engine.logs()[LOG]
    assert state.damage is not None and state.damage.unread and state.damage.path == path
    assert (engine.stats()["logs_damaged"], engine.stats()["logs_unread"]) == (0, 1)
    calls: list[Callable[[], object]] = [
        lambda: engine.read(LOG, 10, 11, READ_BYTES),
        lambda: engine.op_id_at(LOG, 10),
        lambda: engine.repair(LOG),
    ]
    for call in calls:
        with pytest.raises(StorageError) as caught:
            call()
        assert not isinstance(caught.value, Corrupt) and caught.value.path == path
    refused = engine.commit({LOG: Append(entries=entries(11, 1))}, sync=True)[LOG]
    assert isinstance(refused, Failed) and not isinstance(refused.error, Corrupt)
    commit(engine, Append(entries=entries(4, 1)), OTHER)
    engine.cool(LOG)
    engine.close()
    harness.disk.faults.heal()
    engine = harness.open()
    check_holds(engine, Model(ZERO, list(ALL[:10])))
    check_holds(engine, Model(ZERO, list(entries(1, 4))), OTHER)
    engine.close()


@pytest.mark.parametrize("path", [FIRST, BASE])
def test_a_log_that_could_not_be_read_can_be_set_aside_with_all_it_holds(path: str) -> None:
    harness, engine = one_of_two_unread(path)
    engine.set_aside(LOG, "/node/aside")
    assert set(engine.logs()) == {OTHER}
    harness.disk.faults.heal()
    config = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=4096)
    with SegmentedWal.opened_aside("/node/aside", LOG, config, fake_services(harness.disk)) as (state, held):
        assert state.last == OpId(1, 10) and list(held) == list(ALL[:10])
    engine.close()


def test_a_log_whose_last_sync_fails_while_it_is_set_aside_is_moved_as_it_is() -> None:
    """A second attempt once sealed the segment: its sync succeeded, and said nothing of what the first had lost."""
    harness = small_harness()
    engine = filled(harness, 10)
    engine.commit({LOG: Append(entries=ALL[10:12])}, sync=False)
    used: list[tuple[str, str]] = []
    harness.disk.faults.on_use_after_failed_sync = lambda operation, path: used.append((operation, path))
    harness.disk.faults.fail_syncs(FIRST)
    with pytest.raises(SyncFailed):
        engine.set_aside(LOG, "/node/aside")
    engine.set_aside(LOG, "/node/aside")
    assert not engine.logs() and not used
    engine.close()


def stopped_by_a_full_disk(harness: VirtualHarness) -> WalEngine:
    """An engine whose log ends at entry 10. A part of the next group fitted on the disk."""
    engine = filled(harness, 10)
    limit_space(harness, 900)
    failed = engine.commit({LOG: Append(entries=entries(11, 30, size_bytes=200))}, sync=True)[LOG]
    assert isinstance(failed, Failed) and isinstance(failed.error, Full) and failed.durable == OpId(1, 10)
    limit_space(harness, None)
    return engine


def test_a_crash_after_a_full_disk_brings_nothing_back_of_the_group_that_failed() -> None:
    """A tombstone with the last op id may be durable already, when the next start sets the log aside."""
    harness = small_harness()
    engine = stopped_by_a_full_disk(harness)
    harness.crash(engine, Survival.KEPT)
    engine = harness.open()
    check_holds(engine, Model(ZERO, list(ALL[:10])))
    engine.close()


def test_a_sync_that_fails_after_a_full_disk_fails_the_log_for_good() -> None:
    harness = small_harness()
    engine = filled(harness, 10)
    limit_space(harness, 900)
    harness.disk.faults.fail_syncs(FIRST)
    failed = engine.commit({LOG: Append(entries=entries(11, 30, size_bytes=200))}, sync=True)[LOG]
    assert isinstance(failed, Failed) and isinstance(failed.error, Full) and failed.durable == OpId(1, 10)
    limit_space(harness, None)
    for _ in range(2):
        with pytest.raises(SyncFailed):
            engine.repair(LOG)
    harness.crash(engine, Survival.KEPT)
    state = harness.open().logs()[LOG]
    assert state.last == OpId(1, 10) and state.damage is not None


def test_power_lost_while_a_log_is_set_aside_after_a_full_disk_does_not_move_its_end() -> None:
    operations, done = 0, False
    while not done:
        for seed, survival in enumerate((Survival.KEPT, Survival.LOST, Survival.DRAWN)):
            harness = small_harness()
            engine = stopped_by_a_full_disk(harness)
            harness.rng.seed(seed)
            harness.disk.faults.lose_power_after(operations=operations)
            try:
                engine.set_aside(LOG, quarantine_of(harness))
                done = True
            except PowerLost:
                pass
            harness.crash(engine, survival)
            engine = harness.open()
            if LOG in engine.logs():
                engine.set_aside(LOG, quarantine_of(harness))
            assert not engine.logs()
            check_aside(harness, ZERO, list(ALL[:10]))
        operations += 1
    assert operations > 5


def test_a_read_that_fails_once_is_tried_again_when_the_other_logs_were_read() -> None:
    harness = small_harness()
    with_other(harness)
    harness.disk.faults.fail_reads(FIRST)
    engine = harness.open()
    check_holds(engine, Model(ZERO, list(ALL[:10])))
    engine.close()


def test_a_disk_that_reads_less_than_half_of_the_logs_ends_the_start() -> None:
    harness = small_harness()
    with_other(harness)
    engine = harness.open()
    third = LogId(TabletId("tablet-c"), 1)
    engine.create(third, ZERO)
    engine.close()
    for path in (BASE, f"/node/wals/{OTHER.tablet_id}/g{OTHER.generation}.base"):
        harness.disk.faults.fail_reads(path, 1 << 30)
    with pytest.raises(StorageError) as caught:
        harness.open()
    assert not isinstance(caught.value, Corrupt) and caught.value.path.endswith("g1.base")
    harness.disk.faults.heal()
    engine = harness.open()
    assert not any(state.damage for state in engine.logs().values())
    engine.close()


def test_a_repair_that_cannot_read_now_can_be_repeated() -> None:
    harness = small_harness()
    engine = filled(harness, 10)
    limit_space(harness, 0)
    assert isinstance(engine.commit({LOG: Append(entries=entries(11, 40, size_bytes=900))}, sync=True)[LOG], Failed)
    limit_space(harness, None)
    harness.disk.faults.fail_reads(PLACE)
    with pytest.raises(StorageError) as caught:
        engine.repair(LOG)
    assert not isinstance(caught.value, Full)
    assert engine.repair(LOG) == OpId(1, 10)
    commit(engine, Append(entries=entries(11, 1)))
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, Model(ZERO, [*ALL[:10], *entries(11, 1)]))
    engine.close()


def test_a_reader_that_meets_older_damage_later_ends_the_log_there() -> None:
    harness = small_harness()
    engine = filled(harness, 10)
    engine.create(OTHER, ZERO)
    for index, good in ((7, 6), (3, 2)):
        harness.disk.damage(FIRST, harness.disk.read_bytes(FIRST).index(ALL[index - 1].body))
        with pytest.raises(Corrupt):
            engine.read(LOG, index, index + 1, READ_BYTES)
        state = engine.logs()[LOG]
        assert state.damage is not None
        assert state.last == state.damage.last_good == OpId(1, good)
        assert engine.read(LOG, 1, good + 1, READ_BYTES) == list(ALL[:good])
    commit(engine, Append(entries=entries(1, 3)), OTHER)
    harness.crash(engine)
