"""Lookups of the columnar store: which keys the event loop may decide, what stays decoded, and who else is at work."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.rows.found_rows import plain_rows
from stelae.rows.keys import encode_key
from stelae.spi.services import SharedParts
from stelae.spi.store import FoundRows
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import DIRECTORY, SCHEMA, HarnessReplica, StoreHarness, delete, upsert
from stelae.testing.conformance.store_model import Op
from stelae_store_columnar import ColumnarStore, found_keys, point_lookup
from stelae_store_columnar.block import ColumnarBlock
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.decoded_cache import DecodedCache
from stelae_store_columnar.point_lookup import PointLookup


def keyed(*keys: int) -> list[bytes]:
    return [encode_key(SCHEMA, (key,)) for key in keys]


def filled(rows: int = 400, **options: Any) -> HarnessReplica:
    """A store with even keys in blocks, in row groups of 64 rows."""
    replica = StoreHarness(ColumnarStore, lambda: ColumnarConfig(row_group_rows=64, **options)).replica()
    replica.write(upsert(*((2 * n, "a", n) for n in range(rows))))
    replica.flush()
    return replica


def unread(replica: HarnessReplica, *keys: int) -> list[int]:
    replica.forbid_files()
    try:
        return [*replica.store.lookup_inline(keyed(*keys)).unread]
    finally:
        replica.allow_files()


def test_the_loop_decides_the_keys_of_a_row_group_once_it_is_decoded() -> None:
    replica = filled()
    assert unread(replica, 10, 200, 12) == [0, 1, 2]
    assert replica.store.lookup(keyed(10)).rows == [(10, "a", 5)]
    assert unread(replica, 10, 200, 12) == [1]


def test_the_filter_decides_keys_that_no_row_group_holds() -> None:
    replica = filled()
    odd = range(1, 799, 2)
    assert len(unread(replica, *odd)) < 20
    assert unread(replica, -4, 900) == []


def test_rows_in_memory_need_no_block() -> None:
    replica = filled()
    replica.write(upsert((10, "b", 1)), delete((12,)))
    assert unread(replica, 10, 12, 14) == [2]
    assert replica.store.lookup(keyed(10, 12, 14)).rows == [(10, "b", 1), None, (14, "a", 7)]


def test_a_cached_row_group_does_not_hide_a_later_deletion() -> None:
    replica = filled()
    before = replica.store.lookup(keyed(10))
    replica.write(delete((10,)))
    assert before.rows == [(10, "a", 5)]
    assert replica.store.lookup_inline(keyed(10)).rows == replica.store.lookup(keyed(10)).rows == [None]
    assert replica.store.lookup(keyed(10), 10).rows == before.rows
    replica.flush()
    assert replica.store.lookup(keyed(10)).rows == [None]


def test_a_version_later_than_the_time_is_passed_over_without_reading_its_block() -> None:
    replica = filled()
    assert unread(replica, 10) == [0]
    replica.forbid_files()
    assert replica.store.lookup(keyed(10), 9).rows == [None]


@pytest.mark.parametrize("cache_bytes", [0, 3000, 20_000])
def test_decoded_row_groups_stay_within_the_cache(cache_bytes: int) -> None:
    replica = filled(cache_bytes=cache_bytes)
    for key in range(0, 800, 10):
        assert replica.store.lookup(keyed(key)).rows == [(key, "a", key // 2)]
    store: Any = replica.store
    assert store._reader.cache.size_bytes <= cache_bytes


def test_keys_of_one_call_decode_each_row_group_once_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = filled(cache_bytes=0)
    decoded: list[int] = []
    inner = ColumnarBlock.decoded_rows

    def counting(self: Any, row_group: int) -> Any:
        decoded.append(row_group)
        return inner(self, row_group)

    monkeypatch.setattr(ColumnarBlock, "decoded_rows", counting)
    replica.store.lookup(keyed(*range(0, 800, 2), *range(798, 0, -2)))
    assert decoded == [*range(7)]


def test_a_large_chunk_is_sorted_by_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_lookup, "INLINE_VERSIONS_MAX", 100)
    replica = StoreHarness(ColumnarStore).replica()
    replica.write(upsert(*((n, "a", n) for n in reversed(range(101)))))
    assert unread(replica, 5) == [0]
    assert replica.store.lookup(keyed(5)).rows == [(5, "a", 5)]
    assert unread(replica, 5) == []


def test_a_key_with_many_versions_is_looked_up_by_a_worker() -> None:
    """A counter that was updated 6000 times since its row was written took 20 ms of the event loop, in each lookup."""
    replica = StoreHarness(ColumnarStore).replica()
    replica.write(upsert(*((n, "a", n) for n in range(10))))
    for turn in range(400):
        replica.write(Op(OpKind.UPDATE, [(5, turn)], (1, 3)))
    assert unread(replica, 4, 5, 6) == [1]
    assert replica.store.lookup(keyed(5)).rows == [(5, "a", 399)]
    assert [*replica.store.lookup_inline(keyed(5), 10).unread] == [0]


def test_the_versions_of_a_row_are_read_once() -> None:
    """Each read of a counter read all of its versions, or gave it to a worker."""
    replica = StoreHarness(ColumnarStore).replica()
    replica.write(upsert(*((n, "a", n) for n in range(10))))
    for turn in range(point_lookup.INLINE_KEY_VERSIONS_MAX + 10):
        replica.write(Op(OpKind.UPDATE, [(5, turn)], (1, 3)))
    assert unread(replica, 4, 5, 6) == [1]
    replica.store.lookup(keyed(5))
    assert unread(replica, 4, 5, 6) == []
    for turn in range(point_lookup.INLINE_KEY_VERSIONS_MAX - 10):
        replica.write(Op(OpKind.UPDATE, [(5, 1000 + turn)], (1, 3)))
    assert replica.store.lookup_inline(keyed(5)).rows == [(5, "a", 1000 + turn)]
    replica.write(Op(OpKind.UPDATE, [(5, None)], (1, 2)), Op(OpKind.UPDATE, [(5, -1)], (1, 3)))
    assert replica.store.lookup_inline(keyed(5)).rows == [(5, None, -1)]


def test_many_keys_with_some_versions_each_do_not_hold_up_the_loop_together() -> None:
    """The first lookup of 1024 keys with 250 versions each took 300 ms of the event loop."""
    replica = StoreHarness(ColumnarStore).replica()
    keys = [*range(300)]
    replica.write(upsert(*((key, "a", key) for key in keys)))
    for turn in range(20):
        replica.write(Op(OpKind.UPDATE, [(key, turn) for key in keys], (1, 3)))
    replica.rows()  # Sorts the chunks.
    left = unread(replica, *keys)
    assert 300 - len(left) <= point_lookup.INLINE_VERSIONS_MAX / 21 < 300
    assert list(plain_rows(replica.store.lookup(keyed(*keys)))) == [(key, "a", 19) for key in keys]
    assert unread(replica, *keys) == []


def test_a_reader_of_an_earlier_state_takes_nothing_of_a_later_entry_with_the_same_timestamp() -> None:
    """A completed row of the later state was taken for the columns that the versions of the earlier one lacked."""
    replica = StoreHarness(ColumnarStore).replica()
    replica.write(upsert((5, "a", 0)))
    for turn in range(5):
        replica.write(Op(OpKind.UPDATE, [(5, turn)], (1, 3)))
    store: Any = replica.store
    earlier = PointLookup(store._state, None, store._order, store._reader.cache, inline=False)
    last = replica.log[-1].timestamp
    replica.write(Op(OpKind.UPDATE, [(5, "b")], (1, 2)), Op(OpKind.UPDATE, [(5, 99)], (1, 3)), timestamp=last)
    assert store.lookup(keyed(5)).rows == [(5, "b", 99)]
    assert earlier.find(keyed(5)).rows == [(5, "a", 4)]


@pytest.mark.parametrize("count", [100, 300])
def test_a_lookup_returns_the_rows_of_its_time_while_the_store_is_written_flushed_and_merged(count: int) -> None:
    """The rows of more than 128 keys come as a batch."""
    replica = filled(count, level0_blocks_min=2, level0_blocks_max=3)
    keys, problems = keyed(*range(0, 2 * count, 2)), []
    expected = [(n, "a", n // 2) for n in range(0, 2 * count, 2)]
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = replica.store.lookup(keys, 10)
            inline = replica.store.lookup_inline(keys, 10)
            decided = [row for n, row in enumerate(plain_rows(inline)) if n not in inline.unread]
            wanted = [row for n, row in enumerate(expected) if n not in inline.unread]
            if list(plain_rows(found)) != expected or decided != wanted:
                problems.append((found, inline))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(30):
        replica.write(upsert(*((n, "b", turn) for n in range(turn, 2 * count, 3))))
        replica.write(delete((turn,)))
        if turn % 4 == 0:
            replica.flush()
            replica.compact(1)
    done.set()
    for reader in readers:
        reader.join()
    assert problems == []


def filled_in_a_node(shared: SharedParts, text: str) -> HarnessReplica:
    """A store like the others of its node, but on a disk of its own: its files have the same names as theirs."""
    config = ColumnarConfig(row_group_rows=64, cache_bytes=1 << 20)
    replica = StoreHarness(ColumnarStore, lambda: config).replica()
    services: Any = SimpleNamespace(files=replica.disk, shared=shared)
    replica.store = ColumnarStore.open(DIRECTORY, b"", replica.flushed, replica.schemas, config, services)
    replica.write(upsert(*((2 * n, text, n) for n in range(400))))
    replica.flush()
    return replica


def test_stores_of_a_node_share_a_cache_and_see_only_their_own_rows_in_it() -> None:
    shared = SharedParts()
    one, other = filled_in_a_node(shared, "one"), filled_in_a_node(shared, "other")
    cache = shared.part(DecodedCache, lambda: DecodedCache(0))
    assert one.store.lookup(keyed(10)).rows == [(10, "one", 5)]
    of_one = cache.size_bytes
    assert unread(other, 10) == [0]
    assert other.store.lookup(keyed(10)).rows == [(10, "other", 5)]
    assert 0 < of_one < cache.size_bytes
    one.store.close()
    assert 0 < cache.size_bytes <= of_one * 1.1
    assert unread(other, 10) == []
    other.store.close()
    assert cache.size_bytes == 0


def test_rows_that_are_too_large_for_one_batch_are_plain_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow joins no values of a column that have 2 GiB together: every such call failed."""
    monkeypatch.setattr(found_keys, "BATCH_BYTES_MAX", 1000)
    replica = filled(300)
    keys = [*range(400), 4, 4, 1]
    found = replica.store.lookup(keyed(*keys))
    assert isinstance(found, FoundRows)
    assert list(found.rows) == [None if key % 2 else (key, "a", key // 2) for key in keys]
