"""Keeps scans open between their pages, and reads each scan's next page ahead.

A request for a page contains everything that the scan needs to continue. So any replica serves any page, and a server
may drop an open scan at any time. But opening a cursor is expensive: a columnar engine decodes row groups that span
many pages. So a cursor that has more rows stays open for ``KEEP_US``, and the next page is read at once: the client
receives one page while the server reads the next.

An open scan serves only the request that a client forms from the page before: same sender, tablet, snapshot, columns,
filters, remaining limit and known file, behind that page's last key. Any other request opens its own cursor. A cursor
keeps showing its snapshot during applies, compactions and deletions (contract of stores, 4). An open scan is not used
for another store, for example after a restart of the replica, nor under another schema.

The first page of a scan with a limit is read on the event loop if the store has its rows in memory and they are few:
passing the work to a thread would take longer (ADR 88).

A client that waits too long gives its request up and repeats it. A read whose request was given up before a thread
began it is skipped. A request that is repeated before its page is read replaces the earlier one. If the page is read
already, it is returned at once. This needs the snapshot in the request: a linearizable read chooses a new one each
time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import NamedTuple, TypeAlias

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.protocol.codec import encode
from stelae.protocol.tablet_messages import ScanRequest
from stelae.server.frames import Frames
from stelae.server.tserver.scan_pages import PageSource
from stelae.spi.ids import NodeId
from stelae.spi.scan import ScanSpec
from stelae.spi.store import TabletStore

KEEP_US = 2_000_000
"""How long a cursor stays open for the client's next request. Meanwhile its snapshot keeps files from being removed."""

KEPT_MAX = 16
"""The most open cursors. Each holds one page and what its engine has decoded. The oldest cursor is closed first."""

SHORT_US = 4_000
"""How long the event loop reads short scans before it turns to other work."""

Done: TypeAlias = Callable[[Frames | Exception], None]
"""Gets the frames of a page, or the error that ended the scan."""

ReaderOf: TypeAlias = Callable[[TabletStore, ScanRequest, int], PageSource]
"""Returns the reader of a store at a hybrid timestamp, beginning with the page of a request."""


class _Waiter(NamedTuple):
    """A request that waits for its page."""

    sender: NodeId
    asked: ScanRequest
    at: int
    done: Done
    is_open: Callable[[], bool]  #: Returns whether its client still waits. Any thread may call it.


