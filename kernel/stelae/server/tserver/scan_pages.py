"""Pages of scans, read one ahead of who asks.

All that a scan needs to go on stands in the request for its next page, so any replica serves any page, and a server may
forget a scan at any time. But opening a cursor has its price: a columnar engine decodes row groups of many pages. So a
cursor that has more to give stays open for ``KEEP_US``, and the page that its client will ask for is read meanwhile:
the client takes one page in while the server makes the next.

Rows come as Arrow, or, where engine and client both can, as they are stored (``stelae.rows.parquet_rows``).

What is kept answers exactly the request that a client forms from the page before: same sender, tablet, snapshot,
columns, filters, rows left and file known, behind that page's last key. Anything else opens a cursor of its own. A
cursor shows its snapshot whatever is applied, compacted or let go of meanwhile (contract of stores, 4); it is not used
for another store, as after a restart of the replica, nor under another schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol, TypeAlias

import msgspec

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.protocol.codec import encode
from stelae.protocol.tablet_messages import ScanPage, ScanRequest
from stelae.rows.parquet_rows import StoredPage, StoredRows, StoredRowsCursor
from stelae.spi.ids import NodeId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.services import Buffer
from stelae.spi.store import Cursor, TabletStore

PAGE_BYTES_MAX = 8 << 20
"""Bytes of values from which on a page holds fewer rows: thousands of large cells would not fit a frame."""

FIRST_PAGE_ROWS_MAX = 8192
"""Most rows on the first page: whoever wants few gets them soon. While rows are small, each page has twice as many as
the one before."""

EMPTY_BATCHES_MAX = 16
"""Batches in which nothing matches before a page is answered without rows: bounds its time.

