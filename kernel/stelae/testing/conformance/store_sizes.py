"""Conformance checks for stores: each batch of a scan, diff or export is bounded in bytes, however large the rows are.

The checks measure the batches. Rows of a megabyte are among small ones, so that a bound by an average row size fails.
One row is above the limit and must come in a batch of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stelae.rows.keys import encode_keys
from stelae.rows.limits import HIGHEST
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import BATCH_BYTES_MAX
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness, delete, insert
from stelae.testing.conformance.store_model import Row
from stelae.testing.conformance.store_shapes import KEY_BYTES, flush_and_compact

WIDE = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int32"},
            {"name": "a", "type": "binary"},
            {"name": "b", "type": "binary", "nullable": True},
        ],
        "key": ["id"],
    }
)
"""A schema with two binary columns."""


def wide_rows() -> list[Row]:
    """Return rows of a megabyte, of which a dozen exceed the limit, small rows, and one row above the limit."""
    wide: list[Row] = [(n, bytes([n]) * (1 << 20), None) for n in range(24)]
    most = HIGHEST.cell_bytes_max
    return [*wide, *((n, b"%d" % n, b"") for n in range(24, 60)), (60, b"\1" * most, b"\2" * most), (61, b"", None)]


def written(harness: StoreHarness) -> HarnessReplica:
    """Make a replica with the rows of :func:`wide_rows`, written by several entries, none of them in key order."""
    replica = harness.replica(WIDE)
    rows = wide_rows()
    for start in range(4):
        replica.insert(*rows[start::4][::-1])
    return replica


def fits(*batches: RowBatch) -> bool:
    """Say whether the rows of one step are within the limit, or a single row."""
    return sum(rows.nbytes for rows in batches) <= BATCH_BYTES_MAX or sum(map(len, batches)) == 1


class SizeChecks:
    """Checks of the sizes of batches."""

    @pytest.mark.parametrize("order", [Order.KEY, Order.KEY_DESCENDING])
    def test_a_batch_of_wide_rows_is_bounded_in_bytes(self, harness: StoreHarness, order: Order) -> None:
        replica, expected = written(harness), wide_rows()
        for _ in range(2):
            found: list[Row] = []
            for rows in batches(replica, ScanSpec(order=order)):
                assert fits(rows), f"{rows.nbytes} bytes in {len(rows)} rows"
                found += rows.to_rows()
            assert found == (expected if order is Order.KEY else expected[::-1])
            assert replica.rows(columns=(1,)) == [(n,) for n in range(len(expected))]
            flush_and_compact(replica)

    def test_a_scan_of_wide_rows_continues_after_any_batch(self, harness: StoreHarness) -> None:
        replica, found, token = written(harness), [], None
        for _ in range(100):
            with replica.store.scan(ScanSpec(order=Order.KEY, after=token)) as cursor:
                rows = cursor.next_batch()
                token = cursor.resume_token
            if rows is None:
                break
            found += [row[0] for row in rows.to_rows()]
        assert found == [row[0] for row in wide_rows()]

    def test_a_batch_of_a_diff_is_bounded_in_bytes(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, expected = written(harness), wide_rows()
        for _ in range(2):
            found: list[Row] = []
            previous: bytes | None = None
            for batch in replica.store.diff(0, 1000, ScanSpec()):
                assert fits(batch.changed, batch.deleted), f"{batch.changed.nbytes} bytes in {len(batch.changed)} rows"
                keys = encode_keys(WIDE, batch.changed)
                assert all(previous is None or key > previous for key in keys)
                assert batch.through is None or all(key <= batch.through for key in keys)
                previous = batch.through
                found += batch.changed.to_rows()
            assert found == expected
            flush_and_compact(replica)

    def test_a_batch_of_a_diff_with_long_deleted_keys_is_bounded_in_bytes(self, harness: StoreHarness) -> None:
        harness.needs("history")
        length = min(harness.engine.key_bytes_max or KEY_BYTES, KEY_BYTES)
        count = BATCH_BYTES_MAX // length + 9
        replica = harness.replica(schema_from_plain({"columns": [{"name": "k", "type": "string"}], "key": ["k"]}))
        keys = [(f"{n:05d}".ljust(length, "k"),) for n in range(count)]
        replica.write(insert(*keys))
        replica.write(delete(*keys))
        for _ in range(2):
            found: list[Row] = []
            for batch in replica.store.diff(10, 1000, ScanSpec()):
                assert fits(batch.changed, batch.deleted)
                found += batch.deleted.to_rows()
            assert found == keys
            flush_and_compact(replica)

    def test_a_batch_of_an_export_is_bounded_in_bytes(self, harness: StoreHarness) -> None:
        replica, expected = written(harness), wide_rows()
        for _ in range(2):
            found: list[Row] = []
            for batch in replica.store.export():
                assert fits(batch.rows), f"{batch.rows.nbytes} bytes in {len(batch.rows)} rows"
                found += batch.rows.to_rows()
            assert sorted(found, key=lambda row: row[0]) == expected
            flush_and_compact(replica)


def batches(replica: HarnessReplica, spec: ScanSpec) -> Iterator[RowBatch]:
    """Yield the batches of a scan."""
    with replica.store.scan(spec) as cursor:
        yield from cursor
