"""A logical operation on the catalog as one batch of rows of the system table.

The system table is a tablet like any other, with the same engines. A batch is **one** operation of its write path,
so it is replicated, applied or lost as a whole. A new leader has nothing to roll forward. Puts and drops are
different kinds of operations, so a batch has only one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import cast

import msgspec

from stelae.server.master.core.records import Key, Record, decode_record, encode_record
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Schema
from stelae.spi.write import OpKind

SYSTEM_SCHEMA = Schema(
    1,
    (
        Column(id=1, name="kind", type="string"),
        Column(id=2, name="id", type="string"),
        Column(id=3, name="record", type="binary"),
    ),
    (1, 2),
)
"""The schema of the system table. It never changes; records may get more fields."""

_ROW_BYTES = 64
"""The most bytes that a row has beside its contents: offsets, and the length of its key."""


class CatalogBatch(msgspec.Struct, frozen=True, dict=True):
    """Records to put, or keys to drop. It has one of the two, and is not empty."""

    puts: tuple[Record, ...] = ()
    drops: tuple[Key, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.puts) == bool(self.drops):
            raise ValueError("a batch has either puts or drops")

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of all records that it puts or drops."""
        return self.drops or tuple(record.key for record in self.puts)

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """Its records in their stored form, in order."""
        return tuple(map(encode_record, self.puts))

    @property
    def size_bytes(self) -> int:
        """The approximate size of its entry in the log."""
        return sum(map(len, self.encoded)) + _ROW_BYTES * len(self.keys)


def joined(batches: Sequence[CatalogBatch]) -> CatalogBatch:
    """Return batches of one kind as one. No two of them have a record in common."""
    puts = itertools.chain.from_iterable(batch.puts for batch in batches)
    drops = itertools.chain.from_iterable(batch.drops for batch in batches)
    return batches[0] if len(batches) == 1 else CatalogBatch(puts=tuple(puts), drops=tuple(drops))


def to_rows(batch: CatalogBatch) -> tuple[OpKind, RowBatch]:
    """Return the operation on the system table that makes this batch. Neither kind of operation has row errors."""
    if batch.drops:
        return OpKind.DELETE_IGNORE, RowBatch.from_equal_rows(SYSTEM_SCHEMA.key_layout, batch.drops)
    rows = [(*record.key, data) for record, data in zip(batch.puts, batch.encoded, strict=True)]
    return OpKind.UPSERT, RowBatch.from_equal_rows(SYSTEM_SCHEMA.layout, rows)


def from_rows(kind: OpKind, rows: RowBatch) -> CatalogBatch:
    """Return the batch that :func:`to_rows` encoded. Raises ``Corrupt`` if the operation is not one of a batch."""
    if not len(rows):
        raise Corrupt("an operation on the system table has no rows")
    if kind is OpKind.DELETE_IGNORE:
        return CatalogBatch(drops=tuple(Key(*row) for row in rows.to_rows()))
    if kind is not OpKind.UPSERT:
        raise Corrupt(f"the system table takes UPSERT and DELETE_IGNORE, not {kind.name}")
    return CatalogBatch(puts=records_of([rows]))


def records_of(pages: Iterable[RowBatch]) -> tuple[Record, ...]:
    """Return the records of rows from a scan of the system table. Raises ``Corrupt`` if a row is not a record."""
    found = []
    for page in pages:
        for kind, name, data in page.to_rows():
            record = decode_record(cast("bytes", data))
            if record.key != (kind, name):
                raise Corrupt(f"row {kind}/{name} of the system table holds the record {'/'.join(record.key)}")
            found.append(record)
    return tuple(found)
