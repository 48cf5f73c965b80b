"""Tables, partition schemas and rows, drawn and built."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context
from typing import Any

from hypothesis import strategies as st

from stelae.partition.key_columns import KeyColumns
from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import HashLevel, KeyRange, PartitionSchema
from stelae.rows.batch_building import build_batch
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema

_scale = Context(prec=40).scaleb
_NARROW: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-3, 3) | st.integers(-(2**7), 2**7 - 1),
    "int32": st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    "float": st.sampled_from([0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), float("nan")]),
    "double": st.sampled_from([0.0, -0.0, 2.5, float("nan")]) | st.floats(),
    "decimal(9,2)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: _scale(n, -2)),
    "string": st.sampled_from(["", "a", "ab", "a\0", "b", "é", "\U0010ffff"]) | st.text(max_size=4),
    "binary": st.sampled_from([b"", b"\0", b"\xff", b"\xff\xff", b"a\0\xff"]) | st.binary(max_size=4),
    "date": st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
    "timestamp": st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
}
"""Values of each type, few enough that drawn rows, bounds and predicates meet."""

TYPES = sorted(_NARROW)


def table(key: Sequence[str], values: Sequence[str] = ()) -> Schema:
    """A schema of key columns ``k0``, ``k1``, ... and others ``v0``, ...; the others stand first and are nullable."""
    columns = [{"name": f"v{n}", "type": t, "nullable": True} for n, t in enumerate(values)]
    columns += [{"name": f"k{n}", "type": t} for n, t in enumerate(key)]
    return schema_from_plain({"columns": columns, "key": [f"k{n}" for n in range(len(key))]})


def partition_of_key(partitioning: Partitioning, key: Sequence[Any]) -> int:
    """Return the index of the partition of one key of plain values, or ``NO_PARTITION``."""
    (index,) = partitioning.partitions_of(build_batch(partitioning.schema.key_layout, [key]))
    return index


def value(type_text: str) -> st.SearchStrategy[Any]:
    return _NARROW[type_text]


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    types = st.sampled_from(TYPES)
    return table(draw(st.lists(types, min_size=1, max_size=3)), draw(st.lists(types, max_size=1)))


@st.composite
def partitionings(draw: st.DrawFn, schema: Schema, *, gaps: bool = False) -> Partitioning:
    """Any partitioning of a table: disjoint hash levels, and ranges over some key columns in any order."""
    ids = draw(st.permutations(schema.key))
    levels = []
    while ids and draw(st.booleans()):
        count = draw(st.integers(1, len(ids)))
        levels.append(HashLevel(tuple(ids[:count]), draw(st.integers(2, 5))))
        ids = ids[count:]
    if not draw(st.booleans()):
        return Partitioning(schema, PartitionSchema(tuple(levels)))
    first = draw(st.booleans())
    order = list(schema.key) if first else draw(st.permutations(schema.key))
    chosen = tuple(order[: draw(st.integers(1, len(order)))])
    columns = KeyColumns(schema, chosen)
    bounds = st.tuples(*(value(c.type) for c in columns.columns)).map(columns.encode)
    edges = sorted({edge for edge in draw(st.lists(bounds, max_size=4)) if edge})
    cuts: list[bytes | None] = [b"", *edges, None]
    ranges = [KeyRange(cuts[n] or b"", cuts[n + 1]) for n in range(len(cuts) - 1)]
    if gaps:
        kept = draw(st.lists(st.booleans(), min_size=len(ranges), max_size=len(ranges)))
        ranges = [one for one, keep in zip(ranges, kept, strict=True) if keep] or ranges[:1]
    return Partitioning(schema, PartitionSchema(tuple(levels), chosen, tuple(ranges)))


@st.composite
def batches(draw: st.DrawFn, schema: Schema) -> RowBatch:
    cells = [value(c.type) if not c.nullable else st.none() | value(c.type) for c in schema.columns]
    return build_batch(schema.layout, draw(st.lists(st.tuples(*cells), max_size=12)))
