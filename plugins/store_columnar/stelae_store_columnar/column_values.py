"""Reads the values of one Arrow array as plain values, one at a time or those of several places.

Arrow makes a scalar of a single value, which costs as much as the rest of a lookup. So single numbers and texts are
read from the buffers of the array. Neighbours are made values by Arrow, which is fastest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from struct import calcsize
from typing import Any

import pyarrow as pa

_CODES = {pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float32(): "f", pa.float64(): "d"}
_NUMBERS = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64()}
"""The plain values of these types are the numbers in the array."""

_TOGETHER_MIN = 64
"""From this number of places on, Arrow copies the values of an array to make them plain."""


class ColumnValues(ABC):
    """The plain values of an immutable array. Several threads may use it."""

    __slots__ = ()

    @abstractmethod
    def at(self, place: int) -> Any:
        """Return the value at a place."""

    def several(self, places: Sequence[int]) -> Sequence[Any]:
        """Return the values at some places, in their order."""
        return [*map(self.at, places)]


def column_values(array: Any) -> ColumnValues:
    """Return the plain values of an array: those of ``RowBatch.to_rows``."""
    if array.null_count == len(array):
        return NoValues()
    if array.type in _NUMBERS:
        array = array.view(_NUMBERS[array.type])
    found: _ArrayValues
    if array.type in _CODES:
        found = _Numbers(array, _CODES[array.type])
    elif array.type == pa.string():
        found = _Text(array)
    elif array.type == pa.binary():
        found = _Bytes(array)
    elif array.type == pa.bool_():
        found = _Bits(array, array.buffers()[1])
    else:
        return _Scalars(array)
    return _Nullable(array, found) if array.null_count else found


def items_of(array: Any, buffer: Any, code: str, more: int = 0) -> memoryview:
    """Return the items of a buffer of an array: one for each value, and ``more``.

    ``code`` is their type, as in ``struct``. A client decides what else is in a buffer of its message."""
    width = calcsize(code)
    start = array.offset * width
    items = memoryview(buffer)[start : start + (len(array) + more) * width]
    found: memoryview = items.cast(code)  # type: ignore[call-overload]
    return found


class NoValues(ColumnValues):
    """The values of a column that the versions do not have."""

    __slots__ = ()

    def at(self, place: int) -> None:
        return None


class Defaulted(ColumnValues):
    """The values of a column with a default that some versions lack, because they are older than the column.

    Args:
        values: of all versions.
        schemas: the schema versions, an Arrow array.
        lacking: the schema versions without the column.
        default: its plain value.
    """

    __slots__ = ("_default", "_lacking", "_schemas", "_values")

    def __init__(self, values: ColumnValues, schemas: Any, lacking: frozenset[int], default: Any) -> None:
        self._values, self._schemas = values, column_values(schemas)
        self._lacking, self._default = lacking, default

    def at(self, place: int) -> Any:
        return self._default if self._schemas.at(place) in self._lacking else self._values.at(place)


class _ArrayValues(ColumnValues):
    """The values of an Arrow array."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def several(self, places: Sequence[int]) -> Sequence[Any]:
        if isinstance(places, range) and places.step == 1:
            neighbours: list[Any] = self._array.slice(places.start, len(places)).to_pylist()
            return neighbours
        if len(places) < _TOGETHER_MIN:
            return self._few(places)
        found: list[Any] = self._array.take(pa.array(places, pa.int64())).to_pylist()
        return found

    def _few(self, places: Sequence[int]) -> Sequence[Any]:
        """Return the values at few places. A comprehension takes half of the time of a call for each value."""
        return [*map(self.at, places)]


class _Numbers(_ArrayValues):
    """Numbers."""

    __slots__ = ("_numbers",)

    def __init__(self, array: Any, code: str) -> None:
        super().__init__(array)
        self._numbers = items_of(array, array.buffers()[1], code)

    def at(self, place: int) -> Any:
        return self._numbers[place]

    def several(self, places: Sequence[int]) -> Sequence[Any]:
        if isinstance(places, range):
            return super().several(places)
        return [*map(self._numbers.__getitem__, places)]


class _Text(_ArrayValues):
    """Text."""

    __slots__ = ("_bytes", "_ends")

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        _, ends, data = array.buffers()
        self._ends = items_of(array, ends, "i", 1)
        self._bytes = memoryview(b"" if data is None else data)

    def at(self, place: int) -> Any:
        ends = self._ends
        return str(self._bytes[ends[place] : ends[place + 1]], "utf-8")

    def _few(self, places: Sequence[int]) -> Sequence[Any]:
        ends, data = self._ends, self._bytes
        return [str(data[ends[place] : ends[place + 1]], "utf-8") for place in places]


class _Bytes(_Text):
    """Bytes."""

    __slots__ = ()

    def at(self, place: int) -> Any:
        ends = self._ends
        return bytes(self._bytes[ends[place] : ends[place + 1]])

    def _few(self, places: Sequence[int]) -> Sequence[Any]:
        ends, data = self._ends, self._bytes
        return [bytes(data[ends[place] : ends[place + 1]]) for place in places]


class _Bits(_ArrayValues):
    """The bits of one buffer of an array, as ``bool``."""

    __slots__ = ("_bytes", "_offset")

    def __init__(self, array: Any, buffer: Any) -> None:
        super().__init__(array)
        self._bytes, self._offset = memoryview(buffer), array.offset

    def at(self, place: int) -> bool:
        bit = self._offset + place
        return bool(self._bytes[bit >> 3] >> (bit & 7) & 1)

    def _few(self, places: Sequence[int]) -> Sequence[bool]:
        data, offset = self._bytes, self._offset
        return [data[offset + place >> 3] >> (offset + place & 7) & 1 == 1 for place in places]


class _Nullable(_ArrayValues):
    """Values of which some are null. The buffers may have anything in their place."""

    __slots__ = ("_valid", "_values")

    def __init__(self, array: Any, values: _ArrayValues) -> None:
        super().__init__(array)
        self._values, self._valid = values, _Bits(array, array.buffers()[0])

    def at(self, place: int) -> Any:
        return self._values.at(place) if self._valid.at(place) else None

    def _few(self, places: Sequence[int]) -> Sequence[Any]:
        valid = self._valid._few(places)
        if all(valid):
            return self._values._few(places)
        at = self._values.at
        return [at(place) if here else None for place, here in zip(places, valid, strict=True)]


class _Scalars(_ArrayValues):
    """Values of types for which Arrow makes scalars."""

    __slots__ = ()

    def at(self, place: int) -> Any:
        return self._array[place].as_py()
