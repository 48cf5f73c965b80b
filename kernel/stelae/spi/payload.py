"""The payload of a ``WRITE`` log entry: operations of many clients, with their rows as Arrow record batches.

Format, little-endian:

1. the magic ``SWP`` and a byte with the format version;
2. the length of the header in bytes (u32);
3. the header in MessagePack;
4. the record batches of the groups, each at a multiple of 8 bytes, so that Arrow reads it in place.

The schema of a version is durable before its first use and is not repeated here.

The rows of all groups are numbered from 0, in order. The operations of all sequence ranges own these rows in the same
order: each operation owns the next rows, as many as its row count."""

import struct

import msgspec

from stelae.spi.errors import Corrupt
from stelae.spi.ids import ClientId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, RowError, SourceFence

_PREFIX = struct.Struct("<3sBI")
_MAGIC = b"SWP"
_VERSION = 1
_ALIGNMENT_BYTES = 8


class PayloadClient(msgspec.Struct, frozen=True, array_like=True):
    """A client with operations in this entry."""

    client_id: ClientId
    #: The highest ``first_incomplete`` of the client's requests in this entry (``stelae.spi.write``).
    first_incomplete: int


class PayloadSequenceRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Operations of one client with consecutive sequence numbers."""

    #: Position of the client in ``WritePayload.clients``.
    client: int
    first_sequence: int
    #: How many rows of the payload each operation owns.
    row_counts: tuple[int, ...]
    #: The hash of each operation (``stelae.spi.write.digests_of``).
    digests: tuple[int, ...]
    #: Rows that the leader refused because they do not fit: ``(position of the operation in this range, error)``. They
    #: are not in the payload. An error counts rows as the client sent them; the owned rows are the other ones, in
    #: order.
    errors: tuple[tuple[int, RowError], ...] = ()
    #: The source and epoch of the operations (``stelae.spi.write``).
    fence: SourceFence | None = None


class OpGroup(msgspec.Struct, frozen=True):
    """Consecutive rows of operations of one kind and with the same columns."""

    kind: OpKind
    #: Ids of the columns, in order; ``None`` as in ``SequenceRange.columns``.
    columns: tuple[int, ...] | None
    row_count: int
    #: The rows as one Arrow IPC message.
    body: bytes | memoryview

    def rows(self, schema: Schema) -> RowBatch:
        """Return the rows. ``schema`` must be the schema of the payload's version.

        Raises ``Corrupt`` if the body is not a batch with these columns and this number of rows, and ``SchemaMismatch``
        if the schema lacks one of the columns."""
        batch = RowBatch.from_ipc(schema.project(self.columns), self.body)
        if len(batch) != self.row_count:
            raise Corrupt(f"a group of {self.row_count} rows contains {len(batch)}")
        return batch


class WritePayload(msgspec.Struct, frozen=True):
    """The contents of one ``WRITE`` entry. The module docstring says how rows are numbered."""

    schema_version: int
    clients: tuple[PayloadClient, ...]
    sequences: tuple[PayloadSequenceRange, ...]
    groups: tuple[OpGroup, ...]

    @property
    def row_count(self) -> int:
        """The number of rows of all groups."""
        return sum(group.row_count for group in self.groups)


class _Group(msgspec.Struct, frozen=True, array_like=True, gc=False):
    kind: OpKind
    columns: tuple[int, ...] | None
    row_count: int
    size_bytes: int


class _Header(msgspec.Struct, frozen=True, array_like=True):
    schema_version: int
    clients: tuple[PayloadClient, ...]
    sequences: tuple[PayloadSequenceRange, ...]
    groups: tuple[_Group, ...]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Header)


def encode_payload(payload: WritePayload) -> bytes:
    """Encode the body of a log entry. Equal payloads give equal bytes."""
    groups = tuple(_Group(g.kind, g.columns, g.row_count, len(g.body)) for g in payload.groups)
    header = _ENCODER.encode(_Header(payload.schema_version, payload.clients, payload.sequences, groups))
    parts: list[bytes | memoryview] = [_PREFIX.pack(_MAGIC, _VERSION, len(header))]
    for part in (header, *(group.body for group in payload.groups)):
        parts += (part, bytes(-len(part) % _ALIGNMENT_BYTES))
    return b"".join(parts)


def decode_payload(body: bytes) -> WritePayload:
    """Decode the body of a log entry. Its record batches are not decoded.

    Raises ``Corrupt`` if the body is not a payload, or its header does not fit its contents."""
    if len(body) < _PREFIX.size:
        raise Corrupt(f"a write payload of {len(body)} bytes is shorter than its prefix")
    magic, version, header_bytes = _PREFIX.unpack_from(body)
    if magic != _MAGIC or version != _VERSION:
        raise Corrupt(f"not a write payload of version {_VERSION}: begins with {body[:4]!r}")
    view = memoryview(body)
    try:
        header = _DECODER.decode(view[_PREFIX.size : _PREFIX.size + header_bytes])
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"header of a write payload: {error}") from error
    groups = _cut_groups(view, _PREFIX.size + header_bytes, header.groups)
    return _checked(WritePayload(header.schema_version, header.clients, header.sequences, groups))


def _cut_groups(view: memoryview, at: int, sizes: tuple[_Group, ...]) -> tuple[OpGroup, ...]:
    groups = []
    at += -at % _ALIGNMENT_BYTES
    for group in sizes:
        end = at + group.size_bytes
        if group.size_bytes < 0 or end > len(view):
            raise Corrupt(f"a group of {group.size_bytes} bytes at {at} ends beyond the payload")
        groups.append(OpGroup(group.kind, group.columns, group.row_count, view[at:end]))
        at = end + -end % _ALIGNMENT_BYTES
    if at != len(view):
        raise Corrupt(f"{len(view) - at} bytes follow the last group of a write payload")
    return tuple(groups)


def _checked(payload: WritePayload) -> WritePayload:
    clients, owned = len(payload.clients), 0
    for found in payload.sequences:
        operations = len(found.row_counts)
        valid = 0 <= found.client < clients and found.first_sequence >= 1 and 0 < operations == len(found.digests)
        if not valid or min(found.row_counts) < 0 or not all(0 <= at < operations for at, _ in found.errors):
            raise Corrupt(f"a write payload has an invalid sequence range: {found}"[:200])
        owned += sum(found.row_counts)
    if owned != payload.row_count or any(group.row_count < 0 for group in payload.groups):
        raise Corrupt(f"the operations of a write payload own {owned} rows, and it has {payload.row_count}")
    return payload
