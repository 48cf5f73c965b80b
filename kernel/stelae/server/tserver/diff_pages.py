"""Pages of diffs: what changed between two times, read like a scan.

A page ends at a key, behind which any replica goes on. One without rows is not the end: nothing changed among the keys
that were looked at."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec

from stelae.protocol.codec import encode
from stelae.protocol.tablet_messages import ScanPage, ScanRequest
from stelae.rows.changes import changes_batch, changes_layout
from stelae.rows.keys import encode_keys
from stelae.server.tserver.scan_pages import (
    EMPTY_BATCHES_MAX,
    FIRST_PAGE_ROWS_MAX,
    PAGE_BYTES_MAX,
    Frames,
    PageReader,
    PageSource,
    encoded_rows,
)
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Layout
from stelae.spi.store import Changes, TabletStore


def reader_of(store: TabletStore, asked: ScanRequest, at: int) -> PageSource:
    """Return what reads the pages that a request is the first of."""
    if asked.since is None:
        return PageReader(store, asked.spec, at, asked.rows_max, asked.file)
    return DiffReader(store, asked.spec, asked.since, at, asked.rows_max)


class DiffReader:
    """One diff of one store, page by page. Used by one thread at a time.

    Args:
        store: what is read.
        spec: columns, range of keys and limit, and where to begin.
        since: hybrid timestamp; what entries above it have changed is told,
        at: up to this one.
        rows_max: most rows on a page.
    """

    def __init__(self, store: TabletStore, spec: ScanSpec, since: int, at: int, rows_max: int) -> None:
        self.spec = spec
        """What the request for the next page says."""
        self.file: bytes | None = None
        """Rows come as Arrow."""
        self.more = True
        """Whether a page may follow."""
        self._store = store
        self._schema = store.schema
        self._columns = spec.columns
        self._since = since
        self._at = at
        self._rows_wanted = rows_max
        self._rows_max = min(rows_max, FIRST_PAGE_ROWS_MAX)
        self._pieces: Iterator[Changes] | None = None
        self._waiting: list[RowBatch] = []
        self._through: bytes | None = None
        self._ended = False

    @cached_property
    def _layout(self) -> Layout:
        """Found when it is needed: what a request asks for in vain is told by ``next``, and nowhere else."""
        return changes_layout(self._schema, self._columns)

    def serves(self, store: TabletStore) -> bool:
        """Whether a diff of ``store`` that begins now would show the same."""
        return store is self._store and store.schema.version == self._schema.version

    def next(self) -> Frames:
        """Read the next page and encode it: its ``ScanPage``, and its rows if it has any.

        Raises:
            TooOld, SchemaMismatch: see ``TabletStore.diff``.
            CallerError: the limit is below 0.
            Corrupt: what is stored is damaged.
        """
        limit = self.spec.limit
        if limit is not None and limit < 0:
            raise CallerError(f"a diff's limit is {limit}; give 0 or more, or none for all")
        rows = None
        if limit != 0:
            self._fill()
            rows = self._take()
        after = self._through
        if self._waiting and rows is not None:
            after = encode_keys(self._schema, rows.slice(len(rows) - 1))[0]
        found = 0 if rows is None else len(rows)
        limit = None if self.spec.limit is None else self.spec.limit - found
        self.spec = msgspec.structs.replace(self.spec, after=after, limit=limit)
        self.more = after is not None and (limit is None or limit > 0)
        self._rows_max = min(2 * self._rows_max, self._rows_wanted)
        if not self.more:
            self.close()
        page = encode(ScanPage(self._at, self._schema.version, found, after))
        return [page] if rows is None else [page, encoded_rows(rows)]

    def close(self) -> None:
        """Let go of what the diff pins. Closing twice is harmless."""
        pieces, self._pieces, self._ended, self._waiting = self._pieces, None, True, []
        close = getattr(pieces, "close", None)  # As generators have it.
        if close is not None:
            close()

    def _fill(self) -> None:
        """Look at pieces until a page is full, or long enough."""
        if self._pieces is None and not self._ended:
            spec = msgspec.structs.replace(self.spec, columns=self._layout.ids[:-1])
            self._pieces = self._store.diff(self._since, self._at, spec)
        looked = 0
        while self._pieces is not None and not self._ended and looked < EMPTY_BATCHES_MAX:
            if sum(map(len, self._waiting)) >= self._rows_max or self._waiting_bytes() >= PAGE_BYTES_MAX:
                break
            looked += 1
            piece = next(self._pieces, None)
            self._through = None if piece is None else piece.through
            self._ended = self._through is None
            if piece is not None and len(piece.changed) + len(piece.deleted):
                self._waiting.append(changes_batch(self._schema, self._layout, piece))

    def _waiting_bytes(self) -> int:
        return sum(rows.nbytes for rows in self._waiting)

    def _take(self) -> RowBatch | None:
        """The rows of a page, of those that wait; by their average size, they are not too large for one."""
        import pyarrow as pa

        if not self._waiting:
            return None
        rows = self._waiting[0]
        if len(self._waiting) > 1:
            rows = RowBatch(self._layout, pa.concat_batches([rows.arrow for rows in self._waiting]))
        limit = len(rows) if self.spec.limit is None else self.spec.limit
        count = min(len(rows), self._rows_max, limit)
        count = max(1, min(count, len(rows) * PAGE_BYTES_MAX // max(1, rows.nbytes)))
        self._waiting = [rows.slice(count)] if count < len(rows) else []
        return rows.slice(0, count)
