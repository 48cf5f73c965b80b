"""Writes of few rows after a flush: the event loop applies them if it needs no file to know which rows exist."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from stelae.rows.batch_building import build_batch
from stelae.rows.keys import encode_key
from stelae.spi.payload import WritePayload
from stelae.spi.write import OpKind, RowCode
from stelae.testing.conformance.store_apply import random_ops
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, faults_of, upsert
from stelae.testing.conformance.store_model import Op, StoreModel
from stelae_store_columnar import ColumnarStore, prepared_writes
from stelae_store_columnar.config import ColumnarConfig

ROWS = 400


def flushed(**options: int) -> HarnessReplica:
    """A store with even keys in blocks, in row groups of 64 rows. None of them are in the cache."""
    replica = StoreHarness(ColumnarStore, lambda: ColumnarConfig(row_group_rows=64, **options)).replica()
    replica.write(upsert(*((2 * n, "a", n) for n in range(ROWS))))
    replica.flush()
    return replica


def insert(*keys: int) -> Op:
    return Op(OpKind.INSERT, [(key, "b", 1) for key in keys])


def update(*keys: int) -> Op:
    return Op(OpKind.UPDATE, [(key, "c") for key in keys], (1, 2))


def applied_inline(replica: HarnessReplica, *ops: Op) -> list[tuple[int, RowCode]] | None:
    """Apply an entry as the event loop does, and return its faults. ``None``: it is the work of a worker."""
    entry = replica.entry(*ops)
    replica.forbid_files()
    try:
        if replica.store.applies_inline([entry]):
            return faults_of(replica.store.apply([entry])[0])
    finally:
        replica.allow_files()
    replica.store.apply([entry])
    return None


def read(replica: HarnessReplica, *keys: int) -> Sequence[object]:
    return replica.store.lookup([encode_key(SCHEMA, (key,)) for key in keys]).rows


def test_new_keys_that_the_filter_denies_are_inserted_on_the_loop() -> None:
    replica = flushed()
    done = [applied_inline(replica, insert(key)) for key in range(1, 199, 2)]
    assert len([one for one in done if one == []]) > 90 and {None} >= {one for one in done if one is None}
    assert applied_inline(replica, insert(-4, 900, 902)) == []
    assert read(replica, 3, 900) == [(3, "b", 1), (900, "b", 1)]


def test_rows_that_exist_are_changed_on_the_loop_once_their_keys_are_cached() -> None:
    replica = flushed()
    assert applied_inline(replica, update(10)) is None
    assert applied_inline(replica, update(12, 14)) == []
    assert applied_inline(replica, delete((16,)), insert(18)) == [(1, RowCode.ALREADY_PRESENT)]
    assert applied_inline(replica, update(300)) is None
    assert read(replica, 10, 12, 16, 18) == [(10, "c", 5), (12, "c", 6), None, (18, "a", 9)]


def test_rows_that_lookups_have_decoded_are_enough() -> None:
    replica = flushed()
    read(replica, 10)
    assert applied_inline(replica, update(12)) == []
    assert applied_inline(replica, update(13)) == [(0, RowCode.NOT_FOUND)]


def test_rows_in_memory_need_no_block() -> None:
    replica = flushed()
    replica.write(upsert((10, "b", 1)), delete((12,)))
    assert applied_inline(replica, update(10), insert(12)) == []


def test_keys_that_the_cache_drops_meanwhile_are_not_read_again() -> None:
    replica = flushed()
    replica.write(update(10))
    entry = replica.entry(update(12), insert(14))
    assert replica.store.applies_inline([entry])
    replica.store._reader.cache.clear()  # type: ignore[attr-defined]
    replica.forbid_files()
    assert faults_of(replica.store.apply([entry])[0]) == [(1, RowCode.ALREADY_PRESENT)]


@pytest.mark.parametrize("decoded", [False, True])
def test_a_deletion_in_a_block_is_known_from_the_cache(decoded: bool) -> None:
    replica = flushed()
    replica.write(delete((10,), (12,), (14,)))
    replica.flush()
    assert applied_inline(replica, update(12)) is None
    if decoded:
        replica.store._reader.cache.clear()  # type: ignore[attr-defined]
        read(replica, 12)
    assert applied_inline(replica, delete((12,))) == [(0, RowCode.NOT_FOUND)]
    assert applied_inline(replica, insert(14)) == []


def test_what_was_found_in_other_blocks_does_not_count() -> None:
    replica = flushed()
    first, second = replica.entry(insert(901)), replica.entry(insert(901))
    assert replica.store.applies_inline([second])
    replica.store.apply([first])
    replica.flush()
    assert faults_of(replica.store.apply([second])[0]) == [(0, RowCode.ALREADY_PRESENT)]


def test_large_rows_are_the_work_of_a_worker() -> None:
    replica = flushed()
    assert applied_inline(replica, Op(OpKind.INSERT, [(901, "x" * 1000, 1)])) == []
    assert applied_inline(replica, Op(OpKind.INSERT, [(903, "x" * prepared_writes.BYTES_MAX, 1)])) is None


def test_a_group_without_rows_needs_no_file() -> None:
    replica = flushed()
    entry = replica.entry(insert(901))
    replica.write(upsert(*((n, "a", n) for n in range(1000, 1100))))
    assert isinstance(entry.change, WritePayload)
    (group,) = entry.change.groups
    empty = msgspec.structs.replace(group, row_count=0, body=build_batch(SCHEMA.project(group.columns), []).to_ipc())
    change = msgspec.structs.replace(entry.change, groups=(empty, group))
    assert replica.store.applies_inline([msgspec.structs.replace(entry, change=change)])


def test_what_was_found_is_not_kept_after_the_write() -> None:
    """It held the rows in memory and the files of blocks that a flush or a merge had replaced."""
    replica = flushed()
    for op in (insert(901), upsert((903, "b", 1)), insert(12)):
        applied_inline(replica, op)
        assert replica.store._prepared is None  # type: ignore[attr-defined]


def test_many_lookups_are_the_work_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = flushed()
    monkeypatch.setattr(prepared_writes, "PROBES_MAX", 3)
    assert applied_inline(replica, insert(901, 903, 905)) == []
    assert applied_inline(replica, insert(907, 909, 911, 913)) is None


def test_entries_applied_on_the_loop_give_what_the_model_gives() -> None:
    for seed in range(4):
        rng = random.Random(seed)
        harness = StoreHarness(ColumnarStore, lambda: ColumnarConfig(row_group_rows=64, cache_bytes=4000))
        replica, model, inline = harness.replica(), StoreModel(SCHEMA), 0
        for index in range(1, 120):
            ops = random_ops(rng)
            found = applied_inline(replica, *ops)
            wanted = model.apply(10 * index, ops)
            assert found is None or found == wanted, (seed, index)
            inline += found is not None
            if rng.random() < 0.2:
                replica.flush()
            if rng.random() < 0.1:
                replica.compact()
        assert replica.rows() == model.rows(), seed
        assert inline > 40, seed
