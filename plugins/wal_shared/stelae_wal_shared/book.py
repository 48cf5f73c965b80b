"""What the engine knows: every log, every segment, and the indexes that are in memory.

Changed by one caller at a time, under ``lock``, which readers take to look things up. It is never
held over a read or a write of a file. (A reader changes two things: it adds an index that it has
loaded, and it notes damage that it met.)"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import closing

from stelae.spi.errors import CallerError, Corrupt, StelaeError
from stelae.spi.ids import LogId
from stelae.spi.services import Files
from stelae_wal_shared.footer import load_footer
from stelae_wal_shared.image import take_image
from stelae_wal_shared.index import SharedSegmentIndex
from stelae_wal_shared.scan import index_by_scan
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tablet_log import SharedTabletLog


class Book:
    """See the module.

    Attributes:
        logs: every log by its name.
        segments: every segment that is needed, by its number, in order; also the open one.
        newest: the highest number that was drawn for a segment, made or not.
        next_log: number of the log that is created next.
        dirty: logs with entries that are not durable yet.
        kept: while a log is damaged, segments up to this number stay; none that came later has anything of it.
    """

    def __init__(self, files: Files, directory: str, indexes_max: int) -> None:
        self.files = files
        self.directory = directory
        self.lock = threading.Lock()
        self.logs: dict[LogId, SharedTabletLog] = {}
        self.segments: dict[int, SharedSegment] = {}
        self.newest = 0
        self.next_log = 1
        self.dirty: dict[LogId, SharedTabletLog] = {}
        self.kept = 0
        self._indexes_max = indexes_max
        self._loaded: OrderedDict[int, SharedSegment] = OrderedDict()

    @property
    def last(self) -> int:
        """Number of the last segment that was made; 0 if there is none."""
        return max(self.segments, default=0)

    def known(self, name: LogId) -> SharedTabletLog:
        """The log of a name.

        Raises:
            CallerError: there is none.
        """
        log = self.logs.get(name)
        if log is None:
            raise unknown(name)
        return log

    def image(self, *, without: SharedSegment | None = None) -> bytes:
        """An image of everything; a segment's own footer leaves that segment out."""
        with self.lock:
            segments = [one for one in self.segments.values() if one is not without]
            return take_image(self.directory, self.next_log, segments, self.logs.values())

    def settle(self) -> None:
        """Note that everything written is durable."""
        with self.lock:
            for log in self.dirty.values():
                log.durable = log.last
            self.dirty.clear()

    def add(self, segment: SharedSegment) -> None:
        """Add the segment that takes records from now on."""
        with self.lock:
            self.segments[segment.number] = segment

    def sealed(self, segment: SharedSegment) -> None:
        """Note that a footer has the segment's index."""
        with self.lock:
            segment.footer = True
            segment.index = None

    def remove(self, segment: SharedSegment) -> None:
        """Forget a segment that no log needs."""
        with self.lock:
            del self.segments[segment.number]
            self._loaded.pop(segment.number, None)

    def load(self, segment: SharedSegment) -> None:
        """Have the index of a segment in memory. Any thread, without the lock.

        Raises:
            Corrupt: neither the footer nor the records tell where its entries stand.
            FileNotFoundError: the segment is gone.
            StorageError: it cannot be read.
        """
        index = load_footer(self.files, segment.path, segment.nonce)
        if index is None:
            index = self._scanned(segment)
        with self.lock:
            if segment.index is None and self.segments.get(segment.number) is segment:
                segment.index = index
                self._loaded[segment.number] = segment
            while len(self._loaded) > self._indexes_max:
                _, oldest = self._loaded.popitem(last=False)
                oldest.index = None

    def expendable(self) -> list[SharedSegment]:
        """Segments but the last that may go once they are empty: all, or while a log is damaged those that came later.

        What stands behind the damage may be all that is left of what was acknowledged. A damaged log takes no more, so
        it has nothing in a segment that was begun afterwards."""
        kept = self.kept if any(log.damage is not None for log in self.logs.values()) else 0
        return [one for one in self.segments.values() if one.number > kept and one.number != self.last]

    def used(self, segment: SharedSegment) -> None:
        """Keep an index longer than others; the caller holds the lock."""
        if segment.number in self._loaded:
            self._loaded.move_to_end(segment.number)

    def _scanned(self, segment: SharedSegment) -> SharedSegmentIndex:
        with closing(self.files.open(segment.path)) as file:
            data = file.pread(segment.end - segment.start, segment.start)
        return index_by_scan(data, segment.start, segment.nonce)

    def note_damage(self, log: SharedTabletLog, index: int, error: Corrupt) -> StelaeError:
        """Note damage at an index that was read, unless the log no longer has it; return the error."""
        with self.lock:
            if log.base.index < index <= log.last.index:
                last_good = log.op_id_at(index - 1)
                log.note_damage(error.path, error.offset or 0, error.fact, last_good)
                self.kept = self.newest
                self.dirty.pop(log.name, None)
            return log.corrupt() or past_the_end(log, index)


def unknown(name: LogId) -> CallerError:
    """The error for a log that does not exist."""
    return CallerError(f"log {name} does not exist; it has to be created first")


def past_the_end(log: SharedTabletLog, index: int) -> StelaeError:
    """The error for an index above the last one."""
    return log.corrupt() or CallerError(f"log {log.name} ends at {log.last}: there is no entry {index}")
