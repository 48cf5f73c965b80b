"""Reads single rows of versions as plain values.

Taking one value out of an Arrow array creates a scalar, which costs as much as the rest of a lookup. Numbers without
nulls are read from the array's buffer instead, and text from its bytes. The functions that do so are made for the first
reader and kept with the versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from stelae.spi.schema import Layout
from stelae_store_columnar.schema_adapter import PlainColumn, SchemaAdapter
from stelae_store_columnar.versions import RowVersions

Read: TypeAlias = Callable[[int], Any]
"""Returns the plain value at a place."""

Row: TypeAlias = tuple[Any, ...]
"""The plain values of a row."""

TOGETHER_MIN = 64
"""From this number of rows in one source on, Arrow reads them in one call."""

TOGETHER_MIN_NEIGHBOURS = 16
"""The same for neighbouring rows, which Arrow need not copy."""

_CODES = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
    pa.date32(): "i",
    pa.timestamp("us"): "q",
}


class PlainRows:
    """The rows of immutable versions. Several threads may use it."""

    __slots__ = ("_readers", "versions")

    def __init__(self, versions: RowVersions) -> None:
        self.versions = versions
        self._readers: tuple[SchemaAdapter, list[Read]] | None = None

    def readers(self, adapter: SchemaAdapter) -> list[Read]:
        """Return the functions that read the columns of a schema, in its order.

        A version that is older than a column has the default with which the column was added."""
        found = self._readers
        if found is None or found[0] is not adapter:
            readers = [_reader_of(column, self.versions) for column in adapter.plain_columns]
            found = self._readers = (adapter, readers)  # Replaced as a whole, for other threads.
        return found[1]

    def rows(self, places: Sequence[int], adapter: SchemaAdapter, layout: Layout) -> list[Row]:
        """Return the rows at some places with the columns of a layout. None of them need have all columns."""
        together = len(places) >= (TOGETHER_MIN_NEIGHBOURS if isinstance(places, range) else TOGETHER_MIN)
        if not together:
            of_schema = self.readers(adapter)
            readers = [of_schema[place] for place in adapter.places(layout)]
            return [tuple([read(place) for read in readers]) for place in places]
        versions = self.versions.select(layout.ids)
        if isinstance(places, range):
            versions = versions.slice(places.start, len(places))
        else:
            versions = versions.take(pa.array(places, pa.int64()))
        return [*adapter.batch(layout, versions).to_rows()]


def _reader_of(column: PlainColumn, versions: RowVersions) -> Read:
    array = versions.columns.get(column.id)
    read = _nothing if array is None else _reader_of_array(array, column.temporal)
    if not column.lacking:
        return read
    schemas, lacking, default = versions.schemas, column.lacking, column.default
    return lambda place: default if schemas[place].as_py() in lacking else read(place)


def _reader_of_array(array: Any, temporal: bool) -> Read:
    if not array.null_count and len(array):
        code = _CODES.get(array.type)
        if code is not None:
            values = memoryview(array.buffers()[1]).cast(code)  # type: ignore[call-overload]
            return _at(values, array.offset)
        if array.type == pa.string():
            return _text_of(array)
    if temporal:
        return lambda place: array[place].value
    return lambda place: array[place].as_py()


def _at(values: memoryview, offset: int) -> Read:
    return values.__getitem__ if not offset else lambda place: values[offset + place]


def _text_of(array: Any) -> Read:
    _, ends, data = array.buffers()
    offsets, text, first = memoryview(ends).cast("i"), memoryview(b"" if data is None else data), array.offset

    def read(place: int) -> str:
        position = first + place
        return str(text[offsets[position] : offsets[position + 1]], "utf-8")

    return read


def _nothing(place: int) -> None:
    """The versions do not have the column."""
