"""Conformance checks for stores: scans of few rows, which an engine may read in another way than long ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

import pytest

from stelae.rows.keys import encode_key
from stelae.spi.errors import TooOld
from stelae.spi.scan import Compare, Order, ScanSpec
from stelae.spi.store import Cursor
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, upsert
from stelae.testing.conformance.store_history import compact_all, with_random_entries
from stelae.testing.conformance.store_lookup import KEYS, by_key
from stelae.testing.conformance.store_model import Op, Row

LIMITS = (0, 1, 2, 5, 20)


def check_short_scans(
    replica: HarnessReplica,
    expected: Mapping[bytes, Row],
    at: int | None,
    *,
    starts: Iterable[bytes] = KEYS,
    limits: Iterable[int] = LIMITS,
) -> None:
    """Scan a few rows from each of some keys on, in both directions, and compare them with the expected ones.

    Raises:
        AssertionError: a row is wrong, or a scan that the event loop may run has opened a file.
    """
    keys = sorted(expected)
    for start, limit, order in product([*starts], [*limits], (Order.KEY, Order.KEY_DESCENDING)):
        if order is Order.KEY:
            spec = ScanSpec(key_from=start, limit=limit, order=order)
            wanted = [key for key in keys if key >= start]
        else:
            spec = ScanSpec(key_until=start, limit=limit, order=order)
            wanted = [key for key in keys if key < start][::-1]
        assert _scanned(replica, spec, at) == [expected[key] for key in wanted[:limit]], (at, spec)


def _scanned(replica: HarnessReplica, spec: ScanSpec, at: int | None) -> list[Row]:
    """Return the rows of a scan, by the event loop if it may run it."""
    replica.forbid_files()
    try:
        cursor = replica.store.scan_inline(spec, at)
        if cursor is not None:
            return _rows_of(cursor)
    finally:
        replica.allow_files()
    return _rows_of(replica.store.scan(spec, at))


def _rows_of(cursor: Cursor) -> list[Row]:
    with cursor:
        return [row for batch in cursor for row in batch.to_rows()]


class ShortScanChecks:
    """Checks that a scan with a limit returns the first rows of the scan without one."""

    def test_a_limit_cuts_the_rows_of_a_scan_at_any_time(self, harness: StoreHarness) -> None:
        replica, model = with_random_entries(harness)
        times = [None] if "history" not in harness.engine.capabilities else [None, 0, 50, 150, 250, 10_000]
        disturbances: list[Callable[[], None]] = [replica.flush, replica.compact, replica.crash]
        for disturb in (lambda: None, *disturbances):
            disturb()
            for at in times:
                check_short_scans(replica, by_key(SCHEMA, model.rows(at)), at)

    def test_rows_of_many_versions_and_deletions_are_passed_over(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.write(upsert(*((n, "a", n) for n in range(-60, 60))))
        replica.flush()
        for turn in range(30):
            replica.write(upsert((0, "b", turn)))
            replica.write(Op(OpKind.UPDATE, [(1, turn)], (1, 3)))
        replica.write(delete(*((n,) for n in range(-50, 50) if n not in (0, 1))))
        rows = [(n, "a", n) for n in range(-60, 60) if not -50 <= n < 50]
        expected = by_key(SCHEMA, [*rows, (0, "b", 29), (1, "a", 29)])
        starts = [encode_key(SCHEMA, (n,)) for n in (-60, -51, -50, -1, 0, 1, 2, 49, 50, 59)]
        for _ in range(3):
            check_short_scans(replica, expected, None, starts=starts)
            replica.flush()
            replica.compact()

    def test_rows_that_later_entries_wrote_anew_are_the_newest(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        rows = {n: (n, "a", n) for n in range(60)}
        replica.write(upsert(*rows.values()))
        for turn in range(3):
            for first in (turn, 20 + turn, 40):
                new = [(n, "b", turn) for n in range(first, first + 20, 7)]
                rows |= {row[0]: row for row in new}
                replica.write(upsert(*new))
            check_short_scans(replica, by_key(SCHEMA, [*rows.values()]), None)
            replica.flush()
            check_short_scans(replica, by_key(SCHEMA, [*rows.values()]), None)

    def test_a_filter_finds_rows_far_behind_the_first_ones(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.write(upsert(*((n, "a", n) for n in range(300))))
        for _ in range(2):
            for order, start in ((Order.KEY, 250), (Order.KEY_DESCENDING, 40)):
                above = Compare(3, ">=" if order is Order.KEY else "<", start)
                found = replica.rows(predicates=(above,), limit=3, order=order)
                step = 1 if order is Order.KEY else -1
                first = start if order is Order.KEY else start - 1
                assert found == [(n, "a", n) for n in range(first, first + 3 * step, step)]
            replica.flush()

    def test_a_scan_of_few_rows_goes_on_from_its_token(self, harness: StoreHarness) -> None:
        replica, model = with_random_entries(harness)
        replica.flush()
        rows = model.rows()
        for order in (Order.KEY, Order.KEY_DESCENDING):
            found: list[Row] = []
            token = None
            while True:
                spec = ScanSpec(limit=3, order=order, after=token)
                with replica.store.scan(spec) as cursor:
                    page = [row for batch in cursor for row in batch.to_rows()]
                    token = cursor.resume_token
                if not page:
                    break
                found += page
            assert found == (rows if order is Order.KEY else rows[::-1])

    def test_a_scan_of_few_rows_below_the_floor_is_too_old(self, harness: StoreHarness) -> None:
        replica, _ = with_random_entries(harness)
        replica.store.set_history_floor(150)
        compact_all(replica)
        with pytest.raises(TooOld):
            _scanned(replica, ScanSpec(limit=3), 149)
