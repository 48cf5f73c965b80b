"""The key range that a scan must read: its own range, narrowed by predicates on the key.

Equality on the first key columns leaves one row, or the rows whose keys begin alike. On a key of one column,
comparisons narrow the range, too. Keys of floating-point numbers are not narrowed, because their bytes do not compare
exactly like the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from stelae.rows.keys import encode_ends, encode_key
from stelae.spi.scan import Compare, In, Order, Predicate, ScanSpec
from stelae.spi.schema import Column, Schema

KeyBounds: TypeAlias = "tuple[bytes | None, bytes | None]"
"""From the first key (inclusive) to the second (exclusive); ``None`` is no bound."""


def key_range(schema: Schema, spec: ScanSpec) -> KeyBounds:
    """Return the range of encoded keys that a scan must read."""
    found: KeyBounds = (spec.key_from, spec.key_until)
    if spec.after is not None:
        descending = spec.order is Order.KEY_DESCENDING
        found = _both(found, (None, spec.after) if descending else (spec.after + b"\0", None))
    found = _both(found, _equal(schema, spec.predicates))
    if len(schema.key) == 1 and not _is_float(schema.by_id[schema.key[0]]):
        for predicate in spec.predicates:
            if predicate.column == schema.key[0]:
                found = _both(found, _compared(schema, predicate))
    return found


def _both(one: KeyBounds, other: KeyBounds) -> KeyBounds:
    lows = [low for low in (one[0], other[0]) if low is not None]
    highs = [high for high in (one[1], other[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _equal(schema: Schema, predicates: Sequence[Predicate]) -> KeyBounds:
    """Return the range of rows whose first key columns equal the values of the predicates."""
    wanted: dict[int, Any] = {p.column: p.value for p in predicates if isinstance(p, Compare) and p.op == "="}
    values: list[Any] = []
    for column in schema.key_layout.columns:
        if column.id not in wanted or _is_float(column):
            break
        values.append(wanted[column.id])
    if not values:
        return None, None
    if len(values) == len(schema.key):
        key = encode_key(schema, values)
        return key, key + b"\0"
    # The encoding of an empty value of a last column is empty. So this is the beginning of all those keys.
    columns = schema.key_layout.columns[: len(values)]
    last = Column(id=max(schema.by_id) + 1, name="\0", type="binary")
    begin = encode_key(Schema(1, (*columns, last), (*(c.id for c in columns), last.id)), [*values, b""])
    stripped = begin.rstrip(b"\xff")
    return begin, stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


def _compared(schema: Schema, predicate: Predicate) -> KeyBounds:
    def key(value: Any) -> bytes:
        return encode_key(schema, (value,))

    match predicate:
        case Compare(op="<", value=value):
            return None, key(value)
        case Compare(op="<=", value=value):
            return None, key(value) + b"\0"
        case Compare(op=">", value=value):
            return key(value) + b"\0", None
        case Compare(op=">=", value=value):
            return key(value), None
        case In(values=values) if values:
            least, greatest = encode_ends(schema, values)
            return least, greatest + b"\0"
    return None, None


def _is_float(column: Column) -> bool:
    return column.type in ("float", "double")
