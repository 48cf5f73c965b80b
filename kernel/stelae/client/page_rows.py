"""Decodes the rows of a page of a scan. A large page is decoded by another thread.

Arrow releases the interpreter's lock while it decodes, so the event loop continues: it receives the next page, which
may be decoded at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from stelae.protocol.tablet_messages import ScanPage
from stelae.rows.arrow_page import decoded_rows
from stelae.rows.changes import changes_layout
from stelae.rows.parquet_rows import Footer, read_stored
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Layout, Schema
from stelae.spi.services import Buffer

THREAD_BYTES_MIN = 256 << 10
"""Arrow pages with fewer bytes are decoded on the event loop, because a thread would cost more than it saves."""

STORED_LIMIT_MIN = 8192
"""Scans with a lower limit do not ask for stored rows, because the footer of the file would cost more than it saves."""


class PageRows:
    """Decodes the pages of one scan or diff of one tablet. Used on the event loop.

    Args:
        spec: the scan.
        since: of a diff: hybrid timestamp above which entries count as changes; ``None``: a scan.
        counts: rows are only counted, by ``ScanPage.row_count``: ``read`` decodes none, and returns none.
    """

    def __init__(self, spec: ScanSpec, since: int | None = None, *, counts: bool = False) -> None:
        self.since = since
        """The field ``since`` of every request."""
        small = spec.limit is not None and spec.limit < STORED_LIMIT_MIN
        self._stored = since is None and not spec.predicates and spec.order is not Order.KEY_DESCENDING and not small
        self._counts = counts
        self._footer: Footer | None = None

    @property
    def file(self) -> bytes | None:
        """The field ``file`` of the request for the next page (``ScanRequest``)."""
        if not self._stored:
            return None
        return b"" if self._footer is None else self._footer.file

    def layout(self, schema: Schema, ids: Sequence[int] | None) -> Layout:
        """Return the layout of the rows, for columns of a schema given by id."""
        return schema.project(ids) if self.since is None else changes_layout(schema, ids)

    def read(self, page: ScanPage, layout: Layout, frames: Sequence[Buffer]) -> asyncio.Future[RowBatch | None]:
        """Return a future with the rows of a page that has just arrived, or with ``None`` if it has no rows.

        The future fails with ``Corrupt`` if the frames are not the rows that the page announces."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[RowBatch | None] = loop.create_future()
        try:
            work = self._work(page, layout, frames)
            if self._counts:
                found.set_result(None)
                return found
            if page.stored is not None or sum(map(len, frames)) >= THREAD_BYTES_MIN:
                return loop.run_in_executor(None, work)
            found.set_result(work())
        except Corrupt as error:
            found.set_exception(error)
        return found

    def _work(self, page: ScanPage, layout: Layout, frames: Sequence[Buffer]) -> Callable[[], RowBatch | None]:
        if not page.row_count:
            return lambda: None
        if not frames:
            raise Corrupt(f"a page announces {page.row_count} rows and has none")
        decode = partial(decoded_rows, layout, frames[0])
        if page.stored is not None:
            if len(frames) > 1:
                self._footer = Footer(page.stored.file, frames[1])
            if self._footer is None:
                raise Corrupt("a page has rows of a Parquet file without the file's footer")
            decode = partial(read_stored, layout, page.stored, frames[0], self._footer)
        return partial(_counted, page.row_count, decode)


def _counted(count: int, decode: Callable[[], RowBatch]) -> RowBatch:
    rows = decode()
    if len(rows) != count:
        raise Corrupt(f"a page announces {count} rows and has {len(rows)}")
    return rows


def in_key_order(spec: ScanSpec) -> ScanSpec:
    """Return a scan in key order: pages end at a key, so that any replica can continue behind it."""
    if spec.order is Order.ANY:
        return msgspec.structs.replace(spec, order=Order.KEY)
    return spec
