"""Loads the rows of a file into a table, so that after any crash the same command finishes the work.

Which rows may be sent twice
    Rows between what the journal has as acknowledged and as reserved. Writing them again, in their order, ends with the
    same rows: an upsert or an update writes the same values, the ``ignore`` kinds leave alone what is there. A plain
    insert finds its own row there; then the row is read, and counts as written if it is the one that was to be written.
    A plain delete finds nothing there, which is what it wanted. No row is ever left out."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stelae.client import AsyncTable, WriteResult
from stelae.client.failures import FAILURES_MAX
from stelae.spi.errors import SchemaMismatch, StelaeError
from stelae.spi.write import OpKind
from stelae_transfer.journal import RESERVED_ROWS, Journal, Position
from stelae_transfer.records import BadRow, RowChunk
from stelae_transfer.rejects import Rejects

RECORD_EVERY_S = 1.0
"""Seconds between two positions in the journal: a sync each, against so many rows to send again."""

_ROW_CODES = frozenset({"ALREADY_PRESENT", "NOT_FOUND", "BAD_VALUE", "NO_PARTITION", "TOO_LARGE"})

_ONCE = frozenset({OpKind.INSERT, OpKind.DELETE})
"""Kinds that must not be repeated without a look at what is there."""

Progress = Callable[[Position, float], None]


class ImportStopped(StelaeError, code="IMPORT_STOPPED"):
    """An import that did not come to its end. What it acknowledged stands, and the same command goes on from there."""


class Loader:
    """Writes chunks into a table and keeps the journal.

    Args:
        table: where they go.
        kind: of the writes.
        journal: open, and of this import.
        rejects: where bad rows are told.
        bad_rows_max: bad rows of the whole import at which it stops.
        timeout_s: how long a write is retried.
        clock_s: seconds that never go back, for the journal's rhythm.
        progress: is told the position after each chunk, and how much of the file that is.
    """

    def __init__(
        self,
        table: AsyncTable,
        kind: OpKind,
        journal: Journal,
        rejects: Rejects,
        *,
        bad_rows_max: int,
        timeout_s: float,
        clock_s: Callable[[], float],
        progress: Progress = lambda position, done: None,
    ) -> None:
        self._table = table
        self._kind = kind
        self._journal = journal
        self._rejects = rejects
        self._bad_rows_max = bad_rows_max
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._progress = progress
        self._uncertain_until = journal.position.reserved
        self.position = journal.position

    async def run(self, chunks: Iterator[RowChunk]) -> Position:
        """Write everything; return the last position.

        Raises:
            ImportStopped: a row's outcome is unknown, the table refuses, or there are too many bad rows.
            BrokenInput: the file cannot be read on. Both: what came before stands, and is in the journal.
        """
        recorded_s = self._clock_s()
        following = asyncio.create_task(asyncio.to_thread(next, chunks, None))
        try:
            while (chunk := await following) is not None:
                following = asyncio.create_task(asyncio.to_thread(next, chunks, None))
                await self._take(chunk)
                if self._clock_s() - recorded_s >= RECORD_EVERY_S:
                    await asyncio.to_thread(self._journal.record, self.position)
                    recorded_s = self._clock_s()
        finally:
            # The thread that reads must not outlive the file. What it may raise comes behind what has been raised.
            await asyncio.gather(following, return_exceptions=True)
            if self.position != self._journal.position:
                self._journal.record(self.position)
        return self.position

    async def _take(self, chunk: RowChunk) -> None:
        if chunk.last > self.position.reserved:
            self.position = msgspec.structs.replace(self.position, reserved=chunk.last + RESERVED_ROWS)
            await asyncio.to_thread(self._journal.record, self.position)
        failed, timestamp = await self._write(chunk)
        bad = sorted([*chunk.bad, *failed], key=lambda row: row.row)
        await asyncio.to_thread(self._rejects.add, bad)
        count = sum(row.rows for row in failed)
        self.position = msgspec.structs.replace(
            self.position,
            acknowledged=chunk.last,
            written=self.position.written + len(chunk.numbers) - count,
            bad=self.position.bad + count + len(chunk.bad),
            bad_bytes=self._rejects.size_bytes,
            timestamp=max(self.position.timestamp, timestamp),
        )
        self._progress(self.position, chunk.done)
        if self.position.bad > self._bad_rows_max:
            fact = f"stopped at row {chunk.last}: {self.position.bad} bad rows, more than --bad-rows-max"
            raise ImportStopped(f"{fact} {self._bad_rows_max}; their reasons are in {self._rejects.path}")

    # -- writing ---------------------------------------------------------------------------------

    async def _write(self, chunk: RowChunk) -> tuple[list[BadRow], int]:
        """Write a chunk; return the rows that were not taken, and the timestamp."""
        split = bisect_right(chunk.numbers, self._uncertain_until)
        bad, timestamp = await self._piecewise(*chunk.part(0, split), again=True) if split else ([], 0)
        rows, numbers = chunk.part(split, len(chunk.numbers) - split)
        if not numbers:
            return bad, timestamp
        found = None if self._kind in _ONCE else await self._at_once(rows, numbers)
        more, later = found or await self._piecewise(rows, numbers, again=False)
        return [*bad, *more], max(timestamp, later)

    async def _at_once(self, rows: Any, numbers: Sequence[int]) -> tuple[list[BadRow], int] | None:
        """Write many rows; ``None``: more failed than are told, so they are to be written again in pieces."""
        try:
            result = await self._table.write(self._kind, rows, errors="return", timeout_s=self._timeout_s)
        except SchemaMismatch:
            return None
        if result.failed > len(result.failures):
            return None
        return self._bad_rows(result, numbers), result.timestamp

    async def _piecewise(self, rows: Any, numbers: Sequence[int], *, again: bool) -> tuple[list[BadRow], int]:
        """Write rows in pieces of which every failure is told; ``again``: they may be written already."""
        bad: list[BadRow] = []
        timestamp = 0
        for start in range(0, len(numbers), FAILURES_MAX):
            piece, mine = RowChunk(rows, numbers, (), 0).part(start, FAILURES_MAX)
            try:
                result = await self._table.write(self._kind, piece, errors="return", timeout_s=self._timeout_s)
            except SchemaMismatch as error:
                bad.append(BadRow(mine[0], error.code, str(error), None, len(mine)))
                continue
            timestamp = max(timestamp, result.timestamp)
            bad += self._bad_rows(result, mine)
        # All at once: rows of many pieces are more likely to be neighbours.
        return await self._without_own(bad) if again else bad, timestamp

    def _bad_rows(self, result: WriteResult, numbers: Sequence[int]) -> list[BadRow]:
        for failure in result.failures:
            if failure.code not in _ROW_CODES:
                number = numbers[failure.row]
                fact = f"stopped at row {number}: {failure.code}: {failure.reason}"
                raise ImportStopped(f"{fact}\nthe same command goes on from the last acknowledged row")
        return [BadRow(numbers[f.row], f.code, f.reason, f.values) for f in result.failures]

    async def _without_own(self, bad: list[BadRow]) -> list[BadRow]:
        """Leave out failures that only say that a row was written, or deleted, before the crash."""
        if self._kind is OpKind.DELETE:
            return [row for row in bad if row.code != "NOT_FOUND"]
        if self._kind is not OpKind.INSERT:
            return bad
        there = [row for row in bad if row.code == "ALREADY_PRESENT" and isinstance(row.values, Mapping)]
        own = await self._own(there)
        return [row for row in bad if row.row not in own]

    async def _own(self, there: Sequence[BadRow]) -> set[int]:
        """The numbers of those rows that the table holds as they were to be written."""
        keys = [tuple((row.values or {})[name] for name in self._table.key) for row in there]
        found = await self._table.get_many(keys, timeout_s=self._timeout_s)
        return {
            row.row
            for row, held in zip(there, found, strict=True)
            if held is not None and all(_same(held[name], value) for name, value in (row.values or {}).items())
        }


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))
