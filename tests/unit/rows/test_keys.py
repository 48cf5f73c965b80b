"""The key encoding, version 1: published vectors, order, and what is refused."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.rows import keys
from stelae.rows.batch_building import build_batch
from stelae.rows.keys import decode_key, encode_key
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.schema import Schema

VECTORS = [
    ("bool", False, "00"),
    ("bool", True, "01"),
    ("int8", -128, "00"),
    ("int8", 0, "80"),
    ("int8", 127, "ff"),
    ("int16", -2, "7ffe"),
    ("int32", 1, "80000001"),
    ("int64", -1, "7fffffffffffffff"),
    ("int64", 9223372036854775807, "ffffffffffffffff"),
    ("date", -1, "7fffffff"),
    ("timestamp", 1, "8000000000000001"),
    ("float", -1.5, "403fffff"),
    ("float", 0.0, "80000000"),
    ("float", -0.0, "80000000"),
    ("float", float("inf"), "ff800000"),
    ("float", float("nan"), "ffc00000"),
    ("double", 1.0, "bff0000000000000"),
    ("double", -1.0, "400fffffffffffff"),
    ("double", float("-inf"), "000fffffffffffff"),
    ("double", float("nan"), "fff8000000000000"),
    ("decimal(9,2)", Decimal("-0.01"), "7fffffffffffffffffffffffffffffff"),
    ("decimal(9,2)", Decimal("1.50"), "80000000000000000000000000000096"),
    ("string", "", ""),
    ("string", "é", "c3a9"),
    ("binary", b"\x00a", "0061"),
]

COMPOSITE_VECTORS = [
    (("a", b"", 0), "610000000080"),
    (("a\0", b"\x00\xff", -1), "6100ff000000ffff00007f"),
    (("", b"x", 1), "000078000081"),
]

scale = Context(prec=40).scaleb
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "decimal(38,3)": st.integers(1 - 10**38, 10**38 - 1).map(lambda n: scale(n, -3)),
    "string": st.text(),
    "binary": st.binary(),
    "date": st.integers(-(2**31), 2**31 - 1),
    "timestamp": st.integers(-(2**63), 2**63 - 1),
}


def schema_of(*types: str) -> Schema:
    columns = [{"name": f"k{place}", "type": t} for place, t in enumerate(types)]
    return schema_from_plain({"columns": columns, "key": [c["name"] for c in columns]})


@pytest.mark.parametrize(("column_type", "value", "encoded"), VECTORS)
def test_vector_of_one_column(column_type: str, value: Any, encoded: str) -> None:
    schema = schema_of(column_type)
    assert encode_key(schema, (value,)).hex() == encoded
    (back,) = decode_key(schema, bytes.fromhex(encoded))
    assert back == value or value != value != back


@pytest.mark.parametrize(("key", "encoded"), COMPOSITE_VECTORS)
def test_vector_of_several_columns(key: tuple[Any, ...], encoded: str) -> None:
    schema = schema_of("string", "binary", "int8")
    assert encode_key(schema, key).hex() == encoded
    assert decode_key(schema, bytes.fromhex(encoded)) == key


@given(st.data())
def test_order_of_encoded_keys_is_the_order_of_their_values(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    schema = schema_of(*types)
    keys = data.draw(st.lists(st.tuples(*(VALUES[t] for t in types)), min_size=2, max_size=6), label="keys")

    def comparable(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(value.encode() if isinstance(value, str) else value for value in key)

    by_value = sorted(keys, key=comparable)
    by_bytes = sorted(keys, key=lambda key: encode_key(schema, key))
    assert [comparable(k) for k in by_value] == [comparable(k) for k in by_bytes]


@given(st.data())
def test_a_decoded_key_is_the_key(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    key = data.draw(st.tuples(*(VALUES[t] for t in types)))
    assert decode_key(schema_of(*types), encode_key(schema_of(*types), key)) == key


@given(st.binary(max_size=40))
def test_bytes_that_are_no_key_are_refused_and_nothing_else_happens(data: bytes) -> None:
    schema = schema_of("string", "bool", "double", "decimal(5,2)", "binary", "int16")
    try:
        key = decode_key(schema, data)
    except CallerError:
        return
    assert len(key) == 6


def test_a_text_before_its_longer_relatives_whatever_follows() -> None:
    schema = schema_of("string", "int8")
    assert encode_key(schema, ("a", 127)) < encode_key(schema, ("a\0", -128))
    assert encode_key(schema, ("a\0", 127)) < encode_key(schema, ("aa", -128))


@pytest.mark.parametrize("key", [(), (1, 2), ("one",), (None,), (128,)])
def test_a_key_that_does_not_fit_is_refused(key: tuple[Any, ...]) -> None:
    with pytest.raises(CallerError) as caught:
        encode_key(schema_of("int8"), key)
    assert isinstance(caught.value, SchemaMismatch) == (len(key) == 1)


def test_the_ends_of_many_values_are_encoded_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, the ten thousand values of an ``in`` took a server a second for every page of the scan."""
    schema = schema_from_plain({"columns": [{"name": "k", "type": "int32"}], "key": ["k"]})
    batches: list[Any] = []

    def counted(*given: Any) -> Any:
        batches.append(given)
        return build_batch(*given)

    monkeypatch.setattr(keys, "build_batch", counted)
    values = [5, -7, 3, 900]
    assert keys.encode_ends(schema, values) == (encode_key(schema, (-7,)), encode_key(schema, (900,)))
    assert len(batches) == 3
    with pytest.raises(SchemaMismatch):
        keys.encode_ends(schema, [5, "x"])
