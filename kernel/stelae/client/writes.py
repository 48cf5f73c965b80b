"""Writes of one table: rows on their way to the tablets that hold them, and their answers on the way back.

Order
    The rows of a call take effect in their order, as far as it shows: of two rows with one key, the later one wins.
    Batches with a key in common are never under way at the same time, since a retry could bring them the other way
    round; others are, ``WAVES_MAX`` at once. What a batch has for one tablet is one request, for the same reason."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec

from stelae.client.failures import UNKNOWN_OUTCOME, Tally, reason_of
from stelae.client.intake import BATCH_BYTES, BATCH_ROWS_MAX, KEY_ONLY, Intake, Part
from stelae.client.messages import NoSuchTablet
from stelae.partition.partitioning import NOWHERE, NoPartition, Partitioning
from stelae.rows.batcher import OP_BYTES_MAX
from stelae.rows.key_order import KeyOrder, key_order
from stelae.rows.operations import ROW_FORM_ROWS_MAX, Operation, operation
from stelae.spi.errors import CallerError, Overloaded, RetryableError, SchemaMismatch, StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Schema
from stelae.spi.write import OpKind, OpResult, RowCode, RowError

_ENCODER = msgspec.msgpack.Encoder()

WAVES_MAX = 4
"""Batches of one call that are under way at once: enough to keep a leader busy, and little to hold in memory."""


class WritableTablet(Protocol):
    """What of a tablet writes need."""

    @property
    def tablet_id(self) -> TabletId:
        """Its name."""
        ...

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send an operation; ``follows``: in one request with the one before, so that they stay in order."""
        ...


RENEWALS_MAX = 8
"""How often one batch is sent again because the table was altered meanwhile: bounds a call, not what it waits for."""


class Unfit(NamedTuple):
    """Rows that a tablet refused, or that none takes, because the table may be another by now; none has an effect."""

    part: Part
    code: str
    reason: Callable[[int], str]


class _Piece(NamedTuple):
    tablet: int
    rows: RowBatch
    places: Sequence[int]
    encoded: Operation


