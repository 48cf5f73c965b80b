"""Reads the pages of scans from a store.

The rows of a page are an Arrow record batch, or the engine's stored bytes if the engine offers them and the client can
decode them (``stelae.rows.parquet_rows``)."""

from __future__ import annotations

from itertools import count
from typing import Protocol

import msgspec

from stelae.protocol.codec import encode
from stelae.protocol.tablet_messages import ScanPage
from stelae.rows.arrow_page import encoded_rows, plain_bytes
from stelae.rows.parquet_rows import StoredPage, StoredRows, StoredRowsCursor
from stelae.server.frames import Frames
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.store import Cursor, TabletStore

PAGE_BYTES_MAX = 8 << 20
"""The most bytes of the rows of a page, as they are stored or as plain Arrow, if it has more than one row. Thousands of
large cells would not fit in a frame."""

FIRST_PAGE_ROWS_MAX = 8192
"""The most rows of the first page, so that a client that needs few rows gets them soon. While rows are small, each page
has twice as many rows as the page before."""

EMPTY_BATCHES_MAX = 16
"""After this many batches without a matching row, a page is answered without rows. This bounds the time of a page.

If the engine's resume token has not moved by then, the page waits for a row or for the end of the scan."""


class PageSource(Protocol):
    """Reads the pages of one scan or one diff."""

    @property
    def spec(self) -> ScanSpec:
        """The spec of the request for the next page."""

    @property
    def file(self) -> bytes | None:
        """The field ``file`` of the request for the next page."""

    @property
    def more(self) -> bool:
        """Whether a page may follow."""

    def serves(self, store: TabletStore) -> bool:
        """Return whether a new reader of ``store`` would show the same rows as this one."""

    def next(self) -> Frames:
        """Read the next page and return its frames."""

    def next_inline(self) -> Frames | None:
        """Read the first page without blocking; ``None``: ``next`` must be called on a thread."""

    def close(self) -> None:
        """Release the snapshot."""


class PageReader:
    """Reads one scan of one store, page by page. Used by one thread at a time.

    Args:
        store: the store to read.
        spec: columns, filters, range of keys and limit, and the key behind which to begin.
        at: hybrid timestamp of the snapshot.
        rows_max: the most rows of a page.
        file: whether rows may be sent as they are stored, and the file whose footer the client has (``ScanRequest``).
        lz4: whether Arrow may be compressed with LZ4.
    """

    def __init__(
        self,
        store: TabletStore,
        spec: ScanSpec,
        at: int,
        rows_max: int,
        file: bytes | None = None,
        *,
        lz4: bool = False,
    ) -> None:
        self.spec = spec
        """The spec of the request for the next page."""
        self.file = file
        """The file whose footer the client has; ``None``: the client takes Arrow only."""
        self.more = True
        """Whether a page may follow."""
        self._store = store
        self._schema_version = store.schema.version
        self._at = at
        if spec.limit is not None and not spec.predicates:
            rows_max = max(1, min(rows_max, spec.limit))  # An engine may build all the rows that a batch may have.
        self._rows_wanted = rows_max
        self._rows_max = min(rows_max, FIRST_PAGE_ROWS_MAX)
        self._lz4 = lz4
        self._cursor: Cursor | None = None

    def serves(self, store: TabletStore) -> bool:
        """Return whether a new scan of ``store`` would show the same rows as this reader."""
        return store is self._store and store.schema.version == self._schema_version

    def next(self) -> Frames:
        """Read the next page and return its frames: the encoded ``ScanPage``, the rows if there are any, and the
        footer of a file whose stored rows the client cannot read without it.

        Raises:
            TooOld, SchemaMismatch: see ``TabletStore.scan``.
            Corrupt: stored data is damaged.
        """
        stored = self._next_stored()
        if stored is not None:
            return self._stored_page(stored)
        while True:
            rows, after = self._next_rows()
            if rows is None or not len(rows):
                return [self._advance(0, after)]
            size_bytes = plain_bytes(rows)
            if len(rows) == 1 or size_bytes <= PAGE_BYTES_MAX:
                break
            self._rows_max = max(1, min(len(rows) - 1, len(rows) * PAGE_BYTES_MAX // size_bytes))
            self.close()  # A cursor cannot go back, so a new one begins where this page does.
        # The average size of the rows counts, because a page may have ended early. The factor of two leaves room for
        # larger rows: a page that is too large is read again.
        rows_fit = len(rows) * PAGE_BYTES_MAX // 2 // size_bytes
        self._rows_max = max(1, min(2 * self._rows_max, self._rows_wanted, rows_fit))
        data = encoded_rows(rows, lz4=self._lz4)
        return [self._advance(len(rows), after), data]

    def next_inline(self) -> Frames | None:
        """As ``next``, for the first page of a scan of few rows that are in memory; ``None``: for other scans."""
        version = self._store.schema.version
        cursor = self._store.scan_inline(self.spec, self._at)
        if cursor is None:
            return None
        if self._store.schema.version != version:  # See ``_open_cursor``.
            cursor.close()
            return None
        self._cursor, self._schema_version = cursor, version
        return self.next()

    def _stored_page(self, page: StoredPage) -> Frames:
        """Return the frames of a page of stored rows, with the file's footer unless the client has it."""
        assert self._cursor is not None
        known, self.file = self.file, page.stored.file
        frames: Frames = [b"".join(page.data), *([] if known == self.file else [page.footer()])]
        return [self._advance(page.row_count, self._cursor.resume_token, page.stored), *frames]

    def _advance(self, found: int, after: bytes | None, stored: StoredRows | None = None) -> bytes:
        """Move the spec behind a page of ``found`` rows, and return the page's encoded ``ScanPage``."""
        limit = None if self.spec.limit is None else self.spec.limit - found
        self.spec = msgspec.structs.replace(self.spec, after=after, limit=limit)
        self.more = after is not None and (limit is None or limit > 0)
        if not self.more:
            self.close()
        return encode(ScanPage(self._at, self._schema_version, found, after, stored))

    def close(self) -> None:
        """Release the snapshot. A second call has no effect."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()

    def _next_stored(self) -> StoredPage | None:
        """Return the next rows as they are stored; ``None``: the client or the engine cannot, or these rows are not
        stored in such a form."""
        if self.file is None:
            return None
        cursor = self._open_cursor()
        if not isinstance(cursor, StoredRowsCursor):
            return None
        first = self.spec.after is None
        return cursor.next_stored(self._rows_max if first else self._rows_wanted, PAGE_BYTES_MAX)

    def _open_cursor(self) -> Cursor:
        """Return the open cursor, or open one and note the schema of its rows.

        The schema may have changed since the reader was made, because a read waits for a thread, and while the cursor
        is opened. A client decodes the rows by the version that the page names."""
        while self._cursor is None:
            self._schema_version = self._store.schema.version
            cursor = self._store.scan(self.spec, self._at)
            if self._store.schema.version == self._schema_version:
                self._cursor = cursor
            else:
                cursor.close()
        return self._cursor

    def _next_rows(self) -> tuple[RowBatch | None, bytes | None]:
        """Return the next rows, if any, and the token from which the next page continues."""
        cursor = self._open_cursor()
        for batches in count(1):
            rows = cursor.next_batch(self._rows_max)
            token = None if rows is None else cursor.resume_token
            # A page without rows must have a token that has moved: the next page continues from the token, and a
            # client takes a page without a token for the last one.
            if rows is None or len(rows) or (batches >= EMPTY_BATCHES_MAX and token not in (None, self.spec.after)):
                break
        return rows, token
