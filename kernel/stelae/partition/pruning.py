"""Partition pruning: which partitions a scan has to read, because they may hold a matching row.

Pruning may keep a partition without a matching row. It never drops a partition with one. It uses equality and ``IN`` on
hash columns; these, comparisons and prefixes on range columns; and the key range of the scan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import mmh3
import msgspec

from stelae.partition.key_columns import KeyColumns
from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import PartitionSchema
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.scan import Compare, In, Predicate, Prefix, ScanSpec
from stelae.spi.schema import Column

COMBINATIONS_MAX = 1024
"""Largest number of combinations of listed values that are checked. A level with more is not pruned."""

_Span = tuple[bytes, bytes | None]


class _Conditions(msgspec.Struct):
    """The conditions of the predicates on one column."""

    equal: Sequence[Any] | None = None  #: The only values that the column may have; ``None``: any.
    lower: list[Any] = []  #: Lower bounds. They count as inclusive.
    upper: list[tuple[Any, bool]] = []  #: Upper bounds, each with whether it is inclusive.
    prefixes: list[Any] = []  #: Prefixes that a value must have.


def prune(partitioning: Partitioning, spec: ScanSpec) -> list[int]:
    """Return the indexes of the partitions that a scan has to read, ascending.

    ``SchemaMismatch``: a predicate on a partition column has a value that does not fit the column."""
    if partitioning.is_unpartitioned:
        return [0]
    conditions = _conditions(partitioning, spec)
    scheme = partitioning.partition_schema
    wanted = [
        _buckets(columns, level, buckets, conditions) for level, (columns, buckets) in enumerate(partitioning.levels)
    ]
    ranges = _ranges(partitioning, scheme, spec, conditions)
    chosen: list[int] = []
    for number in ranges:
        starts = [number]
        for (_, buckets), wanted_buckets in zip(partitioning.levels, wanted, strict=True):
            starts = [start * buckets + bucket for start in starts for bucket in wanted_buckets]
        chosen += starts
    return chosen


def _conditions(partitioning: Partitioning, spec: ScanSpec) -> dict[int, _Conditions]:
    conditions: dict[int, _Conditions] = {}
    for predicate in (*spec.predicates, *_fixed(partitioning, spec)):
        condition = conditions.setdefault(predicate.column, _Conditions())
        match predicate:
            case Compare(op="=", value=value):
                condition.equal = _fewer(condition.equal, (value,))
            case In(values=values):
                condition.equal = _fewer(condition.equal, values)
            case Compare(op="<" | "<=" as op, value=value):
                condition.upper.append((value, op == "<="))
            case Compare(op=">" | ">=", value=value):
                condition.lower.append(value)
            case Prefix(prefix=prefix):
                condition.prefixes.append(prefix)
    return conditions


def _fewer(one: Sequence[Any] | None, other: Sequence[Any]) -> Sequence[Any]:
    """Return the shorter list. Both conditions must hold, so either list is enough for pruning."""
    return other if one is None or len(other) < len(one) else one


def _fixed(partitioning: Partitioning, spec: ScanSpec) -> Iterable[Predicate]:
    """Yield a predicate for each key column that has only one value in the key range of the scan."""
    key = partitioning.key_columns
    lower, upper = _decoded(key, spec.key_from), _decoded(key, spec.key_until)
    for column, one, other in zip(key.ids, lower or (), upper or (), strict=False):
        if one != other:
            return
        yield Compare(column, "=", one)


def _decoded(columns: KeyColumns, bound: bytes | None) -> tuple[Any, ...] | None:
    """Return the values of a bound, or ``None`` if it is not the key of a possible row. A bound may be any bytes."""
    if bound is None:
        return None
    try:
        values = columns.decode(bound)
        # Some bytes below minus infinity decode as NaN. The encoding of NaN is above infinity.
        return values if columns.encode(values) == bound else None
    except CallerError:
        return None


# -- hash levels -------------------------------------------------------------------------------------


def _buckets(columns: KeyColumns, level: int, buckets: int, conditions: Mapping[int, _Conditions]) -> Sequence[int]:
    values = [conditions[i].equal if i in conditions else None for i in columns.ids]
    combinations = 1
    for listed in values:
        combinations *= COMBINATIONS_MAX + 1 if listed is None else len(listed)
    if combinations > COMBINATIONS_MAX:
        return range(buckets)
    encoded = (columns.encode(chosen) for chosen in product(*(listed or () for listed in values)))
    return sorted({mmh3.mmh3_32_uintdigest(key, level) % buckets for key in encoded})


# -- ranges ------------------------------------------------------------------------------------------


def _ranges(
    partitioning: Partitioning, scheme: PartitionSchema, spec: ScanSpec, conditions: Mapping[int, _Conditions]
) -> Sequence[int]:
    columns = partitioning.range_columns
    if columns is None:
        return range(len(scheme.ranges))
    spans = _spans(columns, conditions)
    lower, upper = _key_span(partitioning.key_columns, columns, spec)
    clipped = [(max(one, lower), _least(other, upper)) for one, other in spans]
    clipped = [(one, other) for one, other in clipped if other is None or one < other]
    return [n for n, held in enumerate(scheme.ranges) if any(held.overlaps(*span) for span in clipped)]


def _spans(columns: KeyColumns, conditions: Mapping[int, _Conditions]) -> list[_Span]:
    """Return the spans of the encoded range columns of matching rows: one for each combination of listed values."""
    prefixes = [b""]
    for place, column in enumerate(columns.columns):
        condition = conditions.get(column.id, _Conditions())
        if condition.equal is None or len(prefixes) * len(condition.equal) > COMBINATIONS_MAX:
            lower, upper = _bounds(columns, place, condition)
            return [_joined(prefix, lower, upper) for prefix in prefixes]
        prefixes = [prefix + columns.encode_part(place, value) for prefix in prefixes for value in condition.equal]
    return [(prefix, prefix + b"\0") for prefix in prefixes]


def _joined(prefix: bytes, lower: bytes, upper: bytes | None) -> _Span:
    return prefix + lower, _successor(prefix) if upper is None else prefix + upper


def _bounds(columns: KeyColumns, place: int, conditions: _Conditions) -> _Span:
    """Return the span of one column of matching rows by its comparisons. Lower bounds count as inclusive."""
    lower = max((columns.encode_part(place, value) for value in conditions.lower), default=b"")
    upper: bytes | None = None
    for value, allowed in conditions.upper:
        encoded = columns.encode_part(place, value)
        upper = _least(upper, _successor(encoded) if allowed else encoded)
    if conditions.equal is not None:  # Too many combinations to check each of them.
        listed = [columns.encode_part(place, value) for value in conditions.equal]
        lower, upper = max(lower, min(listed)), _least(upper, _successor(max(listed)))
    for prefix in conditions.prefixes:
        start = _prefix(columns.columns[place], prefix, last=place == len(columns.columns) - 1)
        lower, upper = max(lower, start), _least(upper, _successor(start))
    return lower, upper


def _prefix(column: Column, prefix: Any, *, last: bool) -> bytes:
    if column.type not in ("string", "binary") or not isinstance(prefix, str | bytes):
        raise SchemaMismatch(
            f"column {column.name!r} is {column.type}; a prefix such as {prefix!r:.40} needs text or bytes"
        )
    raw = prefix.encode() if isinstance(prefix, str) else prefix
    return raw if last else raw.replace(b"\0", b"\0\xff")


def _key_span(key: KeyColumns, columns: KeyColumns, spec: ScanSpec) -> _Span:
    """Return the span that follows from the scan's key range, if the range columns are the first key columns."""
    count = len(columns.ids)
    if columns.ids != key.ids[:count]:
        return b"", None
    lower, upper = _decoded(key, spec.key_from), _decoded(key, spec.key_until)
    return (
        b"" if lower is None else columns.encode_from_key(lower),
        None if upper is None else columns.encode_from_key(upper) + b"\0",
    )


def _least(one: bytes | None, other: bytes | None) -> bytes | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _successor(prefix: bytes) -> bytes | None:
    """Return the smallest bytes above all bytes with a prefix, or ``None`` if there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