class _OpenScan:
    """A scan between two pages, or whose next page a client waits for.

    ``ahead`` has the next page once it is read. ``waiter`` gets the page instead if a client has asked for it first.
    ``key`` is that of the request for the next page."""

    __slots__ = ("ahead", "dropped", "key", "number", "reader", "timer", "waiter")

    def __init__(self, number: int, reader: PageSource) -> None:
        self.number = number
        self.reader = reader
        self.ahead: Frames | None = None
        self.waiter: _Waiter | None = None
        self.timer: Timer | None = None
        self.key = b""
        self.dropped = False

    def next(self) -> Frames | None:
        """Read the next page; ``None``: it was not read, because no client wants it any more. Blocks."""
        waiter = self.waiter
        is_wanted = not self.dropped if waiter is None else waiter.is_open()
        return self.reader.next() if is_wanted else None

    def next_inline(self) -> Frames | None:
        """As ``next``, but without blocking; ``None``: the page was not read."""
        return self.reader.next_inline() if self.waiter is None or self.waiter.is_open() else None


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
        self._short: deque[_OpenScan] = deque()  #: New scans with a limit. The event loop may read them.
        self._open: dict[bytes, _OpenScan] = {}  #: By the request for the next page, oldest first.
        self._awaited: dict[bytes, _OpenScan] = {}  #: Those with a waiter, by its request.

    def read(
        self, sender: NodeId, store: TabletStore, asked: ScanRequest, at: int, done: Done, is_open: Callable[[], bool]
    ) -> None:
        """Read a page, and give ``done`` its frames or the error. It is not called if the client gives up before.

        Args:
            sender: the node that asks.
            store: the store of the replica that serves the page.
            asked: the request; its ``rows_max`` is in range.
            at: hybrid timestamp at which the replica may serve the page.
            done: gets the page.
            is_open: returns whether the client still waits. It is called on the threads of the pool, too.
        """
        waiter = _Waiter(sender, asked, at, done, is_open)
        key = _key(sender, asked, asked.spec, at, asked.file)
        scan = self._given_up(key) or self._take(key)
        if scan is not None and not scan.reader.serves(store):
            self._drop(scan)
            scan = None
        if scan is None:
            scan = _OpenScan(next(self._numbers), self._reader_of(store, asked, at))
            self._wait(key, scan, waiter)
            self._begin(scan)
        elif scan.ahead is None:
            self._wait(key, scan, waiter)
        else:
            ahead, scan.ahead = scan.ahead, None
            self._deliver(waiter, scan, ahead)

    def _begin(self, scan: _OpenScan) -> None:
        """Read the first page: on the event loop, at the end of its turn, if it has few rows in memory."""
        if scan.reader.spec.limit is None:
            self._read_next(scan)
            return
        self._short.append(scan)
        if len(self._short) == 1:
            self._node.turns.defer(self._read_short)

    def _read_short(self) -> None:
        """Read short scans, but not for long: other work of the node waits meanwhile."""
        turns = self._node.turns
        end_us = turns.now_us() + SHORT_US
        while self._short:
            if turns.now_us() >= end_us:
                turns.call_at(end_us, self._read_short)
                return
            scan = self._short.popleft()
            try:
                found: Frames | Exception | None = scan.next_inline()
            except Exception as error:
                found = error
            if found is None:
                self._read_next(scan)
            else:
                self._arrived(scan, found)

    def stop(self) -> None:
        """Close all scans."""
        while self._open:
            self._drop(self._open.pop(next(iter(self._open))))

    def _wait(self, key: bytes, scan: _OpenScan, waiter: _Waiter) -> None:
        scan.key, scan.waiter = key, waiter
        self._awaited.setdefault(key, scan)  # Of two equal requests that are both open, one can be repeated.

    def _given_up(self, key: bytes) -> _OpenScan | None:
        """Return the scan whose page is under way for an equal request that was given up, without that request."""
        scan = self._awaited.get(key)
        if scan is None or (scan.waiter is not None and scan.waiter.is_open()):
            return None
        del self._awaited[key]
        scan.waiter = None
        return scan

    def _deliver(self, waiter: _Waiter, scan: _OpenScan, found: Frames | Exception) -> None:
        sender, asked, at, done, _ = waiter
        done(found)
        if isinstance(found, Exception) or not scan.reader.more:
            scan.reader.close()
            return
        self._keep(_key(sender, asked, scan.reader.spec, at, scan.reader.file), scan)
        self._read_next(scan)

    def _read_next(self, scan: _OpenScan) -> None:
        self._node.scans.run(f"scan/{scan.number}", scan.next, partial(self._arrived, scan))

    def _arrived(self, scan: _OpenScan, found: Frames | Exception | None) -> None:
        waiter, scan.waiter = scan.waiter, None
        if waiter is not None:
            self._arrived_for(waiter, scan, found)
        elif scan.dropped:
            scan.reader.close()
        elif isinstance(found, Exception):
            # The client's request for this page opens a new cursor, and that cursor reports the error.
            self._take(scan.key)
            scan.reader.close()
        else:
            scan.ahead = found

    def _arrived_for(self, waiter: _Waiter, scan: _OpenScan, found: Frames | Exception | None) -> None:
        if self._awaited.get(scan.key) is scan:
            del self._awaited[scan.key]
        if isinstance(found, Exception):
            self._deliver(waiter, scan, found)  # Also if it was given up: damage must be noted.
        elif not waiter.is_open():
            if found is not None and waiter.asked.at is not None:
                scan.ahead = found
                self._keep(scan.key, scan)
            else:
                scan.reader.close()
        elif found is None:  # It was repeated after the thread had skipped it.
            self._wait(scan.key, scan, waiter)
            self._read_next(scan)
        else:
            self._deliver(waiter, scan, found)

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
    request = ScanRequest(asked.tablet_id, spec, at, asked.rows_max, file=file, since=asked.since, lz4=asked.lz4)
    return sender.encode() + b"\0" + encode(request)
