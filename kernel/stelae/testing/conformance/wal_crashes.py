"""Conformance checks for log engines: a loss of power keeps acknowledged entries and brings no replaced ones back.

They need the capability ``fake_files``: the engine runs on a virtual disk that loses power at every operation and at
every byte, and then loses, tears and reorders what was not synced."""

from __future__ import annotations

from collections.abc import Iterator

from stelae.spi.errors import CallerError
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_basics import WalBasics, always_synced, check_hints
from stelae.testing.conformance.wal_crash_scenarios import (
    FATES,
    CrashRun,
    append,
    append_after_unsynced,
    check_after_crash,
    check_every_crash,
    close,
    cool,
    create,
    every_operation,
    moments,
    reused_name,
    sync,
    unsynced,
)
from stelae.testing.conformance.wal_partial_writes import disks_within_writes
from stelae.testing.conformance.wal_start_failures import check_starts
from stelae.testing.failing_files import READS, WRITES, cannot_read, no_space
from stelae.testing.wal_harness import PowerLost, Survival, VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entries, entry, intact

KILLS = 4
"""Number of later crashes that are drawn for each operation at which a process is killed."""


def _forks(harness: VirtualHarness) -> Iterator[tuple[VirtualHarness, Survival]]:
    for seed, survival in enumerate(FATES):
        yield harness.fork(seed), survival


