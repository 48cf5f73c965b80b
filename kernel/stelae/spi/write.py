"""Write requests of clients, and the leader's answers.

A client numbers its operations from 1 and never gives one number to two different operations. ``(client id, sequence,
first incomplete)`` makes an operation exactly-once: it has one effect and one answer, wherever and however often it is
retried. ``first_incomplete`` says that every operation with a lower sequence number has been answered, so that its
result may be forgotten.

Small operations have their rows in MessagePack, because one row as an Arrow batch costs a hundred times more. Large
operations have them as an Arrow IPC message, which is not encoded again. The client encodes the rows once, and the
leader hashes them once. The operations of one turn are sent in *sequence ranges*: operations of one kind with the same
columns and consecutive sequence numbers. A range stays together in the log, when it is applied and in the answer, so
that most costs arise once for each range, not once for each operation."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeVar

import mmh3
import msgspec

from stelae.spi.errors import CallerError, StelaeError
from stelae.spi.ids import ClientId, SourceId, TabletId, client_id, source_id, tablet_id
from stelae.spi.services import Buffer

OPS_MAX = 16_384  #: The most operations of one request. It bounds the memory that one message uses on a server.


class StaleSequence(CallerError, code="STALE_SEQUENCE"):
    """The sequence number is below ``first_incomplete``, or its result has expired.

    The operation is not applied now. Whether it was applied before is not known."""


class StaleEpoch(CallerError, code="STALE_EPOCH"):
    """The source of the write has begun a later epoch, so that this epoch may not write any more.

    The operation is not applied, now or later."""


class SourceFence(NamedTuple):
    """The source of an operation, and its epoch. A tablet refuses an epoch that is lower than one it has applied.

    A source is a job, a query or a script whose runs follow each other. Each run, or each batch, is an epoch. A writer
    of an earlier epoch that is still alive can so change nothing any more."""

    source: SourceId
    epoch: int  #: From 0 to 2**63 - 1.


class OpKind(IntEnum):
    """What an operation does with its rows. It is stored as one byte; numbers are never reused."""

    INSERT = 0  #: Insert rows. A row whose key exists gives the row error ``ALREADY_PRESENT``.
    UPSERT = 1  #: Insert rows, or replace the given columns of rows that exist.
    UPDATE = 2  #: Replace the given columns. A missing row gives the row error ``NOT_FOUND``.
    DELETE = 3  #: Delete rows; only key columns are given. A missing row gives the row error ``NOT_FOUND``.
    INSERT_IGNORE = 4  #: As ``INSERT``, but rows that exist are skipped without an error.
    UPDATE_IGNORE = 5  #: As ``UPDATE``, but missing rows are skipped without an error.
    DELETE_IGNORE = 6  #: As ``DELETE``, but missing rows are skipped without an error.


class RowCode(IntEnum):
    """Why a row was not applied. It is stored in logs and results; numbers are never reused."""

    ALREADY_PRESENT = 1
    NOT_FOUND = 2
    BAD_VALUE = 3
    OUTSIDE_PARTITION = 4


class RowError(msgspec.Struct, frozen=True, array_like=True):
    """One row that was not applied. It does not affect the other rows of its operation."""

    row: int  #: Position in the operation as the client sent it, from 0.
    code: RowCode
    detail: str = ""  #: For ``BAD_VALUE`` and ``OUTSIDE_PARTITION``: what was expected, and what was found.


class OpResult(msgspec.Struct, frozen=True, array_like=True):
    """The answer to one operation. If ``refusal`` is set, the operation had no effect."""

    timestamp: int  #: The hybrid timestamp at which it took effect; 0 if it was refused.
    errors: tuple[RowError, ...] = ()  #: The rows that were not applied, by position.
    refusal: str = ""  #: The code of the error with which it was refused; empty if it was not.
    detail: str = ""  #: The text of that error.


class SequenceRange(msgspec.Struct, frozen=True, array_like=True):
    """Operations of one client with consecutive sequence numbers, the same kind and the same columns."""

    first_sequence: int
    kind: OpKind
    columns: tuple[int, ...] | None  #: Ids of the columns of the rows, in order; ``None``: all columns (or the key).
    #: The rows of each operation, encoded: a list of tuples of plain values, or one Arrow IPC message. An operation
    #: with an Arrow IPC message has a range of its own.
    ops: list[msgspec.Raw]
    #: The source and epoch of all operations; ``None``: they have none.
    fence: SourceFence | None = None


class WriteRequest(msgspec.Struct, frozen=True, array_like=True):
    """Operations of one client on one tablet."""

    tablet_id: TabletId
    client_id: ClientId
    #: Every operation of this client with a lower sequence number has been answered.
    first_incomplete: int
    #: Version of the schema for which the rows were made.
    schema_version: int
    sequences: list[SequenceRange]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The result of ``count`` consecutive operations, all of which have the same result."""

    first_sequence: int
    count: int
    result: OpResult


