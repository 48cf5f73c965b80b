"""The store ``lmdb`` holds to the store contract: in memory, in the environment, and with both in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.testing.conformance.store import StoreConformance, StoreHarness
from stelae.testing.conformance.store_harness import upsert
from stelae_store_lmdb import LmdbStore
from tests.conformance.lmdb_store import LmdbHarness, LmdbReplica, Restless, checks_here, tiny

FEW = 300
"""More rows than a cursor examines for a batch of 100; each transaction of ``tiny`` takes 8."""


@pytest.fixture(autouse=True)
def _checked_here() -> Iterator[None]:
    with checks_here():
        yield


def rows_in(replica: LmdbReplica) -> int:
    """How many versions the environment holds."""
    env = replica.store._environment.env  # type: ignore[attr-defined]
    with env.read() as txn:
        return sum(bytes(key)[:1] in (b"\x03", b"\x04") for key, _ in txn.cursor())


class TestInMemory(StoreConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        return LmdbHarness(LmdbStore, root=str(tmp_path))


class TestInSmallSteps(StoreConformance):
    passed_over_rows = FEW

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        return LmdbHarness(LmdbStore, tiny, root=str(tmp_path))


class TestFlushedAhead(StoreConformance):
    """Every entry is in the environment and no superblock knows: all is taken back by each crash."""

    passed_over_rows = FEW
    applies_whole_groups = False

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        return LmdbHarness(Restless, tiny, root=str(tmp_path))

    def test_memory_of_versions_below_the_floor_is_freed(self, harness: StoreHarness) -> None:
        """Nothing is left in memory here, and nothing leaves the environment before it is committed."""
        replica = harness.replica()
        assert isinstance(replica, LmdbReplica)
        for _ in range(20):
            replica.write(upsert(*((n, "b", n) for n in range(50))))
        assert replica.store.memory_bytes() == 0
        replica.store.set_history_floor(10 * len(replica.log))
        replica.store.compact()
        assert rows_in(replica) == 20 * 50


class TestCommitted(StoreConformance):
    """Every entry is flushed, committed and compacted."""

    passed_over_rows = FEW

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        return LmdbHarness(LmdbStore, tiny, root=str(tmp_path), committing=True)

    def test_an_edit_that_was_not_committed_leaves_the_previous_state(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        assert isinstance(replica, LmdbReplica)
        replica.insert((1, "a", 1))
        replica.committing = False
        replica.insert((2, "b", 2))
        assert replica.store.flush() is not None
        replica.crash()
        assert replica.store.applied == replica.log[-1].op_id
        assert replica.flushed == replica.log[0].op_id
        assert replica.rows() == [(1, "a", 1), (2, "b", 2)]

    def test_memory_of_versions_below_the_floor_is_freed(self, harness: StoreHarness) -> None:
        """Nothing is left in memory here: what the floor lets go of is in the environment."""
        replica = harness.replica()
        assert isinstance(replica, LmdbReplica)
        for _ in range(20):
            replica.write(upsert(*((n, "b", n) for n in range(50))))
        assert rows_in(replica) == 20 * 50
        replica.store.set_history_floor(10 * len(replica.log))
        for _ in range(200):
            replica.store.compact()
        assert rows_in(replica) == 50
        assert len(replica.rows()) == 50
