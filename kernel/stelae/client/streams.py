"""Streams of rows from several tablets at once: side by side, or merged by key.

Back-pressure: pages are read ahead into a queue. While nobody takes from it, nothing more is asked of any tablet, so a
slow reader holds a handful of pages in memory, and no server holds anything for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

import msgspec

from stelae.client.page_rows import PageRows
from stelae.client.tokens import TokenPart
from stelae.protocol.tablet_messages import ScanPage
from stelae.rows.key_order import KeyOrder
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec

PAGES_AHEAD = 4
"""Pages that are read before they are asked for; the last of them is on its way, one for each tablet."""

TABLETS_AT_ONCE = 4
"""Tablets that one scan reads at the same time; a merge by key reads all of them."""


class ReadableTablet(Protocol):
    """What of a tablet scans need."""

    @property
    def tablet_id(self) -> TabletId:
        """Its name."""
        ...

    async def page(
        self, spec: ScanSpec, *, at: int | None, at_least: int | None, reader: PageRows, timeout_s: float
    ) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        """Read one page in key order; its rows are there once they have been read from their bytes."""
        ...


class SourceRows(NamedTuple):
    """Some rows, and what is left of their tablet behind them; ``None``: nothing."""

    number: int  #: Of the source.
    rows: RowBatch | None
    rest: TokenPart | None


class ScanSource:
    """One tablet of a scan, page by page, all of one snapshot."""

    def __init__(
        self,
        number: int,
        tablet: ReadableTablet,
        spec: ScanSpec,
        part: TokenPart,
        at_least: int | None,
        timeout_s: float,
        since: int | None = None,
    ) -> None:
        self.number = number
        self._tablet = tablet
        self._spec = spec
        self._part = part
        self.at = part.at
        """The snapshot, once it is chosen."""
        self._at_least = at_least
        self._timeout_s = timeout_s
        self._reader = PageRows(spec, since)

    async def pieces(self) -> AsyncGenerator[SourceRows, None]:
        """Yield pages to the end. What cannot be served is retried on the tablet's other replicas.

        The next page is asked for before the rows of one are read from its bytes, and before somebody takes them: it
        travels meanwhile."""
        part, limit = self._part, self._spec.limit
        page, rows = await self._page(part, limit)
        while True:
            limit = None if limit is None else limit - page.row_count
            self.at = page.at
            part = TokenPart(part.tablet_id, page.at, page.after)
            if page.after is None or (limit is not None and limit <= 0):
                yield SourceRows(self.number, await rows, None)
                return
            following = asyncio.create_task(self._page(part, limit))
            try:
                yield SourceRows(self.number, await rows, part)
                page, rows = await following
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _page(self, part: TokenPart, limit: int | None) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        spec = msgspec.structs.replace(self._spec, after=part.after, limit=limit)
        at_least = self._at_least if part.at is None else None
        return await self._tablet.page(
            spec, at=part.at, at_least=at_least, reader=self._reader, timeout_s=self._timeout_s
        )


async def side_by_side(sources: Sequence[ScanSource]) -> AsyncGenerator[SourceRows, None]:
    """Yield the pieces of all sources as they come, a few tablets at a time."""
    queue: asyncio.Queue[SourceRows | Exception | None] = asyncio.Queue(PAGES_AHEAD - 1)
    waiting = iter(sources)

    async def work() -> None:
        try:
            for source in waiting:
                async with aclosing(source.pieces()) as pieces:
                    async for piece in pieces:
                        await queue.put(piece)
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(work()) for _ in range(min(TABLETS_AT_ONCE, len(sources)))]
    try:
        left = len(tasks)
        while left:
            found = await queue.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                left -= 1
            else:
                yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _SourceHead:
    """The next rows of one source of a merge, with their keys."""

    def __init__(self, source: ScanSource, order: KeyOrder) -> None:
        self._pieces = source.pieces()
        self._order = order
        self.rows: RowBatch | None = None
        self.keys: Any = None

    async def fill(self) -> bool:
        """Make sure that there are rows; false at the end."""
        while self.rows is None or not len(self.rows):
            piece = await anext(self._pieces, None)
            if piece is None:
                return False
            if piece.rows is not None:
                self.rows, self.keys = piece.rows, self._order.array(piece.rows)
        return True

    def take(self, count: int) -> tuple[RowBatch, Any]:
        """Take the first rows away."""
        assert self.rows is not None
        taken = self.rows.slice(0, count), self.keys.slice(0, count)
        self.rows, self.keys = self.rows.slice(count), self.keys.slice(count)
        return taken

    async def close(self) -> None:
        """Ask for no more."""
        await self._pieces.aclose()


async def merged(sources: Sequence[ScanSource], order: KeyOrder, *, descending: bool) -> AsyncGenerator[RowBatch, None]:
    """Yield the rows of all sources in key order; the rows have the key columns."""
    heads = [_SourceHead(source, order) for source in sources]
    try:
        open_heads = heads
        while open_heads:
            filled = await asyncio.gather(*(head.fill() for head in open_heads), return_exceptions=True)
            for problem in filled:
                if isinstance(problem, BaseException):
                    raise problem
            open_heads = [head for head, has_rows in zip(open_heads, filled, strict=True) if has_rows]
            if open_heads:
                yield _nearest(open_heads, order, descending=descending)
    finally:
        for head in heads:
            await head.close()


def _nearest(heads: Sequence[_SourceHead], order: KeyOrder, *, descending: bool) -> RowBatch:
    """Of the pages at hand, everything up to the nearest of their last keys: nothing before that can still come."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nearest, before = (pc.max, pc.greater_equal) if descending else (pc.min, pc.less_equal)
    bound = nearest(pa.array([head.keys[-1].as_py() for head in heads], order.arrow))
    counts = [pc.sum(before(head.keys, bound)).as_py() for head in heads]
    taken = [head.take(count) for head, count in zip(heads, counts, strict=True) if count]
    table = pa.Table.from_batches([rows.arrow for rows, _ in taken])
    keys = pa.chunked_array([keys for _, keys in taken], order.arrow).combine_chunks()
    by_key = pc.array_sort_indices(keys, order="descending" if descending else "ascending")
    (batch,) = table.take(by_key).combine_chunks().to_batches()
    return RowBatch(taken[0][0].layout, batch)
