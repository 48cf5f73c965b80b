"""The memory store holds to the store contract, and the suite bites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stelae.spi.ids import OpId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import ApplyEntry, ApplyResult, Cursor
from stelae.testing.conformance.store import StoreConformance, StoreHarness
from stelae_store_memory import MemoryStore
from stelae_store_memory.view import MemoryCursor


class TestMemory(StoreConformance):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return StoreHarness(MemoryStore)


# -- the suite bites: each planted bug is caught by the check that is named beside it --------------


class AppliesDuplicates(MemoryStore):
    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        return super().apply([ApplyEntry(e.op_id, e.timestamp, e.change) for e in entries])


class AppliesAgain(MemoryStore):
    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        timestamp, _, schema = self._state
        self._state = (timestamp, OpId(0, 0), schema)
        return super().apply(entries)


class ShowsTheFuture(MemoryStore):
    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        return super().scan(spec, None if at is None else max(at, self._floor) + 10)


class ForgetsTheFloor(MemoryStore):
    def _refuse_below_floor(self, timestamp: int) -> None:
        return None


class ForgetsPins(MemoryStore):
    def compact(self) -> None:
        self._pins.clear()
        super().compact()


class MovesCursors(MemoryStore):
    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        cursor = super().scan(spec, at)
        assert isinstance(cursor, MemoryCursor)
        if at is None:
            cursor._view.timestamp = cursor._view.index = 1 << 62
        return cursor


class ResumesAtTheToken(MemoryStore):
    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        cursor = super().scan(spec, at)
        assert isinstance(cursor, MemoryCursor)
        if spec.after is not None:
            cursor._from = max(0, cursor._from - 1)
        return cursor


class CountsLimitsTwice(MemoryStore):
    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        cursor = super().scan(spec, at)
        assert isinstance(cursor, MemoryCursor)
        cursor._left = None if spec.limit is None else 2 * spec.limit
        return cursor


class SumsWithoutTime(MemoryStore):
    def checksum(self, at: int | None = None) -> str:
        return super().checksum(None)


class ExportsThePresentOnly(MemoryStore):
    def export(self) -> Any:
        return (piece for piece in super().export() if not piece.deleted)


class HandsOutAllAtOnce(MemoryStore):
    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        cursor = super().scan(spec, at)
        rows = [row for batch in cursor for row in batch.to_rows()]
        whole = [RowBatch.from_equal_rows(self.schema.project(spec.columns), rows)]
        cursor.next_batch = lambda _=0: whole.pop() if whole else None  # type: ignore[method-assign,assignment,misc]
        return cursor


def wide_batches(suite: StoreConformance, harness: StoreHarness) -> None:
    suite.test_a_batch_of_wide_rows_is_bounded_in_bytes(harness, Order.KEY)


@pytest.mark.parametrize(
    ("engine", "check"),
    [
        (AppliesDuplicates, StoreConformance.test_rows_of_skipped_operations_are_not_applied_and_keep_their_numbers),
        (AppliesAgain, StoreConformance.test_an_entry_at_or_below_applied_is_a_no_op),
        (ShowsTheFuture, StoreConformance.test_a_read_in_the_past_returns_the_rows_of_that_time),
        (ForgetsPins, StoreConformance.test_an_open_cursor_in_the_past_survives_a_higher_floor),
        (MovesCursors, StoreConformance.test_a_cursor_returns_the_rows_of_the_time_when_it_was_opened),
        (ResumesAtTheToken, StoreConformance.test_a_scan_continues_from_a_cursor_that_was_closed_after_any_batch),
        (CountsLimitsTwice, StoreConformance.test_the_limit_holds_over_all_batches_and_counts_matches_only),
        (SumsWithoutTime, StoreConformance.test_a_read_in_the_past_returns_the_rows_of_that_time),
        (HandsOutAllAtOnce, wide_batches),
        (ExportsThePresentOnly, StoreConformance.test_an_export_carries_the_history_to_another_store),
    ],
)
def test_the_suite_catches_a_planted_bug(
    engine: type[MemoryStore], check: Callable[[StoreConformance, StoreHarness], None]
) -> None:
    with pytest.raises(AssertionError):
        check(StoreConformance(), StoreHarness(engine))


def test_the_suite_catches_a_store_that_serves_below_its_floor() -> None:
    check = StoreConformance.test_a_read_below_the_floor_is_too_old_and_one_at_it_is_served
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check(StoreConformance(), StoreHarness(ForgetsTheFloor))
