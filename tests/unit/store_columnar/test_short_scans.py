"""Scans of few rows: what they read, what stays decoded, and which of them the event loop may run."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stelae.rows.keys import encode_key
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.scan import Compare, Order, ScanSpec
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, upsert
from stelae.testing.conformance.store_model import Op, Row
from stelae_store_columnar import ColumnarStore
from stelae_store_columnar.begun_row import BegunRow
from stelae_store_columnar.block import ColumnarBlock
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.short_read import ShortRead
from stelae_store_columnar.store import INLINE_SCAN_ROWS_MAX

ORDERS = (Order.KEY, Order.KEY_DESCENDING)


def filled(rows: int = 1000, **options: Any) -> HarnessReplica:
    """A store with rows in one block, in row groups of 64 rows."""
    replica = StoreHarness(ColumnarStore, lambda: ColumnarConfig(row_group_rows=64, **options)).replica()
    replica.write(upsert(*((n, "a", n) for n in range(rows))))
    replica.flush()
    return replica


def spec_at(key: int, limit: int, order: Order = Order.KEY, **more: Any) -> ScanSpec:
    bound = {"key_from" if order is Order.KEY else "key_until": encode_key(SCHEMA, (key,))}
    return ScanSpec(limit=limit, order=order, **bound, **more)


def inline(replica: HarnessReplica, spec: ScanSpec, at: int | None = None) -> list[Row] | None:
    """The rows of a scan by the event loop; ``None``: it may not run it."""
    replica.forbid_files()
    try:
        cursor = replica.store.scan_inline(spec, at)
        return None if cursor is None else [row for batch in cursor for row in batch.to_rows()]
    finally:
        replica.allow_files()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are decoded."""
    found: list[int] = []
    load = ColumnarBlock.load

    def noted(self: ColumnarBlock, row_groups: Any, positions: Any) -> Any:
        found.extend(row_groups)
        return load(self, row_groups, positions)

    monkeypatch.setattr(ColumnarBlock, "load", noted)
    return found


@pytest.mark.parametrize("order", ORDERS)
def test_a_scan_of_few_rows_decodes_the_row_groups_in_which_they_are(loads: list[int], order: Order) -> None:
    """It decoded eight row groups ahead, and looked at the ends of all that followed."""
    replica, step = filled(), 1 if order is Order.KEY else -1
    first = 500 if order is Order.KEY else 499
    expected = [(n, "a", n) for n in range(first, first + 5 * step, step)]
    assert replica.rows(**_fields(spec_at(500, 5, order))) == expected
    assert loads == [7]
    replica.rows(**_fields(spec_at(510, 5, order)))
    assert loads == ([7, 8] if order is Order.KEY else [7])


def _fields(spec: ScanSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in ("limit", "order", "key_from", "key_until")}


@pytest.mark.parametrize("order", ORDERS)
def test_the_loop_scans_what_is_decoded(order: Order) -> None:
    replica = filled()
    assert inline(replica, spec_at(500, 3, order)) is None
    expected = replica.rows(**_fields(spec_at(500, 3, order)))
    assert inline(replica, spec_at(500, 3, order)) == expected
    replica.write(upsert((500, "b", 0), (499, "b", 0)), delete((501,), (498,)))
    newer = [(500, "b", 0), (502, "a", 502), (503, "a", 503)]
    older = [(499, "b", 0), (497, "a", 497), (496, "a", 496)]
    assert inline(replica, spec_at(500, 3, order)) == (newer if order is Order.KEY else older)
    assert inline(replica, spec_at(500, 3, order), 10) == expected


