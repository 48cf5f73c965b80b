"""A planned write: rows that are checked and encoded as operations, the answers to them, and the rows to send again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from stelae.client.failures import UNKNOWN_OUTCOME, FailureTally, reason_of
from stelae.client.few_rows import FewRows
from stelae.client.row_input import InputBatch
from stelae.partition.partitioning import NoPartition, Partitioning
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.key_order import KeyOrder
from stelae.rows.operation_encoding import Operation
from stelae.spi.errors import CallerError, SchemaMismatch, StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column
from stelae.spi.write import OpKind, OpResult, RowCode, RowError, StaleSequence

_UNPLACED = (NoPartition.code, RowCode.OUTSIDE_PARTITION.name)
"""Codes of rows whose partition this client did not find."""


class WritableTablet(Protocol):
    """The part of a tablet that writes need."""

    @property
    def tablet_id(self) -> TabletId:
        """Id of the tablet."""
        ...

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send an operation. With ``follows``, it is in the same request as the operation before, and so behind it."""
        ...


class RefusedRows(NamedTuple):
    """Rows that had no effect because the table may have been altered.

    A tablet refused them, or no partition contains their keys."""

    batch: InputBatch
    code: str  #: As in ``RowFailure.code``.
    reason: Callable[[int], str]  #: Returns the reason for the row with a number in ``batch``.


class TabletOperation(NamedTuple):
    """Rows for one tablet, encoded as one operation."""

    tablet: int  #: Index of the tablet's partition.
    rows: RowBatch | FewRows
    positions: Sequence[int]  #: Positions of the rows in the caller's input.
    encoded: Operation


