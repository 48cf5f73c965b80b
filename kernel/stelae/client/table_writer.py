"""Writes of one table: turns what a caller hands in into operations of tablets, and retries what was refused.

Few rows (fewer than ``ROW_FORM_ROWS_MAX``, of plain Python values) are checked, placed and encoded one by one
(``few_rows``). Everything else becomes Arrow batches first (``row_input``).

Order
    The rows of a call take effect in their order: of two rows with one key, the later one wins. A retry may change the
    order of two requests, so batches that have a key in common are never in flight at the same time. Other batches are,
    up to ``BATCH_WRITES_MAX``. For the same reason, the rows that a batch has for one tablet travel in one request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec

from stelae.client.batch_write import BatchWrite, RefusedRows, TabletOperation, WritableTablet
from stelae.client.failures import FailureTally
from stelae.client.few_rows import FewRows, RowPlan, RowPlans
from stelae.client.row_input import BATCH_BYTES, BATCH_ROWS_MAX, KEY_ONLY, InputBatch, RowInput
from stelae.partition.partitioning import NO_PARTITION, NoPartition, Partitioning
from stelae.rows.batcher import OP_BYTES_MAX
from stelae.rows.key_order import key_order
from stelae.rows.operations import ROW_FORM_ROWS_MAX, Operation, operation
from stelae.spi.errors import RetryableError, SchemaMismatch
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind

_ENCODER = msgspec.msgpack.Encoder()

BATCH_WRITES_MAX = 4
"""Batches of one call that are in flight at once: enough to keep a leader busy, and little memory."""

RENEWALS_MAX = 8
"""How often one batch is sent again because the table was altered meanwhile: bounds a call, not what it waits for."""


class TableWriter:
    """Writes of one table. Rows that are refused because the table was altered are sent again to the table as it is
    then.

    Args:
        name: of the table, for messages.
        partitioning: which rows belong where.
        tablets: one for each partition, by its index.
    """

    def __init__(self, name: str, partitioning: Partitioning, tablets: Sequence[WritableTablet]) -> None:
        self.name = name
        self.partitioning = partitioning
        self.tablets = tablets
        self.written: dict[TabletId, int] = {}
        """The highest timestamp of a write of this client, by tablet: reads of its own writes have to see it."""
        self.renew: Callable[[float], Awaitable[bool]] | None = None
        """Looks the table up again, in so many seconds, and returns whether it has changed; unset: it never does."""
        self._order = key_order(self.schema)
        self._plans = RowPlans(self.schema)
        self._renewing = asyncio.Lock()

    @property
    def schema(self) -> Schema:
        """The table's schema, as it was when the table was looked up last."""
        return self.partitioning.schema

    def altered(self, partitioning: Partitioning, tablets: Sequence[WritableTablet]) -> None:
        """Take the new shape of the table. Every read of own writes still sees what was written before."""
        self.partitioning, self.tablets = partitioning, tablets
        self._order = key_order(self.schema)
        self._plans = RowPlans(self.schema)
        highest = max(self.written.values(), default=0)
        self.written.update({tablet.tablet_id: highest for tablet in tablets} if highest else {})

    async def settle(self, sent: BatchWrite, kind: OpKind, timeout_s: float) -> None:
        """Wait until all rows of a batch are written or have failed.

        A batch that has a key in common with it and was sent after it in the same turn is refused with it, and sent
        again behind it: the version of a tablet's schema only rises."""
        await sent.settle(self.written)
        for _ in range(RENEWALS_MAX):
            if not sent.refused:
                break
            try:
                if not await self._renewed(sent, timeout_s):
                    break
            except (RetryableError, SchemaMismatch) as error:
                sent.give_up(f"; the table could not be looked up again: {error}")
                return
            sent = self.plan(kind, [refused.batch for refused in sent.refused], sent.tally)
            sent.send(timeout_s)
            await sent.settle(self.written)
        sent.give_up()

    async def _renewed(self, sent: BatchWrite, timeout_s: float) -> bool:
        async with self._renewing:
            if sent.partitioning is not self.partitioning:
                return True
            return self.renew is not None and await self.renew(timeout_s)

    async def write(self, kind: OpKind, data: Any, timeout_s: float) -> FailureTally:
        """Write everything that was handed in, and wait until it is durable.

        Raises:
            SchemaMismatch, CallerError: see ``RowInput.batches``; batches before the one at fault are written.
        """
        tally = FailureTally(self.name, kind)
        in_flight: deque[BatchWrite] = deque()
        try:
            for planned in self.planned(kind, data, tally):
                while len(in_flight) >= BATCH_WRITES_MAX or any(planned.meets(other) for other in in_flight):
                    await self.settle(in_flight.popleft(), kind, timeout_s)
                planned.send(timeout_s)
                in_flight.append(planned)
        finally:
            while in_flight:
                await self.settle(in_flight.popleft(), kind, timeout_s)
        return tally

    def planned(self, kind: OpKind, data: Any, tally: FailureTally) -> Iterator[BatchWrite]:
        """Yield what was handed in as batches that are ready to be sent; ``write`` says what is raised."""
        if (few := self._plan_few(kind, data, tally)) is not None:
            yield few
            return
        for batches in coalesced(RowInput(self.schema, kind, tally).batches(data)):
            yield self.plan(kind, batches, tally)

    def _plan_few(self, kind: OpKind, data: Any, tally: FailureTally) -> BatchWrite | None:
        """Check, place and encode a few rows of plain values, without Arrow; ``None``: they need the Arrow path."""
        taken = self._plans.take(kind, data)
        if taken is None:
            return None
        plan, rows = taken
        start, operations = tally.rows, []
        for partition, numbers in self._partitions_of(plan, rows).items():
            whole = len(numbers) == len(rows)
            few = FewRows(plan.form.layout, rows if whole else [rows[number] for number in numbers])
            encoded = operation(kind, few.rows, self._columns_of(kind, few))
            if partition == NO_PARTITION or len(encoded.rows) > OP_BYTES_MAX:
                return None
            operations.append(TabletOperation(partition, few, [start + number for number in numbers], encoded))
        tally.rows += len(rows)
        everything = [FewRows(plan.form.layout, rows)]
        return BatchWrite(self.partitioning, self.tablets, self._order, everything, tally, operations, [])

    def _partitions_of(self, plan: RowPlan, rows: Sequence[tuple[Any, ...]]) -> dict[int, Sequence[int]]:
        """The numbers of the rows of each partition, ascending, by partition."""
        partitioning = self.partitioning
        if partitioning.is_unpartitioned:
            return {0: range(len(rows))}
        found: dict[int, list[int]] = {}
        for number, row in enumerate(rows):
            found.setdefault(partitioning.partition_of_plain_key(plan.key_of(row)), []).append(number)
        return {partition: found[partition] for partition in sorted(found)}

    def plan(self, kind: OpKind, batches: Sequence[InputBatch], tally: FailureTally) -> BatchWrite:
        """Split batches by partition and encode them. Rows that no partition takes are ``refused``."""
        refused: list[RefusedRows] = []
        operations = [sent for batch in batches for sent in self._operations(kind, batch, tally, refused)]
        rows = [batch.rows for batch in batches]
        return BatchWrite(self.partitioning, self.tablets, self._order, rows, tally, operations, refused)

    def _operations(
        self, kind: OpKind, batch: InputBatch, tally: FailureTally, refused: list[RefusedRows]
    ) -> Iterator[TabletOperation]:
        columns = self._columns_of(kind, batch.rows)
        for share in self.partitioning.split(batch.rows):
            whole = len(share.rows) == len(batch.rows)
            places = batch.places if whole else [batch.places[place] for place in share.positions]
            if share.partition == NO_PARTITION:
                reason = self._why_nowhere(share.rows)
                refused.append(RefusedRows(InputBatch(share.rows, places), NoPartition.code, reason))
                continue
            for rows, start, encoded in _encoded(kind, columns, share.rows, 0):
                mine = places[start : start + len(rows)]
                if len(encoded.rows) > OP_BYTES_MAX:
                    reason_text = f"the row takes {len(encoded.rows)} bytes; at most {OP_BYTES_MAX} are accepted"
                    tally.fail(mine[0], "TOO_LARGE", reason_text)
                else:
                    yield TabletOperation(share.partition, rows, mine, encoded)

    def _columns_of(self, kind: OpKind, rows: RowBatch | FewRows) -> tuple[int, ...] | None:
        """The ids of the columns that rows bring; ``None``: those that the kind of write brings anyway."""
        expected = self.schema.key_layout if kind in KEY_ONLY else self.schema.layout
        return None if rows.layout is expected or rows.layout == expected else rows.layout.ids

    def _why_nowhere(self, rows: RowBatch) -> Callable[[int], str]:
        partitioning = self.partitioning

        def reason(row: int) -> str:
            key = rows.slice(row, 1).select(partitioning.schema.key_layout).to_rows()[0]
            return partitioning.explain_no_partition(key)

        return reason


