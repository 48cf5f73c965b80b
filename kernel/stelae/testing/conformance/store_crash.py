"""Conformance checks for stores: crash, reopen, apply the log again."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import count

from stelae.sim.disk import Survival
from stelae.spi.errors import Full
from stelae.testing.conformance.store_apply import random_ops
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness
from stelae.testing.conformance.store_model import StoreModel

KILLED_ENTRIES = 4
"""Number of entries, each with a flush, of the check that kills the process at every operation."""


class CrashChecks:
    """Checks of the rows after a crash, whatever the engine makes durable."""

    def test_after_a_crash_at_any_entry_the_log_restores_every_row(self, harness: StoreHarness) -> None:
        for crash_at in range(1, 13):
            rng = random.Random(crash_at)
            replica, model = harness.replica(), StoreModel(SCHEMA)
            for index in range(1, 13):
                ops = random_ops(rng)
                assert replica.write(*ops) == model.apply(10 * index, ops)
                if index % 3 == 0:
                    replica.flush()
                if index == crash_at:
                    replica.crash(seed=crash_at)
                    assert replica.rows() == model.rows(), crash_at
            assert replica.store.checksum() == model.checksum(), crash_at

    def test_repeated_crashes_change_nothing(self, harness: StoreHarness) -> None:
        rng = random.Random(9)
        replica, model = harness.replica(), StoreModel(SCHEMA)
        for index in range(1, 10):
            ops = random_ops(rng)
            replica.write(*ops)
            model.apply(10 * index, ops)
        for seed in range(4):
            replica.crash(seed)
            assert replica.store.checksum() == model.checksum()

    def test_what_a_start_finds_after_a_kill_at_any_operation_survives_a_later_crash(
        self, harness: StoreHarness
    ) -> None:
        harness.needs("durable_flush")
        harness.needs("fake_files")
        rng = random.Random(4)
        replica, model = harness.replica(), StoreModel(SCHEMA)
        seen: list[str] = []

        def kill(operation: str, path: str) -> None:
            seen.append(operation)
            for survival in (Survival.LOST, Survival.DRAWN):
                twin = replica.after_kill()
                twin.flush()
                twin.crash(len(seen), survival)
                assert twin.rows() == model.rows(), f"killed before operation {len(seen)}, {operation} {path}"

        replica.disk.faults.hook = kill
        for index in range(1, KILLED_ENTRIES + 1):
            ops = random_ops(rng)
            faults = model.apply(10 * index, ops)  # First, because an engine may flush when it applies.
            assert replica.write(*ops) == faults
            replica.flush()
        replica.compact()
        assert len(seen) > KILLED_ENTRIES

    def test_an_edit_that_was_not_committed_leaves_the_previous_state(self, harness: StoreHarness) -> None:
        harness.needs("durable_flush")
        replica = harness.replica()
        replica.insert((1, "a", 1))
        replica.flush()
        replica.insert((2, "b", 2))
        assert replica.store.flush() is not None
        replica.crash()
        assert replica.rows() == [(1, "a", 1), (2, "b", 2)]

    def test_flushed_rows_need_no_log(self, harness: StoreHarness) -> None:
        harness.needs("durable_flush")
        replica = harness.replica()
        replica.insert((1, "a", 1), (2, "b", 2))
        replica.flush()
        replica.open()
        assert replica.store.applied == replica.log[-1].op_id
        assert replica.rows() == [(1, "a", 1), (2, "b", 2)]

    def test_a_flush_that_finds_no_space_at_any_operation_may_be_repeated(self, harness: StoreHarness) -> None:
        """The rows stay in memory, and the next flush makes them durable, with every directory on the way to them."""
        harness.needs("durable_flush")
        harness.needs("fake_files")
        for number in count():
            replica = harness.replica()
            replica.insert((1, "a", 1))
            with suppress(Full):
                if not _meets_a_full_disk(replica, number):
                    break
            assert replica.rows() == [(1, "a", 1)], number
            replica.flush()
            assert replica.flushed == replica.log[-1].op_id, number  # So the log restores nothing.
            replica.crash(seed=number)
            assert replica.rows() == [(1, "a", 1)], number

    def test_an_engine_without_durable_flush_proposes_no_edit_and_starts_empty(self, harness: StoreHarness) -> None:
        if "durable_flush" in harness.engine.capabilities:
            harness.needs("an engine that keeps nothing")
        replica = harness.replica()
        replica.insert((1, "a", 1))
        assert replica.store.flush() is None
        replica.open()
        assert replica.store.applied.index == 0
        assert replica.rows() == []


def _meets_a_full_disk(replica: HarnessReplica, number: int) -> bool:
    """Flush. The operation after ``number`` others that need space finds none. Return whether there was one.

    ``Full``: the flush needed that space."""
    counted = count()
    failed = False

    def refuse(operation: str, path: str) -> None:
        nonlocal failed
        if operation in ("make_directory", "sync_directory", "create", "write") and next(counted) == number:
            failed = True
            raise Full("no space for it", path=path)

    replica.disk.faults.hook = refuse
    try:
        replica.flush()
    finally:
        replica.disk.faults.hook = None
    return failed
