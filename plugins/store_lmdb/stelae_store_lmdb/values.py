"""Rows as bytes, and back under the schema that somebody reads with."""

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
"""The contents of a version that says that the row was deleted."""

_ENCODER = msgspec.msgpack.Encoder(decimal_format="string")
_decode = msgspec.msgpack.Decoder(list[Any]).decode


def row_encoder(schema: Schema) -> Callable[[Sequence[Any]], bytes]:
    """Return what makes the contents of a version from a row of plain values, all columns of ``schema``."""
    prefix = _VERSION.pack(schema.version)
    encode = _ENCODER.encode
    return lambda row: prefix + encode(row)


def plain_default(column: Column) -> Any:
    """Return a column's default as Arrow gives it (1 is 1.0 in a double, 1.5 may be 1.50); ``None`` if it has none."""
    if column.default is None:
        return None
    return RowBatch.from_equal_rows(Layout((column,)), [(column.default,)]).values(0)[0]


class RowReader:
    """Reads versions of any age as rows of one layout of a schema.

    Columns are matched by id. Rows that are older than a column have the default with which it was added."""

    def __init__(self, layout: Layout, schemas: Mapping[int, Schema], defaults: Defaults) -> None:
        self.layout = layout
        self._defaults = defaults
        self.fixed_bytes = layout.row_bytes_min
        """What each row takes as Arrow, besides its texts."""
        self._schemas = schemas
        self._plans: dict[bytes, Callable[[list[Any]], Row]] = {}

    def size_bytes(self, contents: bytes) -> int:
        """Return what a version weighs in a step: no less than its row takes as Arrow, and what was read for it."""
        return self.fixed_bytes + len(contents)

    def row(self, contents: bytes) -> Row:
        """Return the row of a version that is no deletion; decimals are text. ``Corrupt``: it cannot be read."""
        try:
            values = _decode(memoryview(contents)[VERSION_BYTES:])
            plan = self._plans.get(contents[:VERSION_BYTES]) or self._plan(contents[:VERSION_BYTES])
            return plan(values)
        except (ValueError, IndexError) as error:
            raise Corrupt(f"a row cannot be read: {error}") from error

    def _plan(self, version: bytes) -> Callable[[list[Any]], Row]:
        number = _VERSION.unpack(version)[0]
        schema = self._schemas.get(number)
        if schema is None:
            raise Corrupt(f"a row of schema version {number}, which is not known")
        places = {column_id: place for place, column_id in enumerate(schema.layout.ids)}
        found = self._plans[version] = _picker(
            [
                (places.get(i), None if i in places else plain_default(self._defaults.when_added(i)))
                for i in self.layout.ids
            ]
        )
        return found


def _picker(sources: list[tuple[int | None, Any]]) -> Callable[[list[Any]], Row]:
    """What takes values by place, or a default."""
    if [place for place, _ in sources] == list(range(len(sources))):
        count = len(sources)
        return lambda values: tuple(values[:count])
    if len(sources) > 1 and all(place is not None for place, _ in sources):
        return itemgetter(*(place for place, _ in sources))
    return lambda values: tuple([default if place is None else values[place] for place, default in sources])
