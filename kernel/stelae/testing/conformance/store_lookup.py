"""Conformance checks for stores: lookups of rows by key, which must return what scans return."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from stelae.rows.found_rows import plain_rows
from stelae.rows.keys import encode_key, encode_keys
from stelae.rows.limits import RANGES
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import TooOld
from stelae.spi.payload import WritePayload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.store import FoundBatch, FoundRows
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, upsert
from stelae.testing.conformance.store_history import compact_all, with_random_entries
from stelae.testing.conformance.store_model import Op, Row
from stelae.testing.conformance.store_shapes import changed

KEYS = [encode_key(SCHEMA, (n,)) for n in range(-2, 14)]
"""The keys of random entries, and some that no entry writes."""

NO_KEYS = [b"", b"\x80", KEYS[3] + b"\0", KEYS[3][:-1]]
"""Bytes that are not an encoded key of ``SCHEMA``."""

MANY_KEYS = 200
"""Keys are looked up at least this number at a time, too."""

EVERY_TYPE = schema_from_plain(
    {
        "columns": [
            {"name": "k", "type": "timestamp"},
            {"name": "l", "type": "string"},
            *(
                {"name": kind, "type": kind, "nullable": True}
                for kind in ("bool", "int8", "int64", "float", "double", "decimal(9,2)", "string", "binary", "date")
            ),
            {"name": "at", "type": "timestamp", "nullable": True},
        ],
        "key": ["k", "l"],
    }
)


def check_lookups(
    replica: HarnessReplica, expected: Mapping[bytes, Row], keys: Sequence[bytes], at: int | None
) -> None:
    """Look up keys, on a worker and on the event loop, and compare the rows with the expected ones.

    They are looked up once as they are, and once repeated so often that an engine may return a batch.

    Raises:
        AssertionError: a row is wrong, or the lookup on the event loop has opened a file.
    """
    for some in (keys, [*keys] * (1 + MANY_KEYS // len(keys))):
        _check_lookup(replica, [expected.get(key) for key in some], some, at)


def _check_lookup(replica: HarnessReplica, wanted: Sequence[Row | None], keys: Sequence[bytes], at: int | None) -> None:
    for _ in range(2):  # The first lookup on a worker may leave decoded rows for the second one on the loop.
        replica.forbid_files()
        try:
            inline = replica.store.lookup_inline(keys, at)
        finally:
            replica.allow_files()
        assert list(inline.unread) == sorted({*inline.unread}), inline
        assert _decided(inline, wanted) == list(plain_rows(inline)), (at, inline.unread)
        found = replica.store.lookup(keys, at)
        assert not found.unread
        assert found.schema == replica.store.schema
        assert list(plain_rows(found)) == wanted, at
        check_types(found)


def check_types(found: FoundRows | FoundBatch) -> None:
    """Check that a batch has the columns of its schema, and each row once."""
    if isinstance(found, FoundBatch):
        assert found.rows.layout == found.schema.layout and found.rows.arrow.schema == found.schema.layout.arrow
        assert {*found.positions} - {-1} == {*range(len(found.rows))}


def _decided(inline: FoundRows | FoundBatch, wanted: Sequence[Row | None]) -> list[Row | None]:
    unread = {*inline.unread}
    return [None if position in unread else row for position, row in enumerate(wanted)]


def _next_of_key_1(row: Row | None, turn: int) -> tuple[Row | None, Op]:
    """Return the next row with the key 1, and the operation that makes it.

    Most updates leave one column alone for so long that its value is many versions below the newest one."""
    if row is None:
        return (1, f"n{turn}", 7), Op(OpKind.UPSERT, [(1, f"n{turn}")], (1, 2))  # 7 is the default.
    if turn % 17 == 16:
        return None, delete((1,))
    if turn % 9 != 3:
        return (1, row[1], turn), Op(OpKind.UPDATE, [(1, turn)], (1, 3))
    return (1, f"t{turn}", row[2]), Op(OpKind.UPDATE, [(1, f"t{turn}")], (1, 2))


def _with_a_byte_more(array: Any) -> Any:
    """Return an array with the same values, of whose buffers each has one more byte."""
    import pyarrow as pa

    buffers = [None if one is None else pa.py_buffer(one.to_pybytes() + b"\xff") for one in array.buffers()]
    return pa.Array.from_buffers(array.type, len(array), buffers)


def by_key(schema: Schema, rows: Sequence[Row]) -> dict[bytes, Row]:
    """Return rows by their encoded key."""
    return dict(zip(encode_keys(schema, RowBatch.from_equal_rows(schema.layout, rows)), rows, strict=True))


class LookupChecks:
    """Checks that a lookup returns the rows of a scan, for any keys at any time."""

    def test_each_key_has_its_row_or_none_in_the_order_of_the_keys(self, harness: StoreHarness) -> None:
        replica, model = with_random_entries(harness)
        keys = [*KEYS, *NO_KEYS, KEYS[5], *KEYS[::-1]]
        times = [None] if "history" not in harness.engine.capabilities else [None, 0, 9, *range(10, 301, 10), 10_000]
        disturbances: list[Callable[[], None]] = [replica.flush, replica.compact, replica.crash, replica.flush]
        for disturb in (lambda: None, *disturbances):
            disturb()
            for at in times:
                check_lookups(replica, by_key(SCHEMA, model.rows(at)), keys, at)
        assert not plain_rows(replica.store.lookup([])) and not plain_rows(replica.store.lookup_inline([]))

    def test_a_deleted_row_is_not_found_wherever_its_versions_are(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.write(upsert(*((n, "a", n) for n in range(9))))
        replica.flush()
        check_lookups(replica, by_key(SCHEMA, replica.rows()), KEYS, None)
        replica.write(delete((3,), (4,)))
        check_lookups(replica, by_key(SCHEMA, [(n, "a", n) for n in range(9) if n not in (3, 4)]), KEYS, None)
        replica.flush()
        replica.write(upsert((4, "b", 40)))
        for _ in range(2):
            rows = [(n, "a", n) for n in range(9) if n not in (3, 4)]
            check_lookups(replica, by_key(SCHEMA, [*rows, (4, "b", 40)]), KEYS, None)
            replica.flush()
            replica.compact()

    def test_rows_of_partial_updates_have_the_values_of_all_of_them(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.write(upsert(*((n, "a", n) for n in range(9))))
        replica.flush()
        replica.write(Op(OpKind.UPDATE, [(n, 100 + n) for n in range(0, 9, 2)], (1, 3)))
        replica.write(Op(OpKind.UPDATE, [(n, None) for n in range(0, 9, 4)], (1, 2)))
        replica.write(Op(OpKind.UPSERT, [(n, "new") for n in range(7, 11)], (1, 2)))
        rows = [(n, None if n % 4 == 0 else "a", n if n % 2 else 100 + n) for n in range(7)]
        rows += [(7, "new", 7), (8, "new", 108), (9, "new", 7), (10, "new", 7)]
        for _ in range(3):
            check_lookups(replica, by_key(SCHEMA, rows), KEYS, None)
            replica.flush()
            replica.compact()

    def test_each_of_many_updates_between_reads_of_a_row_is_seen(self, harness: StoreHarness) -> None:
        """An engine may keep what it completed from many versions. Later versions and earlier times must not suffer."""
        replica = harness.replica()
        replica.write(upsert((1, "a", 1), (2, "a", 2)))
        with_history = "history" in harness.engine.capabilities
        row: Row | None = (1, "a", 1)
        seen = {10: row}
        for turn in range(48):
            row, op = _next_of_key_1(row, turn)
            again = turn % 9 == 4  # Several entries may have the same timestamp.
            stamp = max(seen) if again else 10 * (len(replica.log) + 1)
            replica.write(op, timestamp=stamp)
            seen[stamp] = row
            for at in [None, *([*seen][-9::2] if with_history else [])]:
                expected = [one for one in (seen[max(seen) if at is None else at], (2, "a", 2)) if one is not None]
                check_lookups(replica, by_key(SCHEMA, expected), KEYS, at)
                assert replica.rows(at, limit=3) == expected, at
            if turn % 13 == 12:
                replica.flush()
                replica.compact()
        wider = changed(SCHEMA, add={"id": 4, "name": "price", "type": "double", "default": 1.5}, rename={})
        replica.change_schema(wider)
        expected = [(*one, 1.5) for one in (row, (2, "a", 2)) if one is not None]
        check_lookups(replica, by_key(wider, expected), KEYS, None)
        assert replica.rows(limit=3) == expected

    def test_many_rows_of_earlier_schemas_have_what_a_scan_shows(self, harness: StoreHarness) -> None:
        """No row has the new column. Each has the default with which the column was added, or null."""
        for default in (None, 1.5):
            added = {"id": 4, "name": "price", "type": "double"}
            added |= {"nullable": True} if default is None else {"default": default}
            wider = changed(SCHEMA, add=added, rename={})
            replica = harness.replica()
            replica.write(upsert(*((n, "a", n) for n in range(40))))
            replica.flush()
            replica.write(upsert(*((n, "b", n) for n in range(30, 60))))
            replica.change_schema(wider)
            replica.write(upsert(*((n, "c", n, 0.5) for n in range(50, 80))))
            rows: list[Row] = [(n, "a" if n < 30 else "b", n, default) for n in range(50)]
            rows += [(n, "c", n, 0.5) for n in range(50, 80)]
            keys = [encode_key(SCHEMA, (n,)) for n in range(90)]
            for _ in range(3):
                check_lookups(replica, by_key(wider, rows), keys, None)
                replica.flush()
                replica.compact()

    def test_nulls_and_extreme_values_are_those_of_a_scan(self, harness: StoreHarness) -> None:
        replica = harness.replica(EVERY_TYPE)
        least, most = -(1 << 63), (1 << 63) - 1
        days, (first, last) = RANGES["date"], RANGES["timestamp"]
        rows: list[Row] = [
            (first, "", *[None] * 10),
            (0, "\0", False, -128, least, 0.5, -0.0, Decimal("-9999999.99"), "", b"", days[0], first),
            (last, "\U0001f600", True, 127, most, math.inf, 1e308, Decimal("0.01"), "\0y", b"\xff", days[1], last),
        ]
        assert replica.write(Op(OpKind.UPSERT, rows)) == []
        for _ in range(3):
            scanned = by_key(EVERY_TYPE, replica.rows())
            assert [*scanned.values()] == rows
            absent = [encode_key(EVERY_TYPE, key) for key in ((first, "\0"), (0, ""), (last - 1, "x"))]
            check_lookups(replica, scanned, [*scanned, *absent, *(key + b"\0" for key in scanned)], None)
            replica.flush()
            replica.compact()

    def test_buffers_of_a_client_may_have_any_bytes_after_their_values(self, harness: StoreHarness) -> None:
        """A regression: one such write was accepted, and then every replica failed at the next flush."""
        import pyarrow as pa

        rows = [(1, "a", 10), (2, None, 20), (5, "", 50)]
        columns = [*map(_with_a_byte_more, RowBatch.from_equal_rows(SCHEMA.layout, rows).arrow.columns)]
        body = bytes(pa.RecordBatch.from_arrays(columns, schema=SCHEMA.layout.arrow).serialize())
        assert RowBatch.from_ipc(SCHEMA.layout, body).arrow.column(0).buffers()[1].size == 25
        replica = harness.replica()
        entry = replica.entry(upsert(*rows))
        assert isinstance(entry.change, WritePayload)
        group = msgspec.structs.replace(entry.change.groups[0], body=body)
        change = msgspec.structs.replace(entry.change, groups=(group,))
        replica.log[-1] = msgspec.structs.replace(entry, change=change)
        replica.store.apply(replica.log)
        for _ in range(3):
            check_lookups(replica, by_key(SCHEMA, rows), KEYS, None)
            assert replica.rows() == rows
            replica.flush()
            replica.compact()

    def test_a_lookup_below_the_floor_is_too_old_and_one_at_it_is_served(self, harness: StoreHarness) -> None:
        replica, model = with_random_entries(harness)
        replica.store.set_history_floor(150)
        compact_all(replica)
        for look_up in (replica.store.lookup, replica.store.lookup_inline):
            with pytest.raises(TooOld) as caught:
                look_up(KEYS, 149)
            assert caught.value.floor == 150
        if "history" in harness.engine.capabilities:
            for at in range(150, 301, 10):
                check_lookups(replica, by_key(SCHEMA, model.rows(at)), KEYS, at)

    def test_many_keys_in_any_order_are_found_among_many_rows(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        for start in range(0, 600, 200):
            replica.write(upsert(*((n, f"n{n}", n) for n in range(start, 3 * start + 200, 3))))
            replica.flush()
        keys = [encode_key(SCHEMA, (n,)) for n in range(-5, 2000, 7)]
        random.Random(1).shuffle(keys)
        check_lookups(replica, by_key(SCHEMA, replica.rows()), keys, None)
