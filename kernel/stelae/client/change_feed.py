"""The change feed of a table: the changes after a time or a position, round by round. It may follow the table."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from stelae.client.dropped_ranges import check_dropped, unless_dropped
from stelae.client.feed_columns import FeedRows
from stelae.client.feed_options import FeedOptions
from stelae.client.feed_position import BadPosition, FeedPosition, TabletPart, parts_between
from stelae.client.feed_round import RoundPlanner, named_expiry
from stelae.client.present_table import PresentTable
from stelae.client.relocated_tablet import RelocatedTablet
from stelae.client.scan import Record
from stelae.client.table_lookup import TableLookup
from stelae.client.token_division import combined, sized
from stelae.client.tokens import ScanToken
from stelae.rows.keys import encode_keys
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema

TABLETS_AHEAD = 4
"""The most tablets that are read at the same time. The pages of a tablet are yielded before those of the next."""


class PartReader:
    """Reads the changes of parts of tablets.

    Args:
        table: the table.
        schema: its columns and key, as the feed reads them.
        rows: converts the rows.
        options: what the feed reads, for how long each request is repeated, and what happens if a range was dropped.
    """

    def __init__(self, table: PresentTable, schema: Schema, rows: FeedRows, options: FeedOptions) -> None:
        self._table = table
        self._schema = schema
        self._rows = rows
        self._options = options

    async def batches(self, token: ScanToken) -> AsyncGenerator[tuple[Any, bytes | None], None]:
        """Yield the changes of a token tablet by tablet, in key order, with the encoded key up to which the tablet is
        read then; ``None``: it is read to the end."""
        for part in token.parts or ():
            items = self._of_one(msgspec.structs.replace(token, parts=(part,)))
            async with aclosing(unless_dropped(self._table, part.tablet_id, self._options, items)) as batches:
                async for found in batches:
                    yield found

    async def _of_one(self, token: ScanToken) -> AsyncGenerator[tuple[Any, bytes | None], None]:
        (part,) = token.parts or ()
        assert part.at is not None
        scan = self._table.scan(token, self._schema, self._options.timeout_s)
        with named_expiry(self._table.name, token.since or part.at):
            async with aclosing(scan.batches()) as batches:
                async for batch in batches:
                    if not batch.num_rows:
                        continue
                    rest = scan.token()
                    before = await self._before(token, batch) if self._options.before_images else None
                    after = rest.parts[0].after if rest is not None and rest.parts else None
                    yield self._rows.converted(batch, part.at, before), after

    async def _before(self, token: ScanToken, batch: Any) -> Sequence[Record | None]:
        """Return for each row of a batch the row that the key had when the round began."""
        if token.since is None:
            return [None] * batch.num_rows
        (part,), schema, since = token.parts or (), self._schema, token.since
        columns = self._rows.ids
        keys = RowBatch(schema.key_layout, batch.select([columns.index(column_id) for column_id in schema.key]))
        encoded = encode_keys(schema, keys)

        return await TableLookup(self._table, schema).many(part.tablet_id, encoded, since, self._options.timeout_s)


class AsyncChangeFeed:
    """The changes of a table after a time or a position. Made by ``AsyncTable.changes``.

    ``async for batch in feed`` yields ``pyarrow.RecordBatch`` objects: the columns of the table, and ``_change_type``,
    ``_commit_version`` and ``_commit_timestamp``. :attr:`position` is then the position after the batch. A second
    iteration continues from there, also after an error.

    The feed reads rounds. A round has the net changes between two times, which are the same for all tablets. It has
    each key at most once; with the rows before, an update has two rows. It reads tablet by tablet, in key order within
    a tablet. So the changes of one key come in the order of their commits."""

    def __init__(
        self,
        table: PresentTable,
        schema: Schema,
        rows: FeedRows,
        start: FeedPosition,
        end: FeedPosition | int | None,
        options: FeedOptions,
    ) -> None:
        self._table = table
        self._schema = schema
        self._rows = rows
        self._position = start
        self._before = start  #: The position before the last batch that was yielded.
        self._end = end
        self._options = options
        self._planner = RoundPlanner(table, schema, options)
        self._reader = PartReader(table, schema, rows, options)

    @property
    def position(self) -> str:
        """The position after the last batch that was yielded, as a text for ``changes(since=...)``.

        It is JSON. If the table has ranges, it has about 35 characters for each tablet."""
        return str(self._position)

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns of the batches, in order."""
        return self._rows.arrow_schema.names  # type: ignore[no-any-return]

    @property
    def arrow_schema(self) -> Any:
        """The ``pyarrow.Schema`` of the batches. It stays the same when the table is altered."""
        return self._rows.arrow_schema

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.batches()

    async def batches(self) -> AsyncGenerator[Any, None]:
        """Yield the changes as ``pyarrow.RecordBatch`` objects. A few pages of four tablets are read ahead.

        Raises:
            ChangesExpired: the history of the position is not kept any more; changes would be missing.
            RangeDropped: a range that was read, or is to be read, was dropped; see ``AsyncTable.changes``.
            Unavailable: no replica of a tablet answered in time. A second iteration continues the feed.
            SchemaMismatch: a column that the feed reads was dropped.
            NoSuchTable: the table was dropped.
        """
        last = None
        while last is None or self._position.time < last or not self._position.is_between:
            is_new = self._position.is_between
            end = await self._end_of_next()
            if end == self._position:
                if not self._options.follow:
                    return
                await asyncio.sleep(self._options.poll_s)
                continue
            if is_new and not self._options.follow:
                last = end.time
            async with aclosing(self._read(end)) as stream:
                async for batch in stream:
                    yield batch
            self._position = end
            if end == self._end:
                return

    def put_back(self) -> None:
        """Go back to the position before the last batch, which was yielded and never arrived at the reader."""
        self._position = self._before

    async def next_position(self, *, rows_max: int | None = None, not_after: int | None = None) -> str:
        """Return the position at the end of the next round; it is :attr:`position` if nothing was written since.

        Args:
            rows_max: end the round early, after at most this many changed rows. Their keys are read to find its end.
            not_after: hybrid timestamp, such as that of :meth:`last_time`; end the round there at the latest. A round
                that was begun is not ended by it.

        Raises:
            ChangesExpired, RangeDropped, Unavailable: as for :meth:`batches`.
        """
        start = self._position
        end = await self._end_of_next(not_after)
        if rows_max is not None and end != start:
            end = await self._planner.cut(start, end, await self._changed(end), rows_max)
        return str(end)

    async def tokens(self, *, target_bytes: int | None = None) -> list[ScanToken]:
        """Divide the next round into one token for each tablet that has changes, or into smaller ones.

        ``open_changes`` of the table, or of another object of it in another process, reads a token.

        Args:
            target_bytes: divide large tablets and put small ones together, so that one token is of about this many
                bytes of rows, whether changed or not. At least 64 tokens are left, if as many tablets have changes.

        Raises:
            BadPosition: the feed begins within a round and ends in another one.
            ChangesExpired, RangeDropped, Unavailable: as for :meth:`batches`.
        """
        if not self._position.is_between and not isinstance(self._end, FeedPosition):
            fact = "tokens are those of one round, and the feed begins within a round"
            raise BadPosition(f"{fact}; give its end, next_position() of the feed, as until")
        end = await self._end_of_next()
        found = [self._planner.token(part, self._rows.ids) for part in await self._changed(end)]
        if target_bytes is None:
            return found
        tablet, timeout_s = partial(RelocatedTablet, self._table, self._schema), self._options.timeout_s
        return combined(await sized(found, tablet, target_bytes, timeout_s), target_bytes)

    async def last_time(self) -> int:
        """Return a hybrid timestamp for ``not_after``: no change that was acknowledged before the call is above it.

        With it, a reader of the present changes ends even if others write all the time."""
        await self._table.refresh_tablets(timeout_s=self._options.timeout_s)
        return max(await self._planner.last_write(), self._planner.idle_end())

    async def _end_of_next(self, not_after: int | None = None) -> FeedPosition:
        """Return the end of the next round, or of the one that was begun."""
        position, end = self._position, self._end
        if isinstance(end, FeedPosition):
            if position.is_between:
                check_dropped(self._table, position.dropped_of(end.tablets or self._table.tablet_ids), self._options)
            return end
        if not position.is_between:
            return position.finished()
        return await self._planner.end_of_next(position, end, not_after)

    async def _changed(self, end: FeedPosition) -> list[TabletPart]:
        return await self._planner.changed(parts_between(self._position, end, self._table.tablet_ids))

    async def _read(self, end: FeedPosition) -> AsyncGenerator[Any, None]:
        start = self._position.begun(end)  # Otherwise each batch would look for the tablets that were added.
        parts = await self._changed(end)
        streams = [self._reader.batches(self._planner.token(part, self._rows.ids)) for part in parts]
        async with aclosing(_in_order(streams)) as found:
            async for number, (batch, after) in found:
                part = parts[number]
                read_to = part.upto if after is None else after
                self._before = self._position
                self._position = start.within(end, part.number + (read_to is None), read_to)
                yield batch


async def _in_order(streams: Sequence[AsyncGenerator[Any, None]]) -> AsyncGenerator[tuple[int, Any], None]:
    """Yield the items of all streams with the number of the stream, one stream after the other. The first items of the
    next ones are read ahead."""
    remaining = iter(streams)
    begun: deque[tuple[AsyncGenerator[Any, None], asyncio.Task[Any]]] = deque()

    async def next_of(stream: AsyncGenerator[Any, None]) -> Any:
        return await anext(stream, None)

    def begin_next() -> None:
        for stream in remaining:
            begun.append((stream, asyncio.create_task(next_of(stream))))
            break

    for _ in range(TABLETS_AHEAD):
        begin_next()
    try:
        for number in range(len(streams)):
            stream, first = begun[0]
            item = await first
            while item is not None:
                yield number, item
                item = await anext(stream, None)
            begun.popleft()
            begin_next()
    finally:
        for stream, first in begun:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await stream.aclose()
