"""Loads the rows of a file into a table. After a crash, the same command completes the import.

Which rows may be sent twice
    The rows after ``acknowledged`` up to ``reserved`` of the journal. Writing them again, in order, gives the same
    table. An upsert or an update writes the same values. The ``ignore`` kinds skip existing rows. A plain insert finds
    its own row: the loader reads the row, and counts it as written if it has the values to insert. A plain delete that
    finds no row has taken effect before. No row is skipped."""

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
from stelae_transfer.rejects import Rejects
from stelae_transfer.row_chunks import BadRow, RowChunk

RECORD_EVERY_S = 1.0
"""Seconds between two positions in the journal. Each costs a sync and saves rows that are sent again after a crash."""

_ROW_CODES = frozenset({"ALREADY_PRESENT", "NOT_FOUND", "BAD_VALUE", "NO_PARTITION", "TOO_LARGE"})

_ONCE = frozenset({OpKind.INSERT, OpKind.DELETE})
"""Kinds that fail when they are repeated, so that the rows in the table must be compared."""

LoadProgress = Callable[[Position, float], None]


class ImportStopped(StelaeError, code="IMPORT_STOPPED"):
    """The import stopped early. Acknowledged rows are durable, and the same command resumes after them."""


class Loader:
    """Writes chunks into a table and records its progress in the journal.

    Args:
        table: the table to write to.
        kind: the kind of the writes.
        journal: the open journal of this import.
        rejects: the file of bad rows.
        bad_rows_max: the import stops when it has more bad rows than this, in all runs together.
        timeout_s: how long a write is retried.
        clock_s: a monotonic clock in seconds, for the interval of the journal.
        progress: called after each chunk, with the position and the fraction of the file that has been read.
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
        progress: LoadProgress = lambda position, done: None,
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
        """Write all chunks and return the last position.

        Earlier rows are durable and recorded in the journal when this raises.

        Raises:
            ImportStopped: the outcome of a row is unknown, the table rejects a write, or there are too many bad rows.
            BrokenInput: the rest of the file cannot be read.
        """
        recorded_s = self._clock_s()
        following = asyncio.create_task(asyncio.to_thread(next, chunks, None))
        try:
            while (chunk := await following) is not None:
                following = asyncio.create_task(asyncio.to_thread(next, chunks, None))
                await self._load(chunk)
                if self._clock_s() - recorded_s >= RECORD_EVERY_S:
                    await asyncio.to_thread(self._journal.record, self.position)
                    recorded_s = self._clock_s()
        finally:
            # The reading thread must end before the file is closed. Its error is dropped in favour of an earlier one.
            await asyncio.gather(following, return_exceptions=True)
            if self.position != self._journal.position:
                self._journal.record(self.position)
        return self.position

    async def _load(self, chunk: RowChunk) -> None:
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
            raise ImportStopped(f"{fact} {self._bad_rows_max}; see the reasons in {self._rejects.path}")

    # -- writing ---------------------------------------------------------------------------------

    async def _write(self, chunk: RowChunk) -> tuple[list[BadRow], int]:
        """Write a chunk. Return the rows that were not written, and the timestamp of the last write."""
        split = bisect_right(chunk.numbers, self._uncertain_until)
        bad, timestamp = await self._write_in_parts(*chunk.slice(0, split), again=True) if split else ([], 0)
        rows, numbers = chunk.slice(split, len(chunk.numbers) - split)
        if not numbers:
            return bad, timestamp
        found = None if self._kind in _ONCE else await self._write_together(rows, numbers)
        more, later = found or await self._write_in_parts(rows, numbers, again=False)
        return [*bad, *more], max(timestamp, later)

    async def _write_together(self, rows: Any, numbers: Sequence[int]) -> tuple[list[BadRow], int] | None:
        """Write rows in one call. ``None``: the result lists only some of the failures, so write again in parts."""
        try:
            result = await self._table.write(self._kind, rows, errors="return", timeout_s=self._timeout_s)
        except SchemaMismatch:
            return None
        if result.failed > len(result.failures):
            return None
        return self._bad_rows(result, numbers), result.timestamp

    async def _write_in_parts(self, rows: Any, numbers: Sequence[int], *, again: bool) -> tuple[list[BadRow], int]:
        """Write rows in parts so small that each result lists all failures. ``again``: the rows may be in the table."""
        bad: list[BadRow] = []
        timestamp = 0
        for start in range(0, len(numbers), FAILURES_MAX):
            part, part_numbers = RowChunk(rows, numbers, (), 0).slice(start, FAILURES_MAX)
            try:
                result = await self._table.write(self._kind, part, errors="return", timeout_s=self._timeout_s)
            except SchemaMismatch as error:
                bad.append(BadRow(part_numbers[0], error.code, str(error), None, len(part_numbers)))
                continue
            timestamp = max(timestamp, result.timestamp)
            bad += self._bad_rows(result, part_numbers)
        # Rows of all parts are looked up together, because neighbouring keys share requests.
        return await self._without_repeated(bad) if again else bad, timestamp

    def _bad_rows(self, result: WriteResult, numbers: Sequence[int]) -> list[BadRow]:
        for failure in result.failures:
            if failure.code not in _ROW_CODES:
                number = numbers[failure.row]
                fact = f"stopped at row {number}: {failure.code}: {failure.reason}"
                raise ImportStopped(f"{fact}\nrun the same command again to resume after the last acknowledged row")
        return [BadRow(numbers[f.row], f.code, f.reason, f.values) for f in result.failures]

    async def _without_repeated(self, bad: list[BadRow]) -> list[BadRow]:
        """Remove failures that only show that a row was written, or deleted, before the crash."""
        if self._kind is OpKind.DELETE:
            return [row for row in bad if row.code != "NOT_FOUND"]
        if self._kind is not OpKind.INSERT:
            return bad
        present = [row for row in bad if row.code == "ALREADY_PRESENT" and isinstance(row.values, Mapping)]
        written = await self._written_before(present)
        return [row for row in bad if row.row not in written]

    async def _written_before(self, rows: Sequence[BadRow]) -> set[int]:
        """Return the numbers of the rows whose values are in the table."""
        keys = [tuple((row.values or {})[name] for name in self._table.key) for row in rows]
        found = await self._table.get_many(keys, timeout_s=self._timeout_s)
        return {
            row.row
            for row, stored in zip(rows, found, strict=True)
            if stored is not None and all(_same(stored[name], value) for name, value in (row.values or {}).items())
        }


def _same(first: Any, second: Any) -> bool:
    """Return whether two values are equal. NaN equals NaN here."""
    return bool(first == second or (first != first and second != second))
