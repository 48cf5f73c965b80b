"""The one path that every change of the catalog takes, whoever asks for it (source, *Ensure strict ordering*).

1. Take its locks, all or none.
2. Put the new records together as a value (``Mutation``); readers go on with the snapshot.
3. Replicate them as one batch. If that certainly failed: drop the value, release the locks, say so.
4. Once it is replicated, nothing may fail any more.
5. The batch is applied: the snapshot is swapped whole, so tablets and table appear together.
6. Only now is the change answered, and are its locks released.
7. What follows on tablet servers is not kept here: the reconciler derives it from the snapshot, until it is reported
   done. So a leader that dies between 6 and 7 leaves nothing undone.

Whether replication succeeded may be *unknown* (``durability.md`` rule 26): the locks then stay until the batch turns up
among the applied ones, or this master steps down. A leader that follows begins after everything of its predecessor."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stelae.protocol.master_messages import ChangeOutcome
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.locks import Locks
from stelae.server.master.core.mutations import Mutation
from stelae.spi.ids import OpId


class BatchOutcome(StrEnum):
    """What became of a batch that was to be replicated."""

    COMMITTED = "COMMITTED"
    CERTAINLY_NOT = "CERTAINLY_NOT"
    UNKNOWN = "UNKNOWN"


class CatalogOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One batch under way."""

    token: int
    batch: CatalogBatch
    answer: ChangeOutcome | None = None
    asked: int | None = None  #: Under which token a client waits for the answer.
    op_id: OpId | None = None  #: Where it is committed, if it is, and not yet applied.


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that is decided, or whose client is told that it is not known."""

    operation: CatalogOperation
    outcome: BatchOutcome


class Operations:
    """Operations under way in one leadership.

    Args:
        locks: of this leadership.
    """

    def __init__(self, locks: Locks) -> None:
        self.locks = locks
        self._open: dict[int, CatalogOperation] = {}

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._open)

    def begin(self, token: int, mutation: Mutation, asked: int | None = None) -> CatalogOperation | None:
        """Steps 1 to 3: return what is to be replicated, or ``None`` if a lock is taken."""
        if not self.locks.acquire(token, mutation.locks):
            return None
        return self.open(token, mutation.batch, mutation.answer, asked)

    def open(
        self, token: int, batch: CatalogBatch, answer: ChangeOutcome | None = None, asked: int | None = None
    ) -> CatalogOperation:
        """Step 3 for whoever has taken the locks under ``token`` already."""
        operation = CatalogOperation(token=token, batch=batch, answer=answer, asked=asked)
        self._open[token] = operation
        return operation

    def decided(self, token: int, outcome: BatchOutcome, op_id: OpId | None, applied: OpId) -> Settled | None:
        """Step 4, or the end of step 3. Returns what is to be told now, if anything is.

        A token that is not under way is of an earlier leadership, and means nothing."""
        operation = self._open.get(token)
        if operation is None:
            return None
        if outcome is BatchOutcome.CERTAINLY_NOT:
            return self._end(operation, outcome)
        if outcome is BatchOutcome.UNKNOWN:
            self._open[token] = msgspec.structs.replace(operation, asked=None)
            return Settled(operation=operation, outcome=outcome)
        assert op_id is not None, "a committed batch has a place in the log"
        self._open[token] = operation = msgspec.structs.replace(operation, op_id=op_id)
        return self._end(operation, outcome) if op_id <= applied else None

    def applied(self, batch: CatalogBatch | None, op_id: OpId) -> list[Settled]:
        """Steps 5 and 6: an entry has been applied; return what it decides."""
        ended = [operation for operation in self._open.values() if self._is_decided_by(operation, batch, op_id)]
        return [self._end(operation, BatchOutcome.COMMITTED) for operation in ended]

    def abandon(self) -> list[CatalogOperation]:
        """This master has stepped down: return what was under way. Nobody here will learn its outcome."""
        left = list(self._open.values())
        for operation in left:
            self._end(operation, BatchOutcome.UNKNOWN)
        return left

    def _is_decided_by(self, operation: CatalogOperation, batch: CatalogBatch | None, op_id: OpId) -> bool:
        """Whether an applied entry is this operation's: by its place, or by what it says if that came first.

        No two operations that are under way say the same, since their locks exclude each other."""
        if operation.op_id is not None:
            return operation.op_id <= op_id
        return batch == operation.batch

    def _end(self, operation: CatalogOperation, outcome: BatchOutcome) -> Settled:
        del self._open[operation.token]
        self.locks.release(operation.token)
        return Settled(operation=operation, outcome=outcome)
