"""The rows of a page of a scan, read from its bytes: those of a large one by another thread.

Arrow lets go of the interpreter while it checks or decodes what came, so the loop goes on: it takes in the next page
meanwhile, whose rows may be read at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from stelae.protocol.tablet_messages import ScanPage
from stelae.rows.changes import changes_layout
from stelae.rows.parquet_rows import Footer, read_stored
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Layout, Schema
from stelae.spi.services import Buffer

THREAD_BYTES_MIN = 256 << 10
"""Smaller pages of Arrow are read at once: a thread costs more than it saves."""

STORED_LIMIT_MIN = 8192
"""Scans of fewer rows are not worth a file's footer."""


class PageRows:
    """Reads the pages of one scan, or diff, of one tablet. For the event loop."""

    def __init__(self, spec: ScanSpec, since: int | None = None) -> None:
        self.since = since
        """Of a diff: changes of entries above this time are told."""
        small = spec.limit is not None and spec.limit < STORED_LIMIT_MIN
        self._stored = since is None and not spec.predicates and spec.order is not Order.KEY_DESCENDING and not small
        self._footer: Footer | None = None

    @property
    def file(self) -> bytes | None:
        """What the request for the next page says under this name."""
        if not self._stored:
            return None
        return b"" if self._footer is None else self._footer.file

    def layout(self, schema: Schema, ids: Sequence[int] | None) -> Layout:
        """The layout of the rows, with columns of a schema by id."""
        return schema.project(ids) if self.since is None else changes_layout(schema, ids)

    def read(self, page: ScanPage, layout: Layout, frames: Sequence[Buffer]) -> asyncio.Future[RowBatch | None]:
        """Return the rows of a page that has just come, or ``None`` if there are none on it, as a future of the loop.

        It fails with ``Corrupt`` if the frames are not the rows that the page announces."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[RowBatch | None] = loop.create_future()
        try:
            work = self._work(page, layout, frames)
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
            raise Corrupt(f"a page of {page.row_count} rows came without them")
        decode = partial(RowBatch.from_ipc, layout, memoryview(frames[0]))
        if page.stored is not None:
            if len(frames) > 1:
                self._footer = Footer(page.stored.file, frames[1])
            if self._footer is None:
                raise Corrupt("rows of a Parquet file came without its footer")
            decode = partial(read_stored, layout, page.stored, frames[0], self._footer)
        return partial(_counted, page.row_count, decode)


def _counted(count: int, decode: Callable[[], RowBatch]) -> RowBatch:
    rows = decode()
    if len(rows) != count:
        raise Corrupt(f"a page of {count} rows came with {len(rows)}")
    return rows