class Wave:
    """What is sent in one turn: some batches, as operations of the tablets that they concern."""

    def __init__(
        self,
        partitioning: Partitioning,
        tablets: Sequence[WritableTablet],
        order: KeyOrder,
        rows: Sequence[RowBatch],
        tally: Tally,
        pieces: Sequence[_Piece],
        unfit: list[Unfit],
    ) -> None:
        self.partitioning = partitioning  #: What it was planned with,
        self._tablets = tablets  #: and where that has its partitions: the table may be another when it is sent.
        self.unfit = unfit
        self.tally = tally
        self._first_key = partitioning.schema.key_layout.columns[0]
        self._order = order
        self._rows = rows
        self._tally = tally
        self._pieces = pieces
        self._futures: list[asyncio.Future[OpResult] | StelaeError] = []

    def _keys(self, low: Any, high: Any) -> Any:
        """The keys of rows whose first key column is from ``low`` to ``high``; ``None``: of all."""
        import pyarrow as pa
        import pyarrow.compute as pc

        batches = self._rows
        if low is not None:
            columns = [_numbers(self._first_key, rows) for rows in batches]
            bounds = [pa.scalar(bound, columns[0].type) for bound in (low, high)]
            inside = [pc.and_(pc.greater_equal(c, bounds[0]), pc.less_equal(c, bounds[1])) for c in columns]
            batches = [rows.filter(mask) for rows, mask in zip(batches, inside, strict=True)]
        return pa.chunked_array([self._order.array(rows) for rows in batches], self._order.arrow)

    @cached_property
    def size_bytes(self) -> int:
        """What its operations take, encoded."""
        return sum(len(piece.encoded.rows) for piece in self._pieces)

    @property
    def operations(self) -> int:
        """How many there are."""
        return len(self._pieces)

    @cached_property
    def _bounds(self) -> tuple[Any, Any] | None:
        """The least and the greatest value of the first key column; ``None``: it has values without an order."""
        import pyarrow.compute as pc

        column = self._first_key
        if column.type in ("float", "double") or not self._rows:  # A NaN is below and above nothing.
            return None
        found = [pc.min_max(_numbers(column, rows)).as_py() for rows in self._rows]
        return min(one["min"] for one in found), max(one["max"] for one in found)

    def meets(self, other: Wave) -> bool:
        """Whether the two have a key in common."""
        import pyarrow.compute as pc

        mine, theirs = self._bounds, other._bounds
        low = high = None
        if mine and theirs:
            # In a load in key order nothing is left here, or the few rows of one value of the first key column.
            low, high = max(mine[0], theirs[0]), min(mine[1], theirs[1])
            if low > high:
                return False
        return bool(pc.any(pc.is_in(self._keys(low, high), value_set=other._keys(low, high))).as_py())

    def send(self, timeout_s: float, met: set[TabletId] | None = None) -> None:
        """Send every operation, in this turn of the loop, as one request to each tablet.

        ``met`` are tablets to which something has been sent in this turn that the wave is to stay behind; it gets
        those of the wave."""
        met = set() if met is None else met
        for piece in self._pieces:
            tablet = self._tablets[piece.tablet]
            try:
                follows = tablet.tablet_id in met
                self._futures.append(tablet.send(piece.encoded, timeout_s, follows=follows))
                met.add(tablet.tablet_id)
            except StelaeError as error:
                self._futures.append(error)

    async def settle(self, written: dict[TabletId, int]) -> None:
        """Wait for all answers; ``written`` gets the highest timestamp of each tablet."""
        waiting = [future for future in self._futures if isinstance(future, asyncio.Future)]
        if waiting:
            await asyncio.wait(waiting)
        for piece, future in zip(self._pieces, self._futures, strict=True):
            error = future if isinstance(future, StelaeError) else future.exception()
            if error is None:
                assert isinstance(future, asyncio.Future)
                self._answered(piece, future.result(), written)
            elif isinstance(error, NoSuchTablet):
                self.unfit.append(_unfit(piece, error.code, str(error)))
            elif isinstance(error, StelaeError):
                certain = isinstance(error, CallerError) or (isinstance(error, Overloaded) and error is future)
                for row in range(len(piece.rows)):
                    self._fail(piece, row, error.code if certain else UNKNOWN_OUTCOME, str(error))
            else:
                raise error

    def _answered(self, piece: _Piece, result: OpResult, written: dict[TabletId, int]) -> None:
        if result.refusal == SchemaMismatch.code:
            self.unfit.append(_unfit(piece, result.refusal, result.detail))
            return
        if result.refusal:
            for row in range(len(piece.rows)):
                self._fail(piece, row, result.refusal, result.detail)
            return
        strays = []
        for error in result.errors:
            if error.code is RowCode.OUTSIDE_PARTITION:
                strays.append(error)
            else:
                self._fail(piece, error.row, error.code.name, reason_of(error.code, error.detail))
        if strays:
            self.unfit.append(_strayed(piece, strays, self._tablets[piece.tablet].tablet_id))
        self._tally.timestamp = max(self._tally.timestamp, result.timestamp)
        tablet_id = self._tablets[piece.tablet].tablet_id
        written[tablet_id] = max(written.get(tablet_id, 0), result.timestamp)

    def _fail(self, piece: _Piece, row: int, code: str, reason: str) -> None:
        self._tally.fail(piece.places[row], code, reason, values_of(piece.rows, row) if self._tally.keeps else None)

    def give_up(self, also: str = "") -> None:
        """Fail the rows that are unfit, for their reason and what there is to be said ``also``."""
        for part, code, reason in self.unfit:
            for row, place in enumerate(part.places):
                values = values_of(part.rows, row) if self._tally.keeps else None
                self._tally.fail(place, code, reason(row) + also, values)


def _unfit(piece: _Piece, code: str, reason: str) -> Unfit:
    return Unfit(Part(piece.rows, piece.places), code, lambda row: reason)


def _strayed(piece: _Piece, errors: Sequence[RowError], tablet_id: TabletId) -> Unfit:
    """Rows that were sent to a tablet of another partition: where tablets are, as it is known here, is not true."""
    rows = RowBatch(piece.rows.layout, piece.rows.arrow.take([error.row for error in errors]))
    advice = f"the locations that are known here name tablet {tablet_id} for it, and they are wrong"

    def reason(row: int) -> str:
        return f"{reason_of(errors[row].code, errors[row].detail)}; {advice}"

    return Unfit(Part(rows, [piece.places[error.row] for error in errors]), RowCode.OUTSIDE_PARTITION.name, reason)


