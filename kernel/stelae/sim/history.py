"""The history of a run: the operations of all clients and their answers, in the order in which they happened.

The values of writes are never repeated, so a value identifies the write that it came from. For that
reason the time to check a history against the log is linear in its length."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from stelae.spi.schema import Column, Schema
from stelae.spi.write import SourceFence

SCHEMA = Schema(1, (Column(id=1, name="key", type="int64"), Column(id=2, name="value", type="string")), (1,))
"""The first schema of the simulated table."""


class ClientAction(StrEnum):
    """What an operation does to its key."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"


class HistoryRow(NamedTuple):
    """One row of an operation.

    Attributes:
        unfit: true if the row has a cell that its column cannot hold.
        more: number from which the cells of all columns except the key and the value are derived.
    """

    key: int
    value: str
    unfit: bool = False
    more: int = 0


RowErrors: TypeAlias = tuple[tuple[int, str], ...]
"""Position of each refused row among the rows that the client sent, and the error code; ascending."""


class AnswerKind(StrEnum):
    """The kind of an answer to a client."""

    DONE = "done"
    """The write was applied, perhaps with row errors; or the read returned a value."""
    MISMATCH = "mismatch"
    """The identity of the write was used before with another payload."""
    STALE = "stale"
    """The write is a repetition, and its result was dropped because the client had settled it."""
    REFUSED = "refused"
    """The write or schema change was made for another version of the schema, or the epoch of the write is over. It
    never has an effect."""
    RETRY = "retry"
    """The request was not accepted, or its outcome is unknown. The client retries, perhaps on another node."""


class ClientAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to one attempt.

    Attributes:
        node: position of the node that answered.
        errors: refused rows of a write.
        value: value that a read returned; ``None`` for no row.
        leader: position of the node to ask next, if known.
        timestamp: hybrid timestamp at which a write took effect; 0 if not known.
    """

    kind: AnswerKind
    node: int
    errors: RowErrors = ()
    value: str | None = None
    leader: int | None = None
    timestamp: int = 0


@dataclass(slots=True, eq=False)
class ClientOperation:
    """One operation of one client, over all its attempts.

    Attributes:
        sequence: sequence number of a write; 0 for reads, which have no identity.
        rows: the rows of a write, possibly none; for a read one row, with the key to read.
        imposed: true for a write that reuses the identity of another write with another payload.
        settled: true once the client has declared that it will not ask for this answer again.
        schema: schema for which the rows were made.
        columns: ids of the columns that the rows set; ``None`` for all columns of the schema (for a delete, the key).
        sent_range: sequence numbers of the sequence range in which the operation was last sent.
        fence: source and epoch of a write; ``None`` if it has none.
        invoked: order of its start among all starts and ends of operations.
        answered: order of its end; ``None`` while it is open.
    """

    client: str
    sequence: int
    action: ClientAction
    rows: tuple[HistoryRow, ...]
    imposed: bool = False
    settled: bool = False
    schema: Schema = SCHEMA
    columns: tuple[int, ...] | None = None
    sent_range: range | None = None
    fence: SourceFence | None = None
    invoked: int = 0
    answered: int | None = None
    answer: ClientAnswer | None = None

    @property
    def is_write(self) -> bool:
        """True for every operation that has a position in the log."""
        return self.action is not ClientAction.READ

    @property
    def unfit(self) -> list[int]:
        """Positions of the rows that no replica can accept."""
        return [position for position, row in enumerate(self.rows) if row.unfit]


@dataclass(slots=True)
class History:
    """All operations of a run.

    Attributes:
        clock: number of starts and ends of operations so far.
        timestamp_max: highest hybrid timestamp at which an acknowledged write took effect.
        epoch: highest epoch that a client has begun to write.
    """

    operations: list[ClientOperation] = field(default_factory=list)
    clock: int = 0
    timestamp_max: int = 0
    epoch: int = 0

    def begin(self, operation: ClientOperation) -> None:
        """Record the start of an operation."""
        self.clock += 1
        operation.invoked = self.clock
        self.operations.append(operation)

    def end(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """Record the final answer to an operation."""
        self.clock += 1
        operation.answered = self.clock
        operation.answer = answer
        self.timestamp_max = max(self.timestamp_max, answer.timestamp)

    def acknowledged(self) -> list[ClientOperation]:
        """Return the writes that were answered with ``DONE``, in the order of their starts."""
        return [o for o in self.operations if o.is_write and o.answer is not None and o.answer.kind is AnswerKind.DONE]
