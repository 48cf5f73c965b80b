"""Space: a map that never grows in flight, a disk that is full, and readers that hold nothing between two calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stelae.spi.errors import Full, TooOld
from stelae.spi.scan import Order, ScanSpec
from stelae.testing.conformance.store_harness import delete, upsert
from stelae_store_lmdb import LmdbStore
from stelae_store_lmdb.config import LmdbStoreConfig
from stelae_store_lmdb.environment import Environment
from tests.conformance.lmdb_store import LmdbHarness, LmdbReplica, checks_here, tiny

MAP_BYTES = 1 << 20


@pytest.fixture
def replica(tmp_path: Path) -> LmdbReplica:
    return LmdbHarness(LmdbStore, tiny, root=str(tmp_path)).replica()


def env_of(replica: LmdbReplica) -> Any:
    return replica.store._environment.env  # type: ignore[attr-defined]


def test_an_open_cursor_holds_no_transaction(replica: LmdbReplica) -> None:
    replica.insert(*((n, "a", n) for n in range(100)))
    replica.flush()
    cursors = [replica.store.scan(ScanSpec(order=Order.KEY)) for _ in range(3)]
    rows = [cursor.next_batch(9) for cursor in cursors]
    changes = replica.store.diff(0, 10, ScanSpec())
    batches = replica.store.export()
    next(changes)
    next(batches)
    env = env_of(replica)
    assert env.figures()["readers"] == 0
    assert not [line for line in env._env.readers().splitlines()[1:] if not line.endswith(" -")], env._env.readers()
    for cursor in cursors:
        cursor.close()
    assert [len(batch) for batch in rows if batch] == [9, 9, 9]


def test_an_open_cursor_outlives_flushes_and_compaction(replica: LmdbReplica) -> None:
    replica.insert(*((n, "old", n) for n in range(60)))
    with replica.store.scan(ScanSpec(order=Order.KEY)) as early:
        first = early.next_batch(7)
        replica.flush()
        with replica.store.scan(ScanSpec(order=Order.KEY_DESCENDING)) as late:
            replica.write(upsert(*((n, "new", n) for n in range(0, 80, 2))), delete(*((n,) for n in range(1, 60, 4))))
            replica.flush()
            replica.store.set_history_floor(10 * len(replica.log))
            for _ in range(50):
                replica.store.compact()
            assert first is not None
            found = first.to_rows() + [row for batch in early for row in batch.to_rows()]
            assert found == [(n, "old", n) for n in range(60)]
            assert [row for batch in late for row in batch.to_rows()] == found[::-1]
    for _ in range(50):
        replica.store.compact()
    with env_of(replica).read() as txn:
        versions = sum(bytes(key)[:1] == b"\x03" for key, _ in txn.cursor())
    assert versions == len(replica.rows()), "once they are closed, all of it goes"


def test_the_map_stays_as_it_is_and_grows_at_the_next_start(tmp_path: Path) -> None:
    def small() -> LmdbStoreConfig:
        return LmdbStoreConfig(map_bytes=MAP_BYTES, file_growth_bytes=1 << 16, reserve_bytes=1 << 16)

    replica = LmdbHarness(LmdbStore, small, root=str(tmp_path)).replica()
    flushed = 0
    with pytest.raises(Full, match="raise map_bytes and restart"):
        for turn in range(40):
            replica.insert(*((n, "x" * 400, n) for n in range(100 * turn, 100 * turn + 100)))
            replica.flush()
            flushed += 100
    assert flushed > 500
    assert env_of(replica).figures()["map_bytes"] == MAP_BYTES
    assert len(replica.rows()) == flushed + 100
    assert replica.store.memory_bytes() > 0
    with checks_here():
        replica.crash()
    assert env_of(replica).figures()["map_bytes"] > MAP_BYTES
    replica.flush()
    assert replica.store.memory_bytes() == 0
    assert len(replica.rows()) == flushed + 100


def test_a_full_disk_keeps_rows_in_memory_until_there_is_space(replica: LmdbReplica) -> None:
    replica.files.limit(1 << 20)
    written = 0
    with pytest.raises(Full, match="the disk is full"):
        for turn in range(40):
            replica.insert(*((n, "x" * 400, n) for n in range(100 * turn, 100 * turn + 100)))
            written += 100
            replica.flush()
    assert written > 500
    assert replica.data.stat().st_size <= 1 << 20
    assert replica.store.memory_bytes() > 0
    assert len(replica.rows()) == written
    replica.files.limit(None)
    replica.flush()
    assert replica.store.memory_bytes() == 0
    with checks_here():
        replica.open()
    assert len(replica.rows()) == written


def test_compaction_frees_a_full_disk(replica: LmdbReplica) -> None:
    replica.files.limit(1 << 20)
    with pytest.raises(Full):
        for turn in range(60):
            replica.write(upsert(*((n, f"{turn}" * 200, n) for n in range(100))))
            replica.flush()
    replica.store.set_history_floor(10 * len(replica.log))
    for _ in range(100):
        replica.store.compact()
    replica.flush()
    assert replica.store.memory_bytes() == 0
    assert replica.data.stat().st_size <= 1 << 20
    assert len(replica.rows()) == 100


def wide() -> LmdbStoreConfig:
    """A small reserve, and transactions of a thousand rows."""
    return LmdbStoreConfig(map_bytes=1 << 26, file_growth_bytes=1 << 16, reserve_bytes=1 << 16)


def nearly_full(root: Path) -> LmdbReplica:
    """A replica whose disk has no space for all removals of one list, beside rows that are not flushed."""

    replica = LmdbHarness(LmdbStore, wide, root=str(root)).replica()
    for value in "xy":
        replica.write(upsert(*((n, value * 1000, n) for n in range(1000))))
        replica.flush()
    replica.files.limit(replica.data.stat().st_size)
    with pytest.raises(Full):
        for turn in range(10, 100):
            replica.insert(*((n, "z" * 1000, n) for n in range(100 * turn, 100 * turn + 100)))
            replica.flush()
    replica.files.limit(replica.data.stat().st_size + (5 << 17))
    replica.store.set_history_floor(10 * len(replica.log))
    return replica


def test_a_flush_whose_compaction_finds_no_space_is_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows were durable and no longer in memory, but the flush failed: no superblock named them, and the log grew
    on the full disk."""

    def no_space(*_: object) -> bool:
        raise Full("no space to remove versions", path="data.mdb")

    replica = nearly_full(tmp_path)
    monkeypatch.setattr("stelae_store_lmdb.store_environment.compact_list", no_space)
    replica.flush()
    assert replica.flushed == replica.log[-1].op_id
    expected = replica.rows()
    with checks_here():
        replica.crash()
    assert replica.rows() == expected