class PlannedWrite:
    """Rows of one kind of write that are sent in one turn of the loop, as operations of their tablets.

    Args:
        partitioning: the partitioning by which the rows were divided. The table may have been altered since.
        tablets: the tablets of ``partitioning``, by partition.
        order: compares keys of the table.
        rows: all rows of the write.
        tally: counts the rows that fail.
        operations: the operations to send, in order.
        refused: rows whose keys are in no partition. :meth:`wait` adds the rows that tablets refuse.
    """

    def __init__(
        self,
        partitioning: Partitioning,
        tablets: Sequence[WritableTablet],
        order: KeyOrder,
        rows: Sequence[RowBatch | FewRows],
        tally: FailureTally,
        operations: Sequence[TabletOperation],
        refused: list[RefusedRows],
    ) -> None:
        self.partitioning = partitioning
        self._tablets = tablets
        self.refused = refused
        self.present: list[RefusedRows] = []
        """Rows of inserts with a fence whose keys exist. If the rows there are equal, the inserts were repeated."""
        self.tally = tally
        self._first_key = partitioning.schema.key_layout.columns[0]
        self._order = order
        self._rows = rows
        self._operations = operations
        self._futures: list[asyncio.Future[OpResult] | StelaeError] = []

    def _keys(self, low: Any, high: Any) -> Any:
        """Return the keys of the rows whose first key column is from ``low`` to ``high``; ``None``: of all rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        batches = self._batches
        if low is not None:
            columns = [_numbers(self._first_key, rows) for rows in batches]
            bounds = [pa.scalar(bound, columns[0].type) for bound in (low, high)]
            inside = [pc.and_(pc.greater_equal(c, bounds[0]), pc.less_equal(c, bounds[1])) for c in columns]
            batches = [rows.filter(mask) for rows, mask in zip(batches, inside, strict=True)]
        return pa.chunked_array([self._order.array(rows) for rows in batches], self._order.arrow)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the encoded operations."""
        return sum(len(operation.encoded.rows) for operation in self._operations)

    @property
    def operations(self) -> int:
        """Number of operations."""
        return len(self._operations)

    @cached_property
    def _batches(self) -> list[RowBatch]:
        return [batch_of(rows) for rows in self._rows]

    @cached_property
    def _bounds(self) -> tuple[Any, Any] | None:
        """The least and the greatest value of the first key column; ``None``: the column may have NaN, or there are no
        rows."""
        import pyarrow.compute as pc

        column = self._first_key
        if column.type in ("float", "double") or not self._batches:  # Comparisons with NaN are always false.
            return None
        found = [pc.min_max(_numbers(column, rows)).as_py() for rows in self._batches]
        return min(one["min"] for one in found), max(one["max"] for one in found)

    def shares_key_with(self, other: PlannedWrite) -> bool:
        """Return whether the two writes have a key in common."""
        import pyarrow.compute as pc

        own, others = self._bounds, other._bounds
        low = high = None
        if own and others:
            # When rows are loaded in key order, the bounds do not overlap, or overlap in one value.
            low, high = max(own[0], others[0]), min(own[1], others[1])
            if low > high:
                return False
        return bool(pc.any(pc.is_in(self._keys(low, high), value_set=other._keys(low, high))).as_py())

    @property
    def tablet_ids(self) -> set[TabletId]:
        """Ids of the tablets to which it is sent."""
        return {self._tablets[sent.tablet].tablet_id for sent in self._operations}

    def send(self, timeout_s: float, sent_to: set[TabletId] | None = None) -> None:
        """Send every operation in this turn of the loop, as one request to each tablet.

        ``sent_to`` has the tablets to which an operation was sent earlier in this turn. Their operations of this write
        follow in the same request. The tablets of this write are added to it."""
        sent_to = set() if sent_to is None else sent_to
        for sent in self._operations:
            tablet = self._tablets[sent.tablet]
            try:
                follows = tablet.tablet_id in sent_to
                self._futures.append(tablet.send(sent.encoded, timeout_s, follows=follows))
                sent_to.add(tablet.tablet_id)
            except StelaeError as error:
                self._futures.append(error)

    async def wait(self, written: dict[TabletId, int]) -> None:
        """Wait for all answers. ``written`` gets the highest timestamp of a write to each tablet."""
        waiting = [future for future in self._futures if isinstance(future, asyncio.Future) and not future.done()]
        if waiting:
            await asyncio.wait(waiting)
        for sent, future in zip(self._operations, self._futures, strict=True):
            error = future if isinstance(future, StelaeError) else future.exception()
            if error is None:
                assert isinstance(future, asyncio.Future)
                self._answered(sent, future.result(), written)
            elif isinstance(error, NoSuchTablet):
                self.refused.append(_refused(sent, error.code, str(error)))
            elif isinstance(error, StelaeError):
                # An error that ``send`` raised is certain: the operation was never sent.
                certain = isinstance(error, CallerError) or error is future
                for row in range(len(sent.rows)):
                    self._fail(sent, row, error.code if certain else UNKNOWN_OUTCOME, str(error))
            else:
                raise error

    def _answered(self, sent: TabletOperation, result: OpResult, written: dict[TabletId, int]) -> None:
        if result.refusal == SchemaMismatch.code:
            self.refused.append(_refused(sent, result.refusal, result.detail))
            return
        if result.refusal:
            # An expired result: whether the operation was applied before is not known.
            known = UNKNOWN_OUTCOME if result.refusal == StaleSequence.code else result.refusal
            for row in range(len(sent.rows)):
                self._fail(sent, row, known, result.detail)
            return
        outside, present = [], []
        repeated = sent.encoded.kind if sent.encoded.fence is not None else None
        for error in result.errors:
            if error.code is RowCode.OUTSIDE_PARTITION:
                outside.append(error)
            elif error.code is RowCode.ALREADY_PRESENT and repeated is OpKind.INSERT:
                present.append(error)
            elif error.code is RowCode.NOT_FOUND and repeated is OpKind.DELETE:
                continue  # The first delete has removed the row.
            else:
                self._fail(sent, error.row, error.code.name, reason_of(error.code, error.detail))
        if outside:
            self.refused.append(_outside_partition(sent, outside, self._tablets[sent.tablet].tablet_id))
        if present:
            code = RowCode.ALREADY_PRESENT
            self.present.append(RefusedRows(_rows_of(sent, present), code.name, lambda row: reason_of(code, "")))
        self.tally.timestamp = max(self.tally.timestamp, result.timestamp)
        tablet_id = self._tablets[sent.tablet].tablet_id
        written[tablet_id] = max(written.get(tablet_id, 0), result.timestamp)

    def _fail(self, sent: TabletOperation, row: int, code: str, reason: str) -> None:
        self.tally.fail(
            sent.positions[row], code, reason, values_of(batch_of(sent.rows), row) if self.tally.has_room else None
        )

    def give_up(self, problem: StelaeError | None = None) -> None:
        """Count the refused rows as failed.

        ``problem``: why the table could not be looked up again; it is appended to the reason of each row. A row whose
        partition was not found gets its code, because the range of the row may have been added meanwhile."""
        addition = "" if problem is None else f"; the table could not be looked up again: {problem}"
        for refused in self.refused:
            told = refused
            if problem is not None and refused.code in _UNPLACED:
                told = refused._replace(code=problem.code)
            self.fail_rows(told, lambda row, reason=refused.reason: reason(row) + addition)  # type: ignore[misc]

    def fail_rows(
        self, refused: RefusedRows, reason: Callable[[int], str], numbers: Iterable[int] | None = None
    ) -> None:
        """Count refused rows as failed: all, or those with these numbers."""
        batch = refused.batch
        for row in range(len(batch.positions)) if numbers is None else numbers:
            values = values_of(batch.rows, row) if self.tally.has_room else None
            self.tally.fail(batch.positions[row], refused.code, reason(row), values)