@pytest.mark.parametrize("columns", [None, (1,), (3, 1)])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(4))
def test_whole_rows_that_arrow_joins_are_those_that_are_chosen_one_by_one(
    monkeypatch: pytest.MonkeyPatch, order: Order, columns: tuple[int, ...] | None, seed: int
) -> None:
    """In a block and in many small writes, in any order, some of which replace others."""
    rng = random.Random(seed)
    replica = filled(200)
    replica.rows()
    for _ in range(30):
        replica.write(upsert(*((rng.randrange(-5, 210), "b", rng.randrange(9)) for _ in range(rng.choice([1, 1, 5])))))
    specs = [spec_at(rng.randrange(210), rng.choice([1, 7, 40]), order, columns=columns) for _ in range(10)]

    def found() -> list[list[Row]]:
        return [[row for batch in replica.store.scan(spec) for row in batch.to_rows()] for spec in specs]

    monkeypatch.setattr("stelae_store_columnar.short_read._VERSIONS_OF_KEY", 0)
    expected = found()
    monkeypatch.setattr("stelae_store_columnar.short_read._VERSIONS_OF_KEY", 99)
    monkeypatch.setattr(ShortRead, "_look_below", None)
    assert found() == expected and sum(map(len, expected)) > 20


def test_a_key_with_many_versions_is_not_copied_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = filled(3)
    for number in range(9):
        replica.write(upsert((1, "b", number)))
    monkeypatch.setattr("pyarrow.concat_batches", None)
    assert inline(replica, spec_at(0, 3)) is None, "the block must be decoded first"
    assert replica.rows(limit=3, order=Order.KEY) == [(0, "a", 0), (1, "b", 8), (2, "a", 2)]


def test_a_lookup_leaves_decoded_what_a_scan_needs_and_the_other_way_round() -> None:
    replica = filled()
    replica.store.lookup([encode_key(SCHEMA, (100,))])
    assert inline(replica, spec_at(100, 2)) == [(100, "a", 100), (101, "a", 101)]
    replica.rows(**_fields(spec_at(900, 2)))
    replica.forbid_files()
    assert not replica.store.lookup_inline([encode_key(SCHEMA, (901,))]).unread


def test_the_loop_leaves_to_others_what_may_take_long() -> None:
    replica = filled()
    replica.rows()
    for start in range(0, 1000, 60):
        replica.rows(**_fields(spec_at(start, 60)))
    assert inline(replica, spec_at(0, INLINE_SCAN_ROWS_MAX)) is not None
    assert inline(replica, spec_at(0, INLINE_SCAN_ROWS_MAX + 1)) is None
    assert inline(replica, ScanSpec()) is None
    assert inline(replica, spec_at(0, 1, predicates=(Compare(3, "=", 900),))) is None
    replica.write(delete(*((n,) for n in range(1, 990))))
    assert inline(replica, spec_at(1, 5)) is None
    assert inline(replica, spec_at(988, 2)) == [(990, "a", 990), (991, "a", 991)]


def test_the_loop_reads_no_large_rows() -> None:
    replica = filled(0)
    replica.write(upsert(*((n, "x" * 100_000, n) for n in range(40))))
    assert inline(replica, spec_at(0, 20)) is None
    assert len(replica.rows(limit=20)) == 20


def test_the_loop_sorts_no_large_chunk_and_a_reader_that_did_spares_the_next_one() -> None:
    replica = filled(0)
    rows = [(n * 7919 % 20_000, "x" * 100, n) for n in range(20_000)]
    for start in range(0, 20_000, 4000):
        replica.write(upsert(*rows[start : start + 4000]))
    assert inline(replica, spec_at(0, 3)) is None
    expected = replica.rows(limit=3)
    assert inline(replica, spec_at(0, 3)) == expected == sorted(rows)[:3]


def test_the_loop_sorts_no_chunk_of_many_small_rows() -> None:
    """A chunk of 16 000 small rows has a few hundred kilobytes, and took 12 ms."""
    replica = filled(0)
    rows = [(n * 7919 % 16_000, None, n) for n in range(16_000)]
    for start in range(0, 16_000, 4000):
        replica.write(upsert(*rows[start : start + 4000]))
    assert inline(replica, spec_at(0, 3)) is None
    assert replica.rows(limit=3) == inline(replica, spec_at(0, 3)) == sorted(rows)[:3]


