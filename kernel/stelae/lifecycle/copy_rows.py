"""The encoding of a piece of an export in a copy: versions of rows as Arrow, for a store of any engine. Pure.

Format, little-endian:

1. the magic ``STce`` and a byte with the format version;
2. for each batch: schema version (u32), 1 for deletions and else 0 (u8), number of rows (u32), length of the record
   batch (u64), one timestamp for each row (u64), the record batch as an Arrow IPC message without its schema.

A batch of deletions has the key columns only."""

import struct
from collections.abc import Iterable, Iterator, Mapping

from stelae.lifecycle.copy_items import export_item
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.store import BATCH_ROWS_MAX, VersionedRows

EXPORT_PIECE_BYTES = 4 << 20  #: A piece ends with the batch with which it reaches this size.

_MAGIC = b"STce\x01"
_BATCH = struct.Struct("<IBIQ")


def export_pieces(batches: Iterable[VersionedRows]) -> Iterator[tuple[str, bytes]]:
    """Cut an export into pieces. Yield the name and the bytes of each. Holds one piece in memory."""
    number, parts, size_bytes = 0, [_MAGIC], 0
    for batch in _split(batches):
        encoded = _encoded(batch)
        parts += encoded
        size_bytes += sum(map(len, encoded))
        if size_bytes >= EXPORT_PIECE_BYTES:
            yield export_item(number), b"".join(parts)
            number, parts, size_bytes = number + 1, [_MAGIC], 0
    if size_bytes:
        yield export_item(number), b"".join(parts)


def decode_rows(item: str, data: bytes, schemas: Mapping[int, Schema]) -> Iterator[VersionedRows]:
    """Yield the batches of a piece. ``schemas`` has every schema version of the copied superblock.

    Raises ``Corrupt`` if the bytes are not a piece of an export, or have an unknown schema version."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise Corrupt(f"{item} does not begin as a piece of an export in a known format")
    at = len(_MAGIC)
    while at < len(data):
        if at + _BATCH.size > len(data):
            raise Corrupt(f"{item} ends within a batch")
        version, deleted, count, length = _BATCH.unpack_from(data, at)
        rows_at = at + _BATCH.size + 8 * count
        if deleted > 1 or count > BATCH_ROWS_MAX or rows_at + length > len(data):
            raise Corrupt(f"{item}: the batch at byte {at} cannot be read")
        if version not in schemas:
            raise Corrupt(f"{item} has rows of schema version {version}, which the copied superblock does not have")
        schema = schemas[version]
        layout = schema.key_layout if deleted else schema.layout
        rows = RowBatch.from_ipc(layout, data[rows_at : rows_at + length])
        if len(rows) != count:
            raise Corrupt(f"{item}: a batch has {len(rows)} rows instead of {count}")
        yield VersionedRows(version, bool(deleted), struct.unpack_from(f"<{count}Q", data, at + _BATCH.size), rows)
        at = rows_at + length


def _split(batches: Iterable[VersionedRows]) -> Iterator[VersionedRows]:
    for batch in batches:
        for start in range(0, len(batch.timestamps), BATCH_ROWS_MAX):
            end = start + BATCH_ROWS_MAX
            rows = batch.rows.slice(start, BATCH_ROWS_MAX)
            yield VersionedRows(batch.schema_version, batch.deleted, batch.timestamps[start:end], rows)


def _encoded(batch: VersionedRows) -> list[bytes]:
    rows, count = batch.rows.to_ipc(), len(batch.timestamps)
    head = _BATCH.pack(batch.schema_version, batch.deleted, count, len(rows))
    return [head, struct.pack(f"<{count}Q", *batch.timestamps), rows]