class WalCrashes(WalBasics):
    """Adds checks that need a virtual disk. The fixture ``harness`` is a :class:`VirtualHarness`."""

    def test_a_crash_at_any_operation_keeps_acknowledged_entries(self, harness: VirtualHarness) -> None:
        assert check_every_crash(harness, every_operation()) > 50

    def test_what_a_start_finds_after_a_kill_at_any_operation_survives_a_later_crash(
        self, harness: VirtualHarness
    ) -> None:
        # The next process sees everything that a killed one wrote and renamed, whether or not it was synced.
        for moment in moments(harness, every_operation()):
            for seed in range(KILLS):
                check_after_crash(harness.on(moment.disk.clone(), seed), moment.run.copy())

    def test_a_start_after_a_kill_at_any_operation_that_appends_nothing_survives_a_later_crash(
        self, harness: VirtualHarness
    ) -> None:
        for moment in moments(harness, every_operation()):
            for seed, survival in enumerate((Survival.LOST, Survival.DRAWN)):
                twin = harness.on(moment.disk.clone(), seed)
                twin.open().close()
                twin.crash(survival=survival)
                check_after_crash(twin, moment.run.copy())

    def test_a_crash_during_recovery_loses_nothing(self, harness: VirtualHarness) -> None:
        for moment in moments(harness, every_operation())[3:-1:5]:
            for seed, survival in enumerate(FATES):
                twin, run = moment.crashed(harness, seed, survival)
                _crash_recoveries(twin)
                check_after_crash(twin, run)

    def test_a_start_after_a_crash_that_cannot_read_fails_without_damage(self, harness: VirtualHarness) -> None:
        check_starts(harness, lambda engine: harness.crash(engine, Survival.KEPT), READS, cannot_read)

    def test_a_start_after_a_crash_without_space_damages_nothing(self, harness: VirtualHarness) -> None:
        check_starts(harness, lambda engine: harness.crash(engine, Survival.KEPT), WRITES, no_space)

    def test_a_write_cut_at_any_byte_leaves_every_earlier_entry_and_a_clean_end(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        commit(engine, Append(entries=entries(4, 1, term=2, size_bytes=500)))
        before = Model(ZERO, [*entries(1, 3), entry(4, 2, 500)])
        engine.close()
        for group in ((entry(5, 2, 0),), (entry(5, 2, 700),), entries(5, 3, term=2, size_bytes=40)):
            self._cut_everywhere(harness, before, Append(entries=group))
        self._cut_everywhere(harness, before, Append(entries=entries(3, 2, term=3), replace_from=3))

    def _cut_everywhere(self, harness: VirtualHarness, before: Model, last: Append) -> None:
        twin = harness.fork()
        engine = twin.open()
        written_bytes = twin.disk.faults.written_bytes
        cuts = 0
        for disk in disks_within_writes(twin.disk, lambda: commit(engine, last)):
            cuts += 1
            cut = harness.on(disk, cuts)
            cut.crash(survival=Survival.KEPT)
            check_after_crash(cut, CrashRun({LOG: before.possible_after(last)}))
        assert twin.disk.faults.written_bytes - written_bytes > sum(len(e.body) for e in last.entries)
        assert cuts > len(last.entries)
        twin.crash(survival=Survival.KEPT)
        check_after_crash(twin, CrashRun({LOG: [before.append(last)]}))

    def test_a_group_torn_into_sectors_leaves_a_prefix_of_it(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 5, size_bytes=333)))
        engine.close()
        before = Model(ZERO, list(entries(1, 5, size_bytes=333)))
        for first, replace_from in ((6, None), (3, 3)):
            group = entries(first, 6, term=2, size_bytes=450)
            last = Append(entries=group, replace_from=replace_from)
            seen = set()
            for seed in range(150):
                twin = harness.fork(seed)
                engine = twin.open()
                engine.commit({LOG: last}, sync=False)
                twin.crash()
                found = intact(engine := twin.open())
                seen.add(found.last)
                engine.close()
                check_after_crash(twin, CrashRun({LOG: before.possible_after(last)}))
            if always_synced(harness):
                assert seen == {group[-1].op_id}, "an engine that declares always_synced lost a commit"
            else:
                assert {before.last, group[-1].op_id} < seen

    def test_a_crash_may_lose_a_suffix_of_unsynced_entries_but_none_before_a_sync(
        self, harness: VirtualHarness
    ) -> None:
        first, more = entries(1, 3), entries(4, 9, size_bytes=200)
        second, kept = entries(6, 2, term=2), always_synced(harness)
        steps = [
            create(LOG, ZERO),
            append(a=Append(entries=first)),
            *(unsynced(Append(entries=(one,)), kept=kept) for one in more),
            unsynced(Append(entries=second, replace_from=6), kept=kept),
            sync(lambda: Model(ZERO, [*first, *more[:2], *second])),
            unsynced(Append(entries=entries(8, 1, term=2)), kept=kept),
            append_after_unsynced(Model(ZERO, [*first, *more[:2], *second, entry(8, 2)])),
        ]
        check_every_crash(harness, steps)

    def test_repair_of_a_log_that_only_refused_an_append_makes_earlier_commits_durable(
        self, harness: VirtualHarness
    ) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model().append(first := Append(entries=entries(1, 3)))
        assert engine.commit({LOG: first}, sync=False)[LOG] == Durable(model.last)
        refused = engine.commit({LOG: Append(entries=entries(9, 1))}, sync=True)[LOG]
        assert isinstance(refused, Failed) and isinstance(refused.error, CallerError)
        assert engine.repair(LOG) == model.last
        harness.crash(survival=Survival.LOST)
        check_holds(harness.open(), model)

    def test_a_crash_while_closing_loses_only_unsynced_entries(self, harness: VirtualHarness) -> None:
        # A regression: a footer once survived a crash that the entries under its checksum did not survive.
        steps = [
            create(LOG, ZERO),
            append(a=Append(entries=entries(1, 3))),
            unsynced(Append(entries=entries(4, 7, size_bytes=900)), kept=always_synced(harness)),
            cool,
            unsynced(Append(entries=entries(11, 2, size_bytes=900)), kept=always_synced(harness)),
            close,
        ]
        for moment in moments(harness, steps):
            for seed in range(20):
                check_after_crash(*moment.crashed(harness, seed, Survival.DRAWN))

    def test_replaced_entries_never_come_back(self, harness: VirtualHarness) -> None:
        for seed in range(40):
            twin = harness.fork(seed)
            engine = twin.open()
            engine.create(LOG, ZERO)
            model = Model()
            for term in range(1, 12):
                first = 1 + twin.rng.getrandbits(16) % (model.last.index + 1)
                count = 1 + twin.rng.getrandbits(16) % 25
                given = Append(entries=entries(first, count, term, 90), replace_from=first)
                commit(engine, given)
                model = model.append(given)
                if twin.rng.random() < 0.5:
                    twin.crash(engine)
                    engine = twin.open()
                check_holds(engine, model)
            engine.close()

    def test_a_log_created_again_under_a_dropped_name_is_empty(self, harness: VirtualHarness) -> None:
        for seed in range(30):
            twin = harness.fork(seed)
            engine = twin.open()
            for term in range(1, 5):
                engine.create(LOG, ZERO)
                check_holds(engine, Model())
                commit(engine, Append(entries=entries(1, 4 + term, term=term, size_bytes=400)))
                twin.crash(engine)
                engine = twin.open()
                check_holds(engine, Model(ZERO, list(entries(1, 4 + term, term, 400))))
                engine.drop(LOG)
            twin.crash(engine)
            engine = twin.open()
            assert not engine.logs()
            engine.close()

    def test_a_log_under_a_reused_name_shows_no_entry_of_the_earlier_log(self, harness: VirtualHarness) -> None:
        check_every_crash(harness, reused_name())

    def test_setting_aside_can_be_repeated_after_a_crash_until_it_is_done(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 120, size_bytes=100)))
        engine.close()
        operations, done = 0, False
        while not done:
            for twin, survival in _forks(harness):
                engine = twin.open()
                twin.disk.faults.lose_power_after(operations=operations)
                try:
                    while engine.copy_aside(LOG, "/node/quarantine/a.1"):
                        pass
                    engine.set_aside(LOG, "/node/quarantine/a.1")
                    done = True
                except PowerLost:
                    pass
                twin.crash(survival=survival)
                engine = twin.open()
                if done:
                    assert not engine.logs()
                if LOG in engine.logs():
                    engine.set_aside(LOG, "/node/quarantine/a.1")
                engine = _reopened_after_crash(twin, engine)
                assert not engine.logs()
                moved = twin.disk.listdir("/node/quarantine/a.1")
                assert sum(len(twin.disk.read_bytes(f"/node/quarantine/a.1/{n}")) for n in moved) > (12_000)
                engine.close()
            operations += 1
        assert operations > 3

    def test_the_commit_hint_of_acknowledged_groups_survives_a_crash(self, harness: VirtualHarness) -> None:
        check_hints(harness)

    def test_the_commit_hint_is_never_above_the_one_that_was_passed(self, harness: VirtualHarness) -> None:
        for seed in range(40):
            twin = harness.fork(seed)
            engine = twin.open()
            engine.create(LOG, ZERO)
            for turn in range(1, 30):
                given = Append(entries=entries(turn, 1, size_bytes=300), commit_hint=turn // 2)
                commit(engine, given)
            twin.crash(engine)
            engine = twin.open()
            assert engine.logs()[LOG].commit_hint == 14
            engine.close()


def _crash_recoveries(harness: VirtualHarness) -> None:
    """Lose power in repeated recoveries, each time one operation later, until one completes."""
    operations, recovered = 0, False
    while not recovered:
        harness.disk.faults.lose_power_after(operations=operations)
        try:
            harness.open()
            recovered = True
        except PowerLost:
            operations += 1
        harness.crash()


def _reopened_after_crash(harness: VirtualHarness, engine: WalEngine) -> WalEngine:
    harness.crash(engine)
    return harness.open()