def test_the_loop_does_not_read_thousands_of_versions_of_a_key() -> None:
    """To read a counter that was updated 36 000 times took 30 ms of the event loop, in each scan."""
    replica = filled(10)
    replica.rows(limit=10)
    for turn in range(3):
        replica.write(Op(OpKind.UPDATE, [(4, turn)], (1, 3)))
        replica.write(*(Op(OpKind.UPSERT, [(4, "b", turn)]) for turn in range(2000)))
    expected = [(3, "a", 3), (4, "b", 1999), (5, "a", 5)]
    assert replica.rows(key_from=encode_key(SCHEMA, (3,)), limit=3) == expected
    assert inline(replica, spec_at(3, 3)) is None
    assert inline(replica, spec_at(5, 3)) == [(n, "a", n) for n in (5, 6, 7)]


def test_the_versions_of_a_counter_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    inner = BegunRow.take

    def counting(self: Any, columns: Any, place: int, *given: Any) -> bool:
        taken.append(place)
        return inner(self, columns, place, *given)

    monkeypatch.setattr(BegunRow, "take", counting)
    replica = filled(10)
    for turn in range(300):
        replica.write(Op(OpKind.UPDATE, [(4, turn)], (1, 3)))
    expected = [*((n, "a", n) for n in range(4)), (4, "a", 299), (5, "a", 5)]
    for versions in (300, 1, 1):
        taken.clear()
        assert replica.rows(limit=6) == expected
        assert len(taken) == versions
    assert replica.rows(limit=6, columns=(1, 3)) == [(row[0], row[2]) for row in expected]
    at = 10 * len(replica.log)
    for _ in range(5):
        replica.write(Op(OpKind.UPDATE, [(4, "b")], (1, 2)))
    assert replica.rows(limit=6)[4] == (4, "b", 299)
    assert replica.rows(at, limit=6) == expected
    assert replica.rows(at - 10, limit=6)[4] == (4, "a", 298)


def test_more_versions_of_a_key_than_a_batch_has_are_not_read_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = filled(10)
    for _ in range(5):
        replica.write(*(Op(OpKind.UPSERT, [(4, "b", turn)]) for turn in range(2000)))
    monkeypatch.setattr(ShortRead, "rows", None)
    assert replica.rows(limit=6) == [*((n, "a", n) for n in range(4)), (4, "b", 1999), (5, "a", 5)]


@pytest.mark.parametrize("type_", ["int64", "int8"])
def test_keys_around_zero_end_no_scan(type_: str) -> None:
    """Zero is a key like any other, and also the first key of a row group."""
    key = {"name": "k", "type": type_, "nullable": False}
    schema = schema_from_plain({"columns": [key, {"name": "v", "type": "int64", "nullable": True}], "key": ["k"]})
    config = ColumnarConfig(row_group_rows=4, block_rows_max=1000, level0_blocks_min=900)
    replica = StoreHarness(ColumnarStore, lambda: config).replica(schema)
    replica.write(Op(OpKind.UPSERT, [(n, n) for n in range(-12, 13)]))
    replica.flush()
    expected = [(n, n) for n in range(-12, 13)]
    assert replica.rows(limit=20) == expected[:20]
    assert replica.rows(limit=20, order=Order.KEY_DESCENDING) == expected[::-1][:20]


def test_more_versions_of_a_key_than_a_step_has_end_no_scan() -> None:
    replica = filled(0)
    replica.write(upsert(*((n, "a", n) for n in range(10))))
    for turn in range(100):
        replica.write(upsert((4, "b", turn)))
    for _ in range(2):
        assert replica.rows(limit=7) == [*((n, "a", n) for n in range(4)), (4, "b", 99), (5, "a", 5), (6, "a", 6)]
        assert [row[0] for row in replica.rows(limit=7, order=Order.KEY_DESCENDING)] == [*range(9, 2, -1)]
        assert replica.rows(100, limit=7)[4] == (4, "b", 7)
        replica.flush()
