"""Pruning: the keys and row groups that a scan need not read, because no row in them can match its predicates.

Predicates on a key of one column narrow the key range. Other predicates are compared with the statistics of the Parquet
file. A row group may be skipped only if no older or newer version has one of its keys, unless the predicate is on the
key. Otherwise an older version could become visible that a newer, skipped one has replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stelae.rows.key_order import Comparable, KeyOrder
from stelae.rows.keys import encode_ends, encode_key
from stelae.spi.rows import to_array
from stelae.spi.scan import Compare, In, IsNull, Order, Predicate, Prefix, ScanSpec
from stelae.spi.schema import Column, Layout, Schema
from stelae_store_columnar.block import Statistics
from stelae_store_columnar.levels import RowGroupSlice
from stelae_store_columnar.schema_adapter import SchemaAdapter
from stelae_store_columnar.sources import SourceSlice

Bound = Comparable | None


def key_bounds(order: KeyOrder, spec: ScanSpec) -> tuple[Bound, Bound]:
    """Return the key range of a scan, after its resume token."""
    low = None if spec.key_from is None else order.bound(spec.key_from)
    high = None if spec.key_until is None else order.bound(spec.key_until)
    if spec.after is not None and spec.order is Order.KEY_DESCENDING:
        end = order.bound(spec.after)
        high = end if high is None else min(high, end)
    elif spec.after is not None:
        start = order.bound(spec.after + b"\0")
        low = start if low is None else max(low, start)
    return low, high


def key_range(
    schema: Schema, order: KeyOrder, predicates: Sequence[Predicate], low: Bound, high: Bound
) -> tuple[Bound, Bound]:
    """Narrow a range by the predicates on the key, if the key has one column."""
    if len(schema.key) > 1 or schema.by_id[schema.key[0]].type in ("float", "double"):
        return low, high
    for predicate in predicates:
        if predicate.column == schema.key[0]:
            start, end = _range_of(schema, order, predicate)
            low = start if low is None else low if start is None else max(low, start)
            high = end if high is None else high if end is None else min(high, end)
    return low, high


def _range_of(schema: Schema, order: KeyOrder, predicate: Predicate) -> tuple[Bound, Bound]:
    def key(value: Any) -> Comparable:
        return order.bound(encode_key(schema, (value,)))

    match predicate:
        case Compare(op="=", value=value):
            return key(value), order.after(key(value))
        case Compare(op="<", value=value):
            return None, key(value)
        case Compare(op="<=", value=value):
            return None, order.after(key(value))
        case Compare(op=">", value=value):
            return order.after(key(value)), None
        case Compare(op=">=", value=value):
            return key(value), None
        case In(values=values) if values:
            least, greatest = encode_ends(schema, values)
            return order.bound(least), order.after(order.bound(greatest))
    return None, None


class Pruner:
    """Compares the predicates of one scan with the statistics of row groups."""

    def __init__(self, schema: Schema, adapter: SchemaAdapter, predicates: Sequence[Predicate]) -> None:
        self._fitting = adapter
        self._tests = [
            (schema.by_id[p.column], p.column in schema.key, p, _literals(schema.by_id[p.column], p))
            for p in predicates
        ]

    def __call__(self, slices: list[SourceSlice]) -> list[SourceSlice]:
        """Return the slices of a step without the row groups in which no row can match."""
        if not self._tests:
            return slices
        return [source_slice for source_slice in slices if not self._cannot_match(source_slice, alone=len(slices) == 1)]

    def _cannot_match(self, source_slice: SourceSlice, *, alone: bool) -> bool:
        if not isinstance(source_slice, RowGroupSlice):
            return False
        index = source_slice.row_group.index
        for column, on_key, predicate, literals in self._tests:
            if not on_key and not (alone and index.unique):
                continue
            # A null on disk is the default if the row is older than its column.
            if not self._fitting.needs_no_defaults(Layout((column,)), index.schemas):
                continue
            found = source_slice.row_group.block.statistics(source_slice.row_group.number, column)
            if found is not None and _excludes(predicate, literals, found):
                return True
        return False


def _literals(column: Column, predicate: Predicate) -> list[Any]:
    """Return the values of a predicate in the form of Parquet statistics."""
    match predicate:
        case IsNull():
            return []
        case Compare(value=value):
            values = [value]
        case In(values=found):
            values = [*found]
        case Prefix(prefix=prefix):
            values = [prefix]
    array = to_array(column, values)
    stored_as = {"date": "int32", "timestamp": "int64", "string": "binary"}.get(column.type)
    return list((array.view(stored_as) if stored_as else array).to_pylist())


def _excludes(predicate: Predicate, literals: Sequence[Any], found: Statistics) -> bool:
    """Return true if no value of a row group can match."""
    if isinstance(predicate, IsNull):
        return found.nulls == (found.rows if predicate.negated else 0)
    if found.nulls == found.rows:
        return True
    least, greatest = found.least, found.greatest
    if least is None or greatest is None:
        return False
    if isinstance(predicate, Prefix):
        start = literals[0]
        return bool(greatest[: len(start)] < start or least[: len(start)] > start)
    op = predicate.op if isinstance(predicate, Compare) else "="
    return all(_disjoint(op, value, least, greatest) for value in literals)


def _disjoint(op: str, value: Any, least: Any, greatest: Any) -> bool:
    match op:
        case "=":
            return bool(value < least or value > greatest)
        case "<":
            return bool(least >= value)
        case "<=":
            return bool(least > value)
        case ">":
            return bool(greatest <= value)
        case ">=":
            return bool(greatest < value)
    return False
