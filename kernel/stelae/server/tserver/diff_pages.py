"""Reads the pages of diffs: the rows that changed between two times.

A page ends at a key, and any replica can continue behind that key. A page without rows is not the end of the diff: it
says that no row changed among the keys that were read."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stelae.protocol.codec import encode
from stelae.protocol.tablet_messages import ScanPage, ScanRequest
from stelae.rows.arrow_page import encoded_rows
from stelae.rows.changes import changes_batch, changes_layout
from stelae.rows.keys import encode_keys
from stelae.server.frames import Frames
from stelae.server.tserver.scan_pages import (
    EMPTY_BATCHES_MAX,
    FIRST_PAGE_ROWS_MAX,
    PAGE_BYTES_MAX,
    PageReader,
    PageSource,
)
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Layout
from stelae.spi.store import Changes, TabletStore


def reader_of(store: TabletStore, asked: ScanRequest, at: int) -> PageSource:
    """Return the reader of a scan's or a diff's pages, beginning with the page that ``asked`` asks for."""
    if asked.since is None:
        return PageReader(store, asked.spec, at, asked.rows_max, asked.file, lz4=asked.lz4)
    return DiffReader(store, asked.spec, asked.since, at, asked.rows_max, lz4=asked.lz4)


class DiffReader:
    """Reads one diff of one store, page by page. Used by one thread at a time.

    Args:
        store: the store to read.
        spec: columns, range of keys and limit, and the key behind which to begin.
        since: hybrid timestamp, exclusive. The diff shows what entries above it changed.
        at: hybrid timestamp, inclusive. The diff shows what entries up to it changed.
        rows_max: the most rows of a page.
        lz4: whether Arrow may be compressed with LZ4.
    """

    def __init__(
        self, store: TabletStore, spec: ScanSpec, since: int, at: int, rows_max: int, *, lz4: bool = False
    ) -> None:
        self.spec = spec
        """The spec of the request for the next page."""
        self.file: bytes | None = None
        """Always ``None``: the rows of a diff are never sent as they are stored."""
        self.more = True
        """Whether a page may follow."""
        self._store = store
        self._schema = store.schema
        self._columns = spec.columns
        self._since = since
        self._at = at
        self._lz4 = lz4
        self._rows_wanted = rows_max
        self._rows_max = min(rows_max, FIRST_PAGE_ROWS_MAX)
        self._layout = Layout(())  #: The columns of the answer, once the diff is open.
        self._changes: Iterator[Changes] | None = None
        self._first: Changes | None = None  #: Changes that are read, and not among ``_changes`` any more.
        self._unsent: list[RowBatch] = []
        self._through: bytes | None = None
        self._ended = False

    def serves(self, store: TabletStore) -> bool:
        """Return whether a new diff of ``store`` would show the same rows as this reader."""
        return store is self._store and store.schema.version == self._schema.version

    def next_inline(self) -> Frames | None:
        """Return ``None``: a diff may read blocks."""
        return None

    def next(self) -> Frames:
        """Read the next page and return its frames: the encoded ``ScanPage``, and the rows if there are any.

        Raises:
            TooOld, SchemaMismatch: see ``TabletStore.diff``.
            CallerError: the limit is negative.
            Corrupt: stored data is damaged.
        """
        limit = self.spec.limit
        if limit is not None and limit < 0:
            raise CallerError(f"a diff's limit is {limit}; give 0 or more, or none for all")
        rows = None
        if limit != 0:
            self._fill()
            rows = self._take()
        after = self._through
        if self._unsent and rows is not None:
            after = encode_keys(self._schema, rows.slice(len(rows) - 1))[0]
        found = 0 if rows is None else len(rows)
        limit = None if self.spec.limit is None else self.spec.limit - found
        self.spec = msgspec.structs.replace(self.spec, after=after, limit=limit)
        self.more = after is not None and (limit is None or limit > 0)
        self._rows_max = min(2 * self._rows_max, self._rows_wanted)
        if not self.more:
            self.close()
        page = encode(ScanPage(self._at, self._schema.version, found, after))
        return [page] if rows is None else [page, encoded_rows(rows, lz4=self._lz4)]

    def close(self) -> None:
        """Release the snapshot of the store. A second call has no effect."""
        changes, self._changes, self._first, self._ended, self._unsent = self._changes, None, None, True, []
        close = getattr(changes, "close", None)  # Generators have it; a plain iterator holds nothing.
        if close is not None:
            close()

    def _fill(self) -> None:
        """Read changes until there are enough rows for a page, or ``EMPTY_BATCHES_MAX`` times."""
        if self._changes is None and not self._ended:
            self._changes, self._first = self._opened()
        reads = 0
        while self._changes is not None and not self._ended and reads < EMPTY_BATCHES_MAX:
            if sum(map(len, self._unsent)) >= self._rows_max or self._unsent_bytes() >= PAGE_BYTES_MAX:
                break
            reads += 1
            changes, self._first = self._first or next(self._changes, None), None
            self._through = None if changes is None else changes.through
            self._ended = self._through is None
            if changes is not None and len(changes.changed) + len(changes.deleted):
                self._unsent.append(changes_batch(self._schema, self._layout, changes))

    def _opened(self) -> tuple[Iterator[Changes], Changes | None]:
        """Open the diff, and note the schema of its rows. Return the changes, and the first ones, which they lack then.

        The schema may have changed since the reader was made, because a read waits for a thread. It may also change
        while the diff is opened, which an engine does at the latest for the first changes. If a column was dropped in
        that moment, the diff is opened again without it."""
        while True:
            self._schema = schema = self._store.schema
            self._layout = changes_layout(schema, self._columns)
            spec = msgspec.structs.replace(self.spec, columns=self._layout.ids[:-1])
            try:
                changes = self._store.diff(self._since, self._at, spec)
                first = next(changes, None)
            except SchemaMismatch:
                if self._store.schema.version == schema.version:
                    raise
            else:
                return changes, first

    def _unsent_bytes(self) -> int:
        return sum(rows.nbytes for rows in self._unsent)

    def _take(self) -> RowBatch | None:
        """Return the rows of the next page. Their number follows from the average size of the unsent rows, so that the
        page stays near ``PAGE_BYTES_MAX``."""
        import pyarrow as pa

        if not self._unsent:
            return None
        rows = self._unsent[0]
        if len(self._unsent) > 1:
            rows = RowBatch(self._layout, pa.concat_batches([rows.arrow for rows in self._unsent]))
        limit = len(rows) if self.spec.limit is None else self.spec.limit
        count = min(len(rows), self._rows_max, limit)
        count = max(1, min(count, len(rows) * PAGE_BYTES_MAX // max(1, rows.nbytes)))
        self._unsent = [rows.slice(count)] if count < len(rows) else []
        return rows.slice(0, count)
