"""The state of the engine in memory: every log, every segment, and the indexes that are loaded.

One caller at a time changes it, under ``lock``. Readers take the lock for lookups. It is never held while a file is
read or written. A reader makes two kinds of changes: it adds an index that it has loaded, and it records damage that it
found."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import closing

from stelae.spi.errors import CallerError, Corrupt, StelaeError, StorageError
from stelae.spi.ids import LogId
from stelae.spi.services import Files
from stelae_wal_shared.footer import load_footer
from stelae_wal_shared.image import take_image
from stelae_wal_shared.index import SharedSegmentIndex
from stelae_wal_shared.scan import index_by_scan
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tablet_log import SharedTabletLog


class EngineState:
    """The state of the engine: see the module.

    Attributes:
        files: the disk.
        directory: of the engine.
        lock: see the module.
        logs: every log, by its name.
        segments: every segment that is needed, by its number, in order. The open segment is one of them.
        newest: the highest number that was drawn for a segment, even if the segment could not be made.
        next_log: number of the log that is created next.
        dirty: logs with entries that are not durable yet.
        retained_max: while a log has ``ended``, segments up to this number stay. Later segments have no entry of it.
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
        self.retained_max = 0
        self._indexes_max = indexes_max
        self._loaded: OrderedDict[int, SharedSegment] = OrderedDict()

    @property
    def last(self) -> int:
        """Number of the last segment that exists; 0 if there is none."""
        return max(self.segments, default=0)

    def known(self, name: LogId) -> SharedTabletLog:
        """Return the log with this name.

        Raises:
            CallerError: there is no such log.
        """
        log = self.logs.get(name)
        if log is None:
            raise unknown_log(name)
        return log

    def image(self, *, without: SharedSegment | None = None) -> bytes:
        """Return an image of all logs and segments. The footer of a segment leaves that segment out."""
        with self.lock:
            segments = [one for one in self.segments.values() if one is not without]
            return take_image(self.directory, self.next_log, segments, self.logs.values())

    def retain_all(self) -> None:
        """Retain every present segment, because a log has ``ended``. The caller holds the lock."""
        self.retained_max = self.newest

    def mark_all_durable(self) -> None:
        """Record that everything that was written is durable."""
        with self.lock:
            for log in self.dirty.values():
                log.durable = log.last
            self.dirty.clear()

    def add(self, segment: SharedSegment) -> None:
        """Add the segment that takes records from now on."""
        with self.lock:
            self.segments[segment.number] = segment

    def mark_sealed(self, segment: SharedSegment) -> None:
        """Record that the segment's index is in its footer."""
        with self.lock:
            segment.footer = True
            segment.index = None

    def remove(self, segment: SharedSegment) -> None:
        """Remove a segment that no log needs."""
        with self.lock:
            del self.segments[segment.number]
            self._loaded.pop(segment.number, None)

    def load(self, segment: SharedSegment) -> None:
        """Load the index of a segment into memory. Any thread, without the lock.

        Raises:
            Corrupt: neither the footer nor the records give the positions of its entries.
            FileNotFoundError: the segment was removed.
            StorageError: the segment cannot be read.
        """
        try:
            index = load_footer(self.files, segment.path, segment.nonce)
        except StorageError as error:
            if type(error) is not StorageError:
                raise
            index = None  # The disk did not return the footer. The records say the same.
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
        """Return the segments that may be removed once they have no live entry.

        The last segment always stays. While a log is damaged, segments up to ``retained_max`` stay too, because the
        data behind the damage may be all that is left of acknowledged entries. A damaged log takes no appends, so it
        has no entries in segments that were begun later.

        The same holds for a log whose sync has failed. The head of the next segment records it as damaged, and recovery
        takes no more entries of it, moved ones included. So its entries must stay where that head says they are."""
        retained_max = self.retained_max if any(log.ended for log in self.logs.values()) else 0
        return [one for one in self.segments.values() if one.number > retained_max and one.number != self.last]

    def touch_index(self, segment: SharedSegment) -> None:
        """Mark an index as used most recently. The caller holds the lock."""
        if segment.number in self._loaded:
            self._loaded.move_to_end(segment.number)

    def _scanned(self, segment: SharedSegment) -> SharedSegmentIndex:
        with closing(self.files.open(segment.path)) as file:
            data = file.pread(segment.end - segment.start, segment.start)
        return index_by_scan(data, segment.start, segment.nonce)

    def note_damage(
        self, log: SharedTabletLog, index: int, error: Corrupt, segment: SharedSegment, offset: int | None = None
    ) -> None:
        """Record damage that a reader met, if the log still has the entry of an index where it was read.

        Return if it has not, and the caller must look the entry up again. It may have been replaced, collected or moved
        meanwhile.

        Args:
            segment: where the entry was read.
            offset: of its record; ``None`` if that is not known.

        Raises:
            Corrupt: the log ends before the entry now.
        """
        with self.lock:
            if not _is_still_there(log, index, segment, offset):
                return
            log.note_damage(error.path, error.offset or 0, error.fact, log.op_id_at(index - 1))
            self.retain_all()
            self.dirty.pop(log.name, None)
        raise error


def _is_still_there(log: SharedTabletLog, index: int, segment: SharedSegment, offset: int | None) -> bool:
    """Say whether the entry of an index is where a reader found it. The caller holds the lock."""
    if not log.base.index < index <= log.last.index or log.extent_of(index).segment is not segment:
        return False
    if offset is None or segment.index is None:
        return True
    spans = segment.index.spans(log.number, index, index + 1, 0)
    return spans is None or spans.offsets[0] == offset


def unknown_log(name: LogId) -> CallerError:
    """Return the error for a log that does not exist."""
    return CallerError(f"log {name} does not exist; it has to be created first")


def past_the_end(log: SharedTabletLog, index: int) -> StelaeError:
    """Return the error for an index above the last one."""
    return log.corrupt() or CallerError(f"log {log.name} ends at {log.last}: there is no entry {index}")
