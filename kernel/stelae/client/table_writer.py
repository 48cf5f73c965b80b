"""Writes rows to one table: turns a caller's rows into operations of tablets, and sends refused rows again.

Few rows of plain Python values (fewer than ``ROW_FORM_ROWS_MAX``) are checked and encoded one by one (``few_rows``).
All other input becomes Arrow batches first (``row_input``).

Order
    The rows of a call take effect in their order: of two rows with the same key, the later one wins. A retry may change
    the order of two requests, so two planned writes that share a key are never in flight at the same time. Other
    planned writes are, up to ``PLANNED_WRITES_MAX``. For the same reason, the rows of a planned write for one tablet
    are sent in one request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from stelae.client.failures import FAILURES_MAX, FailureTally, tell_result
from stelae.client.few_rows import FewRows, RowConverter, RowConverters
from stelae.client.planned_write import PlannedWrite, RefusedRows, TabletOperation, WritableTablet, rows_equal
from stelae.client.row_input import BATCH_BYTES, BATCH_ROWS_MAX, KEY_ONLY, InputBatch, RowInput
from stelae.partition.partitioning import NO_PARTITION, NoPartition, Partitioning
from stelae.rows.batcher import OP_BYTES_MAX
from stelae.rows.key_order import key_order
from stelae.rows.operation_encoding import ROW_FORM_ROWS_MAX, Operation, operation
from stelae.spi.errors import RetryableError, SchemaMismatch, StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, SourceFence

_ENCODER = msgspec.msgpack.Encoder()

PLANNED_WRITES_MAX = 4
"""The most planned writes of one call that are in flight: enough to keep a leader busy, with little memory."""

RESENDS_MAX = 8
"""How many times rows are sent again because the table was altered. This bounds the work of one call; its timeout
bounds the time."""


class TableWriter:
    """Writes rows to one table. Rows that are refused because the table was altered are sent again after a lookup of
    the table.

    Args:
        name: of the table, for messages.
        partitioning: decides in which partition a row is.
        tablets: the tablets of the table, by partition.
        fence: the source and epoch of all rows; ``None``: they have none.
    """

    def __init__(
        self, name: str, partitioning: Partitioning, tablets: Sequence[WritableTablet], fence: SourceFence | None = None
    ) -> None:
        self.name = name
        self.partitioning = partitioning
        self.tablets = tablets
        self.fence = fence
        self.fenced: set[TabletId] = set()
        """The tablets to which rows with the fence were sent."""
        self.find: Callable[[RowBatch, float], Awaitable[Sequence[Mapping[int, Any] | None]]] | None = None
        """Returns the rows of keys by column id, within a number of seconds. Set for a writer with a fence."""
        self.written: dict[TabletId, int] = {}
        """The highest timestamp of a write through this object, by tablet. Reads of own writes must see it."""
        self.refresh: Callable[[float], Awaitable[bool]] | None = None
        """Looks the table up again within a number of seconds, and returns whether it has changed. ``None``: the table
        never changes."""
        self._order = key_order(self.schema)
        self._converters = RowConverters(self.schema)
        self._refreshing = asyncio.Lock()

    @property
    def schema(self) -> Schema:
        """The table's schema as of the last lookup."""
        return self.partitioning.schema

    def update_table(self, partitioning: Partitioning, tablets: Sequence[WritableTablet]) -> None:
        """Use the partitioning and tablets of a new lookup. Reads of own writes still see the writes before it."""
        self.partitioning, self.tablets = partitioning, tablets
        self._order = key_order(self.schema)
        self._converters = RowConverters(self.schema)
        highest = max(self.written.values(), default=0)
        self.written.update({tablet.tablet_id: highest for tablet in tablets} if highest else {})

    async def finish(self, sent: PlannedWrite, kind: OpKind, timeout_s: float) -> None:
        """Wait until every row of a planned write is written or has failed.

        If a tablet refuses this write because of its schema, it also refuses a write that shares a key and was sent
        behind this one in the same turn, because the schema version of a tablet only rises. The rows of both are sent
        again in their order.

        Raises ``StelaeError`` if the table cannot be looked up for a reason that does not pass, as when it was deleted.
        The rows that need the lookup have failed then."""
        await self._answered(sent, timeout_s)
        for _ in range(RESENDS_MAX):
            if not sent.refused:
                break
            try:
                if not await self._refreshed(sent, timeout_s):
                    break
                again = self.plan(kind, [refused.batch for refused in sent.refused], sent.tally)
            except StelaeError as error:
                sent.give_up(error)
                if isinstance(error, RetryableError | SchemaMismatch):
                    return
                raise
            sent = again
            sent.send(timeout_s)
            await self._answered(sent, timeout_s)
        sent.give_up()

    async def _answered(self, sent: PlannedWrite, timeout_s: float) -> None:
        """Wait for the answers to a planned write. With a fence, rows that were inserted before count as written."""
        await sent.wait(self.written)
        if self.fence is None:
            return
        self.fenced.update(sent.tablet_ids)
        for present in sent.present:
            assert self.find is not None
            try:
                found = await self.find(present.batch.rows.select(self.schema.key_layout), timeout_s)
            except StelaeError as error:
                reason = f"a row with this key exists, and it could not be compared: {error}"
                sent.fail_rows(present._replace(code=error.code), lambda row, reason=reason: reason)  # type: ignore[misc]
            else:
                equal = rows_equal(present.batch.rows, found)
                sent.fail_rows(present, present.reason, [row for row, same in enumerate(equal) if not same])
        sent.present.clear()

    async def _refreshed(self, sent: PlannedWrite, timeout_s: float) -> bool:
        """Return whether the table has changed since the write was planned."""
        async with self._refreshing:
            if sent.partitioning is not self.partitioning:
                return True
            return self.refresh is not None and await self.refresh(timeout_s)

    async def write(self, kind: OpKind, data: Any, timeout_s: float, failures_max: int = FAILURES_MAX) -> FailureTally:
        """Write a caller's rows, and wait until they are durable.

        Raises:
            SchemaMismatch, CallerError: see ``RowInput.batches``. The rows before the ones at fault are written. The
                error has their ``result``, and its text names those of them that failed.
        """
        tally = FailureTally(self.name, kind, failures_max)
        try:
            await self._write_all(kind, data, timeout_s, tally)
        except Exception as error:
            tell_result(error, tally.result())
            raise
        return tally

    async def _write_all(self, kind: OpKind, data: Any, timeout_s: float, tally: FailureTally) -> None:
        in_flight: deque[PlannedWrite] = deque()
        try:
            for planned in self.planned(kind, data, tally):
                while len(in_flight) >= PLANNED_WRITES_MAX or any(planned.shares_key_with(w) for w in in_flight):
                    await self.finish(in_flight.popleft(), kind, timeout_s)
                planned.send(timeout_s)
                in_flight.append(planned)
        finally:
            await self._finish_all(in_flight, kind, timeout_s)

    async def _finish_all(self, in_flight: deque[PlannedWrite], kind: OpKind, timeout_s: float) -> None:
        """Finish planned writes, each of them also after an error of one before. The first error is raised."""
        try:
            while in_flight:
                await self.finish(in_flight.popleft(), kind, timeout_s)
        finally:
            if in_flight:
                with suppress(StelaeError):
                    await self._finish_all(in_flight, kind, timeout_s)

    def planned(self, kind: OpKind, data: Any, tally: FailureTally) -> Iterator[PlannedWrite]:
        """Yield a caller's rows as planned writes, ready to be sent. Raises what :meth:`write` raises."""
        if (few := self._plan_few_rows(kind, data, tally)) is not None:
            yield few
            return
        for batches in coalesced(RowInput(self.schema, kind, tally).batches(data)):
            yield self.plan(kind, batches, tally)

    def _plan_few_rows(self, kind: OpKind, data: Any, tally: FailureTally) -> PlannedWrite | None:
        """Check and encode a few rows of plain values without Arrow; ``None``: they need the Arrow path."""
        converted = self._converters.convert(kind, data)
        if converted is None:
            return None
        converter, rows = converted
        start, operations = tally.rows, []
        for partition, numbers in self._partitions_of(converter, rows).items():
            has_all = len(numbers) == len(rows)
            few = FewRows(converter.form.layout, rows if has_all else [rows[number] for number in numbers])
            encoded = operation(kind, few.rows, self._columns_of(kind, few), self.fence)
            if partition == NO_PARTITION or len(encoded.rows) > OP_BYTES_MAX:
                return None
            operations.append(TabletOperation(partition, few, [start + number for number in numbers], encoded))
        tally.rows += len(rows)
        all_rows = [FewRows(converter.form.layout, rows)]
        return PlannedWrite(self.partitioning, self.tablets, self._order, all_rows, tally, operations, [])

    def _partitions_of(self, converter: RowConverter, rows: Sequence[tuple[Any, ...]]) -> dict[int, Sequence[int]]:
        """Return the numbers of the rows in each partition, ascending, by partition."""
        partitioning = self.partitioning
        if partitioning.is_unpartitioned:
            return {0: range(len(rows))}
        found: dict[int, list[int]] = {}
        for number, row in enumerate(rows):
            found.setdefault(partitioning.partition_of_plain_key(converter.key_of(row)), []).append(number)
        return {partition: found[partition] for partition in sorted(found)}

    def plan(self, kind: OpKind, batches: Sequence[InputBatch], tally: FailureTally) -> PlannedWrite:
        """Divide batches by partition and encode them. Rows whose keys are in no partition are ``refused``."""
        refused: list[RefusedRows] = []
        operations = [sent for batch in batches for sent in self._operations(kind, batch, tally, refused)]
        rows = [batch.rows for batch in batches]
        return PlannedWrite(self.partitioning, self.tablets, self._order, rows, tally, operations, refused)

    def _operations(
        self, kind: OpKind, batch: InputBatch, tally: FailureTally, refused: list[RefusedRows]
    ) -> Iterator[TabletOperation]:
        columns = self._columns_of(kind, batch.rows)
        for own in self.partitioning.split(batch.rows):
            has_all = len(own.rows) == len(batch.rows)
            positions = batch.positions if has_all else [batch.positions[number] for number in own.positions]
            if own.partition == NO_PARTITION:
                reason = self._no_partition_reason(own.rows)
                refused.append(RefusedRows(InputBatch(own.rows, positions), NoPartition.code, reason))
                continue
            for rows, start, encoded in _encoded(kind, columns, self.fence, own.rows, 0):
                own_positions = positions[start : start + len(rows)]
                if len(encoded.rows) > OP_BYTES_MAX:
                    reason_text = f"the row takes {len(encoded.rows)} bytes; at most {OP_BYTES_MAX} are accepted"
                    tally.fail(own_positions[0], "TOO_LARGE", reason_text)
                else:
                    yield TabletOperation(own.partition, rows, own_positions, encoded)

    def _columns_of(self, kind: OpKind, rows: RowBatch | FewRows) -> tuple[int, ...] | None:
        """Return the column ids of rows; ``None``: exactly the columns that a write of this kind has by default."""
        expected = self.schema.key_layout if kind in KEY_ONLY else self.schema.layout
        return None if rows.layout is expected or rows.layout == expected else rows.layout.ids

    def _no_partition_reason(self, rows: RowBatch) -> Callable[[int], str]:
        partitioning = self.partitioning

        def reason(row: int) -> str:
            key = rows.slice(row, 1).select(partitioning.schema.key_layout).to_rows()[0]
            return partitioning.explain_no_partition(key)

        return reason


def coalesced(batches: Iterator[InputBatch]) -> Iterator[list[InputBatch]]:
    """Group small batches up to the size of a large one. Rows with different columns come in many small batches.

    If the input raises an error, the batches before the error are yielded first."""
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
    kind: OpKind, columns: tuple[int, ...] | None, fence: SourceFence | None, rows: RowBatch, start: int
) -> Iterator[tuple[RowBatch, int, Operation]]:
    """Encode rows as operations within the size limit; yield each with its rows, and the number of its first row.

    An operation of a single row may be above the limit."""
    if len(rows) < ROW_FORM_ROWS_MAX:
        encoded = operation(kind, rows.to_rows(), columns, fence)
    else:
        # This is ``operation`` with ``rows.to_ipc()``, without a copy of all rows.
        message = msgspec.Raw(_ENCODER.encode(memoryview(rows.arrow.serialize())))
        encoded = Operation(kind, message, is_arrow=True, columns=columns, fence=fence)
    if len(encoded.rows) <= OP_BYTES_MAX or len(rows) == 1:
        yield rows, start, encoded
        return
    half = len(rows) // 2
    yield from _encoded(kind, columns, fence, rows.slice(0, half), start)
    yield from _encoded(kind, columns, fence, rows.slice(half), start + half)
