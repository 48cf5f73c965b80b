"""Conformance checks for log engines: failing and full disks (W8, durability rule 7).

Nothing acknowledged is lost, nothing after a failure is acknowledged, and the other logs go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stelae.spi.errors import Corrupt, Full, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_basics import leaves_something_unsynced
from stelae.testing.conformance.wal_collection import WalCollection
from stelae.testing.conformance.wal_set_aside import check_aside, quarantine_of
from stelae.testing.conformance.wal_waiters import Waiters
from stelae.testing.wal_harness import Survival, VirtualHarness
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries, intact


class WalFailures(WalCollection):
    """Checks of failing disks. The fixture ``harness`` is a :class:`VirtualHarness`."""

    def test_a_full_disk_fails_the_log_until_there_is_space_and_loses_nothing(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 2)))
        engine.close()
        failures = 0
        for free_bytes in range(0, 9000, 61):
            twin = harness.fork(free_bytes)
            engine = twin.open()
            limit_space(twin, free_bytes)
            model, outcome = append_until_failure(engine, Model(ZERO, list(entries(1, 2))), 40)
            if outcome is None:
                continue
            failures += 1
            assert isinstance(outcome.error, Full)
            assert outcome.durable == model.last
            check_holds(engine, model)
            again = engine.commit({LOG: _next(model)}, sync=True)[LOG]
            assert isinstance(again, Failed)
            assert again.durable == model.last
            limit_space(twin, None)
            assert engine.repair(LOG) == model.last
            check_holds(engine, model)
            commit(engine, _next(model))
            model = model.append(_next(model))
            twin.crash(engine)
            engine = twin.open()
            check_holds(engine, model)
            engine.close()
        assert failures > 50

    def test_a_crash_on_a_full_disk_loses_nothing_and_the_log_opens_without_space(
        self, harness: VirtualHarness
    ) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        engine.close()
        for free_bytes in range(0, 9000, 173):
            twin = harness.fork(free_bytes)
            engine = twin.open()
            limit_space(twin, free_bytes)
            model, _ = append_until_failure(engine, Model(), 40)
            twin.crash(engine)
            engine = twin.open()
            found = intact(engine)
            assert found.held[: len(model.held)] == model.held
            assert len(found.held) <= len(model.held) + 5
            limit_space(twin, None)
            commit(engine, _next(found))
            engine.close()

    def test_a_log_set_aside_after_a_full_disk_ends_where_it_ended_in_the_engine(self, harness: VirtualHarness) -> None:
        for sync in (True, False):
            failures = 0
            for free_bytes in range(0, 9000, 61):
                failures += self._set_aside_after_full(harness.fork(free_bytes), free_bytes, sync=sync)
            assert failures > 50

    def _set_aside_after_full(self, harness: VirtualHarness, free_bytes: int, *, sync: bool) -> bool:
        engine = harness.open()
        engine.create(LOG, ZERO)
        limit_space(harness, free_bytes)
        model, outcome = append_until_failure(engine, Model(), 40, sync=sync)
        limit_space(harness, None)
        last = engine.logs()[LOG].last
        if outcome is not None:
            assert outcome.durable == last
        assert last == model.last or not sync
        engine.set_aside(LOG, quarantine_of(harness))
        assert not engine.logs()
        check_aside(harness, ZERO, model.held[: last.index])
        harness.crash(engine)
        assert not harness.open().logs()
        check_aside(harness, ZERO, model.held[: last.index])
        return outcome is not None

    def test_a_failing_disk_fails_every_waiter_of_its_log(self, harness: VirtualHarness) -> None:
        self._fail_waiters(harness.fork(0), lambda twin: limit_space(twin, 0))
        self._fail_waiters(harness.fork(1), lambda twin: twin.disk.faults.fail_syncs(count=99))

    def _fail_waiters(self, harness: VirtualHarness, fail: Callable[[VirtualHarness], None]) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        waiters = Waiters(engine, LOG, OTHER)
        fail(harness)
        waiters.append(LOG, "a", entries(4, 1, size_bytes=40_000))
        waiters.append(LOG, "b", entries(5, 3))
        waiters.run(lambda: waiters.append(LOG, "c", entries(8, 1)))
        waiters.check_all_failed(LOG, "abc", OpId(1, 3))
        harness.disk.faults.heal()
        waiters.append(OTHER, "x", entries(1, 1))
        waiters.run()
        assert waiters.outcomes["x"] == [Durable(OpId(1, 1))]
        check_holds(engine, Model(ZERO, list(entries(1, 3))))
        harness.crash(engine)

    def test_repair_on_a_disk_that_is_still_full_fails_and_can_be_repeated(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        limit_space(harness, 0)
        model, outcome = append_until_failure(engine, Model(), 100)
        assert outcome is not None
        for _ in range(3):
            with pytest.raises(Full):
                engine.repair(LOG)
            check_holds(engine, model)
        limit_space(harness, None)
        assert engine.repair(LOG) == model.last
        commit(engine, _next(model))
        engine = _crashed(harness, engine)
        check_holds(engine, model.append(_next(model)))
        engine.close()

    def test_collecting_and_dropping_work_on_a_full_disk_and_free_it(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        model = Model()
        for _ in range(12):
            commit(engine, _next(model))
            commit(engine, _next(model), OTHER)
            model = model.append(_next(model))
        limit_space(harness, 0)
        before = harness.disk.space_left("/")
        engine.collect(LOG, model.last.index)
        engine.drop(OTHER)
        assert harness.disk.space_left("/") > before
        check_holds(engine, model)
        engine = _crashed(harness, engine)
        assert set(engine.logs()) == {LOG}
        check_holds(engine, model)
        engine.close()

    def test_collecting_and_dropping_free_a_disk_that_appends_have_filled(self, harness: VirtualHarness) -> None:
        for free_bytes in range(40_000, 60_000, 997):
            twin = harness.fork(free_bytes)
            engine = twin.open()
            for log in (LOG, OTHER):
                engine.create(log, ZERO)
            commit(engine, _next(Model()), OTHER)
            limit_space(twin, free_bytes)
            model, failed = append_until_failure(engine, Model(), 400)
            assert failed is not None
            for _ in range(20):
                try:
                    engine.repair(LOG)
                except Full:
                    break
                model, _ = append_until_failure(engine, model, 400)
            before = twin.disk.space_left("/")
            try:
                engine.collect(LOG, model.last.index)
                engine.drop(OTHER)
            except Full as error:
                raise AssertionError(f"a full disk cannot be freed: {error}") from error
            assert twin.disk.space_left("/") > before
            limit_space(twin, None)
            assert engine.repair(LOG) == model.last
            commit(engine, _next(model))
            engine = _crashed(twin, engine)
            check_holds(engine, model.append(_next(model)))
            engine.close()

    def test_a_failed_sync_at_any_point_fails_the_log_for_good_and_no_other(self, harness: VirtualHarness) -> None:
        failures = 0
        for count in range(40):
            for survival in (Survival.LOST, Survival.KEPT, Survival.DRAWN):
                for failing in (1, 2, 9):
                    twin = harness.fork(count)
                    failures += self._fail_syncs(twin, count, failing, survival)
        assert failures > 180

    def _fail_syncs(self, harness: VirtualHarness, count: int, failing: int, survival: Survival) -> bool:
        # Only the first log is written meanwhile: whichever files fail to sync, they are synced for this log.
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        commit(engine, _next(Model()), OTHER)
        seen = 0

        def fail_nth(operation: str, path: str) -> None:
            nonlocal seen
            if "sync" in operation:
                seen += 1
                if seen == count + 1:
                    harness.disk.faults.fail_syncs(count=failing)

        harness.disk.faults.hook = fail_nth
        model, outcome = append_until_failure(engine, Model(), 25)
        harness.disk.faults.hook = None
        harness.disk.faults.heal()
        if outcome is not None:
            assert not isinstance(outcome.error, Full)
            assert outcome.durable == model.last
            with pytest.raises(StorageError):
                engine.repair(LOG)
            assert isinstance(engine.commit({LOG: _next(model)}, sync=True)[LOG], Failed)
            assert engine.logs()[LOG].last == model.last
        assert isinstance(engine.commit({OTHER: _other()}, sync=True)[OTHER], Durable)
        harness.crash(engine, survival)
        self._check_after_failed_sync(harness, model)
        return outcome is not None

    def _check_after_failed_sync(self, harness: VirtualHarness, model: Model) -> None:
        """Check that every acknowledged entry can be read, and that new entries follow only durable ones."""
        engine = harness.open()
        check_holds(engine, Model(ZERO, [*_next(Model()).entries, *_other().entries]), OTHER)
        state = engine.logs()[LOG]
        assert state.last.index >= model.last.index
        if model.held:
            try:
                found = engine.read(LOG, 1, model.last.index + 1, 1 << 30)
            except Corrupt as error:
                raise AssertionError(f"entries that were acknowledged cannot be read: {error}") from error
            assert found == model.held
        if state.damage is None:
            present = intact(engine)
            commit(engine, _next(present))
            harness.crash(engine, Survival.LOST)
            engine = harness.open()
            check_holds(engine, present.append(_next(present)))
        engine.close()

    def test_a_failed_sync_while_collecting_fails_the_log_for_good_or_changes_nothing(
        self, harness: VirtualHarness
    ) -> None:
        failures = 0
        for count in range(6):
            for survival in (Survival.LOST, Survival.KEPT, Survival.DRAWN):
                for failing in (1, 2):
                    failures += self._fail_collect(harness.fork(count), count, failing, survival)
        assert failures > 5

    def _fail_collect(self, harness: VirtualHarness, count: int, failing: int, survival: Survival) -> bool:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        commit(engine, _next(Model()), OTHER)
        model, _ = append_until_failure(engine, Model(), 25)
        raised = self._collect(harness, engine, model.last.index - 7, count, failing)
        outcome = engine.commit({LOG: _next(model)}, sync=True)[LOG]
        if raised is None:
            assert isinstance(outcome, Durable)
        else:
            assert isinstance(outcome, Failed), "the log accepts entries after a failed sync"
            assert not isinstance(raised, Full) and not isinstance(outcome.error, Full)
            assert outcome.durable == engine.logs()[LOG].last == model.last
            with pytest.raises(StorageError):
                engine.repair(LOG)
        assert isinstance(engine.commit({OTHER: _other()}, sync=True)[OTHER], Durable)
        harness.crash(engine, survival)
        engine = harness.open()
        check_holds(engine, Model(ZERO, [*_next(Model()).entries, *_other().entries]), OTHER)
        state, above = engine.logs()[LOG], model.held[-7:]
        assert state.base.index < above[0].op_id.index and state.last.index >= model.last.index
        assert engine.read(LOG, above[0].op_id.index, model.last.index + 1, 1 << 30) == above
        engine.close()
        return raised is not None

    def _collect(
        self, harness: VirtualHarness, engine: WalEngine, upto: int, count: int, failing: int
    ) -> StorageError | None:
        """Collect, while ``failing`` syncs fail after ``count`` others. Return the error, if any."""
        seen = 0

        def fail_nth(operation: str, path: str) -> None:
            nonlocal seen
            if "sync" in operation:
                seen += 1
                if seen == count + 1:
                    harness.disk.faults.fail_syncs(count=failing)

        harness.disk.faults.hook = fail_nth
        try:
            engine.collect(LOG, upto)
        except StorageError as error:
            return error
        finally:
            harness.disk.faults.hook = None
            harness.disk.faults.heal()
        return None

    def test_a_failed_sync_of_earlier_unsynced_commits_is_reported(self, harness: VirtualHarness) -> None:
        leaves_something_unsynced(harness)
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        given = Append(entries=entries(4, 2))
        assert isinstance(engine.commit({LOG: given}, sync=False)[LOG], Durable)
        harness.disk.faults.fail_syncs()
        outcomes = engine.commit({}, sync=True)
        outcome = outcomes[LOG]
        assert isinstance(outcome, Failed)
        assert outcome.durable == OpId(1, 3)
        assert OTHER not in outcomes
        assert isinstance(engine.commit({LOG: given}, sync=True)[LOG], Failed)
        assert isinstance(engine.commit({OTHER: Append(entries=entries(1, 1))}, sync=True)[OTHER], Durable)
        harness.crash(engine)

    def test_close_reports_a_log_that_fails_to_sync_and_closes_the_others(self, harness: VirtualHarness) -> None:
        leaves_something_unsynced(harness)
        for failing in (1, 9):
            twin = harness.fork(failing)
            engine = twin.open()
            for log in (LOG, OTHER):
                engine.create(log, ZERO)
                commit(engine, Append(entries=entries(1, 5)), log)
            assert isinstance(engine.commit({LOG: Append(entries=entries(6, 1))}, sync=False)[LOG], Durable)
            twin.disk.faults.fail_syncs(count=failing)
            with pytest.raises(StorageError):
                engine.close()
            twin.disk.faults.heal()
            engine = twin.open()
            assert sum(state.damage is not None for state in engine.logs().values()) <= failing
            for log in (LOG, OTHER):
                assert engine.read(log, 1, 6, 1 << 30) == list(entries(1, 5))
            engine.close()

    def test_entries_visible_after_a_failed_sync_are_durable_before_others_follow(
        self, harness: VirtualHarness
    ) -> None:
        # The process dies, not the machine: the page cache still returns bytes that never reached the disk.
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        harness.disk.faults.fail_syncs(count=99)
        assert isinstance(engine.commit({LOG: Append(entries=entries(4, 3))}, sync=True)[LOG], Failed)
        after = harness.fork(1)
        engine = after.open()
        state = engine.logs()[LOG]
        assert engine.read(LOG, 1, 4, 1 << 30) == list(entries(1, 3))
        if state.damage is not None:
            return
        model = intact(engine)
        assert model.held[:3] == list(entries(1, 3))
        given = Append(entries=entries(model.last.index + 1, 1))
        commit(engine, given)
        after.crash(engine, Survival.LOST)
        engine = after.open()
        check_holds(engine, model.append(given))
        engine.close()

    def test_a_failed_create_leaves_no_log_and_can_be_repeated(self, harness: VirtualHarness) -> None:
        for count in range(6):
            twin = harness.fork(count)
            engine = twin.open()
            limit_space(twin, 200 * count)
            try:
                engine.create(LOG, ZERO)
                assert engine.logs()[LOG].last == ZERO
            except StorageError:
                assert LOG not in engine.logs()
                limit_space(twin, None)
                engine.create(LOG, ZERO)
            limit_space(twin, None)
            commit(engine, _next(Model()))
            engine = _crashed(twin, engine)
            check_holds(engine, Model().append(_next(Model())))
            engine.close()

    def test_a_read_only_disk_is_an_error_that_names_a_path_and_changes_nothing(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, _next(Model()))
        engine.close()
        before = harness.tree()

        def read_only(operation: str, path: str) -> None:
            raise StorageError("Read-only file system", path=path)

        harness.disk.faults.hook = read_only
        for _ in range(2):  # The second start would fail with Locked if the first had not released the lock.
            with pytest.raises(StorageError, match="Read-only") as caught:
                harness.open()
            assert caught.value.path.startswith(harness.directory.rpartition("/")[0])
        harness.disk.faults.hook = None
        assert harness.tree() == before
        engine = harness.open()
        check_holds(engine, Model().append(_next(Model())))
        engine.close()


def limit_space(harness: VirtualHarness, free_bytes: int | None) -> None:
    """Limit the free bytes of the disk; ``None`` for no limit."""
    faults = harness.disk.faults
    faults.capacity_bytes = None
    if free_bytes is not None:
        used = (1 << 50) - 1
        faults.capacity_bytes = used
        faults.capacity_bytes = used - harness.disk.space_left("/") + free_bytes


def append_until_failure(
    engine: WalEngine, model: Model, groups_max: int, *, sync: bool = True
) -> tuple[Model, Failed | None]:
    """Append groups until one fails; return the model of the acknowledged groups, and the failure."""
    for _ in range(groups_max):
        given = _next(model)
        outcome = engine.commit({LOG: given}, sync=sync)[LOG]
        if isinstance(outcome, Failed):
            return model, outcome
        model = model.append(given)
    return model, None


def _next(model: Model) -> Append:
    """Return a group that fits after a model."""
    first = model.last.index + 1
    return Append(entries=entries(first, 5, term=max(1, model.last.term), size_bytes=90))


def _other() -> Append:
    return Append(entries=entries(6, 2, term=2))


def _crashed(harness: VirtualHarness, engine: WalEngine) -> WalEngine:
    harness.crash(engine)
    return harness.open()
