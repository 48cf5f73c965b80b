"""Comparables of whole batches: the encoding of every key, its order, and bounds that are no keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.rows.key_order import key_order
from stelae.rows.keys import encode_keys
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from tests.unit.rows.test_keys import VALUES

SPECIAL: dict[str, tuple[Any, ...]] = {
    "float": (float("nan"), -float("nan"), -0.0, 0.0, float("-inf")),
    "double": (float("nan"), -float("nan"), -0.0, 0.0, float("inf")),
    "string": ("", "\0", "a\0b", "\0\xff"),
    "binary": (b"", b"\0", b"\0\xff", b"\xff\xff"),
}


def schema_of(*types: str) -> Schema:
    """A schema of a value column and some key columns, the last of which stands first in the key."""
    columns = [{"name": "v", "type": "bool"}, *({"name": f"k{n}", "type": t} for n, t in enumerate(types))]
    return schema_from_plain({"columns": columns, "key": [f"k{n}" for n in reversed(range(len(types)))]})


@given(st.data())
def test_comparables_encode_to_the_keys_and_keep_their_order(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3))
    schema = schema_of(*types)
    value = [st.one_of(VALUES[t], st.sampled_from(SPECIAL[t])) if t in SPECIAL else VALUES[t] for t in types]
    rows = data.draw(st.lists(st.tuples(st.booleans(), *value), min_size=1, max_size=6))
    batch = RowBatch.from_equal_rows(schema.layout, rows)
    for part in (batch, batch.slice(len(rows) // 2), batch.slice(0, 0)):
        order = key_order(schema)
        found = order.array(part)
        assert found.type == order.arrow
        assert found.null_count == 0
        keys = found.to_pylist()
        encoded = encode_keys(schema, part)
        assert [order.encode(key) for key in keys] == encoded
        assert [order.bound(key) for key in encoded] == keys
        assert sorted(keys) == [order.bound(key) for key in sorted(encoded)]


@pytest.mark.parametrize("types", [("int16",), ("bool",), ("string",), ("int8", "binary")])
@given(data=st.data())
def test_a_bound_of_any_bytes_parts_the_keys_as_the_bytes_do(types: tuple[str, ...], data: st.DataObject) -> None:
    schema = schema_of(*types)
    order = key_order(schema)
    rows = data.draw(st.lists(st.tuples(st.booleans(), *(VALUES[t] for t in types)), min_size=1, max_size=6))
    batch = RowBatch.from_equal_rows(schema.layout, rows)
    keys, encoded = order.array(batch).to_pylist(), encode_keys(schema, batch)
    known = data.draw(st.sampled_from(encoded))
    for text in (data.draw(st.binary(max_size=6)), known, known + b"\0", known[:-1], b"", b"\xff" * 20):
        assert [key >= order.bound(text) for key in keys] == [key >= text for key in encoded]


@pytest.mark.parametrize("types", [("int64",), ("string",), ("int8", "int8")])
def test_what_comes_after_a_key_is_above_it_and_not_above_the_next(types: tuple[str, ...]) -> None:
    schema = schema_of(*types)
    order = key_order(schema)
    rows = [(True, *(n if t != "string" else "a" * n for t in types)) for n in (1, 2)]
    one, two = order.array(RowBatch.from_equal_rows(schema.layout, rows)).to_pylist()
    assert one < order.after(one) <= two


@given(st.data())
def test_who_goes_on_behind_what_is_before_a_key_meets_it_and_nothing_below_a_floor(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3))
    schema = schema_of(*types)
    value = [st.one_of(VALUES[t], st.sampled_from(SPECIAL[t])) if t in SPECIAL else VALUES[t] for t in types]
    rows = data.draw(st.lists(st.tuples(st.booleans(), *value), min_size=2, max_size=2))
    order = key_order(schema)
    low, high = sorted(order.array(RowBatch.from_equal_rows(schema.layout, rows)).to_pylist())
    found = order.before(high, low if low < high else None)
    if found is None:
        assert low == high
    else:
        assert found < order.encode(high)
        assert low == high or order.encode(low) <= found
        assert order.bound(found + b"\0") <= high
