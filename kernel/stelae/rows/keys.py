"""Order-preserving encoding of primary keys (version 1), shared by all stores.

Two encoded keys compare, as bytes, like their rows: by the first key column, then by the second, and
so on. Key ranges and resume tokens consist of encoded keys, so these travel between engines and nodes.
The version never changes silently. Test vectors are in ``tests/unit/rows/test_keys.py``.

========================  ==========================================================================
``bool``                  one byte, 0 or 1
``int8`` to ``int64``     big-endian at the type's width, sign bit flipped
``date``, ``timestamp``   as ``int32`` and ``int64``
``float``, ``double``     IEEE bits big-endian; negative: all flipped, else the sign bit. Minus zero
                          is encoded as zero, every NaN as the same one, above infinity
``decimal``               unscaled value as a 16-byte integer, big-endian, sign bit flipped
``string``, ``binary``    the (UTF-8) bytes; in all but the last column 00 becomes 00 FF and the end
                          is 00 00, so that a value is before all longer values that begin with it
========================  ==========================================================================
"""

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

from stelae.rows.batch_building import build_batch
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, DataType, Schema

_INT_BITS = {"date": 32, "timestamp": 64}
_PACKS = {
    8: struct.Struct(">B").pack,
    16: struct.Struct(">H").pack,
    32: struct.Struct(">I").pack,
    64: struct.Struct(">Q").pack,
}
_FLOATS = {"float": (">f", ">I", 32), "double": (">d", ">Q", 64)}
_EXACT = Context(prec=76)


def encode_keys(schema: Schema, rows: RowBatch) -> list[bytes]:
    """Return the encoded key of each row. The batch has the schema's key columns, at any position."""
    last = len(schema.key) - 1
    parts = [
        _encode(column.data_type, rows.values(rows.layout.ids.index(column.id)), place == last)
        for place, column in enumerate(schema.key_layout.columns)
    ]
    return parts[0] if last == 0 else [*map(b"".join, zip(*parts, strict=True))]


def encode_key(schema: Schema, key: Sequence[Any]) -> bytes:
    """Return the encoding of one key of plain values. ``CallerError``: they do not fit the key columns."""
    if len(key) != len(schema.key):
        raise CallerError(f"got a key of {len(key)} values; the key has {len(schema.key)} columns")
    return encode_keys(schema, build_batch(schema.key_layout, [key]))[0]


def value_encoder(column: Column, last: bool) -> Callable[[Any], bytes]:
    """Return the function that encodes one plain value of a key column. The value must fit the column.

    ``last`` is true for the last column of the key."""
    kind = column.data_type
    bits = kind.int_bits or _INT_BITS.get(kind.name, 0)
    if bits:
        pack, flip = _PACKS[bits], 1 << (bits - 1)
        return lambda value: pack(value + flip)
    if kind.name == "string" and last:
        return str.encode
    return lambda value: _encode(kind, (value,), last)[0]


def encode_ends(schema: Schema, values: Sequence[Any]) -> tuple[bytes, bytes]:
    """Return the smallest and the largest encoding of some values, for a key of one column.

    ``CallerError``: a value does not fit the column. All values are encoded in one call, at a microsecond each, because
    a list in a predicate may be long."""
    keys = encode_keys(schema, build_batch(schema.key_layout, [(value,) for value in values]))
    return min(keys), max(keys)


def decode_key(schema: Schema, key: bytes) -> tuple[Any, ...]:
    """Return the plain values of an encoded key. ``CallerError``: the bytes are not a key of this schema."""
    values, at = [], 0
    columns = schema.key_layout.columns
    try:
        for place, column in enumerate(columns):
            value, at = _decode(column, key, at, place == len(columns) - 1)
            values.append(value)
    except (struct.error, ValueError, IndexError) as error:
        raise CallerError(f"not a key of this schema: {key[:40].hex()}") from error
    if at != len(key):
        raise CallerError(f"{len(key) - at} bytes follow the key {key[:40].hex()}")
    return tuple(values)


def _encode(kind: DataType, values: Sequence[Any], last: bool) -> list[bytes]:
    bits = kind.int_bits or _INT_BITS.get(kind.name, 0)
    if bits:
        pack, flip = _PACKS[bits], 1 << (bits - 1)
        return [pack(value + flip) for value in values]
    match kind.name:
        case "string":
            return [*map(str.encode, values)] if last else [_ended(v.encode()) for v in values]
        case "binary":
            return [*values] if last else [*map(_ended, values)]
        case "bool":
            return [b"\x01" if value else b"\x00" for value in values]
        case "decimal":
            unscaled = (int(value.scaleb(kind.scale, _EXACT)) for value in values)
            return [(number + (1 << 127)).to_bytes(16, "big") for number in unscaled]
    return [_encode_float(kind.name, value) for value in values]


def _ended(value: bytes) -> bytes:
    return value.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _encode_float(name: str, value: float) -> bytes:
    as_float, as_int, bits = _FLOATS[name]
    if value != value:
        value = float("nan")
    number: int = struct.unpack(as_int, struct.pack(as_float, value + 0.0))[0]
    if value != value:
        number &= (1 << (bits - 1)) - 1
    top = 1 << (bits - 1)
    return struct.pack(as_int, number ^ (2 * top - 1 if number & top else top))


def _decode(column: Column, key: bytes, at: int, last: bool) -> tuple[Any, int]:
    kind = column.data_type
    bits = kind.int_bits or _INT_BITS.get(kind.name, 0)
    if bits:
        end = at + bits // 8
        return int.from_bytes(_exactly(key, at, end), "big") - (1 << (bits - 1)), end
    match kind.name:
        case "string" | "binary":
            raw, end = (key[at:], len(key)) if last else _until_end(key, at)
            return (raw.decode() if kind.name == "string" else raw), end
        case "bool":
            return (False, True)[key[at]], at + 1
        case "decimal":
            unscaled = int.from_bytes(_exactly(key, at, at + 16), "big") - (1 << 127)
            return Decimal(unscaled).scaleb(-kind.scale, _EXACT), at + 16
    as_float, as_int, bits = _FLOATS[kind.name]
    end = at + bits // 8
    number = int.from_bytes(_exactly(key, at, end), "big")
    top = 1 << (bits - 1)
    number ^= top if number & top else 2 * top - 1
    return struct.unpack(as_float, struct.pack(as_int, number))[0], end


def _exactly(key: bytes, at: int, end: int) -> bytes:
    if end > len(key):
        raise ValueError("the key is cut off")
    return key[at:end]


def _until_end(key: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while True:
        end = key.index(b"\x00", end)
        if key[end + 1] == 0:
            return key[at:end].replace(b"\x00\xff", b"\x00"), end + 2
        if key[end + 1] != 0xFF:
            raise ValueError("a broken escape")
        end += 2
