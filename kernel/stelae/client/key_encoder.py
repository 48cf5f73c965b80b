"""Encodes keys, one by one without Arrow, which is faster for few keys, or many in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stelae.partition.key_columns import FEW_ROWS, KeyColumns
from stelae.partition.partitioning import Partitioning
from stelae.rows.batch_building import build_batch
from stelae.rows.keys import encode_keys
from stelae.rows.row_form import NotPlain, RowForm
from stelae.spi.schema import Schema


class LocatedKey(NamedTuple):
    """A key, and the partition that it belongs to."""

    partition: int  #: Index of the partition, or ``NO_PARTITION``.
    encoded: bytes


class LocatedKeys(NamedTuple):
    """Keys, and the partitions that they belong to.

    They are two lists, because many small objects that live as long make each garbage collection slower."""

    partitions: Sequence[int]  #: Index of each key's partition, or ``NO_PARTITION``.
    encoded: Sequence[bytes]


class KeyEncoder:
    """Encodes the keys of a table. The key never changes, so it serves all versions of the schema.

    Args:
        schema: of the table.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._form = RowForm(schema.key_layout)
        self._columns = KeyColumns(schema, schema.key)

    def locate(self, partitioning: Partitioning, key: Sequence[Any]) -> LocatedKey:
        """Return one key with its partition. ``SchemaMismatch``: a value does not fit its key column."""
        try:
            plain: Sequence[Any] = self._form.take(key)
        except NotPlain:
            (plain,) = build_batch(self._schema.key_layout, [key]).to_rows()
        return LocatedKey(partitioning.partition_of_plain_key(plain), self._columns.encode_from_key(plain))

    def locate_all(self, partitioning: Partitioning, keys: Sequence[Sequence[Any]]) -> LocatedKeys:
        """Return the keys with their partitions. ``SchemaMismatch``: a value does not fit its key column."""
        if len(keys) <= FEW_ROWS:
            found = [self.locate(partitioning, key) for key in keys]
            return LocatedKeys([key.partition for key in found], [key.encoded for key in found])
        rows = build_batch(self._schema.key_layout, keys)
        return LocatedKeys(partitioning.partitions_of(rows), encode_keys(self._schema, rows))
