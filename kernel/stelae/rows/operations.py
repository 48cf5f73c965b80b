"""Operations as clients make them and as batchers and stores read them.

A client encodes the rows of an operation once, with its kind and columns beside them; what follows each other in
sequence and is of one kind travels as one ``SequenceRange``."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, cast

import msgspec

from stelae.spi.errors import CallerError
from stelae.spi.payload import WritePayload
from stelae.spi.write import OpKind, SequenceRange

ROW_FORM_ROWS_MAX = 64  #: Operations of fewer rows travel in row form, others as Arrow.
ROW_FORM_ROWS_LIMIT = 4096  #: Most rows that a server accepts in row form in one operation.

Rows = list[tuple[Any, ...]]

_ENCODER = msgspec.msgpack.Encoder()
_OPERATION = msgspec.msgpack.Decoder(Rows | bytes)
_OPERATIONS = msgspec.msgpack.Decoder(list[Rows | bytes])


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One operation, ready to be sent any number of times; ``rows`` are encoded."""

    kind: OpKind
    rows: msgspec.Raw
    alone: bool  #: Whether its rows are an Arrow message, which travels as a run of its own.
    columns: tuple[int, ...] | None = None  #: Ids of what the rows bring, in order; ``None``: whole schema (or key).


def operation(
    kind: OpKind, rows: Sequence[tuple[Any, ...]] | bytes, columns: tuple[int, ...] | None = None
) -> Operation:
    """Encode an operation: rows as tuples of plain values (decimals as text), or one Arrow IPC message."""
    return Operation(kind, msgspec.Raw(_ENCODER.encode(rows)), isinstance(rows, bytes), columns)


def runs_of(numbered: Iterable[tuple[int, Operation]]) -> list[SequenceRange]:
    """Group numbered operations, in their order, into as few runs as possible."""
    runs: list[SequenceRange] = []
    kind, columns, due = None, None, 0
    ops: list[msgspec.Raw] = []
    for sequence, op in numbered:
        if sequence != due or op.alone or op.kind is not kind or op.columns != columns:
            kind, columns, ops = op.kind, op.columns, []
            runs.append(SequenceRange(sequence, op.kind, columns, ops))
        ops.append(op.rows)
        due = 0 if op.alone else sequence + 1
    return runs


def decode_rows(run: SequenceRange) -> list[Rows] | bytes:
    """Read the rows of each operation of a run, or the Arrow message of the only one.

    ``CallerError``: malformed, too many rows for the row form, or an Arrow message among others."""
    try:
        # One alone is read where it lies: it may be an Arrow message of megabytes.
        alone = len(run.ops) == 1
        found = [_OPERATION.decode(run.ops[0])] if alone else _OPERATIONS.decode(_ENCODER.encode(run.ops))
    except (ValueError, RecursionError) as error:
        raise CallerError(f"malformed write operation: {error}") from error
    if len(found) == 1 and isinstance(found[0], bytes):
        return found[0]
    if bytes in map(type, found):
        raise CallerError("an operation in Arrow form is a run of its own")
    return check_rows(cast("list[Rows]", found))


def check_rows(operations: list[Rows]) -> list[Rows]:
    """Return the rows of operations as they are; ``CallerError``: one has too many for the row form."""
    longest = max(map(len, operations))
    if longest > ROW_FORM_ROWS_LIMIT:
        raise CallerError(f"{longest} rows in row form; at most {ROW_FORM_ROWS_LIMIT}: send them as Arrow")
    return operations


def rows_of(payload: WritePayload, operations: Collection[int]) -> set[int]:
    """Return the rows that some operations own, which are numbered through all runs of a payload in order."""
    rows: set[int] = set()
    start = 0
    counts = chain.from_iterable(run.row_counts for run in payload.sequences) if operations else ()
    for number, count in enumerate(counts):
        if number in operations:
            rows.update(range(start, start + count))
        start += count
    return rows
