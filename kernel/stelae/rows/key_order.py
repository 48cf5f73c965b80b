"""The keys of whole batches as Arrow arrays, in a form that sorts and compares like encoded keys.

The form of one key is its *comparable*. A key of one fixed-width number becomes an ``int64`` with the order of the
encoding. Every other key becomes its encoding (``stelae.rows.keys``) as ``binary``. In both cases Arrow does the work,
column by column. Comparables never leave an engine. Between engines and nodes, keys travel in their encoding;
:meth:`KeyOrder.encode` and :meth:`KeyOrder.bound` translate."""

import sys
from abc import ABC, abstractmethod
from array import array as words_of
from typing import Any, TypeAlias

from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, DataType, Schema

Comparable: TypeAlias = Any
"""``int`` or ``bytes``. All comparables of one key order have the same type."""

_BITS = {"bool": 8, "date": 32, "timestamp": 64, "float": 32, "double": 64}
_WORDS = {8: "b", 16: "h", 32: "i", 64: "q"}


class KeyOrder(ABC):
    """The order of a schema's keys. It is the same for all versions of the schema, because the key never changes."""

    name: str  #: The name of the Arrow type that :meth:`array` returns.

    @property
    def arrow(self) -> Any:
        """The Arrow type of comparables, a ``pyarrow.DataType``."""
        import pyarrow as pa

        return pa.type_for_alias(self.name)

    @abstractmethod
    def array(self, rows: RowBatch) -> Any:
        """Return the comparables of a batch. It has the key columns, at any position, without nulls."""

    @abstractmethod
    def encodings(self, rows: RowBatch) -> Any:
        """Return the encoded keys of a batch, as ``binary``."""

    @abstractmethod
    def encode(self, key: Comparable) -> bytes:
        """Return the encoded key."""

    @abstractmethod
    def bound(self, encoded: bytes) -> Comparable:
        """Return the smallest comparable at or above some bytes, which need not be a complete encoded key."""

    @abstractmethod
    def exact(self, encoded: bytes) -> Comparable | None:
        """Return the comparable of an encoded key; ``None``: the bytes are certainly not an encoded key."""

    @abstractmethod
    def after(self, key: Comparable) -> Comparable:
        """Return the smallest comparable above a key."""

    @abstractmethod
    def before(self, key: Comparable, floor: Comparable | None) -> bytes | None:
        """Return bytes below ``key`` and as close to it as possible; at or above ``floor`` if that is below ``key``.

        A scan that continues after these bytes reads ``key`` first. ``None``: no key is below ``key``."""


def key_order(schema: Schema) -> KeyOrder:
    """Return the order of a schema's keys."""
    columns = schema.key_layout.columns
    kind = columns[0].data_type
    if len(columns) == 1 and _bits(kind):
        return _IntOrder(columns[0])
    return _BytesOrder(schema)


class _IntOrder(KeyOrder):
    """The order of a key of one column of up to 64 bits."""

    name = "int64"

    def __init__(self, column: Column) -> None:
        self._id, self._kind = column.id, column.data_type
        self._width = 1 if self._kind.name == "bool" else _bits(self._kind) // 8
        self._offset = 0 if self._kind.name == "bool" else 1 << (8 * self._width - 1)

    def array(self, rows: RowBatch) -> Any:
        return _ordered_ints(self._kind, _column(rows, self._id))

    def encodings(self, rows: RowBatch) -> Any:
        return _encoded(self._kind, _column(rows, self._id), last=True)

    def encode(self, key: Comparable) -> bytes:
        number: int = key + self._offset
        return number.to_bytes(self._width, "big")

    def bound(self, encoded: bytes) -> Comparable:
        number = int.from_bytes(encoded[: self._width].ljust(self._width, b"\0"), "big") - self._offset
        # A complete key is before all longer bytes that begin with it.
        return number + (len(encoded) > self._width)

    def exact(self, encoded: bytes) -> Comparable | None:
        return int.from_bytes(encoded, "big") - self._offset if len(encoded) == self._width else None

    def after(self, key: Comparable) -> Comparable:
        return key + 1

    def before(self, key: Comparable, floor: Comparable | None) -> bytes | None:
        return self.encode(key - 1) if key + self._offset > 0 else None