def coalesced(batches: Iterator[InputBatch]) -> Iterator[list[InputBatch]]:
    """Join small batches up to the size of a large one: rows that bring different columns come in many batches.

    When the input raises an error, the batches before it are given first."""
    joined: list[InputBatch] = []
    rows = size_bytes = 0
    problem: Exception | None = None
    try:
        for batch in batches:
            rows, size_bytes = rows + len(batch.rows), size_bytes + batch.rows.nbytes
            if joined and (rows > BATCH_ROWS_MAX or size_bytes > BATCH_BYTES):
                yield joined
                joined, rows, size_bytes = [], len(batch.rows), batch.rows.nbytes
            joined.append(batch)
    except Exception as error:
        problem = error
    if joined:
        yield joined
    if problem is not None:
        raise problem


def _encoded(
    kind: OpKind, columns: tuple[int, ...] | None, rows: RowBatch, start: int
) -> Iterator[tuple[RowBatch, int, Operation]]:
    """Encode rows as operations that a server takes, or of one row: each with its rows, and where they start."""
    if len(rows) < ROW_FORM_ROWS_MAX:
        encoded = operation(kind, rows.to_rows(), columns)
    else:
        # What ``operation`` does with ``rows.to_ipc()``, without a copy of all rows.
        message = msgspec.Raw(_ENCODER.encode(memoryview(rows.arrow.serialize())))
        encoded = Operation(kind, message, is_arrow=True, columns=columns)
    if len(encoded.rows) <= OP_BYTES_MAX or len(rows) == 1:
        yield rows, start, encoded
        return
    half = len(rows) // 2
    yield from _encoded(kind, columns, rows.slice(0, half), start)
    yield from _encoded(kind, columns, rows.slice(half), start + half)
