"""Conformance checks for log engines: a log that is collected while it is written.

An engine may reuse the space of collected entries. Collected entries never come back, and a snapshot that was taken
before still reads them."""

from __future__ import annotations

from stelae.sim.disk import Survival
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO
from stelae.spi.log import Entry
from stelae.spi.wal import Append, Durable, WalEngine, WalSnapshot
from stelae.testing.conformance.wal_basics import needs
from stelae.testing.conformance.wal_crash_scenarios import (
    FATES,
    CrashStep,
    append,
    check_after_crash,
    collect,
    create,
    moments,
)
from stelae.testing.conformance.wal_cut_files import WalCutFiles
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, commit, entries

GROUPS = 90
HELD = 6
BODY_BYTES = 3500


def appended_and_collected() -> list[CrashStep]:
    """Return steps that append groups of one size and collect old ones.

    In reused space, a later group is at the same offset as an older one."""
    steps = [create(LOG, ZERO)]
    for index in range(1, GROUPS + 1):
        steps.append(append(a=Append(entries=entries(index, 1, size_bytes=BODY_BYTES), commit_hint=index)))
        if index % 4 == 0 and index > HELD:
            steps.append(collect(index - HELD))
    return steps


def append_and_collect(engine: WalEngine, upto: int) -> None:
    """Append groups of one entry up to an index, and collect all but the last few."""
    for index in range(engine.logs()[LOG].last.index + 1, upto + 1):
        commit(engine, Append(entries=entries(index, 1, size_bytes=BODY_BYTES), commit_hint=index))
        if index % 4 == 0 and index > HELD:
            engine.collect(LOG, index - HELD)


def _entries_of(view: WalSnapshot) -> list[Entry]:
    try:
        return list(view.entries())
    except Corrupt as error:
        raise AssertionError(f"the snapshot is damaged: {error}") from error


class WalCollection(WalCutFiles):
    """Adds checks on a log that is collected while it is written."""

    def test_a_crash_while_a_log_is_written_and_collected_keeps_acknowledged_entries(
        self, harness: VirtualHarness
    ) -> None:
        steps = appended_and_collected()
        for operations, moment in enumerate(moments(harness, steps)):
            check_after_crash(*moment.crashed(harness, operations, FATES[operations % len(FATES)]))

    def test_collecting_beside_an_unsynced_replacement_keeps_the_old_suffix_or_a_prefix_of_the_new_one(
        self, harness: VirtualHarness
    ) -> None:
        for first in range(2, 32, 3):
            for survival in (Survival.LOST, Survival.DRAWN):
                self._collect_beside_replacement(harness.fork(first), first, survival)

    def _collect_beside_replacement(self, harness: VirtualHarness, first: int, survival: Survival) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        old = entries(1, 30, size_bytes=400)
        for entry in old:
            commit(engine, Append(entries=(entry,)))
        new = entries(first, 2, term=2)
        assert isinstance(engine.commit({LOG: Append(entries=new, replace_from=first)}, sync=False)[LOG], Durable)
        base = engine.collect(LOG, first + 1).index
        harness.crash(engine, survival)
        engine = harness.open()
        state = engine.logs()[LOG]
        assert state.damage is None, state.damage
        replaced = [[*old[: first - 1], *new[:count]] for count in (1, 2)]
        held = (
            engine.read(LOG, state.base.index + 1, state.last.index + 1, READ_BYTES) if state.last > state.base else []
        )
        assert state.base.index in (0, base)
        assert held in [one[state.base.index :] for one in (list(old), *replaced)]
        engine.close()

    def test_a_snapshot_stays_readable_while_its_entries_are_collected(self, harness: VirtualHarness) -> None:
        needs(harness, "snapshot")
        engine = harness.open()
        engine.create(LOG, ZERO)
        append_and_collect(engine, 2 * GROUPS)
        state = engine.logs()[LOG]
        held = engine.read(LOG, state.base.index + 1, state.last.index + 1, READ_BYTES)
        view = engine.snapshot(LOG, state.base.index + 1)
        append_and_collect(engine, 5 * GROUPS)
        assert engine.logs()[LOG].base > state.last, "every entry of the snapshot is collected"
        assert _entries_of(view) == held
        view.release()
        assert engine.logs()[LOG].damage is None
        engine.close()


__all__ = ["WalCollection"]
