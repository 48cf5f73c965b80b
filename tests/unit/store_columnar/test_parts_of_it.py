"""The small parts of the columnar store, each against the plainest model of what it does."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from itertools import pairwise
from sys import getsizeof
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.rows.key_order import key_order
from stelae.testing.conformance.store_harness import SCHEMA, StoreHarness
from stelae_store_columnar import ColumnarStore, bloom
from stelae_store_columnar.completed_rows import CompletedRows
from stelae_store_columnar.decoded_cache import DecodedCache
from stelae_store_columnar.newest_versions import NewestVersions
from stelae_store_columnar.sorted_keys import VERSIONS_OF_KEY, SortedKeys
from stelae_store_columnar.sources import StepSize, steps

INTS = st.integers(-(2**63), 2**63 - 1)


@given(st.one_of(st.lists(INTS, min_size=1, max_size=300), st.lists(st.binary(max_size=9), min_size=1, max_size=300)))
def test_a_filter_never_denies_a_key_that_is_there(keys: list[Any]) -> None:
    bitmap = bloom.build(pa.array(keys, pa.int64() if isinstance(keys[0], int) else pa.binary()))
    assert all(bloom.may_hold(bitmap, key) for key in keys)


@pytest.mark.parametrize("kind", ["int", "bytes"])
def test_a_filter_denies_nearly_all_keys_that_are_not_there(kind: str) -> None:
    rng = random.Random(1)
    keys: list[Any] = [rng.getrandbits(62) for _ in range(20_000)]
    if kind == "bytes":
        keys = [key.to_bytes(8, "big") for key in keys]
    bitmap = bloom.build(pa.array(keys[:10_000], pa.int64() if kind == "int" else pa.binary()))
    assert len(bitmap) == 20_000
    assert sum(bloom.may_hold(bitmap, key) for key in keys[10_000:]) < 250


def test_the_hash_of_a_filter_is_part_of_the_format() -> None:
    assert bloom.build(pa.array([1, -1, 2**40], pa.int64())).hex() == bloom.build(pa.array([2**40, 1, -1])).hex()
    assert bloom.build(pa.array([1, -1, 2**40], pa.int64())).hex() == INT_FILTER
    assert bloom.build(pa.array([b"", b"a", b"\x00"], pa.binary())).hex() == BYTES_FILTER


INT_FILTER = "0080300000280002"
BYTES_FILTER = "0100004800200020"


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 60), min_size=1, max_size=8)), max_size=25))
def test_what_is_known_of_keys_in_memory_is_what_a_dict_would_know(batches: list[tuple[bool, list[int]]]) -> None:
    known, model = NewestVersions(), dict[int, bool]()
    for live, keys in batches:
        rising = sorted({*keys})
        assert not known.is_gap(rising[0], rising[-1]) or not any(rising[0] <= k <= rising[-1] for k in model)
        if live and known.is_gap(rising[0], rising[-1]):
            known.add_range(rising[0], rising[-1], pa.array(rising))
            model.update(dict.fromkeys(rising, True))
        else:
            superseded = known.put(keys, min(keys), max(keys), live)
            assert superseded == len(keys) - len({*keys} - model.keys())
            model.update(dict.fromkeys(keys, live))
        probe = random.Random(len(model)).sample(range(61), 9)
        assert known.find(probe) == [model.get(key) for key in probe]
    assert known.find(range(61)) == [model.get(key) for key in range(61)]


@given(st.lists(st.binary(max_size=4), max_size=400).map(sorted), st.binary(max_size=5))
def test_sorted_texts_are_searched_like_a_list(keys: list[bytes], key: bytes) -> None:
    found = SortedKeys(pa.array(keys, pa.binary()))
    assert found.left(key, -1) == sum(1 for one in keys if one < key)
    assert found.find(key) == (keys.index(key) if key in keys else -1)
    assert found.last(key) == (bisect_right(keys, key) - 1 if key in keys else -1)
    assert found.left(None, 7) == 7


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 3000])
def test_many_sorted_texts_are_searched_like_a_list(count: int) -> None:
    keys = sorted(b"%d" % (number // 3) for number in range(count))
    found = SortedKeys(pa.array(keys, pa.binary()))
    for key in {b"", b"~", *keys[:: max(1, count // 50)], b"10x"}:
        held = key in keys
        assert found.left(key, -1) == bisect_left(keys, key)
        assert found.find(key) == (bisect_left(keys, key) if held else -1)
        assert found.last(key) == (bisect_right(keys, key) - 1 if held else -1)


@given(st.lists(INTS, max_size=200).map(sorted), INTS, st.integers(0, 20))
def test_sorted_integers_are_searched_like_a_list(keys: list[int], key: int, skipped: int) -> None:
    found, keys = SortedKeys(pa.array(keys, pa.int64()).slice(skipped)), keys[skipped:]
    assert found.left(key, -1) == sum(1 for one in keys if one < key)
    assert found.find(key) == (keys.index(key) if key in keys else -1)
    assert found.last(key) == (bisect_right(keys, key) - 1 if key in keys else -1)


SMALL = st.integers(-9, 9)


@given(st.lists(SMALL, max_size=60).map(sorted), SMALL, st.one_of(st.none(), SMALL), st.integers(1, 9))
def test_the_different_keys_of_a_range_are_counted(keys: list[int], low: int, high: int | None, count: int) -> None:
    found = SortedKeys(pa.array(keys, pa.int64()))
    inside = [key for key in keys if low <= key and (high is None or key < high)]
    different = sorted({*inside})
    end = found.end_of_first(low, high, count, key_order(SCHEMA))
    begin = found.begin_of_last(low, high, count)
    if len(inside) <= count * VERSIONS_OF_KEY:
        more = len(different) > count
        assert end == (different[count] if more else None)
        assert begin == (different[-count] if more else None)
    else:
        assert end is not None and different[0] < end <= different[min(count, len(different) - 1)] + 1
        assert begin is not None and different[max(0, len(different) - count)] <= begin <= different[-1]


def test_a_key_that_occurs_often_ends_the_count() -> None:
    keys = [1, *[2] * 100, 3, 4, *[5] * 100, 6]
    found, order = SortedKeys(pa.array(keys, pa.int64())), key_order(SCHEMA)
    assert found.end_of_first(None, None, 3, order) == 2
    assert found.end_of_first(2, None, 3, order) == 3
    assert found.end_of_first(3, None, 3, order) == 5
    assert found.begin_of_last(None, None, 3) == 5
    assert found.begin_of_last(None, 5, 3) == 2
    assert found.begin_of_last(None, 2, 3) is None


class Fences:
    """A source of one row per key."""

    def __init__(self, keys: list[int]) -> None:
        self.keys = sorted(keys)

    def cut_points(self, low: Any, high: Any, cut: StepSize) -> list[tuple[int, float]]:
        return [(k + 1, cut.share(1, 0)) for k in self.keys if (low is None or k >= low) and (high is None or k < high)]

    def parts(self, low: Any, high: Any) -> list[Any]:
        return []


@given(
    st.lists(st.lists(st.integers(0, 99), unique=True, max_size=30), max_size=4),
    st.one_of(st.none(), st.integers(0, 50)),
    st.one_of(st.none(), st.integers(50, 100)),
)
def test_steps_cover_a_range_without_gap_or_overlap_and_hold_few_rows(
    keys: list[list[int]], low: Any, high: Any
) -> None:
    sources = [Fences(one) for one in keys]
    found = steps(sources, low, high, StepSize(key_order(SCHEMA), 7))
    inside = [k for one in keys for k in one if (low is None or k >= low) and (high is None or k < high)]
    assert all(one[1] == other[0] for one, other in pairwise(found))
    assert not found or (found[0][0] == low and found[-1][1] in (high, max(inside) + 1))
    rows = [sum((a is None or k >= a) and (b is None or k < b) for k in inside) for a, b in found]
    assert sum(rows) == len(inside)
    assert all(1 <= count <= 7 + len(keys) for count in rows)


@pytest.mark.parametrize("count", [1, 1000, 5000])
def test_the_size_of_sorted_texts_has_those_that_are_kept_as_values(count: int) -> None:
    array = pa.array([b"%08d" % n for n in range(count)], pa.binary())
    found = SortedKeys(array)
    assert found.last(b"00000000") == 0
    kept = [b"%08d" % n for n in range(0, count, -(-count // 1024))]
    assert found.size_bytes >= array.nbytes + 8 * len(kept) + sum(map(getsizeof, kept))
    assert SortedKeys(pa.array([*range(count)], pa.int64())).size_bytes == 8 * count


@pytest.mark.parametrize("size", [10, 3000])
def test_the_size_of_a_completed_row_has_its_key_and_all_bytes_of_its_texts(size: int) -> None:
    cache = DecodedCache(1 << 20)
    rows = CompletedRows(cache.share(), StoreHarness(ColumnarStore).replica().store._state)  # type: ignore[attr-defined]
    key, row = b"k" * size, ("\U0001f600" * size, None, 5)
    rows.put(key, 10, row)
    assert cache.size_bytes >= sum(map(getsizeof, (key, row, *row)))


def test_the_cache_keeps_what_was_used_last_and_no_more_than_its_bytes() -> None:
    whole = DecodedCache(100)
    cache = whole.share()
    cache.put("a", 1, 40)
    cache.put("b", 2, 40)
    assert cache.get("a") == 1
    cache.put("c", 3, 40)
    cache.put("large", 4, 101)
    assert [cache.get(key) for key in ("a", "b", "c", "large")] == [1, None, 3, None]
    cache.put("a", 5, 10)
    assert whole.size_bytes == 50


def test_owners_share_the_bytes_of_a_cache_and_see_only_their_own_entries() -> None:
    whole = DecodedCache(100)
    one, other = whole.share(), whole.share()
    one.put("a", 1, 60)
    assert other.get("a") is None
    other.put("a", 2, 30)
    assert (one.get("a"), other.get("a")) == (1, 2)
    other.put("b", 3, 30)  # Of all entries, this of ``one`` was used least recently.
    assert [one.get("a"), other.get("a"), other.get("b")] == [None, 2, 3]
    one.put("c", 4, 40)
    one.clear()
    assert one.get("c") is None
    assert whole.size_bytes == 60
