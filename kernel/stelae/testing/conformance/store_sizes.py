"""Checks of a store: what one step hands out is bounded in bytes, however much a row weighs.

Measured by the sizes of what is handed out. Rows of a megabyte stand among small ones, so that no engine gets by with
an average; one row is above the limit, and passes alone."""

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
from stelae.testing.conformance.store_shapes import KEY_BYTES, keep

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
"""Two columns that may hold anything."""


def wide_rows() -> list[Row]:
    """Rows of which a dozen are too much for one step, small ones, and one that is too large by itself."""
    wide: list[Row] = [(n, bytes([n]) * (1 << 20), None) for n in range(24)]
    most = HIGHEST.cell_bytes_max
    return [*wide, *((n, b"%d" % n, b"") for n in range(24, 60)), (60, b"\1" * most, b"\2" * most), (61, b"", None)]


def written(harness: StoreHarness) -> HarnessReplica:
    """A replica that was given them by several entries, no entry in the order of keys."""
    replica = harness.replica(WIDE)
    rows = wide_rows()
    for start in range(4):
        replica.insert(*rows[start::4][::-1])
    return replica


def fits(*batches: RowBatch) -> bool:
    """Whether what one step gave is within the limit, or a single row."""
    return sum(rows.nbytes for rows in batches) <= BATCH_BYTES_MAX or sum(map(len, batches)) == 1


class SizeChecks:
    """The sizes of batches and pieces."""

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
            keep(replica)

    def test_a_wide_scan_goes_on_elsewhere_after_any_batch(self, harness: StoreHarness) -> None:
        replica, found, token = written(harness), [], None
        for _ in range(100):
            with replica.store.scan(ScanSpec(order=Order.KEY, after=token)) as cursor:
                rows = cursor.next_batch()
                token = cursor.resume_token
            if rows is None:
                break
            found += [row[0] for row in rows.to_rows()]
        assert found == [row[0] for row in wide_rows()]

    def test_a_piece_of_a_diff_is_bounded_in_bytes(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, expected = written(harness), wide_rows()
        for _ in range(2):
            found: list[Row] = []
            behind: bytes | None = None
            for piece in replica.store.diff(0, 1000, ScanSpec()):
                assert fits(piece.changed, piece.deleted), f"{piece.changed.nbytes} bytes in {len(piece.changed)} rows"
                told = encode_keys(WIDE, piece.changed)
                assert all(behind is None or key > behind for key in told)
                assert piece.through is None or all(key <= piece.through for key in told)
                behind = piece.through
                found += piece.changed.to_rows()
            assert found == expected
            keep(replica)

    def test_a_piece_of_a_diff_that_tells_of_long_keys_is_bounded_in_bytes(self, harness: StoreHarness) -> None:
        harness.needs("history")
        length = min(harness.engine.key_bytes_max or KEY_BYTES, KEY_BYTES)
        count = BATCH_BYTES_MAX // length + 9
        replica = harness.replica(schema_from_plain({"columns": [{"name": "k", "type": "string"}], "key": ["k"]}))
        keys = [(f"{n:05d}".ljust(length, "k"),) for n in range(count)]
        replica.write(insert(*keys))
        replica.write(delete(*keys))
        for _ in range(2):
            found: list[Row] = []
            for piece in replica.store.diff(10, 1000, ScanSpec()):
                assert fits(piece.changed, piece.deleted)
                found += piece.deleted.to_rows()
            assert found == keys
            keep(replica)

    def test_a_piece_of_an_export_is_bounded_in_bytes(self, harness: StoreHarness) -> None:
        replica, expected = written(harness), wide_rows()
        for _ in range(2):
            found: list[Row] = []
            for piece in replica.store.export():
                assert fits(piece.rows), f"{piece.rows.nbytes} bytes in {len(piece.rows)} rows"
                found += piece.rows.to_rows()
            assert sorted(found, key=lambda row: row[0]) == expected
            keep(replica)


def batches(replica: HarnessReplica, spec: ScanSpec) -> Iterator[RowBatch]:
    """The batches of a scan."""
    with replica.store.scan(spec) as cursor:
        yield from cursor
