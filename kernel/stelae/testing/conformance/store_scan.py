"""Conformance checks for stores: what scans return."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from stelae.rows.keys import encode_key
from stelae.rows.limits import RANGES
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import SchemaMismatch, Unavailable
from stelae.spi.scan import Compare, In, IsNull, Order, Predicate, Prefix, ScanSpec
from stelae.spi.store import BATCH_ROWS_MAX
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete
from stelae.testing.conformance.store_model import Row

TYPES = (
    ("bool", (True, False)),
    ("int8", (-128, 127)),
    ("int16", (-32768, 32767)),
    ("int32", (-(2**31), 2**31 - 1)),
    ("int64", (-(2**63), 2**63 - 1)),
    ("float", (-1.5, 2.0**100)),
    ("double", (-0.1, 1e300)),
    ("decimal(20,3)", (Decimal("-1.234"), Decimal("99999999999999999.999"))),
    ("string", ("", "stèle \U0001faa8")),
    ("binary", (b"", b"\x00\xff")),
    ("date", RANGES["date"]),
    ("timestamp", RANGES["timestamp"]),
)
"""Every column type with a small and a large value, in key order."""


def loaded(harness: StoreHarness, count: int = 50) -> HarnessReplica:
    """Make a replica with rows 0 to ``count`` - 1, written in another order, and two rows that were deleted."""
    replica = harness.replica()
    replica.insert(*((n, None if n % 5 == 0 else f"n{n % 7}", n) for n in range(1, count, 2)))
    replica.insert(*((n, None if n % 5 == 0 else f"n{n % 7}", n) for n in range(0, count, 2)))
    replica.insert((count, "x", 0), (-1, "x", 0))
    replica.write(delete((count,), (-1,)))
    return replica


def expected(count: int = 50) -> list[Row]:
    """Return the rows of :func:`loaded`, in key order."""
    return [(n, None if n % 5 == 0 else f"n{n % 7}", n) for n in range(count)]


class ScanChecks:
    """Checks of scans.

    Attributes:
        passed_over_rows: a number of rows that is larger than what the engine examines for one batch.
    """

    passed_over_rows = 3 * BATCH_ROWS_MAX

    def test_rows_are_returned_in_key_order_and_in_reverse(self, harness: StoreHarness) -> None:
        replica = loaded(harness)
        assert replica.rows() == expected()
        assert replica.rows(order=Order.KEY_DESCENDING) == expected()[::-1]
        assert sorted(replica.rows(order=Order.ANY)) == sorted(expected())

    def test_columns_are_returned_as_requested(self, harness: StoreHarness) -> None:
        replica = loaded(harness)
        assert replica.rows(columns=(3, 1)) == [(row[2], row[0]) for row in expected()]

    @pytest.mark.parametrize(
        ("predicate", "keep"),
        [
            (Compare(1, "<", 10), lambda row: row[0] < 10),
            (Compare(1, ">=", 40), lambda row: row[0] >= 40),
            (Compare(2, "=", "n3"), lambda row: row[1] == "n3"),
            (Compare(2, "!=", "n3"), lambda row: row[1] not in (None, "n3")),
            (In(1, (3, 4, 99)), lambda row: row[0] in (3, 4)),
            (In(1, ()), lambda row: False),
            (IsNull(2), lambda row: row[1] is None),
            (IsNull(2, negated=True), lambda row: row[1] is not None),
            (Prefix(2, "n"), lambda row: row[1] is not None),
            (Prefix(2, "n1"), lambda row: row[1] == "n1"),
        ],
    )
    def test_predicates_keep_the_rows_that_match(self, harness: StoreHarness, predicate: Predicate, keep: Any) -> None:
        found = loaded(harness).rows(predicates=(predicate,))
        assert found == [row for row in expected() if keep(row)]

    def test_all_predicates_must_match_and_may_name_columns_not_requested(self, harness: StoreHarness) -> None:
        both = (Compare(1, ">", 20), Prefix(2, "n1"))
        found = loaded(harness).rows(predicates=both, columns=(3,))
        assert found == [(row[2],) for row in expected() if row[0] > 20 and row[1] == "n1"]

    def test_key_ranges_include_their_start_and_exclude_their_end(self, harness: StoreHarness) -> None:
        low, high = encode_key(SCHEMA, (10,)), encode_key(SCHEMA, (20,))
        replica = loaded(harness)
        assert replica.rows(key_from=low, key_until=high) == expected()[10:20]
        descending = replica.rows(key_from=low, key_until=high, order=Order.KEY_DESCENDING)
        assert descending == expected()[19:9:-1]
        assert replica.rows(key_from=high, key_until=low) == []

    @pytest.mark.parametrize("bounds", [(None, None), (10, 40), (40, 10), (20, None)])
    @pytest.mark.parametrize("bytes_max", [1, 100, 1 << 20])
    def test_split_keys_rise_within_the_range_and_the_parts_have_all_its_rows(
        self, harness: StoreHarness, bounds: tuple[int | None, int | None], bytes_max: int
    ) -> None:
        low, high = (None if bound is None else encode_key(SCHEMA, (bound,)) for bound in bounds)
        replica = loaded(harness)
        for _ in ("in memory", "flushed"):
            keys = replica.store.split_keys(low, high, bytes_max)
            assert keys == sorted({*keys})
            assert all((low is None or key > low) and (high is None or key < high) for key in keys)
            parts = [replica.rows(key_from=one, key_until=other) for one, other in pairwise((low, *keys, high))]
            assert [row for part in parts for row in part] == replica.rows(key_from=low, key_until=high)
            replica.flush()

    def test_the_limit_holds_over_all_batches_and_counts_matches_only(self, harness: StoreHarness) -> None:
        replica = loaded(harness)
        spec = ScanSpec(limit=7, order=Order.KEY, predicates=(IsNull(2, negated=True),))
        with replica.store.scan(spec) as cursor:
            found = []
            while (batch := cursor.next_batch(3)) is not None:
                found += batch.to_rows()
        assert found == [row for row in expected() if row[1] is not None][:7]
        assert replica.rows(limit=0) == []

    @pytest.mark.parametrize("order", [Order.KEY, Order.KEY_DESCENDING])
    def test_a_scan_continues_elsewhere_from_its_token_without_loss_or_repetition(
        self, harness: StoreHarness, order: Order
    ) -> None:
        here, there = loaded(harness), loaded(harness)
        predicates = (Compare(3, "!=", 11),)
        found: list[Row] = []
        token = None
        for step in range(100):
            spec = ScanSpec(order=order, predicates=predicates, limit=4, after=token)
            with (here, there)[step % 2].store.scan(spec) as cursor:
                rows = [row for batch in cursor for row in batch.to_rows()]
                token = cursor.resume_token
            found += rows
            if not rows:
                break
        wanted = [row for row in expected() if row[2] != 11]
        assert found == (wanted if order is Order.KEY else wanted[::-1])

    @pytest.mark.parametrize("deleted", [False, True])
    @pytest.mark.parametrize("order", [Order.KEY, Order.KEY_DESCENDING])
    def test_the_token_advances_where_no_row_matches(self, harness: StoreHarness, order: Order, deleted: bool) -> None:
        """A page may end at such a token, and a scan from the token must find the remaining rows."""
        replica, count = harness.replica(), self.passed_over_rows
        wanted = 5 if order is Order.KEY_DESCENDING else count - 5
        for first in range(0, count, 4096):
            replica.insert(*((n, None, n) for n in range(first, min(first + 4096, count))))
        for first in range(0, count, 4096) if deleted else ():
            replica.write(delete(*((n,) for n in range(first, min(first + 4096, count)) if n != wanted)))
        replica.flush()
        predicates = () if deleted else (Compare(3, "=", wanted),)
        token = None
        with replica.store.scan(ScanSpec(order=order, predicates=predicates)) as cursor:
            while (batch := cursor.next_batch(100)) is not None and not len(batch):
                assert cursor.resume_token not in (None, token), (
                    "the token does not advance, so the next page would begin here again"
                )
                token = cursor.resume_token
        assert batch is not None and batch.to_rows() == [(wanted, None, wanted)]
        assert replica.rows(order=order, predicates=predicates, after=token) == [(wanted, None, wanted)]

    @pytest.mark.parametrize("order", [Order.KEY, Order.KEY_DESCENDING])
    def test_scans_of_a_range_that_each_read_one_batch_come_to_its_end(
        self, harness: StoreHarness, order: Order
    ) -> None:
        """Between the last row of a range of texts and its end there are always other keys."""
        replica = harness.replica(schema_from_plain({"columns": [{"name": "k", "type": "string"}], "key": ["k"]}))
        replica.insert(*((chr(number),) for number in range(ord("a"), ord("z"))))
        for _ in range(2):
            for spec in (ScanSpec(key_until=b"cc"), ScanSpec(key_from=b"cc"), ScanSpec(key_from=b"cc", key_until=b"x")):
                found: list[Row] = []
                token: bytes | None = None
                for _ in range(30):
                    with replica.store.scan(msgspec.structs.replace(spec, order=order, after=token)) as cursor:
                        while (batch := cursor.next_batch(2)) is not None and cursor.resume_token in (None, token):
                            assert not len(batch), "a page of rows needs a token that has moved"
                        if batch is None:
                            break
                        found, token = found + batch.to_rows(), cursor.resume_token
                else:
                    pytest.fail(f"the scan does not end: its token is {token!r}")
                assert found == replica.rows(key_from=spec.key_from, key_until=spec.key_until, order=order)
            replica.flush()

    def test_a_scan_continues_from_a_cursor_that_was_closed_after_any_batch(self, harness: StoreHarness) -> None:
        replica = loaded(harness)
        for count in range(6):
            found, token = [], None
            with replica.store.scan(ScanSpec(order=Order.KEY)) as cursor:
                for _ in range(count):
                    batch = cursor.next_batch(9)
                    assert batch is not None
                    assert len(batch) <= 9
                    found += batch.to_rows()
                token = cursor.resume_token
            assert found + replica.rows(after=token) == expected()

    def test_a_cursor_returns_the_rows_of_the_time_when_it_was_opened(self, harness: StoreHarness) -> None:
        replica = loaded(harness)
        with replica.store.scan(ScanSpec(order=Order.KEY)) as cursor:
            first = cursor.next_batch(10)
            replica.insert(*((n, "late", 0) for n in range(100, 120)))
            replica.write(delete(*((n,) for n in range(30, 50))))
            replica.store.set_history_floor(10 * len(replica.log))
            replica.store.compact()
            assert first is not None
            found = first.to_rows() + [row for batch in cursor for row in batch.to_rows()]
        assert found == expected()
        assert len(replica.rows()) == 50

    def test_a_closed_cursor_returns_no_batch(self, harness: StoreHarness) -> None:
        cursor = loaded(harness).store.scan(ScanSpec())
        cursor.close()
        cursor.close()
        assert cursor.next_batch() is None

    @pytest.mark.parametrize("flushed", [False, True])
    def test_a_closed_store_refuses_every_read(self, harness: StoreHarness, flushed: bool) -> None:
        """Readers of other threads come late. A closed store has no rows, but that is no answer."""
        replica = loaded(harness)
        if flushed and "durable_flush" in replica.store.capabilities:
            replica.flush()
        store, now = replica.store, 10 * len(replica.log)
        key = encode_key(SCHEMA, (1,))
        store.close()
        store.close()
        reads: list[Callable[[], object]] = [
            lambda: store.scan(ScanSpec()).next_batch(),
            lambda: store.scan(ScanSpec(), now).next_batch(),
            lambda: store.lookup([key]),
            lambda: store.lookup_inline([key], now),
            lambda: list(store.diff(now - 10, now, ScanSpec())),
            lambda: store.checksum(),
            lambda: list(store.export()),
        ]
        for read in reads:
            with pytest.raises(Unavailable):
                read()

    @pytest.mark.parametrize("flushed", [False, True])
    @pytest.mark.parametrize("order", Order)
    def test_a_cursor_of_a_store_that_is_closed_never_ends_early(
        self, harness: StoreHarness, flushed: bool, order: Order
    ) -> None:
        replica = loaded(harness)
        if flushed and "durable_flush" in replica.store.capabilities:
            replica.flush()
        cursor = replica.store.scan(ScanSpec(order=order))
        first = cursor.next_batch(10)
        assert first is not None
        replica.store.close()
        try:
            found = first.to_rows() + [row for batch in cursor for row in batch.to_rows()]
        except Unavailable:
            return
        assert sorted(found, key=lambda row: row[0]) == expected()

    @pytest.mark.parametrize(
        "spec",
        [
            ScanSpec(columns=(1, 99)),
            ScanSpec(columns=(1, 1)),
            ScanSpec(predicates=(Compare(99, "=", 1),)),
            ScanSpec(predicates=(Compare(1, "=", "one"),)),
            ScanSpec(predicates=(In(2, (None,)),)),
            ScanSpec(predicates=(Prefix(1, "x"),)),
        ],
    )
    def test_unknown_columns_and_unfit_predicates_are_refused(self, harness: StoreHarness, spec: ScanSpec) -> None:
        replica = loaded(harness)
        with pytest.raises(SchemaMismatch), replica.store.scan(spec) as cursor:
            cursor.next_batch()

    def test_every_type_is_read_as_it_was_written(self, harness: StoreHarness) -> None:
        columns = [{"name": "k", "type": "int8"}]
        columns += [{"name": t, "type": t, "nullable": True} for t, _ in TYPES]  # type: ignore[dict-item]
        replica = harness.replica(schema_from_plain({"columns": columns, "key": ["k"]}))
        rows: list[Row] = [
            (0, *(None for _ in TYPES)),
            (1, *(values[0] for _, values in TYPES)),
            (2, *(values[1] for _, values in TYPES)),
        ]
        replica.insert(*[tuple(map(_wire, row)) for row in rows])
        assert replica.rows() == rows

    @pytest.mark.parametrize(("column_type", "values"), TYPES)
    def test_every_type_can_be_a_key_and_keeps_its_order(
        self, harness: StoreHarness, column_type: str, values: tuple[Any, Any]
    ) -> None:
        columns = [{"name": "n", "type": "int32"}, {"name": "k", "type": column_type}]
        schema = schema_from_plain({"columns": columns, "key": ["k", "n"]})
        replica = harness.replica(schema)
        rows = sorted(((n, value) for n in (3, -1, 2) for value in values), key=lambda r: r[0])
        replica.insert(*[tuple(map(_wire, row)) for row in random.Random(1).sample(rows, 6)])
        assert replica.rows() == sorted(rows, key=lambda row: (row[1], row[0]))


def _wire(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value
