"""Rows in flight: the operations of one batch, their answers, and the rows that have to be sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from stelae.client.failures import UNKNOWN_OUTCOME, FailureTally, reason_of
from stelae.client.few_rows import FewRows
from stelae.client.row_input import InputBatch
from stelae.partition.partitioning import Partitioning
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.key_order import KeyOrder
from stelae.rows.operations import Operation
from stelae.spi.errors import CallerError, Overloaded, SchemaMismatch, StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column
from stelae.spi.write import OpResult, RowCode, RowError


class WritableTablet(Protocol):
    """What of a tablet writes need."""

    @property
    def tablet_id(self) -> TabletId:
        """Its name."""
        ...

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send an operation; ``follows``: in one request with the one before, so that they stay in order."""
        ...


class RefusedRows(NamedTuple):
    """Rows that had no effect because the table may have been altered: a tablet refused them, or no partition takes
    them."""

    batch: InputBatch
    code: str
    reason: Callable[[int], str]


class TabletOperation(NamedTuple):
    """The rows of a batch that one tablet gets, encoded."""

    tablet: int  #: Index of its partition.
    rows: RowBatch | FewRows
    places: Sequence[int]  #: Positions of the rows in what the caller handed in.
    encoded: Operation


class BatchWrite:
    """Rows that are sent in one turn of the loop, as one operation for each tablet and kind.

    Args:
        partitioning: with which the rows were placed. The table may have been altered when they are sent.
        tablets: one for each partition of ``partitioning``.
        order: compares keys of the table.
        rows: all rows of it.
        tally: counts the rows that fail.
        operations: what is sent, in order.
        refused: rows that no partition takes; more are added by :meth:`settle`.
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
        self.tally = tally
        self._first_key = partitioning.schema.key_layout.columns[0]
        self._order = order
        self._rows = rows
        self._tally = tally
        self._operations = operations
        self._futures: list[asyncio.Future[OpResult] | StelaeError] = []

    def _keys(self, low: Any, high: Any) -> Any:
        """Return the keys of the rows whose first key column lies in ``low`` to ``high``; ``None``: of all rows."""
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
        """Bytes of its operations, encoded."""
        return sum(len(operation.encoded.rows) for operation in self._operations)

    @property
    def operations(self) -> int:
        """Number of its operations."""
        return len(self._operations)

    @cached_property
    def _batches(self) -> list[RowBatch]:
        return [batch_of(rows) for rows in self._rows]

    @cached_property
    def _bounds(self) -> tuple[Any, Any] | None:
        """The least and the greatest value of the first key column; ``None``: it has values without an order."""
        import pyarrow.compute as pc

        column = self._first_key
        if column.type in ("float", "double") or not self._batches:  # A NaN is below and above nothing.
            return None
        found = [pc.min_max(_numbers(column, rows)).as_py() for rows in self._batches]
        return min(one["min"] for one in found), max(one["max"] for one in found)

    def meets(self, other: BatchWrite) -> bool:
        """Whether the two have a key in common."""
        import pyarrow.compute as pc

        mine, theirs = self._bounds, other._bounds
        low = high = None
        if mine and theirs:
            # In a load in key order no rows are left here, or those of one value of the first key column.
            low, high = max(mine[0], theirs[0]), min(mine[1], theirs[1])
            if low > high:
                return False
        return bool(pc.any(pc.is_in(self._keys(low, high), value_set=other._keys(low, high))).as_py())

    def send(self, timeout_s: float, met: set[TabletId] | None = None) -> None:
        """Send every operation, in this turn of the loop, as one request to each tablet.

        ``met``: tablets that got an operation earlier in this turn. What they get now follows it in the same request.
        The tablets of this batch are added."""
        met = set() if met is None else met
        for sent in self._operations:
            tablet = self._tablets[sent.tablet]
            try:
                follows = tablet.tablet_id in met
                self._futures.append(tablet.send(sent.encoded, timeout_s, follows=follows))
                met.add(tablet.tablet_id)
            except StelaeError as error:
                self._futures.append(error)

    async def settle(self, written: dict[TabletId, int]) -> None:
        """Wait for all answers; ``written`` gets the highest timestamp of each tablet."""
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
                certain = isinstance(error, CallerError) or (isinstance(error, Overloaded) and error is future)
                for row in range(len(sent.rows)):
                    self._fail(sent, row, error.code if certain else UNKNOWN_OUTCOME, str(error))
            else:
                raise error

    def _answered(self, sent: TabletOperation, result: OpResult, written: dict[TabletId, int]) -> None:
        if result.refusal == SchemaMismatch.code:
            self.refused.append(_refused(sent, result.refusal, result.detail))
            return
        if result.refusal:
            for row in range(len(sent.rows)):
                self._fail(sent, row, result.refusal, result.detail)
            return
        strays = []
        for error in result.errors:
            if error.code is RowCode.OUTSIDE_PARTITION:
                strays.append(error)
            else:
                self._fail(sent, error.row, error.code.name, reason_of(error.code, error.detail))
        if strays:
            self.refused.append(_strayed(sent, strays, self._tablets[sent.tablet].tablet_id))
        self._tally.timestamp = max(self._tally.timestamp, result.timestamp)
        tablet_id = self._tablets[sent.tablet].tablet_id
        written[tablet_id] = max(written.get(tablet_id, 0), result.timestamp)

    def _fail(self, sent: TabletOperation, row: int, code: str, reason: str) -> None:
        self._tally.fail(
            sent.places[row], code, reason, values_of(batch_of(sent.rows), row) if self._tally.keeps else None
        )

    def give_up(self, also: str = "") -> None:
        """Count the refused rows as failed. ``also`` is added to the reason of each."""
        for batch, code, reason in self.refused:
            for row, place in enumerate(batch.places):
                values = values_of(batch.rows, row) if self._tally.keeps else None
                self._tally.fail(place, code, reason(row) + also, values)


def batch_of(rows: RowBatch | FewRows) -> RowBatch:
    """Return rows as a batch."""
    return rows.batch if isinstance(rows, FewRows) else rows


def values_of(rows: RowBatch, row: int) -> dict[str, Any]:
    """Return one row by column, with the Python values that Arrow gives."""
    return dict(rows.arrow.slice(row, 1).to_pylist()[0])


def _refused(sent: TabletOperation, code: str, reason: str) -> RefusedRows:
    return RefusedRows(InputBatch(batch_of(sent.rows), sent.places), code, lambda row: reason)


def _strayed(sent: TabletOperation, errors: Sequence[RowError], tablet_id: TabletId) -> RefusedRows:
    """Rows that a tablet of another partition got: the locations that this client knows are not true."""
    batch = batch_of(sent.rows)
    rows = RowBatch(batch.layout, batch.arrow.take([error.row for error in errors]))
    advice = f"the locations that are known here name tablet {tablet_id} for it, and they are wrong"

    def reason(row: int) -> str:
        return f"{reason_of(errors[row].code, errors[row].detail)}; {advice}"

    places = [sent.places[error.row] for error in errors]
    return RefusedRows(InputBatch(rows, places), RowCode.OUTSIDE_PARTITION.name, reason)


def _numbers(column: Column, rows: RowBatch) -> Any:
    """A column of some rows. Dates and times are numbers in it: Python's own end with the year 9999."""
    import pyarrow as pa

    array = rows.arrow.column(rows.layout.ids.index(column.id))
    numbers = {"date": "int32", "timestamp": "int64"}.get(column.type)
    return array.view(pa.type_for_alias(numbers)) if numbers else array
