"""The key columns of one level, and their encoding: of single values for bounds and predicates, or of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from stelae.partition.schema import BadPartitioning
from stelae.rows.batch_building import build_batch
from stelae.rows.key_order import KeyOrder, key_order
from stelae.rows.keys import decode_key, encode_keys, value_encoder
from stelae.rows.row_form import NotPlain, RowForm
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema

FEW_ROWS = 256
"""Up to this number of rows, encoding row by row takes less time than starting Arrow."""


class KeyColumns:
    """Some columns of a table's key, in the order of a level.

    Args:
        schema: of the table.
        ids: at least one; ``BadPartitioning`` unless all are key columns.
    """

    def __init__(self, schema: Schema, ids: Sequence[int]) -> None:
        outside_key = [i for i in ids if i not in schema.key]
        if outside_key:
            names = ", ".join(repr(schema.by_id[i].name) if i in schema.by_id else f"id {i}" for i in outside_key)
            key = ", ".join(repr(column.name) for column in schema.key_layout.columns)
            raise BadPartitioning(f"partition columns must be key columns: not {names}; the key is {key}")
        self.ids = tuple(ids)
        self.columns = schema.project(self.ids).columns
        self._schema = Schema(1, self.columns, self.ids)
        self._positions = tuple([schema.key.index(i) for i in self.ids])
        last = len(self.ids) - 1
        self._forms = [RowForm(Layout((column,))) for column in self.columns]
        self._encoders = [value_encoder(column, place == last) for place, column in enumerate(self.columns)]

    @cached_property
    def order(self) -> KeyOrder:
        """The order of encoded values of these columns."""
        return key_order(self._schema)

    def encode(self, values: Sequence[Any]) -> bytes:
        """Return the encoding of values for the first columns. ``SchemaMismatch``: a value does not fit its column."""
        return b"".join([self.encode_part(place, value) for place, value in enumerate(values)])

    def encode_from_key(self, key: Sequence[Any]) -> bytes:
        """Return the encoding of these columns of a complete key, given as plain values that fit its columns."""
        positions = zip(self._encoders, self._positions, strict=True)
        return b"".join([encode(key[position]) for encode, position in positions])

    def decode(self, encoded: bytes) -> tuple[Any, ...]:
        """Return the values of an encoding. ``CallerError``: it is not an encoding of these columns."""
        return decode_key(self._schema, encoded)

    def encode_part(self, place: int, value: Any) -> bytes:
        """Return the part of the encoding for the column at ``place``. ``SchemaMismatch``: the value does not fit."""
        try:
            (plain,) = self._forms[place].take((value,))
        except NotPlain:
            ((plain,),) = build_batch(self._forms[place].layout, [(value,)]).to_rows()
        return self._encoders[place](plain)

    def encode_rows(self, rows: RowBatch) -> list[bytes]:
        """Return the encoding of each row of a batch. The batch has the columns, at any position."""
        if len(rows) <= FEW_ROWS:
            return encode_keys(self._schema, rows)
        return list(self.order.encodings(rows).to_pylist())
