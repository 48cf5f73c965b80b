"""Streams the pages of several tablets at once: in any order, or merged by key.

Pages are read ahead into a queue of fixed size. While the queue is full, no tablet is asked for more. So a slow reader
costs the client a few pages of memory, and costs the servers none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

import msgspec

from stelae.client.page_rows import PageRows
from stelae.client.tokens import TokenPart
from stelae.protocol.tablet_messages import ScanPage, SplitKeys
from stelae.rows.key_order import KeyOrder
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec

PAGES_AHEAD = 4
"""The most pages that are read ahead of the reader, without the one page of each tablet that is in flight."""

TABLETS_AT_ONCE = 4
"""The most tablets that one scan reads at the same time. A merge by key reads all tablets at once."""


class ReadableTablet(Protocol):
    """The part of a tablet that scans need."""

    @property
    def tablet_id(self) -> TabletId:
        """Id of the tablet."""
        ...

    async def page(
        self, spec: ScanSpec, *, at: int | None, at_least: int | None, reader: PageRows, timeout_s: float
    ) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        """Read one page in key order. Its rows are decoded when the second result is awaited."""
        ...

    async def split_keys(self, spec: ScanSpec, bytes_max: int, *, timeout_s: float) -> SplitKeys:
        """Return encoded keys that divide the key range of a scan into parts of about ``bytes_max``, and the size."""
        ...


class SourcePage(NamedTuple):
    """A page of one source."""

    number: int  #: Number of the source.
    rows: RowBatch | None  #: The rows; ``None``: the page has none, or the source only counts rows.
    rest: TokenPart | None  #: The token for the rest of the tablet; ``None``: the tablet is read.
    row_count: int


class ScanSource:
    """Reads one tablet for a scan, page by page, all at one snapshot."""

    def __init__(
        self,
        number: int,
        tablet: ReadableTablet,
        spec: ScanSpec,
        part: TokenPart,
        at_least: int | None,
        timeout_s: float,
        since: int | None = None,
        *,
        counts: bool = False,
    ) -> None:
        self.number = number
        self._tablet = tablet
        self._spec = spec
        self._part = part
        self.at = part.at
        """Hybrid timestamp of the snapshot; ``None`` until the first page has chosen it."""
        self._at_least = at_least
        self._timeout_s = timeout_s
        self._reader = PageRows(spec, since, counts=counts)

    async def pages(self) -> AsyncGenerator[SourcePage, None]:
        """Yield the pages to the end. A page that a replica cannot serve is retried on the tablet's other replicas.

        The next page is requested before the rows of a page are decoded and yielded, so that it is in flight
        meanwhile."""
        part, limit = self._part, self._spec.limit
        page, rows = await self._page(part, limit)
        while True:
            limit = None if limit is None else limit - page.row_count
            self.at = page.at
            part = TokenPart(part.tablet_id, page.at, page.after)
            if page.after is None or (limit is not None and limit <= 0):
                yield SourcePage(self.number, await rows, None, page.row_count)
                return
            next_page = asyncio.create_task(self._page(part, limit))
            try:
                yield SourcePage(self.number, await rows, part, page.row_count)
                page, rows = await next_page
            finally:
                next_page.cancel()
                await asyncio.gather(next_page, return_exceptions=True)

    async def _page(self, part: TokenPart, limit: int | None) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        spec = msgspec.structs.replace(self._spec, after=part.after, limit=limit)
        at_least = self._at_least if part.at is None else None
        return await self._tablet.page(
            spec, at=part.at, at_least=at_least, reader=self._reader, timeout_s=self._timeout_s
        )


async def pages_in_any_order(sources: Sequence[ScanSource]) -> AsyncGenerator[SourcePage, None]:
    """Yield the pages of all sources as they arrive, from at most ``TABLETS_AT_ONCE`` tablets at a time."""
    queue: asyncio.Queue[SourcePage | Exception | None] = asyncio.Queue(PAGES_AHEAD - 1)
    remaining = iter(sources)

    async def work() -> None:
        try:
            for source in remaining:
                async with aclosing(source.pages()) as pages:
                    async for page in pages:
                        await queue.put(page)
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(work()) for _ in range(min(TABLETS_AT_ONCE, len(sources)))]
    try:
        running = len(tasks)
        while running:
            found = await queue.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                running -= 1
            else:
                yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _SourceHead:
    """The next rows of one source of a merge, with their keys."""

    def __init__(self, source: ScanSource, order: KeyOrder) -> None:
        self._pages = source.pages()
        self._order = order
        self.rows: RowBatch | None = None
        self.keys: Any = None

    async def fill(self) -> bool:
        """Read pages until there are rows; return false at the end of the source."""
        while self.rows is None or not len(self.rows):
            page = await anext(self._pages, None)
            if page is None:
                return False
            if page.rows is not None:
                self.rows, self.keys = page.rows, self._order.array(page.rows)
        return True

    def take(self, count: int) -> tuple[RowBatch, Any]:
        """Remove the first rows; return them and their keys."""
        assert self.rows is not None
        taken = self.rows.slice(0, count), self.keys.slice(0, count)
        self.rows, self.keys = self.rows.slice(count), self.keys.slice(count)
        return taken

    async def close(self) -> None:
        """Stop reading the source."""
        await self._pages.aclose()


async def merged_by_key(
    sources: Sequence[ScanSource], order: KeyOrder, *, descending: bool
) -> AsyncGenerator[RowBatch, None]:
    """Yield the rows of all sources in key order. The rows must have the key columns."""
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
                yield _merge_heads(open_heads, order, descending=descending)
    finally:
        for head in heads:
            await head.close()


def _merge_heads(heads: Sequence[_SourceHead], order: KeyOrder, *, descending: bool) -> RowBatch:
    """Merge the rows of the current pages up to the first, in scan order, of the pages' last keys.

    Every later page begins behind the last key of its source's current page, so no row before that key is missing."""
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
