"""Rows as bytes, and their conversion to rows of the schema of a reader."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec

from stelae.rows.defaults import Defaults
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Layout, Schema

Row: TypeAlias = tuple[Any, ...]

_VERSION = struct.Struct("<I")
VERSION_BYTES = _VERSION.size

DELETION = _VERSION.pack(0)
"""The contents of a deletion."""

_ENCODER = msgspec.msgpack.Encoder(decimal_format="string")
_decode = msgspec.msgpack.Decoder(list[Any]).decode


def row_encoder(schema: Schema) -> Callable[[Sequence[Any]], bytes]:
    """Return the function that encodes a row of plain values, one for each column of ``schema``, as a version."""
    prefix = _VERSION.pack(schema.version)
    encode = _ENCODER.encode
    return lambda row: prefix + encode(row)


def plain_default(column: Column) -> Any:
    """Return a column's default as Arrow returns it (1 is 1.0 in a double); ``None`` if it has none."""
    if column.default is None:
        return None
    return RowBatch.from_equal_rows(Layout((column,)), [(column.default,)]).values(0)[0]


class RowReader:
    """Reads versions of any schema version as rows of one layout.

    Columns are matched by id. Rows that are older than a column have the default with which it was added."""

    def __init__(self, layout: Layout, schemas: Mapping[int, Schema], defaults: Defaults) -> None:
        self.layout = layout
        self._defaults = defaults
        self.fixed_bytes = layout.row_bytes_min
        """Bytes of each row as Arrow, besides its texts."""
        self._schemas = schemas
        self._plans: dict[bytes, Callable[[list[Any]], Row]] = {}

    def size_bytes(self, contents: bytes) -> int:
        """Return the size of a version for the limit of a step: at least the size of its row as Arrow."""
        return self.fixed_bytes + len(contents)

    def row(self, contents: bytes) -> Row:
        """Return the row of a version that is not a deletion. Decimals are text. ``Corrupt``: it cannot be decoded."""
        try:
            values = _decode(memoryview(contents)[VERSION_BYTES:])
            plan = self._plans.get(contents[:VERSION_BYTES]) or self._plan(contents[:VERSION_BYTES])
            return plan(values)
        except (ValueError, IndexError) as error:
            raise Corrupt(f"a row cannot be decoded: {error}") from error

    def _plan(self, version: bytes) -> Callable[[list[Any]], Row]:
        number = _VERSION.unpack(version)[0]
        schema = self._schemas.get(number)
        if schema is None:
            raise Corrupt(f"a row has the unknown schema version {number}")
        positions = {column_id: position for position, column_id in enumerate(schema.layout.ids)}
        found = self._plans[version] = _picker(
            [
                (positions.get(i), None if i in positions else plain_default(self._defaults.when_added(i)))
                for i in self.layout.ids
            ]
        )
        return found


def _picker(sources: list[tuple[int | None, Any]]) -> Callable[[list[Any]], Row]:
    """Return the function that picks values by position, or a default."""
    if [position for position, _ in sources] == list(range(len(sources))):
        count = len(sources)
        return lambda values: tuple(values[:count])
    if len(sources) > 1 and all(position is not None for position, _ in sources):
        return itemgetter(*(position for position, _ in sources))
    return lambda values: tuple([default if position is None else values[position] for position, default in sources])