An engine whose token does not move although it looks at more and more has its page wait for a row, or for the end."""

KEEP_US = 2_000_000
"""How long a cursor waits for its client: it pins what compaction and deletion would let go."""

KEPT_MAX = 16
"""Cursors that wait at once, each with a page and what its engine has decoded; the oldest one goes."""

Frames: TypeAlias = list[Buffer]
Done: TypeAlias = Callable[[Frames | Exception], None]


class PageSource(Protocol):
    """Reads the pages of one scan, or of one diff."""

    @property
    def spec(self) -> ScanSpec:
        """What the request for the next page says."""

    @property
    def file(self) -> bytes | None:
        """What it says under that name."""

    @property
    def more(self) -> bool:
        """Whether a page may follow."""

    def serves(self, store: TabletStore) -> bool:
        """Whether one of ``store`` that begins now would show the same."""

    def next(self) -> Frames:
        """Read and encode the next page."""

    def close(self) -> None:
        """Let go of the snapshot."""


ReaderOf: TypeAlias = Callable[[TabletStore, ScanRequest, int], PageSource]
"""Returns what reads a store at a time, beginning with the page of a request."""


class PageReader:
    """One scan of one store, page by page. Used by one thread at a time.

    Args:
        store: what is read.
        spec: where to begin.
        at: hybrid timestamp of the snapshot.
        rows_max: most rows on a page.
        file: whether rows may come as they are stored, and what is known of that, as in ``ScanRequest``.
    """

    def __init__(self, store: TabletStore, spec: ScanSpec, at: int, rows_max: int, file: bytes | None = None) -> None:
        self.spec = spec
        """What the request for the next page says,"""
        self.file = file
        """and which file's footer it knows."""
        self.more = True
        """Whether a page may follow."""
        self._store = store
        self._schema_version = store.schema.version
        self._at = at
        if spec.limit is not None and not spec.predicates:
            rows_max = max(1, min(rows_max, spec.limit))  # An engine may make all rows that it is asked for.
        self._rows_wanted = rows_max
        self._rows_max = min(rows_max, FIRST_PAGE_ROWS_MAX)
        self._cursor: Cursor | None = None

    def serves(self, store: TabletStore) -> bool:
        """Whether a scan of ``store`` that begins now would show the same."""
        return store is self._store and store.schema.version == self._schema_version

    def next(self) -> Frames:
        """Read the next page and encode it: its ``ScanPage``, its rows if it has any, and the footer of their file.

        Raises:
            TooOld, SchemaMismatch: see ``TabletStore.scan``.
            Corrupt: what is stored is damaged.
        """
        piece = self._next_stored()
        if piece is not None:
            return self._page_of(piece)
        rows, after = self._next_rows()
        size_bytes = self._size_bytes(rows)
        while rows is not None and len(rows) > 1 and size_bytes > PAGE_BYTES_MAX:
            self._rows_max = max(1, min(len(rows) - 1, len(rows) * PAGE_BYTES_MAX // size_bytes))
            self.close()  # A cursor does not go back: another one begins where this page does.
            rows, after = self._next_rows()
            size_bytes = self._size_bytes(rows)
        found = 0 if rows is None else len(rows)
        if size_bytes:
            # By their average, for a page may have ended early; half as many as might fit, lest the next one has none.
            self._rows_max = max(
                1, min(2 * self._rows_max, self._rows_wanted, found * PAGE_BYTES_MAX // 2 // size_bytes)
            )
        page = self._went_on(found, after)
        return [page, encoded_rows(rows)] if rows is not None and found else [page]

    def _page_of(self, piece: StoredPage) -> Frames:
        """The page of rows as they are stored; the file's footer with it, unless it is known."""
        assert self._cursor is not None
        known, self.file = self.file, piece.stored.file
        frames: Frames = [b"".join(piece.data), *([] if known == self.file else [piece.footer()])]
        return [self._went_on(piece.row_count, self._cursor.resume_token, piece.stored), *frames]

    def _went_on(self, found: int, after: bytes | None, stored: StoredRows | None = None) -> bytes:
        """Take note of so many rows, and say so."""
        limit = None if self.spec.limit is None else self.spec.limit - found
        self.spec = msgspec.structs.replace(self.spec, after=after, limit=limit)
        self.more = after is not None and (limit is None or limit > 0)
        if not self.more:
            self.close()
        return encode(ScanPage(self._at, self._schema_version, found, after, stored))

    def close(self) -> None:
        """Let go of the snapshot. Closing twice is harmless."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()

    def _next_stored(self) -> StoredPage | None:
        """The next rows as they are stored, if whoever asks can read them, and the engine has them so."""
        if self.file is None:
            return None
        cursor = self._opened()
        if not isinstance(cursor, StoredRowsCursor):
            return None
        first = self.spec.after is None
        return cursor.next_stored(self._rows_max if first else self._rows_wanted, PAGE_BYTES_MAX)

    def _opened(self) -> Cursor:
        if self._cursor is None:
            self._cursor = self._store.scan(self.spec, self._at)
        return self._cursor

    def _next_rows(self) -> tuple[RowBatch | None, bytes | None]:
        """The next rows, if any, and the token behind which more may come."""
        cursor = self._opened()
        for looked in count(1):
            rows = cursor.next_batch(self._rows_max)
            token = None if rows is None else cursor.resume_token
            # Without rows a page may end where its token leads on, and nowhere else: it would be taken for the last.
            if rows is None or len(rows) or (looked >= EMPTY_BATCHES_MAX and token not in (None, self.spec.after)):
                break
        return rows, token

    def _size_bytes(self, rows: RowBatch | None) -> int:
        """Bytes of the values on a page; a point read is spared the sum."""
        return 0 if rows is None or self._rows_wanted == 1 else rows.nbytes


class _OpenScan:
    """A scan between two pages: ``ahead`` is the next one once it was read, ``waiter`` who asked for it before."""

    __slots__ = ("ahead", "dropped", "key", "number", "reader", "timer", "waiter")

    def __init__(self, number: int, reader: PageSource) -> None:
        self.number = number
        self.reader = reader
        self.ahead: Frames | None = None
        self.waiter: Done | None = None
        self.timer: Timer | None = None
        self.key = b""
        self.dropped = False


class Pages:
    """Reads pages on a node's pool for scans. Used on the event loop."""

    def __init__(self, node: Node, reader_of: ReaderOf) -> None:
        self._node = node
        self._reader_of = reader_of
        self._numbers = count()
        self._kept: dict[bytes, _OpenScan] = {}

    def read(self, sender: NodeId, store: TabletStore, asked: ScanRequest, at: int, done: Done) -> None:
        """Give ``done`` the frames of a page, or what went wrong.

        Args:
            sender: who asks.
            store: of the replica that serves.
            asked: the request, whose ``rows_max`` is in range.
            at: hybrid timestamp that the replica may serve.
        """
        scan = self._take(_key(sender, asked, asked.spec, at, asked.file))
        if scan is not None and not scan.reader.serves(store):
            self._drop(scan)
            scan = None
        given = partial(self._deliver, sender, asked, at, done)
        if scan is None:
            scan = _OpenScan(next(self._numbers), self._reader_of(store, asked, at))
            scan.waiter = partial(given, scan)
            self._read_on(scan)
        elif scan.ahead is None:
            scan.waiter = partial(given, scan)
        else:
            ahead, scan.ahead = scan.ahead, None
            given(scan, ahead)

    def stop(self) -> None:
        """Let go of everything."""
        while self._kept:
            self._drop(self._kept.pop(next(iter(self._kept))))

    def _deliver(
        self, sender: NodeId, asked: ScanRequest, at: int, done: Done, scan: _OpenScan, found: Frames | Exception
    ) -> None:
        done(found)
        if isinstance(found, Exception) or not scan.reader.more:
            scan.reader.close()
            return
        self._keep(_key(sender, asked, scan.reader.spec, at, scan.reader.file), scan)
        self._read_on(scan)

    def _read_on(self, scan: _OpenScan) -> None:
        self._node.scans.run(f"scan/{scan.number}", scan.reader.next, partial(self._arrived, scan))

    def _arrived(self, scan: _OpenScan, found: Frames | Exception) -> None:
        waiter, scan.waiter = scan.waiter, None
        if waiter is not None:
            waiter(found)
        elif scan.dropped:
            scan.reader.close()
        elif isinstance(found, Exception):
            # Whoever asks for this page opens a cursor, and is told what is wrong then.
            self._take(scan.key)
            scan.reader.close()
        else:
            scan.ahead = found

    def _keep(self, key: bytes, scan: _OpenScan) -> None:
        same = self._take(key)
        if same is not None:
            self._drop(same)
        elif len(self._kept) >= KEPT_MAX:
            oldest = self._take(next(iter(self._kept)))
            assert oldest is not None
            self._drop(oldest)
        turns = self._node.turns
        scan.key, self._kept[key] = key, scan
        scan.timer = turns.call_at(turns.now_us() + KEEP_US, partial(self._expire, scan))

    def _take(self, key: bytes) -> _OpenScan | None:
        scan = self._kept.pop(key, None)
        if scan is not None and scan.timer is not None:
            scan.timer.cancel()
        return scan

    def _expire(self, scan: _OpenScan) -> None:
        if self._kept.get(scan.key) is scan:
            del self._kept[scan.key]
            self._drop(scan)

    def _drop(self, scan: _OpenScan) -> None:
        """Close a scan that nobody waits for; one whose next page is being read closes when it was."""
        if scan.timer is not None:
            scan.timer.cancel()
        scan.dropped = True
        if scan.ahead is not None:
            scan.ahead = None
            scan.reader.close()


def encoded_rows(rows: RowBatch) -> Buffer:
    """The Arrow message of some rows. Not by ``to_ipc``, whose bytes are a copy.

    In memory of the C library, which keeps it for the next page. Arrow's allocator gives megabytes back to the system
    soon, and to get them anew, page by page, costs more than all else that is done for the message."""
    import pyarrow as pa

    return memoryview(rows.arrow.serialize(memory_pool=pa.system_memory_pool())).cast("B")


def _key(sender: NodeId, asked: ScanRequest, spec: ScanSpec, at: int, file: bytes | None) -> bytes:
    """What tells the request for one page from every other."""
    request = ScanRequest(asked.tablet_id, spec, at, asked.rows_max, file=file, since=asked.since)
    return sender.encode() + b"\0" + encode(request)
