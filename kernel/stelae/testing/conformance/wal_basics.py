"""Conformance checks for log engines without failures: order, replacement, collection, reading."""

from __future__ import annotations

import threading

import pytest

from stelae.spi.errors import CallerError, Compacted, Locked, TooLarge
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.log import ENTRY_BYTES_MAX, Entry, EntryKind
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_generated import check_generated_histories
from stelae.testing.conformance.wal_set_aside import check_aside, quarantine_of
from stelae.testing.conformance.wal_start_failures import WalStartFailures
from stelae.testing.conformance.wal_waiters import Waiters
from stelae.testing.wal_harness import WalHarness
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries, entry, intact

ALWAYS_SYNCED = "always_synced"
"""Declared by an engine whose commits without sync are durable, too. The suite checks that."""


def always_synced(harness: WalHarness) -> bool:
    """Say whether a crash may lose no commit that the engine reports, synced or not."""
    return ALWAYS_SYNCED in harness.engine_type.capabilities


def leaves_something_unsynced(harness: WalHarness) -> None:
    """Skip a check of commits that wait for a sync, with the reason, if the engine has none."""
    if always_synced(harness):
        pytest.skip(f"engine {harness.engine_type.name!r} declares {ALWAYS_SYNCED!r}: nothing waits for a sync")


def needs(harness: WalHarness, capability: str) -> None:
    """Skip a check, with the reason, that needs a capability which the engine does not declare."""
    if capability not in harness.engine_type.capabilities:
        pytest.skip(f"engine {harness.engine_type.name!r} does not declare {capability!r}")


def reopened(harness: WalHarness, engine: WalEngine) -> WalEngine:
    """Close the engine cleanly and open it again."""
    engine.close()
    return harness.open()


def check_hints(harness: WalHarness) -> None:
    """Check that the commit hint of acknowledged groups survives a crash."""
    engine = harness.open()
    engine.create(LOG, ZERO)
    for first, hint, known in ((1, 0, 0), (4, 2, 2), (7, 5, 5), (10, 3, 5)):
        commit(engine, Append(entries=entries(first, 3), commit_hint=hint))
        harness.crash(engine)
        engine = harness.open()
        assert engine.logs()[LOG].commit_hint == known, "the commit hint is the highest one so far"
    engine.close()