class TableWriter:
    """Writes of one table. What is refused because the table was altered meanwhile is sent again as it is by then.

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
        """The highest timestamp of a write of ours, by tablet: what reads of one's own writes have to see."""
        self.renew: Callable[[float], Awaitable[bool]] | None = None
        """Looks the table up again, in so many seconds, and says whether it has become another; unset: nobody can."""
        self._order = key_order(self.schema)
        self._renewing = asyncio.Lock()

    @property
    def schema(self) -> Schema:
        """The table's schema, as it was when the table was looked up last."""
        return self.partitioning.schema

    def altered(self, partitioning: Partitioning, tablets: Sequence[WritableTablet]) -> None:
        """Take that the table is another from now on. What was written before is seen by every read of own writes."""
        self.partitioning, self.tablets = partitioning, tablets
        self._order = key_order(self.schema)
        highest = max(self.written.values(), default=0)
        self.written.update({tablet.tablet_id: highest for tablet in tablets} if highest else {})

    async def settle(self, wave: Wave, kind: OpKind, timeout_s: float) -> None:
        """Wait until all of a wave is written or has failed.

        Whatever has a key in common with it and was sent after it in the same turn is refused with it, and sent again
        behind it: the version of a tablet's schema only rises."""
        await wave.settle(self.written)
        for _ in range(RENEWALS_MAX):
            if not wave.unfit:
                break
            try:
                if not await self._renewed(wave, timeout_s):
                    break
            except (RetryableError, SchemaMismatch) as error:
                wave.give_up(f"; the table could not be looked up again: {error}")
                return
            wave = self.plan(kind, [unfit.part for unfit in wave.unfit], wave.tally)
            wave.send(timeout_s)
            await wave.settle(self.written)
        wave.give_up()

    async def _renewed(self, wave: Wave, timeout_s: float) -> bool:
        async with self._renewing:
            if wave.partitioning is not self.partitioning:
                return True
            return self.renew is not None and await self.renew(timeout_s)

    async def write(self, kind: OpKind, data: Any, timeout_s: float) -> Tally:
        """Write everything that was handed in, and wait until it is durable.

        Raises:
            SchemaMismatch, CallerError: see ``Intake.parts``; batches before the one at fault are written.
        """
        tally = Tally(self.name, kind)
        under_way: deque[Wave] = deque()
        try:
            for parts in gathered(Intake(self.schema, kind, tally).parts(data)):
                wave = self.plan(kind, parts, tally)
                while under_way and (len(under_way) >= WAVES_MAX or any(wave.meets(other) for other in under_way)):
                    await self.settle(under_way.popleft(), kind, timeout_s)
                wave.send(timeout_s)
                under_way.append(wave)
        finally:
            while under_way:
                await self.settle(under_way.popleft(), kind, timeout_s)
        return tally

    def plan(self, kind: OpKind, parts: Sequence[Part], tally: Tally) -> Wave:
        """Split batches by partition and encode them; rows without a place are unfit."""
        unfit: list[Unfit] = []
        pieces = [piece for part in parts for piece in self._pieces(kind, part, tally, unfit)]
        rows = [part.rows for part in parts]
        return Wave(self.partitioning, self.tablets, self._order, rows, tally, pieces, unfit)

    def _pieces(self, kind: OpKind, part: Part, tally: Tally, unfit: list[Unfit]) -> Iterator[_Piece]:
        layout = self.schema.key_layout if kind in KEY_ONLY else self.schema.layout
        columns = None if part.rows.layout == layout else part.rows.layout.ids
        for share in self.partitioning.split(part.rows):
            whole = len(share.rows) == len(part.rows)
            places = part.places if whole else [part.places[place] for place in share.places]
            if share.partition == NOWHERE:
                unfit.append(Unfit(Part(share.rows, places), NoPartition.code, self._why_nowhere(share.rows)))
                continue
            for rows, start, encoded in _encoded(kind, columns, share.rows, 0):
                mine = places[start : start + len(rows)]
                if len(encoded.rows) > OP_BYTES_MAX:
                    reason = f"the row takes {len(encoded.rows)} bytes; at most {OP_BYTES_MAX} are accepted"
                    tally.fail(mine[0], "TOO_LARGE", reason)
                else:
                    yield _Piece(share.partition, rows, mine, encoded)

    def _why_nowhere(self, rows: RowBatch) -> Callable[[int], str]:
        partitioning = self.partitioning

        def reason(row: int) -> str:
            key = rows.slice(row, 1).select(partitioning.schema.key_layout).to_rows()[0]
            return partitioning.explain_nowhere(key)

        return reason


def _numbers(column: Column, rows: RowBatch) -> Any:
    """A column of some rows; dates and times as numbers, for Python's own end with the year 9999."""
    import pyarrow as pa

    array = rows.arrow.column(rows.layout.ids.index(column.id))
    numbers = {"date": "int32", "timestamp": "int64"}.get(column.type)
    return array.view(pa.type_for_alias(numbers)) if numbers else array


def gathered(parts: Iterator[Part]) -> Iterator[list[Part]]:
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
