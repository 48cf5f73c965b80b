"""Which partitions a scan has to visit: those that may hold a row which it asks for.

Pruning may keep a partition in vain; it never drops one that holds a matching row. It looks at equality and ``IN`` on
hash columns; at these, comparisons and prefixes on range columns; and at the scan's range of keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import mmh3
import msgspec

from stelae.partition.columns import KeyColumns
from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import PartitionSchema
from stelae.rows.keys import decode_key, encode_key
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.scan import Compare, In, Predicate, Prefix, ScanSpec
from stelae.spi.schema import Column, Schema

COMBINATIONS_MAX = 1024
"""Most combinations of listed values that are looked at; a level with more is not pruned."""

_Span = tuple[bytes, bytes | None]


class _Known(msgspec.Struct):
    """What the predicates say of one column."""

    equal: Sequence[Any] | None = None  #: The only values it may have.
    lower: list[Any] = []
    upper: list[tuple[Any, bool]] = []  #: Each with whether it is itself allowed.
    prefixes: list[Any] = []


def prune(partitioning: Partitioning, spec: ScanSpec) -> list[int]:
    """Return the indexes of the partitions that a scan has to visit, ascending.

    ``SchemaMismatch``: a predicate on a partition column has a value that does not fit it."""
    known = _known(partitioning.schema, spec)
    scheme = partitioning.partition_schema
    wanted = [_buckets(columns, level, buckets, known) for level, (columns, buckets) in enumerate(partitioning.levels)]
    ranges = _ranges(partitioning, scheme, spec, known)
    chosen: list[int] = []
    for number in ranges:
        starts = [number]
        for (_, buckets), mine in zip(partitioning.levels, wanted, strict=True):
            starts = [start * buckets + bucket for start in starts for bucket in mine]
        chosen += starts
    return chosen


def _known(schema: Schema, spec: ScanSpec) -> dict[int, _Known]:
    known: dict[int, _Known] = {}
    for predicate in (*spec.predicates, *_fixed(schema, spec)):
        mine = known.setdefault(predicate.column, _Known())
        match predicate:
            case Compare(op="=", value=value):
                mine.equal = _fewer(mine.equal, (value,))
            case In(values=values):
                mine.equal = _fewer(mine.equal, values)
            case Compare(op="<" | "<=" as op, value=value):
                mine.upper.append((value, op == "<="))
            case Compare(op=">" | ">=", value=value):
                mine.lower.append(value)
            case Prefix(prefix=prefix):
                mine.prefixes.append(prefix)
    return known


def _fewer(one: Sequence[Any] | None, other: Sequence[Any]) -> Sequence[Any]:
    """Both lists must hold, so either will do: the shorter one."""
    return other if one is None or len(other) < len(one) else one


def _fixed(schema: Schema, spec: ScanSpec) -> Iterable[Predicate]:
    """Columns that have one value throughout the scan's range of keys."""
    lower, upper = _decoded(schema, spec.key_from), _decoded(schema, spec.key_until)
    for column, one, other in zip(schema.key, lower or (), upper or (), strict=False):
        if one != other:
            return
        yield Compare(column, "=", one)


def _decoded(schema: Schema, key: bytes | None) -> tuple[Any, ...] | None:
    """The values of a bound, if it is a key that a row can have; bounds may be any bytes."""
    if key is None:
        return None
    try:
        values = decode_key(schema, key)
        # Some bytes below minus infinity decode as NaN, whose own place is above infinity.
        return values if encode_key(schema, values) == key else None
    except CallerError:
        return None


# -- hash levels -------------------------------------------------------------------------------------


def _buckets(columns: KeyColumns, level: int, buckets: int, known: Mapping[int, _Known]) -> Sequence[int]:
    values = [known[i].equal if i in known else None for i in columns.ids]
    combinations = 1
    for listed in values:
        combinations *= COMBINATIONS_MAX + 1 if listed is None else len(listed)
    if combinations > COMBINATIONS_MAX:
        return range(buckets)
    encoded = (columns.encode(chosen) for chosen in product(*(listed or () for listed in values)))
    return sorted({mmh3.mmh3_32_uintdigest(key, level) % buckets for key in encoded})


# -- ranges ------------------------------------------------------------------------------------------


def _ranges(
    partitioning: Partitioning, scheme: PartitionSchema, spec: ScanSpec, known: Mapping[int, _Known]
) -> Sequence[int]:
    columns = partitioning.range_columns
    if columns is None:
        return range(len(scheme.ranges))
    spans = _spans(columns, known)
    lower, upper = _key_span(partitioning.schema, columns, spec)
    clipped = [(max(one, lower), _least(other, upper)) for one, other in spans]
    clipped = [(one, other) for one, other in clipped if other is None or one < other]
    return [n for n, held in enumerate(scheme.ranges) if any(held.overlaps(*span) for span in clipped)]


def _spans(columns: KeyColumns, known: Mapping[int, _Known]) -> list[_Span]:
    """Where the encoded range columns of matching rows can lie: one span for each combination of listed values."""
    prefixes = [b""]
    for place, column in enumerate(columns.columns):
        mine = known.get(column.id, _Known())
        if mine.equal is None or len(prefixes) * len(mine.equal) > COMBINATIONS_MAX:
            lower, upper = _bounds(columns, place, mine)
            return [_joined(prefix, lower, upper) for prefix in prefixes]
        prefixes = [prefix + columns.encode_one(place, value) for prefix in prefixes for value in mine.equal]
    return [(prefix, prefix + b"\0") for prefix in prefixes]


def _joined(prefix: bytes, lower: bytes, upper: bytes | None) -> _Span:
    return prefix + lower, _successor(prefix) if upper is None else prefix + upper


def _bounds(columns: KeyColumns, place: int, known: _Known) -> _Span:
    """Where one column of matching rows can lie, as the comparisons say; an excluded lower bound stays in."""
    lower = max((columns.encode_one(place, value) for value in known.lower), default=b"")
    upper: bytes | None = None
    for value, allowed in known.upper:
        encoded = columns.encode_one(place, value)
        upper = _least(upper, _successor(encoded) if allowed else encoded)
    if known.equal is not None:  # Too many to look at one by one.
        listed = [columns.encode_one(place, value) for value in known.equal]
        lower, upper = max(lower, min(listed)), _least(upper, _successor(max(listed)))
    for prefix in known.prefixes:
        start = _prefix(columns.columns[place], prefix, last=place == len(columns.columns) - 1)
        lower, upper = max(lower, start), _least(upper, _successor(start))
    return lower, upper


def _prefix(column: Column, prefix: Any, *, last: bool) -> bytes:
    if column.type not in ("string", "binary") or not isinstance(prefix, str | bytes):
        raise SchemaMismatch(f"column {column.name!r} is {column.type} and has no prefix {prefix!r:.40}")
    raw = prefix.encode() if isinstance(prefix, str) else prefix
    return raw if last else raw.replace(b"\0", b"\0\xff")


def _key_span(schema: Schema, columns: KeyColumns, spec: ScanSpec) -> _Span:
    """What the scan's range of keys says, when the range columns stand first in the key."""
    count = len(columns.ids)
    if columns.ids != schema.key[:count]:
        return b"", None
    lower, upper = _decoded(schema, spec.key_from), _decoded(schema, spec.key_until)
    return (
        b"" if lower is None else columns.encode(lower[:count]),
        None if upper is None else columns.encode(upper[:count]) + b"\0",
    )


def _least(one: bytes | None, other: bytes | None) -> bytes | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _successor(prefix: bytes) -> bytes | None:
    """The least bytes above everything that begins with a prefix; ``None``: there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
