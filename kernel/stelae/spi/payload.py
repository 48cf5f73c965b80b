"""Payload of a ``WRITE`` log entry: many operations of many clients, their rows in Arrow.

Layout, little-endian: magic ``SWP`` and a format version byte; length of the header in bytes (u32); the header in
msgpack; then the record batches of the groups, each starting at a multiple of 8 so that Arrow reads it in place. The
schema of a version is durable before its first use and is not repeated here.

Rows are numbered from 0 through all groups in order; an operation owns its count of rows behind its predecessor's."""

import struct

import msgspec

from stelae.spi.errors import Corrupt
from stelae.spi.ids import ClientId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, RowError

_PREFIX = struct.Struct("<3sBI")
_MAGIC = b"SWP"
_VERSION = 1
_ALIGNMENT_BYTES = 8


class PayloadClient(msgspec.Struct, frozen=True, array_like=True):
    """A client of this entry and its highest ``first_incomplete`` in it."""

    client_id: ClientId
    first_incomplete: int


class PayloadSequenceRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive operations of a client: the number of the first, how many rows each owns, and the hash of each.

    ``errors`` are rows that the leader found not to fit, by place of their operation: they are not among the rows of
    the entry. They count rows as the client sent them; the owned rows are the others, in order."""

    client: int
    first_sequence: int
    row_counts: tuple[int, ...]
    digests: tuple[int, ...]
    errors: tuple[tuple[int, RowError], ...] = ()


class OpGroup(msgspec.Struct, frozen=True):
    """Consecutive rows of one kind: which columns they bring and their record batch."""

    kind: OpKind
    columns: tuple[int, ...] | None
    row_count: int
    body: bytes | memoryview

    def rows(self, schema: Schema) -> RowBatch:
        """Return the rows; ``schema`` is the payload's version. ``Corrupt``: no batch of these columns and this number
        of rows. ``SchemaMismatch``: the schema lacks one of the columns."""
        batch = RowBatch.from_ipc(schema.project(self.columns), self.body)
        if batch.num_rows != self.row_count:
            raise Corrupt(f"a group of {self.row_count} rows holds {batch.num_rows}")
        return batch


class WritePayload(msgspec.Struct, frozen=True):
    """What one ``WRITE`` entry says; see the module for how rows are numbered."""

    schema_version: int
    clients: tuple[PayloadClient, ...]
    sequences: tuple[PayloadSequenceRange, ...]
    groups: tuple[OpGroup, ...]

    @property
    def row_count(self) -> int:
        """Rows of all groups."""
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
    """Return the body of a log entry. Equal payloads give equal bytes."""
    groups = tuple(_Group(g.kind, g.columns, g.row_count, len(g.body)) for g in payload.groups)
    header = _ENCODER.encode(_Header(payload.schema_version, payload.clients, payload.sequences, groups))
    parts: list[bytes | memoryview] = [_PREFIX.pack(_MAGIC, _VERSION, len(header))]
    for piece in (header, *(group.body for group in payload.groups)):
        parts += (piece, bytes(-len(piece) % _ALIGNMENT_BYTES))
    return b"".join(parts)


def decode_payload(body: bytes) -> WritePayload:
    """Read the body of a log entry, record batches unread; ``Corrupt``: it contradicts itself."""
    if len(body) < _PREFIX.size:
        raise Corrupt(f"a write payload of {len(body)} bytes is cut short")
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
            raise Corrupt(f"a group of {group.size_bytes} bytes at {at} leaves the payload")
        groups.append(OpGroup(group.kind, group.columns, group.row_count, view[at:end]))
        at = end + -end % _ALIGNMENT_BYTES
    if at != len(view):
        raise Corrupt(f"{len(view) - at} bytes follow the last group of a write payload")
    return tuple(groups)


def _checked(payload: WritePayload) -> WritePayload:
    clients, owned = len(payload.clients), 0
    for run in payload.sequences:
        operations = len(run.row_counts)
        sound = 0 <= run.client < clients and run.first_sequence >= 1 and 0 < operations == len(run.digests)
        if not sound or min(run.row_counts) < 0 or not all(0 <= place < operations for place, _ in run.errors):
            raise Corrupt(f"impossible run {run} in a write payload"[:200])
        owned += sum(run.row_counts)
    if owned != payload.row_count or any(group.row_count < 0 for group in payload.groups):
        raise Corrupt(f"operations own {owned} rows of a write payload with {payload.row_count}")
    return payload