def test_compaction_removes_few_versions_where_there_is_no_space_to_remove_all(tmp_path: Path) -> None:
    """A list has a thousand keys, each perhaps on a page of its own. The reserve has fewer pages than that."""
    replica = nearly_full(tmp_path)
    replica.flush()
    expected = replica.rows()
    for _ in range(100):
        replica.compact(1)
    with env_of(replica).read() as txn:
        assert sum(bytes(key)[:1] == b"\x03" for key, _ in txn.cursor()) == len(expected)
    assert replica.rows() == expected


def test_a_start_takes_a_flush_back_a_few_versions_at_a_time_where_there_is_no_space_for_all(tmp_path: Path) -> None:
    """It copied the pages of a thousand versions at once. On a full disk the tablet did not start."""

    replica = LmdbHarness(LmdbStore, wide, root=str(tmp_path)).replica()
    rows = [(n, "x" * 1000, n) for n in range(1000)]
    replica.insert(*rows)
    replica.flush()
    replica.write(upsert(*((n, "y" * 1000, n) for n in range(1000))))
    replica.store.flush()
    replica.files.limit(replica.data.stat().st_size)
    with checks_here():
        replica.open()
    assert replica.store.applied == replica.log[0].op_id
    assert replica.rows() == rows
    with env_of(replica).read() as txn:
        assert sum(bytes(key)[:1] == b"\x03" for key, _ in txn.cursor()) == len(rows)


def test_freed_pages_are_used_again(replica: LmdbReplica) -> None:
    used = []
    for turn in range(30):
        replica.write(upsert(*((n, f"{turn}" * 50, n) for n in range(150))))
        replica.flush()
        replica.store.set_history_floor(10 * len(replica.log))
        for _ in range(40):
            replica.store.compact()
        used.append(env_of(replica).figures()["used_bytes"])
    assert used[-1] <= 1.3 * used[7]
    assert len(replica.rows()) == 150


def test_a_deletion_in_memory_hides_the_row_in_the_environment(replica: LmdbReplica) -> None:
    replica.insert((1, "a", 1), (2, "b", 2))
    replica.flush()
    replica.write(delete((1,)))
    replica.store.set_history_floor(10 * len(replica.log))
    for _ in range(3):
        replica.store.compact()
    assert replica.rows() == [(2, "b", 2)]
    replica.flush()
    for _ in range(3):
        replica.store.compact()
    assert replica.rows() == [(2, "b", 2)]


def test_the_floor_that_compaction_used_holds_after_a_restart_that_knows_no_better(replica: LmdbReplica) -> None:
    replica.insert((1, "a", 1))
    replica.write(upsert((1, "b", 2)))
    replica.flush()
    replica.store.set_history_floor(20)
    assert replica.store.compact() is not None
    with checks_here():
        replica.open()
    with pytest.raises(TooOld):
        replica.rows(10)
    assert replica.rows(20) == [(1, "b", 2)]


def test_a_flush_beside_a_step_hides_nothing_and_repeats_nothing(
    replica: LmdbReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.insert(*((n, "a", n) for n in range(30)))
    replica.flush()
    read = Environment.read
    due = True

    @contextmanager
    def flushed_meanwhile(env: Environment) -> Iterator[Any]:
        nonlocal due
        with read(env) as txn:
            if due:
                due = False
                replica.flush()
            yield txn

    replica.insert(*((n, "b", n) for n in range(30, 60)))
    replica.write(upsert(*((n, "c", n) for n in range(0, 60, 3))))
    expected = replica.rows()
    monkeypatch.setattr(Environment, "read", flushed_meanwhile)
    with replica.store.scan(ScanSpec(order=Order.KEY)) as cursor:
        assert [row for batch in cursor for row in batch.to_rows()] == expected
    assert not due
    assert len(expected) == 60
    assert replica.store.memory_bytes() == 0


def test_a_read_in_the_past_does_not_keep_what_a_later_cursor_needs_not(replica: LmdbReplica) -> None:
    for turn in range(5):
        replica.write(upsert((1, f"t{turn}", turn)))
    replica.flush()
    replica.store.set_history_floor(30)
    with replica.store.scan(ScanSpec(), 30) as cursor:
        replica.store.set_history_floor(50)
        replica.store.compact()
        assert [row for batch in cursor for row in batch.to_rows()] == [(1, "t2", 2)]
    replica.store.compact()
    with env_of(replica).read() as txn:
        assert sum(bytes(key)[:1] == b"\x03" for key, _ in txn.cursor()) == 1
    assert replica.rows(50) == [(1, "t4", 4)]