class _BytesOrder(KeyOrder):
    """The order of every other key: text, bytes, decimals, and keys of several columns."""

    name = "binary"

    def __init__(self, schema: Schema) -> None:
        self._columns = schema.key_layout.columns

    def array(self, rows: RowBatch) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        last = len(self._columns) - 1
        parts = [
            _encoded(column.data_type, _column(rows, column.id), place == last)
            for place, column in enumerate(self._columns)
        ]
        return parts[0] if last == 0 else pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))

    def encodings(self, rows: RowBatch) -> Any:
        return self.array(rows)

    def encode(self, key: Comparable) -> bytes:
        return bytes(key)

    def bound(self, encoded: bytes) -> Comparable:
        return encoded

    def exact(self, encoded: bytes) -> Comparable | None:
        return encoded

    def after(self, key: Comparable) -> Comparable:
        return key + b"\0"

    def before(self, key: Comparable, floor: Comparable | None) -> bytes | None:
        if not key or key[-1] == 0:
            return bytes(key[:-1]) if key else None
        return bytes(key[:-1]) + bytes((key[-1] - 1,)) + b"\xff" * (1 + len(floor or b""))


def _column(rows: RowBatch, column_id: int) -> Any:
    return rows.arrow.column(rows.layout.ids.index(column_id))


def _bits(kind: DataType) -> int:
    return kind.int_bits or _BITS.get(kind.name, 0)


def _ordered_ints(kind: DataType, values: Any) -> Any:
    """Return signed 64-bit integers in the order of the values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match kind.name:
        case "bool":
            return pc.cast(pc.cast(values, pa.int8()), pa.int64())
        case "date":
            return pc.cast(values.view(pa.int32()), pa.int64())
        case "timestamp":
            return values.view(pa.int64())
        case "float" | "double":
            return _ordered_floats(values, _bits(kind))
    return values if kind.name == "int64" else pc.cast(values, pa.int64())


def _ordered_floats(values: Any, bits: int) -> Any:
    """Return the IEEE bits as signed integers. Below zero, all bits but the sign are flipped.

    Adding zero turns minus zero into zero."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.add(values, pa.scalar(0.0, values.type))
    plain = pc.if_else(pc.is_nan(plain), pa.scalar(float("nan"), values.type), plain)
    number = pa.type_for_alias(f"int{bits}")
    raw = plain.view(number)
    flipped = pc.bit_wise_xor(raw, pa.scalar((1 << (bits - 1)) - 1, number))
    return pc.cast(pc.if_else(pc.less(raw, pa.scalar(0, number)), flipped, raw), pa.int64())


def _encoded(kind: DataType, values: Any, last: bool) -> Any:
    """Return the encoding of one key column, as ``binary``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind.name in ("string", "binary"):
        raw = values.cast(pa.binary())
        if last:
            return raw
        escaped = pc.replace_substring(raw, pattern=b"\0", replacement=b"\0\xff")
        return pc.binary_join_element_wise(escaped, pa.scalar(b"\0\0", pa.binary()), pa.scalar(b"", pa.binary()))
    if kind.name == "decimal":
        return _big_endian_decimals(values).cast(pa.binary())
    numbers = _ordered_ints(kind, values)
    flip = 0 if kind.name == "bool" else -(1 << (_bits(kind) - 1))
    return _big_endian(numbers, _bits(kind), flip).cast(pa.binary())


def _big_endian(numbers: Any, bits: int, flip: int) -> Any:
    """Return the lowest ``bits`` of each integer, big-endian, with the bits of ``flip`` inverted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    narrow = pc.cast(numbers, pa.type_for_alias(f"int{bits}"))
    flipped = pc.bit_wise_xor(narrow, pa.scalar(flip, narrow.type))
    words = words_of(_WORDS[bits], bytes(_values(flipped, bits // 8)))
    if sys.byteorder == "little":
        words.byteswap()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(bits // 8), len(numbers), [None, pa.py_buffer(words)])


def _big_endian_decimals(values: Any) -> Any:
    """Return the unscaled values as 16 bytes each, big-endian, with the sign bit flipped.

    Arrow stores each as two words, the lower one first."""
    import pyarrow as pa

    words = words_of("Q", bytes(_values(values, 16)))
    if sys.byteorder == "little":
        words.byteswap()
    swapped = words_of("Q", bytes(8 * len(words)))
    swapped[0::2], swapped[1::2] = words[1::2], words[0::2]
    raw = bytearray(swapped.tobytes())
    raw[0::16] = bytes(raw[0::16]).translate(_SIGN_FLIPPED)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(values), [None, pa.py_buffer(bytes(raw))])


def _values(values: Any, width: int) -> memoryview:
    """Return the bytes of the values of a fixed-width array, without those outside of its slice."""
    if not len(values):
        return memoryview(b"")
    start = values.offset * width
    return memoryview(values.buffers()[1])[start : start + len(values) * width]


_SIGN_FLIPPED = bytes(byte ^ 0x80 for byte in range(256))
