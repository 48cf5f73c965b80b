"""The tree of rows: keys of any length keep their order, forwards and backwards, whole and in ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.spi.errors import Corrupt
from stelae_store_lmdb.keys import CHUNK_BYTES, age_of, rest_of, split_age, stem_of
from stelae_store_lmdb.tree import RowTree, is_deletion
from stelae_store_lmdb.values import DELETION
from tests.at_length import times


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lmdb.open(str(tmp_path_factory.mktemp("tree")), map_size=1 << 26, sync=False) as env:
        assert env.max_key_size() == len(b"\x04" + bytes(8) + stem_of(bytes(CHUNK_BYTES)) + age_of(1, 1))
        yield env


def a_key() -> st.SearchStrategy[bytes]:
    """Short keys of awkward bytes, and keys that begin alike for a chunk or more."""
    short = st.binary(max_size=20) | st.lists(st.sampled_from([0, 1, 255]), max_size=18).map(bytes)
    alike = st.sampled_from([CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 16 << 10])
    return short | st.builds(
        lambda count, byte, end: bytes([byte]) * count + end, alike, st.sampled_from([0, 9]), short
    )


@settings(max_examples=times(200), deadline=None)
@given(st.lists(a_key(), max_size=30, unique=True), a_key(), a_key(), st.data())
def test_rows_are_walked_in_the_order_of_their_keys(
    env: Any, keys: list[bytes], one: bytes, other: bytes, data: st.DataObject
) -> None:
    with env.begin(write=True, buffers=True) as txn:
        tree = RowTree(txn, "", 1)
        tree.put([(key, 7, place, b"%d" % place) for place, key in enumerate(keys)])
        low, high = sorted((one, other))
        ordered = sorted(keys)
        for start, end in ((None, None), (low, None), (None, high), (low, high)):
            inside = ordered[
                0 if start is None else bisect_left(ordered, start) : len(ordered)
                if end is None
                else bisect_left(ordered, end)
            ]
            assert [record[0] for record in tree.walk(start, end, False)] == inside
            assert [record[0] for record in tree.walk(start, end, True)] == inside[::-1]
        for place, key in enumerate(keys):
            assert tree.newest(key) == (7, place, b"%d" % place)
        if one not in keys:
            assert tree.newest(one) is None
            assert tree.ages(one) == []
        gone = data.draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
        for key in gone:
            tree.remove(key, 7, keys.index(key))
        assert [record[0] for record in tree.walk(None, None, False)] == sorted({*keys} - {*gone})
        for key in keys:
            tree.remove(key, 7, keys.index(key))
        assert txn.stat()["entries"] == 0, "nodes that hold nothing are gone, too"
        txn.abort()


@settings(max_examples=times(300), deadline=None)
@given(a_key(), a_key())
def test_stems_compare_as_the_keys_do_and_none_begins_another(one: bytes, other: bytes) -> None:
    one, other = one[:CHUNK_BYTES], other[:CHUNK_BYTES]
    first, second = stem_of(one), stem_of(other)
    assert (first < second, first == second) == (one < other, one == other)
    assert one == other or not (first.startswith(second) or second.startswith(first))
    assert rest_of(first + age_of(1, 2), 0) == one


def test_versions_of_a_row_come_newest_first_and_backwards_oldest_first(env: Any) -> None:
    ages = [(30, 5), (30, 4), (20, 9), (0, 0)]
    for key in (b"k", b"k" * 1000):
        with env.begin(write=True, buffers=True) as txn:
            tree = RowTree(txn, "", 1)
            tree.put([(key, t, i, DELETION if t == 20 else b"\1\0\0\0x") for t, i in ages[::-1]])
            tree.put([(key + b"\0", 99, 99, b"\1\0\0\0")])
            assert tree.ages(key) == [(t, i, t == 20) for t, i in ages]
            assert tree.newest(key) == (30, 5, b"\1\0\0\0x")
            assert [split_age(at) for found, at, _ in tree.walk(None, None, False) if found == key] == ages
            assert [split_age(at) for found, at, _ in tree.walk(None, None, True) if found == key] == ages[::-1]
            txn.abort()


def test_a_value_under_another_key_than_its_own_is_corrupt(env: Any) -> None:
    with env.begin(write=True, buffers=True) as txn:
        tree = RowTree(txn, "", 1)
        tree.put([(b"a", 1, 1, b"\1\0\0\0x"), (b"b" * 500, 1, 1, b"\1\0\0\0y")])
        records = {key: (at, bytes(value)) for key, at, value in tree.walk(None, None, False)}
        txn.put(records[b"b" * 500][0], records[b"a"][1])
        with pytest.raises(Corrupt, match="checksum"):
            tree.newest(b"b" * 500)
        pointer = b"\x03" + stem_of(b"b" * 500)
        assert txn.get(pointer) is not None
        txn.put(pointer, b"\0" * 12)
        for walk in (lambda: tree.newest(b"b" * 500), lambda: [*tree.walk(None, None, False)]):
            with pytest.raises(Corrupt, match="checksum"):
                walk()
        txn.abort()


def test_a_deletion_is_told_by_its_schema_version() -> None:
    assert is_deletion(DELETION)
    assert not is_deletion(b"\0\0\0\1")
