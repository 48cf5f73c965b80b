"""Blocks that no manifest names: while the store is open, a flush or merge leaves none behind, whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stelae.spi.errors import Corrupt, Full, StorageError, SyncFailed
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness, upsert
from stelae.testing.conformance.store_model import Op
from stelae_store_columnar import ColumnarStore, store
from stelae_store_columnar.block_merging import BlockMerger
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.manifest import decode_manifest

ROWS = range(200)


def merging() -> ColumnarConfig:
    """The fourth block that overlaps others is merged at once, in many steps."""
    return ColumnarConfig(
        row_group_rows=64, level0_blocks_min=2, level0_blocks_max=3, merge_step_rows=64, compression="none"
    )


@pytest.fixture
def replica() -> HarnessReplica:
    return StoreHarness(ColumnarStore, merging).replica()


def overwrite(replica: HarnessReplica, turn: int) -> None:
    replica.write(upsert(*((key, f"{turn}" * 40, turn) for key in ROWS)))


def before_a_merge(replica: HarnessReplica) -> None:
    """Rows that the next flush must write, and merge with the blocks before it."""
    for turn in range(3):
        overwrite(replica, turn)
        replica.flush()
    overwrite(replica, 3)


def files(replica: HarnessReplica) -> set[str]:
    return {path.rpartition("/")[2] for path in replica.disk.tree() if path.endswith((".parquet", ".index"))}


def named(replica: HarnessReplica) -> set[str]:
    """The files that the committed manifest names."""
    manifest = decode_manifest(replica.manifest, "")
    numbers = [live.number for live in (*manifest.level0, *manifest.level1)]
    return {f"{number:08d}.{suffix}" for number in numbers for suffix in ("parquet", "index")}


def used_bytes(replica: HarnessReplica) -> int:
    return sum(map(len, replica.disk.tree().values()))


def newest(replica: HarnessReplica, turn: int) -> bool:
    return replica.rows() == [(key, f"{turn}" * 40, turn) for key in ROWS]


def test_a_flush_that_merges_its_own_block_leaves_only_named_files(replica: HarnessReplica) -> None:
    for turn in range(12):
        overwrite(replica, turn)
        replica.flush()
        assert files(replica) == named(replica), turn


def test_an_import_that_merges_its_own_blocks_leaves_only_named_files(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "IMPORT_BYTES", 20_000)
    source = StoreHarness(ColumnarStore, merging).replica()
    for turn in range(20):
        overwrite(source, turn)
    replica.store.import_(source.store.export(), source.store.applied)
    replica.flush()
    assert files(replica) == named(replica)
    assert newest(replica, 19)


def test_a_flush_with_space_for_its_block_and_not_for_the_merge_succeeds(replica: HarnessReplica) -> None:
    before_a_merge(replica)
    replica.disk.faults.capacity_bytes = used_bytes(replica) + 32_000
    replica.flush()
    assert replica.flushed == replica.log[-1].op_id
    assert replica.store.memory_bytes() == 0
    assert files(replica) == named(replica)
    for _ in range(3):  # A merge that is tried again and again does not fill the disk.
        with pytest.raises(Full):
            replica.compact()
        assert files(replica) == named(replica)
    replica.disk.faults.heal()
    replica.compact()
    assert files(replica) == named(replica)
    replica.crash()
    assert newest(replica, 3)


def test_the_steps_of_a_merge_before_the_one_without_space_count(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_a_merge(replica)
    step, steps = BlockMerger.merge_step, iter([None, None, Full("no space")])

    def merge_step(self: BlockMerger, *given: object) -> object:
        error = next(steps)
        if error is not None:
            raise error
        return step(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(BlockMerger, "merge_step", merge_step)
    replica.flush()
    manifest = decode_manifest(replica.manifest, "")
    assert manifest.level0 and all(live.start is not None for live in manifest.level0), "two steps of the round"
    assert files(replica) == named(replica)
    replica.crash()
    assert newest(replica, 3)


def test_a_read_that_fails_in_the_merge_of_a_flush_does_not_fail_the_flush(replica: HarnessReplica) -> None:
    before_a_merge(replica)
    replica.disk.faults.fail_reads()
    replica.flush()
    assert replica.flushed == replica.log[-1].op_id
    assert files(replica) == named(replica)
    assert newest(replica, 3)


@pytest.mark.parametrize("error", [Corrupt("damage"), SyncFailed("no sync"), MemoryError()])
def test_another_error_of_the_merge_leaves_no_file_and_fails_the_flush(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    before_a_merge(replica)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(BlockMerger, "merge_step", fail)
    for _ in range(3):
        with pytest.raises(type(error)):
            replica.store.flush()
        assert files(replica) == named(replica)
    assert newest(replica, 3)


def test_a_flush_whose_own_block_cannot_be_written_leaves_no_file(replica: HarnessReplica) -> None:
    before_a_merge(replica)
    replica.disk.faults.capacity_bytes = used_bytes(replica) + 1_000
    for _ in range(3):
        with pytest.raises(Full):
            replica.store.flush()
        assert files(replica) == named(replica)


def test_a_flush_that_must_read_what_cannot_be_read_leaves_no_file() -> None:
    """A partial row is written whole, so the flush reads the blocks below it."""
    replica = StoreHarness(ColumnarStore, lambda: replace(merging(), cache_bytes=0)).replica()
    overwrite(replica, 0)
    replica.flush()
    replica.open()
    replica.write(Op(OpKind.UPDATE, [(7, 99)], (1, 3)))
    replica.disk.faults.fail_reads()
    with pytest.raises(StorageError):
        replica.store.flush()
    assert files(replica) == named(replica)


@pytest.mark.parametrize("operation", ["open", "remove"])
@pytest.mark.parametrize("error", [Full("no handle"), StorageError("input/output error")])
def test_obsolete_files_that_cannot_be_removed_now_are_removed_later(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch, operation: str, error: StorageError
) -> None:
    """The edit is durable, so nothing depends on the removal: the replica need not fail."""
    before_a_merge(replica)
    edit = replica.store.flush()
    assert edit is not None and edit.obsolete
    replica.manifest, replica.flushed = edit.manifest, edit.flushed

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(replica.disk, operation, fail)
        replica.store.commit(edit)
    assert set(edit.obsolete) <= files(replica)
    assert newest(replica, 3)
    overwrite(replica, 4)
    replica.flush()
    assert files(replica) == named(replica)
    assert newest(replica, 4)


def test_obsolete_files_that_cannot_be_removed_are_removed_by_the_next_start(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("input/output error")

    before_a_merge(replica)
    with monkeypatch.context() as patched:
        patched.setattr(replica.disk, "remove", fail)
        replica.flush()
    assert files(replica) > named(replica)
    replica.open()
    assert files(replica) == named(replica)