class WriteReply(msgspec.Struct, frozen=True, array_like=True):
    """The answers to a request, in any order. An operation without an answer is not decided."""

    answers: list[Answer]


_Message = TypeVar("_Message", bound=msgspec.Struct)
_ENCODER = msgspec.msgpack.Encoder()
_REQUEST = msgspec.msgpack.Decoder(WriteRequest)
_REPLY = msgspec.msgpack.Decoder(WriteReply)


def _decode(decoder: msgspec.msgpack.Decoder[_Message], data: Buffer, what: str) -> _Message:
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"malformed write {what}: {error}") from error


def digests_of(sequences: SequenceRange) -> tuple[int, ...]:
    """Return a 64-bit hash of each operation's kind, columns and rows.

    It tells a retry of an operation from another operation with the same sequence number."""
    seed = mmh3.hash(_ENCODER.encode((sequences.kind, sequences.columns)), signed=False)
    hashed = mmh3.mmh3_x64_128_utupledigest
    return tuple([hashed(op, seed)[0] for op in sequences.ops])


EPOCH_LAST = (1 << 63) - 1
"""The highest epoch of a source. When it begins, the source has ended: no epoch follows. It has no rows."""


def checked_fence(source: str, epoch: int) -> SourceFence:
    """Return the fence of an epoch of a source. Raises ``BadIdentifier`` or ``CallerError`` if one of them is bad."""
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 63:
        raise CallerError(f"an epoch is an integer from 0 to 2**63 - 1, not {epoch!r}")
    return SourceFence(source_id(source), epoch)


def refused(error: StelaeError) -> OpResult:
    """Return the answer to an operation that had no effect because of ``error``."""
    return OpResult(0, (), error.code, str(error))


#: Encodes a request.
encode_request: Callable[[WriteRequest], bytes] = _ENCODER.encode
#: Encodes a reply.
encode_reply: Callable[[WriteReply], bytes] = _ENCODER.encode


def decode_request(data: Buffer) -> WriteRequest:
    """Decode a request. Its rows are not decoded. Raises ``CallerError`` if it is malformed or a value out of range."""
    request = _decode(_REQUEST, data, "request")
    tablet_id(request.tablet_id)
    client_id(request.client_id)
    counts = [len(sequences.ops) for sequences in request.sequences]
    if sum(counts) > OPS_MAX:
        raise CallerError(f"{sum(counts)} operations in one request; at most {OPS_MAX} are accepted")
    if not 1 <= request.first_incomplete < 1 << 63:
        raise CallerError(f"first_incomplete must be from 1 to 2**63 - 1, not {request.first_incomplete}")
    firsts = [sequences.first_sequence for sequences in request.sequences]
    if not all(n and 1 <= first < (1 << 63) - n for first, n in zip(firsts, counts, strict=True)):
        raise CallerError("a sequence range must have operations, and sequence numbers from 1 to 2**63 - 1")
    for fence in {sequences.fence for sequences in request.sequences if sequences.fence is not None}:
        checked_fence(*fence)
    return request


def decode_reply(data: Buffer) -> WriteReply:
    """Decode a reply. Raises ``CallerError`` if it is malformed."""
    return _decode(_REPLY, data, "reply")
