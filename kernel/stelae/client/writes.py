"""Writes of one table: rows on their way to the tablets that hold them, and their answers on the way back.

Order
    The rows of a call take effect in their order, as far as it shows: of two rows with one key, the later one wins.
    Batches with a key in common are never under way at the same time, since a retry could bring them the other way
    round; others are, ``WAVES_MAX`` at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec

from stelae.client.failures import UNKNOWN_OUTCOME, Tally, reason_of
from stelae.client.intake import BATCH_BYTES, BATCH_ROWS_MAX, KEY_ONLY, Intake, Part
from stelae.partition.partitioning import NOWHERE, NoPartition, Partitioning
from stelae.rows.batcher import OP_BYTES_MAX
from stelae.rows.key_order import KeyOrder, key_order
from stelae.rows.operations import ROW_FORM_ROWS_MAX, Operation, operation
from stelae.spi.errors import CallerError, Overloaded, StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, OpResult

_ENCODER = msgspec.msgpack.Encoder()

WAVES_MAX = 4
"""Batches of one call that are under way at once: enough to keep a leader busy, and little to hold in memory."""


class WritableTablet(Protocol):
    """What of a tablet writes need."""

    @property
    def tablet_id(self) -> TabletId:
        """Its name."""
        ...

    def send(self, encoded: Operation, timeout_s: float) -> asyncio.Future[OpResult]:
        """Send an operation; operations of one turn stay in order."""
        ...


class _Piece(NamedTuple):
    tablet: int
    rows: RowBatch
    places: Sequence[int]
    encoded: Operation


class Wave:
    """What is sent in one turn: some batches, as operations of the tablets that they concern."""

    def __init__(
        self, schema: Schema, order: KeyOrder, rows: Sequence[RowBatch], tally: Tally, pieces: Sequence[_Piece]
    ) -> None:
        self._first_key = schema.key_layout.columns[0]
        self._order = order
        self._rows = rows
        self._tally = tally
        self._pieces = pieces
        self._futures: list[asyncio.Future[OpResult] | StelaeError] = []

    @cached_property
    def _keys(self) -> Any:
        import pyarrow as pa

        return pa.chunked_array([self._order.array(rows) for rows in self._rows], self._order.arrow)

    @cached_property
    def _bounds(self) -> tuple[Any, Any] | None:
        """The least and the greatest value of the first key column; ``None``: it has values without an order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._first_key
        if column.type in ("float", "double") or not self._rows:  # A NaN is below and above nothing.
            return None
        arrays = [rows.arrow.column(rows.layout.ids.index(column.id)) for rows in self._rows]
        numbers = {"date": "int32", "timestamp": "int64"}.get(column.type)
        if numbers:  # Python's own dates end with the year 9999.
            arrays = [array.view(pa.type_for_alias(numbers)) for array in arrays]
        found = [pc.min_max(array).as_py() for array in arrays]
        return min(one["min"] for one in found), max(one["max"] for one in found)

    def meets(self, other: Wave) -> bool:
        """Whether the two have a key in common."""
        import pyarrow.compute as pc

        mine, theirs = self._bounds, other._bounds
        if mine and theirs and (mine[1] < theirs[0] or theirs[1] < mine[0]):
            return False  # As in a load in key order: cheaper by far than looking every key up.
        return bool(pc.any(pc.is_in(self._keys, value_set=other._keys)).as_py())

    def send(self, tablets: Sequence[WritableTablet], timeout_s: float) -> None:
        """Send every operation, in this turn of the loop."""
        for piece in self._pieces:
            try:
                self._futures.append(tablets[piece.tablet].send(piece.encoded, timeout_s))
            except StelaeError as error:
                self._futures.append(error)

    async def settle(self, written: dict[int, int]) -> None:
        """Wait for all answers; ``written`` gets the highest timestamp of each tablet."""
        waiting = [future for future in self._futures if isinstance(future, asyncio.Future)]
        if waiting:
            await asyncio.wait(waiting)
        for piece, future in zip(self._pieces, self._futures, strict=True):
            error = future if isinstance(future, StelaeError) else future.exception()
            if error is None:
                assert isinstance(future, asyncio.Future)
                self._answered(piece, future.result(), written)
            elif isinstance(error, StelaeError):
                certain = isinstance(error, CallerError) or (isinstance(error, Overloaded) and error is future)
                for row in range(len(piece.rows)):
                    self._fail(piece, row, error.code if certain else UNKNOWN_OUTCOME, str(error))
            else:
                raise error

    def _answered(self, piece: _Piece, result: OpResult, written: dict[int, int]) -> None:
        if result.refusal:
            for row in range(len(piece.rows)):
                self._fail(piece, row, result.refusal, result.detail)
            return
        for error in result.errors:
            self._fail(piece, error.row, error.code.name, reason_of(error.code, error.detail))
        self._tally.timestamp = max(self._tally.timestamp, result.timestamp)
        written[piece.tablet] = max(written.get(piece.tablet, 0), result.timestamp)

    def _fail(self, piece: _Piece, row: int, code: str, reason: str) -> None:
        self._tally.fail(piece.places[row], code, reason, values_of(piece.rows, row) if self._tally.keeps else None)


