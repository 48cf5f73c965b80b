"""Keeps scans open between their pages, and reads each scan's next page ahead.

A request for a page contains everything that the scan needs to continue. So any replica serves any page, and a server
may drop an open scan at any time. But opening a cursor is expensive: a columnar engine decodes row groups that span
many pages. So a cursor that has more rows stays open for ``KEEP_US``, and the next page is read at once: the client
receives one page while the server reads the next.

An open scan serves only the request that a client forms from the page before: same sender, tablet, snapshot, columns,
filters, remaining limit and known file, behind that page's last key. Any other request opens its own cursor. A cursor
shows its snapshot whatever is applied, compacted or deleted meanwhile (contract of stores, 4). An open scan is not used
for another store, as after a restart of the replica, nor under another schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TypeAlias

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.protocol.codec import encode
from stelae.protocol.tablet_messages import ScanRequest
from stelae.server.tserver.scan_pages import Frames, PageSource
from stelae.spi.ids import NodeId
from stelae.spi.scan import ScanSpec
from stelae.spi.store import TabletStore

KEEP_US = 2_000_000
"""How long a cursor stays open for the client's next request. Meanwhile its snapshot keeps files from being removed."""

KEPT_MAX = 16
"""The most open cursors. Each holds one page and what its engine has decoded. The oldest cursor is closed first."""

Done: TypeAlias = Callable[[Frames | Exception], None]
"""Gets the frames of a page, or the error that ended the scan."""

ReaderOf: TypeAlias = Callable[[TabletStore, ScanRequest, int], PageSource]
"""Returns the reader of a store at a hybrid timestamp, beginning with the page of a request."""


class _OpenScan:
    """A scan between two pages.

    ``ahead`` has the next page once it is read. ``waiter`` gets the page instead if a client has asked for it first."""

    __slots__ = ("ahead", "dropped", "key", "number", "reader", "timer", "waiter")

    def __init__(self, number: int, reader: PageSource) -> None:
        self.number = number
        self.reader = reader
        self.ahead: Frames | None = None
        self.waiter: Done | None = None
        self.timer: Timer | None = None
        self.key = b""
        self.dropped = False


class OpenScans:
    """Reads pages on a node's pool for scans, and keeps the scans open in between. Used on the event loop.

    Args:
        node: its pool for scans and its timers.
        reader_of: makes the reader of a new scan.
    """

    def __init__(self, node: Node, reader_of: ReaderOf) -> None:
        self._node = node
        self._reader_of = reader_of
        self._numbers = count()
        self._open: dict[bytes, _OpenScan] = {}  #: By the request for the next page, oldest first.

    def read(self, sender: NodeId, store: TabletStore, asked: ScanRequest, at: int, done: Done) -> None:
        """Read a page, and give ``done`` its frames or the error.

        Args:
            sender: the node that asks.
            store: the store of the replica that serves the page.
            asked: the request; its ``rows_max`` is in range.
            at: hybrid timestamp at which the replica may serve the page.
        """
        scan = self._take(_key(sender, asked, asked.spec, at, asked.file))
        if scan is not None and not scan.reader.serves(store):
            self._drop(scan)
            scan = None
        deliver = partial(self._deliver, sender, asked, at, done)
        if scan is None:
            scan = _OpenScan(next(self._numbers), self._reader_of(store, asked, at))
            scan.waiter = partial(deliver, scan)
            self._read_next(scan)
        elif scan.ahead is None:
            scan.waiter = partial(deliver, scan)
        else:
            ahead, scan.ahead = scan.ahead, None
            deliver(scan, ahead)

    def stop(self) -> None:
        """Close all scans."""
        while self._open:
            self._drop(self._open.pop(next(iter(self._open))))

    def _deliver(
        self, sender: NodeId, asked: ScanRequest, at: int, done: Done, scan: _OpenScan, found: Frames | Exception
    ) -> None:
        done(found)
        if isinstance(found, Exception) or not scan.reader.more:
            scan.reader.close()
            return
        self._keep(_key(sender, asked, scan.reader.spec, at, scan.reader.file), scan)
        self._read_next(scan)

    def _read_next(self, scan: _OpenScan) -> None:
        self._node.scans.run(f"scan/{scan.number}", scan.reader.next, partial(self._arrived, scan))

    def _arrived(self, scan: _OpenScan, found: Frames | Exception) -> None:
        waiter, scan.waiter = scan.waiter, None
        if waiter is not None:
            waiter(found)
        elif scan.dropped:
            scan.reader.close()
        elif isinstance(found, Exception):
            # The client's request for this page opens a new cursor, and that cursor reports the error.
            self._take(scan.key)
            scan.reader.close()
        else:
            scan.ahead = found

    def _keep(self, key: bytes, scan: _OpenScan) -> None:
        same = self._take(key)
        if same is not None:
            self._drop(same)
        elif len(self._open) >= KEPT_MAX:
            oldest = self._take(next(iter(self._open)))
            assert oldest is not None
            self._drop(oldest)
        turns = self._node.turns
        scan.key, self._open[key] = key, scan
        scan.timer = turns.call_at(turns.now_us() + KEEP_US, partial(self._expire, scan))

    def _take(self, key: bytes) -> _OpenScan | None:
        scan = self._open.pop(key, None)
        if scan is not None and scan.timer is not None:
            scan.timer.cancel()
        return scan

    def _expire(self, scan: _OpenScan) -> None:
        if self._open.get(scan.key) is scan:
            del self._open[scan.key]
            self._drop(scan)

    def _drop(self, scan: _OpenScan) -> None:
        """Close a scan whose next page no client waits for. If the page is being read, the scan closes after that."""
        if scan.timer is not None:
            scan.timer.cancel()
        scan.dropped = True
        if scan.ahead is not None:
            scan.ahead = None
            scan.reader.close()


def _key(sender: NodeId, asked: ScanRequest, spec: ScanSpec, at: int, file: bytes | None) -> bytes:
    """Return a key that is equal only for the same request of the same sender."""
    request = ScanRequest(asked.tablet_id, spec, at, asked.rows_max, file=file, since=asked.since)
    return sender.encode() + b"\0" + encode(request)