def batch_of(rows: RowBatch | FewRows) -> RowBatch:
    """Return rows as an Arrow batch."""
    return rows.batch if isinstance(rows, FewRows) else rows


def values_of(rows: RowBatch, row: int) -> dict[str, Any]:
    """Return one row by column name, as Python values."""
    return dict(rows.arrow.slice(row, 1).to_pylist()[0])


def _refused(sent: TabletOperation, code: str, reason: str) -> RefusedRows:
    return RefusedRows(InputBatch(batch_of(sent.rows), sent.positions), code, lambda row: reason)


def _outside_partition(sent: TabletOperation, errors: Sequence[RowError], tablet_id: TabletId) -> RefusedRows:
    """Return the rows that were sent to a tablet of another partition, because this client's locations are outdated."""
    advice = f"this client's locations name tablet {tablet_id} for the row, and they are wrong"

    def reason(row: int) -> str:
        return f"{reason_of(errors[row].code, errors[row].detail)}; {advice}"

    return RefusedRows(_rows_of(sent, errors), RowCode.OUTSIDE_PARTITION.name, reason)


def _rows_of(sent: TabletOperation, errors: Sequence[RowError]) -> InputBatch:
    """Return the rows of an operation that have errors."""
    batch = batch_of(sent.rows)
    rows = RowBatch(batch.layout, batch.arrow.take([error.row for error in errors]))
    return InputBatch(rows, [sent.positions[error.row] for error in errors])


def rows_equal(rows: RowBatch, found: Sequence[Mapping[int, Any] | None]) -> list[bool]:
    """Return for each row whether it has the values of the one found, in the columns that it has. NaN equals NaN.

    ``found`` has the values by column id: a column may have been renamed since the rows were made. A column that was
    dropped since is not compared."""
    ids = rows.layout.ids
    return [
        there is not None
        and all(_equal(value, there[one]) for one, value in zip(ids, row.values(), strict=True) if one in there)
        for row, there in zip(rows.arrow.to_pylist(), found, strict=True)
    ]


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)


def _numbers(column: Column, rows: RowBatch) -> Any:
    """Return a column of rows, with dates and times as numbers: Python has no dates after the year 9999."""
    import pyarrow as pa

    array = rows.arrow.column(rows.layout.ids.index(column.id))
    numbers = {"date": "int32", "timestamp": "int64"}.get(column.type)
    return array.view(pa.type_for_alias(numbers)) if numbers else array
