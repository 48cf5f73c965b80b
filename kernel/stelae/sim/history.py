"""What clients asked and were told, in the order in which it happened.

Writes carry values that are never repeated, so a value names the write it came from: that is what
makes checking a history against the log linear in its length."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from stelae.spi.schema import Column, Schema

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
    """One row of an operation; one that is ``unfit`` brings what its column cannot hold.

    What it brings for columns other than the key and the value is drawn from ``more``."""

    key: int
    value: str
    unfit: bool = False
    more: int = 0


RowErrors: TypeAlias = tuple[tuple[int, str], ...]
"""Place of each row that was not taken, among those that the client sent, and why; in order."""


class AnswerKind(StrEnum):
    """What a client was told."""

    DONE = "done"
    """A write that was applied, perhaps with a row error; or a read with its value."""
    MISMATCH = "mismatch"
    """The same identity was used with another payload."""
    STALE = "stale"
    """A repetition of something that was forgotten as settled."""
    REFUSED = "refused"
    """A write or a schema change that was made for another version of the schema: it has no effect, now or later."""
    RETRY = "retry"
    """Not taken, or not known to be taken; ask again, perhaps elsewhere."""


class ClientAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to one attempt.

    Attributes:
        node: position of the node that answered.
        errors: rows of a write that were not taken.
        value: what a read saw; ``None`` for no row.
        leader: position of the node to ask next, if one is known.
        timestamp: hybrid one at which a write took effect; 0: not known.
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
        sequence: number of a write; 0 for reads, which have no identity.
        rows: of a write none or some; of a read the one whose key is asked for.
        imposed: true for a write that reuses the identity of another with another payload.
        settled: true once the client has said that it will not ask for this answer again.
        schema: version of the schema for which the rows were made.
        columns: ids of the columns that the rows bring; ``None``: all of the schema, or the key.
        company: sequences of the run in which it was sent last.
        invoked: order of its beginning among all beginnings and ends of the run.
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
    company: range | None = None
    invoked: int = 0
    answered: int | None = None
    answer: ClientAnswer | None = None

    @property
    def is_write(self) -> bool:
        """True for everything that has a place in the log."""
        return self.action is not ClientAction.READ

    @property
    def unfit(self) -> list[int]:
        """Places of the rows that nobody can take."""
        return [place for place, row in enumerate(self.rows) if row.unfit]


@dataclass(slots=True)
class History:
    """All operations of a run.

    Attributes:
        clock: counts beginnings and ends.
        timestamp_max: highest hybrid timestamp at which an acknowledged write took effect.
    """

    operations: list[ClientOperation] = field(default_factory=list)
    clock: int = 0
    timestamp_max: int = 0

    def begin(self, operation: ClientOperation) -> None:
        """Record that a client begins an operation."""
        self.clock += 1
        operation.invoked = self.clock
        self.operations.append(operation)

    def end(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """Record the final answer."""
        self.clock += 1
        operation.answered = self.clock
        operation.answer = answer
        self.timestamp_max = max(self.timestamp_max, answer.timestamp)

    def acknowledged(self) -> list[ClientOperation]:
        """Writes that were answered as done, in the order of their beginnings."""
        return [o for o in self.operations if o.is_write and o.answer is not None and o.answer.kind is AnswerKind.DONE]
