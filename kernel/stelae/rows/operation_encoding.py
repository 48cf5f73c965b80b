"""Operations: how a client encodes them, how they are grouped for a request, and how a batcher decodes them.

A client encodes the rows of an operation once; kind and columns are beside the rows. Operations of the same kind and
columns, of one source and epoch, with consecutive sequence numbers travel as one ``SequenceRange``."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, cast

import msgspec

from stelae.spi.errors import CallerError
from stelae.spi.payload import WritePayload
from stelae.spi.write import OpKind, SequenceRange, SourceFence

ROW_FORM_ROWS_MAX = 64  #: Operations with fewer rows are sent in row form, others as Arrow.
ROW_FORM_ROWS_LIMIT = 4096  #: Most rows of one operation that a server accepts in row form.

Rows = list[tuple[Any, ...]]

_ENCODER = msgspec.msgpack.Encoder()
_OPERATION = msgspec.msgpack.Decoder(Rows | bytes)
_OPERATIONS = msgspec.msgpack.Decoder(list[Rows | bytes])


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One encoded operation. It may be sent any number of times."""

    kind: OpKind
    rows: msgspec.Raw  #: The encoded rows.
    is_arrow: bool  #: True if the rows are an Arrow message. Then the operation is a sequence range of its own.
    columns: tuple[int, ...] | None = None  #: Ids of the columns, in order; ``None``: all columns (or the key).
    fence: SourceFence | None = None  #: The source and epoch on whose behalf it is sent.


def operation(
    kind: OpKind,
    rows: Sequence[tuple[Any, ...]] | bytes,
    columns: tuple[int, ...] | None = None,
    fence: SourceFence | None = None,
) -> Operation:
    """Encode an operation. ``rows`` are tuples of plain values (decimals as text), or one Arrow IPC message."""
    return Operation(kind, msgspec.Raw(_ENCODER.encode(rows)), isinstance(rows, bytes), columns, fence)


def sequence_ranges_of(numbered: Iterable[tuple[int, Operation]]) -> list[SequenceRange]:
    """Group numbered operations, in their order, into as few sequence ranges as possible."""
    ranges: list[SequenceRange] = []
    kind, columns, fence, next_sequence = None, None, None, 0
    ops: list[msgspec.Raw] = []
    for sequence, op in numbered:
        differs = op.kind is not kind or op.columns != columns or op.fence != fence
        if sequence != next_sequence or op.is_arrow or differs:
            kind, columns, fence, ops = op.kind, op.columns, op.fence, []
            ranges.append(SequenceRange(sequence, op.kind, columns, ops, fence))
        ops.append(op.rows)
        next_sequence = 0 if op.is_arrow else sequence + 1
    return ranges


def decode_rows(sequence_range: SequenceRange) -> list[Rows] | bytes:
    """Return the rows of each operation of a sequence range, or the Arrow message of its only operation.

    ``CallerError``: an operation is malformed, has too many rows for the row form, or is an Arrow message among
    others."""
    ops = sequence_range.ops
    try:
        # A single operation is decoded without a copy: it may be an Arrow message of megabytes.
        decoded = [_OPERATION.decode(ops[0])] if len(ops) == 1 else _OPERATIONS.decode(_ENCODER.encode(ops))
    except (ValueError, RecursionError) as error:
        raise CallerError(f"malformed write operation: {error}") from error
    if len(decoded) == 1 and isinstance(decoded[0], bytes):
        return decoded[0]
    if bytes in map(type, decoded):
        raise CallerError("an operation in Arrow form must be the only one of its sequence range")
    return check_rows(cast("list[Rows]", decoded))


def check_rows(operations: list[Rows]) -> list[Rows]:
    """Return ``operations`` unchanged. ``CallerError``: one of them has too many rows for the row form."""
    longest = max(map(len, operations), default=0)
    if longest > ROW_FORM_ROWS_LIMIT:
        raise CallerError(f"{longest} rows in row form; at most {ROW_FORM_ROWS_LIMIT} are accepted: send them as Arrow")
    return operations


def row_numbers_of(payload: WritePayload, operations: Collection[int]) -> set[int]:
    """Return the numbers of the rows of some operations.

    Rows and operations are numbered from 0 through the whole payload, in order."""
    rows: set[int] = set()
    start = 0
    counts = chain.from_iterable(one.row_counts for one in payload.sequences) if operations else ()
    for number, count in enumerate(counts):
        if number in operations:
            rows.update(range(start, start + count))
        start += count
    return rows