class TableWriter:
    """Writes of one table.

    Args:
        name: of the table, for messages.
        partitioning: which rows belong where.
        tablets: one for each partition, by its index.
    """

    def __init__(self, name: str, partitioning: Partitioning, tablets: Sequence[WritableTablet]) -> None:
        self.name = name
        self.partitioning = partitioning
        self.tablets = tablets
        self.written: dict[int, int] = {}
        """The highest timestamp of a write of ours, by tablet: what reads of one's own writes have to see."""
        self._order = key_order(self.schema)

    @property
    def schema(self) -> Schema:
        """The table's schema, as it was when the table was opened."""
        return self.partitioning.schema

    async def write(self, kind: OpKind, data: Any, timeout_s: float) -> Tally:
        """Write everything that was handed in, and wait until it is durable.

        Raises:
            SchemaMismatch, CallerError: see ``Intake.parts``; batches before the one at fault are written.
        """
        tally = Tally(self.name, kind)
        under_way: deque[Wave] = deque()
        try:
            for parts in _gathered(Intake(self.schema, kind, tally).parts(data)):
                wave = self.plan(kind, parts, tally)
                while under_way and (len(under_way) >= WAVES_MAX or any(wave.meets(other) for other in under_way)):
                    await under_way.popleft().settle(self.written)
                wave.send(self.tablets, timeout_s)
                under_way.append(wave)
        finally:
            while under_way:
                await under_way.popleft().settle(self.written)
        return tally

    def plan(self, kind: OpKind, parts: Sequence[Part], tally: Tally) -> Wave:
        """Split batches by partition and encode them; rows without a place fail."""
        pieces = [piece for part in parts for piece in self._pieces(kind, part, tally)]
        return Wave(self.schema, self._order, [part.rows for part in parts], tally, pieces)

    def _pieces(self, kind: OpKind, part: Part, tally: Tally) -> Iterator[_Piece]:
        layout = self.schema.key_layout if kind in KEY_ONLY else self.schema.layout
        columns = None if part.rows.layout == layout else part.rows.layout.ids
        for share in self.partitioning.split(part.rows):
            whole = len(share.rows) == len(part.rows)
            places = part.places if whole else [part.places[place] for place in share.places]
            if share.partition == NOWHERE:
                for row, place in enumerate(places):
                    key = share.rows.slice(row, 1).select(self.schema.key_layout).to_rows()[0]
                    reason = self.partitioning.explain_nowhere(key)
                    tally.fail(place, NoPartition.code, reason, values_of(share.rows, row))
                continue
            for rows, start, encoded in _encoded(kind, columns, share.rows, 0):
                mine = places[start : start + len(rows)]
                if len(encoded.rows) > OP_BYTES_MAX:
                    reason = f"the row takes {len(encoded.rows)} bytes; at most {OP_BYTES_MAX} are accepted"
                    tally.fail(mine[0], "TOO_LARGE", reason)
                else:
                    yield _Piece(share.partition, rows, mine, encoded)


def _gathered(parts: Iterator[Part]) -> Iterator[list[Part]]:
    """Take small batches together, up to the size of a large one: rows that bring different columns come in many.

    What came before an error is given before it is raised."""
    gathered: list[Part] = []
    rows = size_bytes = 0
    problem: Exception | None = None
    try:
        for part in parts:
            rows, size_bytes = rows + len(part.rows), size_bytes + part.rows.nbytes
            if gathered and (rows > BATCH_ROWS_MAX or size_bytes > BATCH_BYTES):
                yield gathered
                gathered, rows, size_bytes = [], len(part.rows), part.rows.nbytes
            gathered.append(part)
    except Exception as error:
        problem = error
    if gathered:
        yield gathered
    if problem is not None:
        raise problem


def _encoded(
    kind: OpKind, columns: tuple[int, ...] | None, rows: RowBatch, start: int
) -> Iterator[tuple[RowBatch, int, Operation]]:
    """Operations small enough to be taken, or of one row: each with its rows, and where they start."""
    if len(rows) < ROW_FORM_ROWS_MAX:
        encoded = operation(kind, rows.to_rows(), columns)
    else:
        # What ``operation`` does with ``rows.to_ipc()``, but for a copy of all rows.
        message = msgspec.Raw(_ENCODER.encode(memoryview(rows.arrow.serialize())))
        encoded = Operation(kind, message, alone=True, columns=columns)
    if len(encoded.rows) <= OP_BYTES_MAX or len(rows) == 1:
        yield rows, start, encoded
        return
    half = len(rows) // 2
    yield from _encoded(kind, columns, rows.slice(0, half), start)
    yield from _encoded(kind, columns, rows.slice(half), start + half)


def values_of(rows: RowBatch, row: int) -> dict[str, Any]:
    """One row by column, with the Python values that Arrow gives."""
    return dict(rows.arrow.slice(row, 1).to_pylist()[0])
