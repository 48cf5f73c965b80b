"""Write requests and their answers, as they travel between a client and a leader.

A client numbers its operations from 1 and never gives a number to two different ones. Together ``(client id, sequence,
first incomplete)`` make an operation exactly-once: retried anywhere, any number of times, it has one effect and one
answer. ``first_incomplete`` says that every lower sequence has been answered, so that its result may be forgotten.

Small operations carry rows in msgpack, since one row as an Arrow batch costs a hundred times more; large ones an Arrow
IPC message that nobody touches again. Rows are encoded once, by the client, and hashed once, by the leader; what a turn
produced travels in runs of consecutive operations, and stays together through log, apply and answer."""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

import mmh3
import msgspec

from stelae.spi.errors import CallerError, StelaeError
from stelae.spi.ids import ClientId, TabletId, client_id, tablet_id
from stelae.spi.services import Buffer

OPS_MAX = 16_384  #: Most operations of one request: bounds what a message can make a server hold.


class StaleSequence(CallerError, code="STALE_SEQUENCE"):
    """Sequence declared answered, or its result too old: not applied now; whether it once was is not known."""


class OpKind(IntEnum):
    """What an operation does with its rows. Stored as one byte; numbers are never reused."""

    INSERT = 0  #: A row whose key exists is the row error ``ALREADY_PRESENT``.
    UPSERT = 1  #: Insert, or replace the given columns of the row that exists.
    UPDATE = 2  #: Replace the given columns; a missing row is the row error ``NOT_FOUND``.
    DELETE = 3  #: Brings key columns only; a missing row is the row error ``NOT_FOUND``.
    INSERT_IGNORE = 4  #: Insert; rows that exist are left alone without an error.
    UPDATE_IGNORE = 5  #: Update; rows that are missing are skipped without an error.
    DELETE_IGNORE = 6  #: Delete; rows that are missing are skipped without an error.


class RowCode(IntEnum):
    """Why a row was not taken. Stored in logs and results; numbers are never reused."""

    ALREADY_PRESENT = 1
    NOT_FOUND = 2
    BAD_VALUE = 3
    OUTSIDE_PARTITION = 4


class RowError(msgspec.Struct, frozen=True, array_like=True):
    """One row that was not taken; the rest of its operation stands."""

    row: int  #: Position in the operation as the client sent it, from 0.
    code: RowCode
    detail: str = ""  #: Of ``BAD_VALUE`` and ``OUTSIDE_PARTITION``: what was expected, and what came.


class OpResult(msgspec.Struct, frozen=True, array_like=True):
    """The answer to one operation; with a ``refusal`` the whole of it had no effect."""

    timestamp: int  #: Hybrid timestamp at which it took effect; 0 when refused.
    errors: tuple[RowError, ...] = ()  #: Rows that were not taken, by position.
    refusal: str = ""  #: Stable code of the error, or empty.
    detail: str = ""  #: What the refusal says to people.


class SequenceRange(msgspec.Struct, frozen=True, array_like=True):
    """Operations of one kind that a client numbered in a row, so that what they share is told and looked at once."""

    first_sequence: int
    kind: OpKind
    columns: tuple[int, ...] | None  #: Ids of what the rows bring, in order; ``None``: whole schema (or key).
    ops: list[msgspec.Raw]  #: Each an encoded list of rows: tuples of plain values; or one Arrow IPC message, alone.


class WriteRequest(msgspec.Struct, frozen=True, array_like=True):
    """Operations of one client on one tablet. ``schema_version`` is what the rows were made for."""

    tablet_id: TabletId
    client_id: ClientId
    first_incomplete: int
    schema_version: int
    sequences: list[SequenceRange]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The result that so many consecutive operations share."""

    first_sequence: int
    count: int
    result: OpResult


class WriteReply(msgspec.Struct, frozen=True, array_like=True):
    """Answers, in any order; an operation that is missing was not decided."""

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


def digests_of(run: SequenceRange) -> tuple[int, ...]:
    """Return a 64-bit hash of each operation's kind, columns and rows: tells a retry from another use of its id."""
    seed = mmh3.hash(_ENCODER.encode((run.kind, run.columns)), signed=False)
    hashed = mmh3.mmh3_x64_128_utupledigest
    return tuple([hashed(op, seed)[0] for op in run.ops])


def refused(error: StelaeError) -> OpResult:
    """Return the answer for an operation that had no effect because of ``error``."""
    return OpResult(0, (), error.code, str(error))


#: Encode a request, and a reply.
encode_request: Callable[[WriteRequest], bytes] = _ENCODER.encode
encode_reply: Callable[[WriteReply], bytes] = _ENCODER.encode


def decode_request(data: Buffer) -> WriteRequest:
    """Read a request, rows encoded still; ``CallerError``: malformed, or out of range."""
    request = _decode(_REQUEST, data, "request")
    tablet_id(request.tablet_id)
    client_id(request.client_id)
    counts = [len(run.ops) for run in request.sequences]
    if sum(counts) > OPS_MAX:
        raise CallerError(f"{sum(counts)} operations in one request; at most {OPS_MAX}")
    if not 1 <= request.first_incomplete < 1 << 63:
        raise CallerError(f"first incomplete {request.first_incomplete} is out of range")
    if not all(n and 1 <= run.first_sequence < (1 << 63) - n for run, n in zip(request.sequences, counts, strict=True)):
        raise CallerError("a run without operations, or a sequence out of range: they count from 1")
    return request


def decode_reply(data: Buffer) -> WriteReply:
    """Read a reply; ``CallerError``: malformed."""
    return _decode(_REPLY, data, "reply")
