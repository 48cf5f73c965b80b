"""Conformance checks for stores: schema changes, tables of extreme shape, and flushes and compactions in between.

Engines without durable flush run these checks, too. For them a flush does nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stelae.rows.keys import encode_key
from stelae.rows.limits import DEFAULTS, HIGHEST
from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import SchemaMismatch
from stelae.spi.scan import Compare, In, IsNull, Prefix
from stelae.spi.schema import COLUMNS_MAX, Schema
from stelae.spi.write import OpKind, RowCode
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, insert, upsert
from stelae.testing.conformance.store_model import Op, Row

KEY_BYTES, CELL_BYTES = HIGHEST.key_bytes_max, DEFAULTS.cell_bytes_max


def changed(before: Schema, *, drop: int = 0, add: dict[str, Any] | None = None, rename: dict[int, str]) -> Schema:
    """Return the next version of a schema."""
    plain = schema_to_plain(before)
    plain["version"] += 1
    plain["columns"] = [c for c in plain["columns"] if c["id"] != drop]
    for column in plain["columns"]:
        column["name"] = rename.get(column["id"], column["name"])
    plain["columns"] += [add] if add else []
    return schema_from_plain(plain)


def with_default(before: Schema, column_id: int, default: Any) -> Schema:
    """Return the next version of a schema, with another default of a column."""
    plain = schema_to_plain(before)
    plain["version"] += 1
    next(column for column in plain["columns"] if column["id"] == column_id)["default"] = default
    return schema_from_plain(plain)


def flush_and_compact(replica: HarnessReplica) -> None:
    """Flush and compact, as a node does sooner or later."""
    replica.flush()
    replica.compact()


class ShapeChecks:
    """Checks that a table of any shape has the same rows in memory, flushed, and after a restart."""

    def test_columns_can_be_added_dropped_and_renamed_over_rows_of_every_age(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1), (2, None, 2))
        flush_and_compact(replica)
        second = changed(
            SCHEMA, drop=3, add={"id": 4, "name": "price", "type": "double", "default": 1.5}, rename={2: "t"}
        )
        replica.change_schema(second)
        replica.insert((3, "c", 3.5))
        replica.write(Op(OpKind.UPDATE, [(1, 0.5)], (1, 4)))
        flush_and_compact(replica)
        third = changed(second, add={"id": 5, "name": "count", "type": "int32", "nullable": True}, rename={4: "cost"})
        replica.change_schema(third)
        replica.write(Op(OpKind.UPDATE, [(2, 9)], (1, 5)), insert((4, "d", 4.5, 4)))
        rows = [(1, "a", 0.5, None), (2, None, 1.5, 9), (3, "c", 3.5, None), (4, "d", 4.5, 4)]
        assert replica.rows() == rows
        flush_and_compact(replica)
        assert replica.rows() == rows
        replica.crash()
        assert replica.rows() == rows
        assert replica.store.schema == third

    def test_one_change_may_drop_a_column_and_add_another(self, harness: StoreHarness) -> None:
        """A regression: the number of columns stays the same, and an engine that compared numbers and not ids failed at
        the next flush, and again after each restart, when it applied the log."""
        replica = harness.replica()
        replica.insert((1, "a", 1), (2, None, 2))
        second = changed(SCHEMA, drop=2, add={"id": 4, "name": "b", "type": "int64", "nullable": True}, rename={})
        replica.change_schema(second)
        replica.crash()
        rows: list[Row] = [(1, 1, None), (2, 2, None)]
        assert replica.rows() == rows
        flush_and_compact(replica)
        assert replica.rows() == rows
        replica.insert((3, 3, 33))
        replica.write(Op(OpKind.UPDATE, [(1, 11)], (1, 4)))
        rows = [(1, 1, 11), (2, 2, None), (3, 3, 33)]
        third = changed(second, drop=4, add={"id": 5, "name": "b", "type": "string", "nullable": True}, rename={})
        replica.change_schema(third)
        rows = [(key, count, None) for key, count, _ in rows]
        for _ in range(2):
            assert replica.rows() == rows
            flush_and_compact(replica)
            assert replica.rows(columns=(5, 1)) == [(None, key) for key, _, _ in rows]
            replica.crash()

    def test_predicates_and_reads_in_the_past_see_the_default_in_older_rows(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        older = [(n, "a", n) for n in range(40)]
        replica.insert(*older)
        flush_and_compact(replica)
        wider = changed(SCHEMA, add={"id": 4, "name": "kind", "type": "string", "default": "old"}, rename={})
        replica.change_schema(wider)
        replica.insert((40, "c", 3, "new"))
        for _ in range(2):
            assert replica.rows() == [*((*row, "old") for row in older), (40, "c", 3, "new")]
            assert replica.rows(predicates=(Compare(4, "=", "old"),), columns=(1,)) == [(n,) for n in range(40)]
            assert replica.rows(predicates=(Prefix(4, "n"),), columns=(1,)) == [(40,)]
            assert replica.rows(predicates=(IsNull(4),), columns=(1,)) == []
            flush_and_compact(replica)
        if "history" in harness.engine.capabilities:
            assert replica.rows(10) == [(*row, "old") for row in older]

    def test_a_later_default_changes_no_row_that_exists(self, harness: StoreHarness) -> None:
        """A regression: rows older than a column had the default in force, so a change of it changed them."""
        replica = harness.replica()
        replica.insert((1, "a", 1), (2, "b", 2))
        flush_and_compact(replica)
        column = {"id": 4, "name": "kind", "type": "string", "default": "first"}
        second = changed(SCHEMA, add=column, rename={})
        replica.change_schema(second)
        replica.change_schema(with_default(second, 4, "later"))
        replica.write(Op(OpKind.UPDATE, [(2, 22)], (1, 3)), Op(OpKind.INSERT, [(3,)], (1,)))
        rows: list[Row] = [(1, "a", 1, "first"), (2, "b", 22, "first"), (3, None, 7, "later")]
        for default in ("later", None):
            replica.change_schema(with_default(replica.schema, 4, default))
            assert replica.rows() == rows
            assert replica.rows(predicates=(Compare(4, "=", "first"),), columns=(1,)) == [(1,), (2,)]
            flush_and_compact(replica)
            assert replica.rows() == rows
            replica.crash()

    def test_rows_made_for_an_earlier_version_have_its_defaults(self, harness: StoreHarness) -> None:
        """The leader accepted them under that version. If the default was dropped meanwhile, replicas failed."""
        replica = harness.replica()
        second = with_default(SCHEMA, 3, 8)
        replica.change_schema(second)
        replica.write(Op(OpKind.INSERT, [(1,)], (1,)), schema=SCHEMA)
        replica.change_schema(with_default(second, 3, None))
        replica.write(Op(OpKind.INSERT, [(2,)], (1,)), Op(OpKind.UPSERT, [(3,)], (1,)), schema=second)
        assert replica.rows() == [(1, None, 7), (2, None, 8), (3, None, 8)]

    def test_a_dropped_column_is_unknown(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        flush_and_compact(replica)
        replica.change_schema(changed(SCHEMA, drop=2, rename={}))
        for wrong in ({"columns": (1, 2)}, {"predicates": (IsNull(2),)}):
            with pytest.raises(SchemaMismatch):
                replica.rows(**wrong)
        assert replica.rows() == [(1, 1)]

    def test_a_replaced_version_of_a_row_matches_no_predicate(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert(*((n, "old", n) for n in range(20)))
        flush_and_compact(replica)
        replica.write(upsert(*((n, "new", 100 + n) for n in range(0, 20, 2))))
        replica.write(delete((1,), (3,)), Op(OpKind.UPDATE, [(5, "odd")], (1, 2)))
        expected = [(n, "old", n) for n in range(7, 20, 2)]
        for _ in range(2):
            assert replica.rows(predicates=(Compare(2, "=", "old"),)) == expected
            assert replica.rows(predicates=(Compare(3, "<", 20), In(2, ("old", "odd")))) == [(5, "odd", 5), *expected]
            assert replica.rows(predicates=(Compare(3, ">=", 100),), columns=(1,)) == [(n,) for n in range(0, 20, 2)]
            replica.flush()

    def test_updates_of_different_columns_add_up_over_flushed_and_unflushed_rows(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert(*((n, f"n{n}", n) for n in range(12)))
        flush_and_compact(replica)
        replica.write(Op(OpKind.UPDATE, [(n, 50 + n) for n in range(0, 12, 2)], (1, 3)))
        replica.write(Op(OpKind.UPDATE, [(n, "x") for n in range(0, 12, 3)], (1, 2)))
        replica.write(Op(OpKind.UPSERT, [(n, None) for n in (4, 12)], (1, 2)))
        rows: list[Row] = [(n, "x" if n % 3 == 0 else f"n{n}", n if n % 2 else 50 + n) for n in range(12)]
        rows[4], rows[12:] = (4, None, 54), [(12, None, 7)]
        assert replica.rows() == rows
        flush_and_compact(replica)
        assert replica.rows() == rows
        if "history" in harness.engine.capabilities:
            assert replica.rows(20)[0] == (0, "n0", 50)
            assert replica.rows(10) == [(n, f"n{n}", n) for n in range(12)]

    def test_a_table_may_have_the_maximum_number_of_columns(self, harness: StoreHarness) -> None:
        columns: list[dict[str, Any]] = [{"name": "k", "type": "int32"}]
        kinds = ("int64", "string", "double", "bool")
        columns += [{"name": f"c{n}", "type": kinds[n % 4], "nullable": True} for n in range(COLUMNS_MAX - 1)]
        replica = harness.replica(schema_from_plain({"columns": columns, "key": ["k"]}))
        values = (7, "text", 0.5, True)
        rows = [(k, *(values[n % 4] if (n + k) % 5 else None for n in range(COLUMNS_MAX - 1))) for k in range(5)]
        replica.insert(*rows)
        replica.write(Op(OpKind.UPDATE, [(2, 8)], (1, 2)))
        rows[2] = (2, 8, *rows[2][2:])
        assert replica.rows() == rows
        flush_and_compact(replica)
        assert replica.rows() == rows
        assert replica.rows(columns=(299, 1)) == [(row[298], row[0]) for row in rows]

    def test_keys_and_cells_may_be_as_long_as_the_highest_limits(self, harness: StoreHarness) -> None:
        columns = [{"name": n, "type": "string"} for n in ("a", "b")] + [{"name": "v", "type": "binary"}]
        schema = schema_from_plain({"columns": columns, "key": ["a", "b"]})
        limit = min(harness.engine.key_bytes_max or KEY_BYTES, KEY_BYTES)
        replica = harness.replica(schema)
        half = (limit - 2) // 2
        rows = [("k" * half, f"{n:05d}".rjust(limit - 2 - half, "p"), bytes([n]) * CELL_BYTES) for n in range(6)]
        rows[3] = (*rows[3][:2], bytes([3]) * HIGHEST.cell_bytes_max)
        assert max(len(encode_key(schema, row[:2])) for row in rows) == limit
        replica.insert(*rows[::-1])
        for _ in range(2):
            assert replica.rows() == rows
            low, high = (encode_key(schema, rows[n][:2]) for n in (2, 4))
            assert replica.rows(key_from=low, key_until=high) == rows[2:4]
            flush_and_compact(replica)
        assert replica.insert(rows[3]) == [(0, RowCode.ALREADY_PRESENT)]

    def test_keys_of_several_columns_keep_their_order_and_their_ranges(self, harness: StoreHarness) -> None:
        types = ("string", "int8", "decimal(9,2)", "binary", "timestamp")
        columns = [{"name": t, "type": t} for t in types]
        schema = schema_from_plain({"columns": columns, "key": [*types]})
        replica = harness.replica(schema)
        keys = [
            (text, number, price, raw, time)
            for text in ("", "a", "a\0", "a\0b", "b")
            for number in (-128, 5)
            for price in ("-1.50", "2.00")
            for raw in (b"", b"\0", b"\xff")
            for time in (-1, 1)
        ]
        replica.insert(*keys[::-1])
        encoded = [encode_key(schema, key) for key in keys]
        assert encoded == sorted(encoded)
        for _ in range(2):
            found = [tuple(map(str, row)) for row in replica.rows()]
            assert found == [tuple(map(str, key)) for key in keys]
            some = replica.rows(key_from=encoded[10], key_until=encoded[20])
            assert [tuple(map(str, row)) for row in some] == [tuple(map(str, key)) for key in keys[10:20]]
            flush_and_compact(replica)

    def test_a_floating_point_key_has_one_zero_and_one_nan(self, harness: StoreHarness) -> None:
        columns = [{"name": "k", "type": "double"}, {"name": "v", "type": "int8"}]
        replica = harness.replica(schema_from_plain({"columns": columns, "key": ["k"]}))
        replica.insert((math.inf, 1), (0.0, 2), (-math.inf, 3), (math.nan, 4), (-1.5, 5))
        for _ in range(2):
            faults = replica.insert((-0.0, 9), (-math.nan, 9), (1.5, 6))
            assert faults == [(place, RowCode.ALREADY_PRESENT) for place in (0, 1)]
            assert [row[1] for row in replica.rows()] == [3, 5, 2, 6, 1, 4]
            assert replica.rows(predicates=(Compare(1, "=", 0.0),)) == [(0.0, 2)]
            assert replica.rows(predicates=(In(1, (-0.0, math.nan, 7.0)),)) == [(0.0, 2)]
            assert replica.rows(predicates=(In(1, (math.nan,)),)) == []
            replica.write(delete((1.5,)))
            flush_and_compact(replica)
