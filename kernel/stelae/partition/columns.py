"""The key columns of one level, encoded: value by value for bounds and predicates, or a whole batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from stelae.partition.schema import BadPartitioning
from stelae.rows.key_order import KeyOrder, key_order
from stelae.rows.keys import decode_key, encode_key, encode_keys, value_encoder
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Schema

FEW_ROWS = 256
"""So many rows take less time one by one than Arrow takes to begin."""


class KeyColumns:
    """Some columns of a table's key, in the order of a level.

    Args:
        schema: of the table.
        ids: at least one; ``BadPartitioning`` unless all are key columns.
    """

    def __init__(self, schema: Schema, ids: Sequence[int]) -> None:
        strangers = [i for i in ids if i not in schema.key]
        if strangers:
            names = ", ".join(repr(schema.by_id[i].name) if i in schema.by_id else f"id {i}" for i in strangers)
            key = ", ".join(repr(column.name) for column in schema.key_layout.columns)
            raise BadPartitioning(f"rows are partitioned by columns of their key, which {names} is not; the key: {key}")
        self.ids = tuple(ids)
        self.columns = schema.project(self.ids).columns
        self._whole = Schema(1, self.columns, self.ids)
        self._positions = tuple([schema.key.index(i) for i in self.ids])
        last = len(self.ids) - 1
        self._encoders = [value_encoder(column, place == last) for place, column in enumerate(self.columns)]

    @cached_property
    def order(self) -> KeyOrder:
        """How encoded values of these columns compare."""
        return key_order(self._whole)

    def encode(self, values: Sequence[Any]) -> bytes:
        """Return the encoding of one value for each column; ``SchemaMismatch``: one does not fit."""
        return encode_key(self._whole, values)

    def encode_plain(self, key: Sequence[Any]) -> bytes:
        """Return the encoding of these columns of a whole key, in key order, whose plain values fit its columns."""
        positions = zip(self._encoders, self._positions, strict=True)
        return b"".join([encode(key[position]) for encode, position in positions])

    def decode(self, encoded: bytes) -> tuple[Any, ...]:
        """Return the values of an encoding; ``CallerError``: it is none of these columns."""
        return decode_key(self._whole, encoded)

    def encode_one(self, place: int, value: Any) -> bytes:
        """Return what one value adds to the encoding at a place; ``SchemaMismatch``: it does not fit."""
        column = self.columns[place]
        if place == len(self.columns) - 1:
            return encode_key(Schema(1, (column,), (column.id,)), (value,))
        pad = _pad((column,))
        return encode_key(Schema(1, (column, pad), (column.id, pad.id)), (value, b""))

    def encode_all(self, rows: RowBatch) -> list[bytes]:
        """Return the encoding of each row of a batch that has the columns, anywhere."""
        if len(rows) <= FEW_ROWS:
            return encode_keys(self._whole, rows)
        return list(self.order.encodings(rows).to_pylist())


def _pad(columns: Sequence[Column]) -> Column:
    names = {column.name for column in columns}
    free = next(name for name in map(str, range(len(names) + 1)) if name not in names)
    return Column(id=max(column.id for column in columns) + 1, name=free, type="binary")