class WalBasics(WalStartFailures):
    """Checks that run on any disk. The fixture ``harness`` is a :class:`WalHarness`, empty."""

    # -- order (W1, W10) -------------------------------------------------------------------------

    def test_entries_of_several_groups_are_read_in_order(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model()
        for first, count in ((1, 1), (2, 5), (7, 40), (47, 3)):
            append = Append(entries=entries(first, count), commit_hint=first - 1)
            commit(engine, append)
            model = model.append(append)
            check_holds(engine, model)
        engine = reopened(harness, engine)
        check_holds(engine, model)
        assert engine.logs()[LOG].commit_hint == 46
        commit(engine, Append(entries=entries(50, 1, term=3)))
        engine.close()

    def test_logs_of_one_node_do_not_mix(self, harness: WalHarness) -> None:
        logs = [LOG, OTHER, LogId(LOG.tablet_id, 2), LogId(TabletId("tablet-a2"), 1)]
        engine = harness.open()
        for log in logs:
            engine.create(log, ZERO)
        for turn in range(1, 20):
            group = {log: Append(entries=entries(turn, 1, term=position + 1)) for position, log in enumerate(logs)}
            outcomes = engine.commit(group, sync=True)
            assert set(outcomes) == set(logs)
            assert all(isinstance(outcome, Durable) for outcome in outcomes.values())
        engine = reopened(harness, engine)
        for position, log in enumerate(logs):
            check_holds(engine, Model(ZERO, list(entries(1, 19, term=position + 1))), log)
        engine.close()

    def test_extreme_op_ids_kinds_and_sizes_are_kept(self, harness: WalHarness) -> None:
        base = OpId((1 << 40) + 3, (1 << 33) - 1)
        engine = harness.open()
        engine.create(LOG, base)
        held = [
            Entry(OpId(1 << 41, (1 << 33) + turn), kind, (1 << 62) + turn, body)
            for turn, (kind, body) in enumerate(
                [(kind, body) for kind in EntryKind for body in (b"", b"\0", b"\xff" * 70_000)]
            )
        ]
        commit(engine, Append(entries=tuple(held), commit_hint=1 << 33))
        engine = reopened(harness, engine)
        check_holds(engine, Model(base, held))
        assert engine.logs()[LOG].commit_hint == 1 << 33
        engine.close()

    def test_an_entry_of_the_maximum_size_is_kept_and_a_larger_one_refused(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        largest = Entry(OpId(1, 1), EntryKind.WRITE, 1, b"\xa5" * ENTRY_BYTES_MAX)
        too_large = Entry(OpId(1, 2), EntryKind.WRITE, 1, b"\xa5" * (ENTRY_BYTES_MAX + 1))
        commit(engine, Append(entries=(largest,)))
        outcome = engine.commit({LOG: Append(entries=(too_large,))}, sync=True)[LOG]
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, TooLarge)
        assert str(ENTRY_BYTES_MAX) in str(outcome.error)
        assert str(ENTRY_BYTES_MAX + 1) in str(outcome.error)
        assert outcome.durable == OpId(1, 1)
        engine.repair(LOG)
        commit(engine, Append(entries=(entry(2),)))
        engine = reopened(harness, engine)
        check_holds(engine, Model(ZERO, [largest, entry(2)]))
        engine.close()

    def test_any_of_a_hundred_thousand_entries_is_found_by_its_index(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        for first in range(1, 100_001, 1000):
            commit(engine, Append(entries=entries(first, 1000, term=first, size_bytes=1)))
        engine = reopened(harness, engine)
        assert engine.logs()[LOG].last == OpId(99_001, 100_000)
        assert engine.op_id_at(LOG, 65_432) == OpId(65_001, 65_432)
        (found,) = engine.read(LOG, 65_432, 65_433, 1)
        assert found == entry(65_432, 65_001, 1)
        engine.close()

    def test_generated_histories_agree_with_the_model(self, harness: WalHarness) -> None:
        check_generated_histories(harness)

    # -- replacement (W6) ------------------------------------------------------------------------

    def test_a_read_returns_only_the_newest_entry_of_each_index(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model()
        for term, (first, count) in enumerate(((1, 60), (31, 5), (20, 1), (21, 50), (71, 4), (2, 3), (5, 90)), start=1):
            append = Append(entries=entries(first, count, term), replace_from=first)
            commit(engine, append)
            model = model.append(append)
            check_holds(engine, model)
            for start in (1, max(1, first - 2)):
                end = min(start + 7, model.last.index + 1)
                assert engine.read(LOG, start, end, READ_BYTES) == model.held[start - 1 : end - 1]
        engine = reopened(harness, engine)
        check_holds(engine, model)
        engine.close()

    def test_a_suffix_can_be_removed_without_a_replacement(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 9, term=2)))
        assert engine.commit({LOG: Append(entries=(), replace_from=4)}, sync=True) == {LOG: Durable(OpId(2, 3))}
        model = Model(ZERO, list(entries(1, 3, term=2)))
        check_holds(engine, model)
        engine = reopened(harness, engine)
        check_holds(engine, model)
        commit(engine, Append(entries=(), replace_from=1))
        engine = reopened(harness, engine)
        check_holds(engine, Model())
        commit(engine, Append(entries=entries(1, 2, term=5)))
        check_holds(engine, Model(ZERO, list(entries(1, 2, term=5))))
        engine.close()

    # -- refusals --------------------------------------------------------------------------------

    def test_appends_that_do_not_fit_are_refused_and_change_nothing(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, OpId(2, 10))
        engine.create(OTHER, ZERO)
        commit(engine, Append(entries=entries(11, 5, term=3)))
        model = intact(engine)
        unfit = [
            Append(entries=entries(17, 1, term=3)),
            Append(entries=entries(15, 1, term=3)),
            Append(entries=entries(16, 1, term=2)),
            Append(entries=(entry(16, 4), entry(17, 3))),
            Append(entries=(entry(16, 3), entry(18, 3))),
            Append(entries=()),
            Append(entries=entries(10, 1, term=3), replace_from=10),
            Append(entries=entries(17, 1, term=3), replace_from=17),
            Append(entries=entries(13, 1, term=2), replace_from=13),
            Append(entries=entries(14, 1, term=3), replace_from=13),
        ]
        for turn, append in enumerate(unfit, start=1):
            fits = Append(entries=entries(turn, 1))
            outcomes = engine.commit({LOG: append, OTHER: fits}, sync=True)
            assert outcomes[OTHER] == Durable(OpId(1, turn))
            outcome = outcomes[LOG]
            assert isinstance(outcome, Failed), append
            assert isinstance(outcome.error, CallerError)
            assert outcome.durable == OpId(3, 15)
            assert engine.repair(LOG) == OpId(3, 15)
        check_holds(engine, model)
        engine = reopened(harness, engine)
        check_holds(engine, model)
        engine.close()

    def test_a_failure_reaches_every_waiter_of_its_log_and_no_other_log(self, harness: WalHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        waiters = Waiters(engine, LOG, OTHER)
        waiters.append(LOG, "a", entries(1, 2))
        waiters.append(OTHER, "x", entries(1, 1))
        waiters.append(LOG, "b", entries(3, 1))
        waiters.append(LOG, "c", entries(9, 1))  # A gap: the whole group of this log is refused.
        waiters.run(lambda: waiters.append(LOG, "d", entries(10, 1)))
        waiters.check_all_failed(LOG, "abcd", ZERO)
        assert waiters.outcomes["x"] == [Durable(OpId(1, 1))]
        assert waiters.repair(LOG) == ZERO
        waiters.append(LOG, "e", entries(1, 2))
        waiters.append(OTHER, "y", entries(2, 1))
        waiters.run()
        assert (waiters.outcomes["e"], waiters.outcomes["y"]) == ([Durable(OpId(1, 2))], [Durable(OpId(1, 2))])
        for log in (LOG, OTHER):
            check_holds(engine, Model(ZERO, list(entries(1, 2))), log)
        engine.close()

    def test_unknown_logs_are_refused_and_dropping_one_is_harmless(self, harness: WalHarness) -> None:
        engine = harness.open()
        outcome = engine.commit({LOG: Append(entries=entries(1, 1))}, sync=True)[LOG]
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, CallerError)
        for call in (
            lambda: engine.read(LOG, 1, 2, 1),
            lambda: engine.op_id_at(LOG, 0),
            lambda: engine.collect(LOG, 1),
            lambda: engine.cool(LOG),
            lambda: engine.repair(LOG),
        ):
            with pytest.raises(CallerError):
                call()
        engine.drop(LOG)
        engine.create(LOG, ZERO)
        with pytest.raises(CallerError):
            engine.create(LOG, ZERO)
        engine.close()

    # -- reading ---------------------------------------------------------------------------------

    def test_a_read_returns_at_least_one_entry_and_stops_at_its_byte_limit(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        held = entries(1, 50, size_bytes=100)
        commit(engine, Append(entries=held[:30]))
        commit(engine, Append(entries=held[30:]))
        assert engine.read(LOG, 7, 51, 1) == [held[6]]
        some = engine.read(LOG, 1, 51, 2000)
        assert 1 < len(some) < 50
        assert some == list(held[: len(some)])
        for bytes_max in range(1, 400, 7):
            found = engine.read(LOG, 1, 51, bytes_max)
            assert len(found) == 1 or sum(len(one.body) for one in found) <= bytes_max
        first, found = 1, []
        while first <= 50:
            found.extend(engine.read(LOG, first, 51, 700))
            first = found[-1].op_id.index + 1
        assert found == list(held)
        engine.close()

    def test_reads_outside_the_log_are_refused(self, harness: WalHarness) -> None:
        base = OpId(4, 20)
        engine = harness.open()
        engine.create(LOG, base)
        commit(engine, Append(entries=entries(21, 3, term=4)))
        for first, end in ((20, 22), (1, 24)):
            with pytest.raises(Compacted) as caught:
                engine.read(LOG, first, end, 1)
            assert caught.value.base == base
        for first, end in ((21, 21), (23, 22), (21, 25), (24, 25)):
            with pytest.raises(CallerError):
                engine.read(LOG, first, end, 1)
        assert engine.op_id_at(LOG, 20) == base
        with pytest.raises(Compacted):
            engine.op_id_at(LOG, 19)
        with pytest.raises(CallerError):
            engine.op_id_at(LOG, 24)
        engine.close()

    def test_another_thread_can_read_during_commits_and_cooling(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 1)))
        done = threading.Event()
        wrong: list[object] = []

        def read_on() -> None:
            finished = False
            while not finished:
                finished = done.is_set()
                last = engine.logs()[LOG].last.index
                found = engine.read(LOG, 1, last + 1, READ_BYTES)
                if found != list(entries(1, last)):
                    wrong.append(found)

        reader = threading.Thread(target=read_on)
        reader.start()
        for index in range(2, 200):
            commit(engine, Append(entries=entries(index, 1)))
            if index % 10 == 0:
                engine.cool(LOG)
        done.set()
        reader.join(timeout=60)
        assert not reader.is_alive()
        assert not wrong
        engine.close()

    # -- collection (durability rule 4) ----------------------------------------------------------

    def test_collection_keeps_later_entries_and_remembers_the_base(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model()
        for first in range(1, 400, 8):
            append = Append(entries=entries(first, 8, term=first, size_bytes=200))
            commit(engine, append)
            model = model.append(append)
        before = ZERO
        for upto in (0, 100, 99, 250, 250, 399):
            base = engine.collect(LOG, upto)
            assert before.index <= base.index <= max(upto, before.index)
            assert engine.logs()[LOG].base == base
            check_holds(engine, model)
            before = base
        engine = reopened(harness, engine)
        assert engine.logs()[LOG].base == before
        check_holds(engine, model)
        commit(engine, Append(entries=entries(401, 1, term=500)))
        engine.close()

    def test_a_log_without_entries_goes_on_after_its_base(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 30, term=9)))
        engine = reopened(harness, engine)
        base = engine.collect(LOG, 30)
        engine = reopened(harness, engine)
        state = engine.logs()[LOG]
        assert (state.base, state.last) == (base, OpId(9, 30))
        commit(engine, Append(entries=entries(31, 2, term=9)))
        engine = reopened(harness, engine)
        assert engine.logs()[LOG].last == OpId(9, 32)
        assert engine.op_id_at(LOG, 30) == OpId(9, 30)
        engine.close()

    # -- creation, cooling and removal -----------------------------------------------------------

    def test_a_cooled_log_goes_on_where_it_was(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model()
        for turn in range(1, 12):
            append = Append(entries=entries(3 * turn - 2, 3, term=turn))
            commit(engine, append)
            model = model.append(append)
            engine.cool(LOG)
            engine.cool(LOG)
            check_holds(engine, model)
        engine = reopened(harness, engine)
        check_holds(engine, model)
        engine.close()

    def test_a_dropped_log_is_gone_and_its_name_is_free(self, harness: WalHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
            commit(engine, Append(entries=entries(1, 50, term=3)), log)
        engine.drop(LOG)
        assert set(engine.logs()) == {OTHER}
        engine = reopened(harness, engine)
        assert set(engine.logs()) == {OTHER}
        engine.create(LOG, OpId(1, 4))
        check_holds(engine, Model(OpId(1, 4)))
        commit(engine, Append(entries=entries(5, 1)))
        engine = reopened(harness, engine)
        check_holds(engine, Model(OpId(1, 4), [entry(5)]))
        check_holds(engine, Model(ZERO, list(entries(1, 50, term=3))), OTHER)
        engine.close()

    def test_a_log_set_aside_is_gone_from_the_engine_and_complete_in_its_directory(self, harness: WalHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
            commit(engine, Append(entries=entries(1, 50)), log)
        while engine.copy_aside(LOG, quarantine_of(harness)):
            pass
        check_holds(engine, Model(ZERO, list(entries(1, 50))))
        engine.set_aside(LOG, quarantine_of(harness))
        assert set(engine.logs()) == {OTHER}
        assert harness.files.listdir(quarantine_of(harness))
        engine = reopened(harness, engine)
        assert set(engine.logs()) == {OTHER}
        check_holds(engine, Model(ZERO, list(entries(1, 50))), OTHER)
        check_aside(harness, ZERO, list(entries(1, 50)))
        engine.close()

    def test_a_snapshot_does_not_change(self, harness: WalHarness) -> None:
        needs(harness, "snapshot")
        engine = harness.open()
        engine.create(LOG, ZERO)
        held = entries(1, 300, size_bytes=60)
        for first in range(0, 300, 20):
            commit(engine, Append(entries=held[first : first + 20]))
        with pytest.raises(CallerError):
            engine.snapshot(LOG, 302).release()
        view = engine.snapshot(LOG, 41)
        commit(engine, Append(entries=entries(100, 3, term=2), replace_from=100))
        engine.collect(LOG, 102)
        assert list(view.entries()) == list(held[40:])
        engine.drop(LOG)
        engine.close()
        assert list(view.entries()) == list(held[40:])
        view.release()
        view.release()

    def test_an_open_engine_cannot_be_opened_a_second_time(self, harness: WalHarness) -> None:
        engine = harness.open()
        with pytest.raises(Locked):
            harness.open()
        engine.close()
        engine.close()
        harness.open().close()

    def test_stats_are_numbers_with_lower_case_names(self, harness: WalHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        figures = engine.stats()
        assert figures
        assert all(name == name.lower() and float(value) >= 0 for name, value in figures.items())
        engine.close()
