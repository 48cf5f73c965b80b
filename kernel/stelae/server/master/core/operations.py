"""The path of every change of the catalog (source, *Ensure strict ordering*).

1. Take its locks, all or none.
2. Make the new records, as a value (``Mutation``). Readers continue with the old snapshot.
3. Replicate them as one batch. If that certainly failed: drop the value, release the locks, and answer with an error.
4. Once the batch is replicated, no later step may fail.
5. Apply the batch: the snapshot is replaced as a whole, so tablets and table appear together.
6. Answer the change, and release its locks.
7. Actions on tablet servers are not stored. The reconciler derives them from the snapshot until they are reported as
   done. So no action is lost if a leader ends between 6 and 7.

It may be *unknown* whether replication succeeded (``durability.md`` rule 26). The locks then stay until the batch is
applied, or this master steps down. The next leader begins after it has applied all entries of its predecessor."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stelae.protocol.master_messages import ChangeOutcome
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.locks import Locks
from stelae.server.master.core.mutations import Mutation
from stelae.spi.ids import OpId


class BatchOutcome(StrEnum):
    """The outcome of replicating a batch."""

    COMMITTED = "COMMITTED"
    CERTAINLY_NOT = "CERTAINLY_NOT"
    UNKNOWN = "UNKNOWN"


class CatalogOperation(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in flight."""

    token: int
    batch: CatalogBatch
    answer: ChangeOutcome | None = None
    asked: int | None = None  #: The token of the client that waits for the answer.
    op_id: OpId | None = None  #: Op id of its entry, if it is committed and not applied yet.


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """An operation that is decided, or whose client gets an error because the outcome is unknown."""

    operation: CatalogOperation
    outcome: BatchOutcome


class Operations:
    """The operations in flight in one leadership.

    Args:
        locks: the locks of this leadership.
    """

    def __init__(self, locks: Locks) -> None:
        self.locks = locks
        self._open: dict[int, CatalogOperation] = {}

    def __len__(self) -> int:
        """The number of operations in flight."""
        return len(self._open)

    @property
    def background(self) -> int:
        """The number of operations in flight for which no client has asked."""
        return sum(operation.answer is None for operation in self._open.values())

    def begin(self, token: int, mutation: Mutation, asked: int | None = None) -> CatalogOperation | None:
        """Steps 1 to 3: return the batch to replicate, or ``None`` if a lock is taken."""
        if not self.locks.acquire(token, mutation.locks):
            return None
        return self.open(token, mutation.batch, mutation.answer, asked)

    def open(
        self, token: int, batch: CatalogBatch, answer: ChangeOutcome | None = None, asked: int | None = None
    ) -> CatalogOperation:
        """Step 3 for a caller that has already taken the locks under ``token``."""
        operation = CatalogOperation(token=token, batch=batch, answer=answer, asked=asked)
        self._open[token] = operation
        return operation

    def decided(self, token: int, outcome: BatchOutcome, op_id: OpId | None, applied: OpId) -> Settled | None:
        """Step 4, or the end of step 3. Returns the operation if its client can be answered now.

        A token that is not in flight is of an earlier leadership, and has no effect."""
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
        """Steps 5 and 6, after an entry is applied: return the operation that it decides, if any."""
        ended = [operation for operation in self._open.values() if self._is_decided_by(operation, batch, op_id)]
        return [self._end(operation, BatchOutcome.COMMITTED) for operation in ended]

    def abandon(self) -> list[CatalogOperation]:
        """End all operations, because this master has stepped down.

        Return them; this master will not learn their outcomes."""
        left = list(self._open.values())
        for operation in left:
            self._end(operation, BatchOutcome.UNKNOWN)
        return left

    def _is_decided_by(self, operation: CatalogOperation, batch: CatalogBatch | None, op_id: OpId) -> bool:
        """Return whether an applied entry is the one of this operation.

        It is recognized by its op id, or by its contents if it is applied before the op id is known. No two
        operations in flight have the same contents, because their locks exclude each other."""
        if operation.op_id is not None:
            return operation.op_id <= op_id
        return batch == operation.batch

    def _end(self, operation: CatalogOperation, outcome: BatchOutcome) -> Settled:
        del self._open[operation.token]
        self.locks.release(operation.token)
        return Settled(operation=operation, outcome=outcome)
