"""The columnar store holds to the store contract, in memory and in blocks, and the suite bites."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stelae.spi.errors import TooOld
from stelae.spi.store import ApplyEntry, ApplyResult
from stelae.testing.conformance.store import StoreConformance, StoreHarness
from stelae.testing.conformance.store_harness import HarnessReplica, upsert
from stelae_store_columnar import ColumnarStore, found_keys
from stelae_store_columnar.config import ColumnarConfig


def tiny() -> ColumnarConfig:
    """Row groups, blocks and merges of a few rows, so that every check meets many of them."""
    return ColumnarConfig(
        row_group_rows=4,
        block_rows_max=12,
        level0_blocks_min=2,
        level0_blocks_max=4,
        merge_step_rows=8,
        garbage_percent_max=10,
        cache_bytes=4000,
    )


def stored_bytes(replica: HarnessReplica) -> int:
    """Length of all Parquet files."""
    return sum(len(data) for path, data in replica.disk.tree().items() if path.endswith(".parquet"))


class Restless(ColumnarStore):
    """Writes blocks after every entry, and merges: what readers see must not change."""

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        return False

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        results = []
        for entry in entries:
            results += super().apply([entry])
            self.flush()
            self.compact()
        return results


class Sluggish(ColumnarStore):
    """Flushes every third entry and never merges: everything overlaps."""

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        return False

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        results = []
        for entry in entries:
            results += super().apply([entry])
            if entry.op_id.index % 3 == 0:
                self.flush()
        return results


class TestInMemory(StoreConformance):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return StoreHarness(ColumnarStore)


class TestInSmallSteps(StoreConformance):
    passed_over_rows = 300

    @pytest.fixture
    def harness(self, monkeypatch: pytest.MonkeyPatch) -> StoreHarness:
        monkeypatch.setattr(found_keys, "TAKE_MIN", 1)  # Row groups have fewer rows than Arrow takes otherwise.
        return StoreHarness(ColumnarStore, tiny)


class TestMerged(StoreConformance):
    passed_over_rows = 300
    applies_whole_groups = False

    @pytest.fixture
    def harness(self) -> StoreHarness:
        return StoreHarness(Restless, tiny)

    def test_memory_of_versions_below_the_floor_is_freed(self, harness: StoreHarness) -> None:
        """Nothing is left in memory here: what the floor lets go of is on disk."""
        replica = harness.replica()
        for _ in range(20):
            replica.write(upsert(*((n, "b", n) for n in range(50))))
        replica.flush()  # Until an edit is committed, all files of earlier ones are there, too.
        many = stored_bytes(replica)
        replica.store.set_history_floor(10 * len(replica.log))
        for _ in range(100):
            replica.store.compact()
        replica.flush()
        assert stored_bytes(replica) < many / 4
        assert len(replica.rows()) == 50


class TestOverlapping(StoreConformance):
    passed_over_rows = 300
    applies_whole_groups = False

    @pytest.fixture
    def harness(self) -> StoreHarness:
        return StoreHarness(Sluggish, lambda: ColumnarConfig(row_group_rows=4, level0_blocks_min=900))

    def test_memory_of_versions_below_the_floor_is_freed(self, harness: StoreHarness) -> None:
        """It is not: this one never merges. The floor is kept all the same."""
        replica = harness.replica()
        replica.insert((1, "a", 1))
        replica.store.set_history_floor(10)
        with pytest.raises(TooOld):
            replica.rows(9)
