"""What is the store's own: readers beside a writer, imports in batches, schemas alone, keys that narrow a scan."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from stelae.rows.keys import encode_key
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import Corrupt, FutureVersion, StorageError, Unsupported
from stelae.spi.scan import Compare, In, Order, ScanSpec
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import SCHEMA, StoreHarness, delete, upsert
from stelae.testing.conformance.store_history import with_random_entries
from stelae.testing.conformance.store_model import Op
from stelae.testing.conformance.store_shapes import changed
from stelae_store_lmdb import LmdbStore, store
from stelae_store_lmdb.key_ranges import key_range
from stelae_store_lmdb.manifest import decode_manifest
from stelae_store_memory import MemoryStore
from tests.conformance.lmdb_store import LmdbHarness, LmdbReplica, checks_here, tiny


@pytest.fixture
def replica(tmp_path: Path) -> LmdbReplica:
    return LmdbHarness(LmdbStore, tiny, root=str(tmp_path)).replica()


def test_readers_in_other_threads_see_whole_entries_whatever_is_flushed_and_compacted(replica: LmdbReplica) -> None:
    def entry(count: int) -> list[tuple[int, str, int]]:
        return [(n, f"at {count}", count) for n in range(40)]

    replica.write(upsert(*entry(0)))
    wrong: list[object] = []
    scans = 0
    done = threading.Event()

    def read(order: Order) -> None:
        nonlocal scans
        try:
            while not done.is_set():
                with replica.store.scan(ScanSpec(order=order)) as cursor:
                    rows = []
                    while (batch := cursor.next_batch(7)) is not None:
                        rows += batch.to_rows()
                if sorted(rows) != entry(rows[0][2]):
                    wrong.append(rows)
                    return
                scans += 1
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(order,)) for order in (Order.KEY, Order.KEY_DESCENDING)]
    for thread in threads:
        thread.start()
    for count in range(1, 60):
        replica.write(upsert(*entry(count)))
        if count % 2 == 0:
            replica.flush()
        replica.store.set_history_floor(10 * len(replica.log))
        replica.store.compact()
        if wrong:
            break
    while scans < 4 and not wrong:
        replica.write(upsert(*entry(60)))
        replica.flush()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def test_an_import_larger_than_memory_is_written_out_in_between(
    replica: LmdbReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, model = with_random_entries(StoreHarness(MemoryStore))
    monkeypatch.setattr(store, "IMPORT_BYTES", 1)
    replica.store.import_(source.store.export(), source.store.applied)
    assert replica.store.memory_bytes() == 0
    for at in range(10, 301, 10):
        assert replica.rows(at) == model.rows(at), at
    with checks_here():
        replica.open()
    assert replica.rows() == [], "no superblock knows of it"
    replica.store.import_(source.store.export(), source.store.applied)
    replica.flush()
    with checks_here():
        replica.open()
    assert replica.store.applied == source.store.applied
    for at in range(10, 301, 10):
        assert replica.rows(at) == model.rows(at), at


def test_a_schema_alone_can_be_flushed(replica: LmdbReplica) -> None:
    wider = changed(SCHEMA, add={"id": 4, "name": "kind", "type": "string", "default": "old"}, rename={})
    replica.change_schema(wider)
    replica.flush()
    with checks_here():
        replica.open()
    assert replica.store.applied == replica.log[0].op_id
    assert replica.store.schema == wider
    assert replica.store.flush() is None


def test_what_cannot_be_opened_says_so(replica: LmdbReplica) -> None:
    replica.insert((1, "a", 1))
    replica.flush()
    for wrong in (b"\xff\xff", b"\x90", b"\x92\x01\xa1x"):
        with pytest.raises(Corrupt):
            decode_manifest(wrong, "t")
    with pytest.raises(FutureVersion):
        decode_manifest(b"\x91\x09", "t")
    with pytest.raises(Unsupported, match="export"):
        replica.store.snapshot()


def test_a_row_of_an_unknown_schema_version_is_corrupt(replica: LmdbReplica) -> None:
    replica.insert((1, "a", 1))
    replica.store._layers.memory.put(encode_key(SCHEMA, (2,)), 10, 1, b"\x63\0\0\0\x90")  # type: ignore[attr-defined]
    with pytest.raises(Corrupt, match="schema version 99"):
        replica.rows()
    replica.store._layers.memory.put(encode_key(SCHEMA, (2,)), 10, 1, b"\1\0\0\0\xc1")  # type: ignore[attr-defined]
    with pytest.raises(Corrupt, match="cannot be decoded"):
        replica.rows()


def test_an_entry_that_cannot_be_applied_to_its_end_changes_nothing(replica: LmdbReplica) -> None:
    replica.insert((2, "b", 2))
    memory = replica.store._layers.memory  # type: ignore[attr-defined]
    memory.put(encode_key(SCHEMA, (1,)), 10, 1, b"\1\0\0\0\xc1")
    before = memory.size_bytes
    with pytest.raises(Corrupt):
        replica.write(upsert((5, "e", 5)), delete((2,)), Op(OpKind.UPDATE, [(1, 9)], (1, 3)))
    assert memory.size_bytes == before
    assert replica.rows(key_from=encode_key(SCHEMA, (2,))) == [(2, "b", 2)]
    assert replica.store.applied == replica.log[0].op_id


COMPOSITE = schema_from_plain(
    {
        "columns": [{"name": "a", "type": "string"}, {"name": "b", "type": "int32"}, {"name": "c", "type": "binary"}],
        "key": ["a", "b", "c"],
    }
)
KEYS = [(a, b, c) for a in ("", "k", "k\0", "k\0z", "\x7f") for b in (-1, 0, 7) for c in (b"", b"\0", b"\xff\xff")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_equality_on_the_first_key_columns_narrows_a_scan_to_the_rows_that_begin_so(count: int) -> None:
    encoded = sorted((encode_key(COMPOSITE, key), key) for key in KEYS)
    for wanted in KEYS:
        predicates: tuple[Any, ...] = tuple(Compare(n + 1, "=", wanted[n]) for n in range(count))
        low, high = key_range(COMPOSITE, ScanSpec(predicates=predicates))
        inside = [key for code, key in encoded if (low or b"") <= code and (high is None or code < high)]
        assert inside == [key for _, key in encoded if key[:count] == wanted[:count]]


def test_comparisons_on_a_key_of_one_column_narrow_a_scan() -> None:
    def code(number: int) -> bytes:
        return encode_key(SCHEMA, (number,))

    def narrowed(*predicates: Any, **spec: Any) -> Any:
        return key_range(SCHEMA, ScanSpec(predicates=predicates, **spec))

    assert narrowed() == (None, None)
    assert narrowed(Compare(1, ">", 3), Compare(1, "<=", 9)) == (code(3) + b"\0", code(9) + b"\0")
    assert narrowed(Compare(1, ">=", 3), Compare(1, "<", 9)) == (code(3), code(9))
    assert narrowed(In(1, (5, 2, 8))) == (code(2), code(8) + b"\0")
    assert narrowed(Compare(1, "!=", 3), Compare(2, "=", "x")) == (None, None)
    assert narrowed(Compare(1, ">=", 3), key_from=code(5), after=code(6)) == (code(6) + b"\0", None)
    assert narrowed(after=code(6), order=Order.KEY_DESCENDING) == (None, code(6))
    doubles = schema_from_plain({"columns": [{"name": "k", "type": "double"}], "key": ["k"]})
    assert key_range(doubles, ScanSpec(predicates=(Compare(1, "=", 0.0),))) == (None, None)


def test_a_store_that_is_closed_takes_nothing_and_flushes_nothing(replica: LmdbReplica) -> None:
    for number in range(5):
        replica.write(upsert((number, "before", number)))
    edit = replica.store.flush()
    assert edit is not None
    replica.manifest, replica.flushed = edit.manifest, edit.flushed
    replica.write(upsert((5, "behind", 5)))
    before = replica.rows()
    replica.store.close()
    with pytest.raises(StorageError, match="the store is closed"):
        replica.store.flush()
    with pytest.raises(StorageError, match="the store is closed"):
        replica.write(upsert((6, "late", 6)))
    assert replica.store.compact() is None
    replica.log.pop()
    replica.crash()
    assert replica.rows() == before
