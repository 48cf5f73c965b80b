"""Letting go of segments: collection, removal, and moving the few live entries of sparse ones.

A segment can go once no log has an entry in it. What made it so, a base, a removal, a replacement or
a move, is durable before the file is removed (durability rule 4). The last segment never goes: its
head tells about all logs. A number may have been drawn for one behind it that could not be made.

A few entries of an idle log would pin a whole segment. So entries of closed segments that are mostly
dead are written once more at the tail, as records that void nothing: where they stand is all that
changes. Bytes moved since the start are at most ``move_percent_max`` of those appended, and one call
moves ``move_bytes_max`` at most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import OpId
from stelae.spi.log import Entry
from stelae_wal_shared.book import Book
from stelae_wal_shared.commit import Committer
from stelae_wal_shared.config import SharedConfig
from stelae_wal_shared.control import write_control
from stelae_wal_shared.format import RECORD_BYTES, RecordKind
from stelae_wal_shared.group import RecordGroup
from stelae_wal_shared.reader import read_from
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tablet_log import SharedTabletLog
from stelae_wal_shared.tail import Tail


class LogShare(NamedTuple):
    """Consecutive entries of one log that are moved."""

    log: SharedTabletLog
    entries: list[Entry]


class SegmentUpkeep:
    """One caller at a time: see ``stelae.spi.wal``.

    Attributes:
        moved_entries, moved_bytes: written once more since the start; bytes with their records.
        removed: segments removed since the start.
    """

    def __init__(self, book: Book, config: SharedConfig, tail: Tail, committer: Committer) -> None:
        self._book = book
        self._config = config
        self._tail = tail
        self._committer = committer
        self.moved_entries = 0
        self.moved_bytes = 0
        self.removed = 0

    def collect(self, log: SharedTabletLog, upto: int) -> OpId:
        """Let every entry up to ``upto`` go; return the new base.

        Raises:
            StorageError: the base is not durable, and nothing was removed.
        """
        upto = min(upto, log.last.index)
        if upto > log.base.index:
            base = log.op_id_at(upto)
            write_control(self._book, self._tail, self._committer, log, RecordKind.BASE, base)
            with self._book.lock:
                if base.index <= log.last.index:  # A reader may have met damage meanwhile.
                    log.collect(base)
        self.sweep()
        self._empty_sparse_segments()
        return log.base

    def drop(self, log: SharedTabletLog) -> None:
        """Remove a log, durably.

        Raises:
            StorageError: it is still there.
        """
        write_control(self._book, self._tail, self._committer, log, RecordKind.DROP, log.last)
        with self._book.lock:
            log.release()
            del self._book.logs[log.name]
            for segment in self._book.segments.values():
                if segment.index is not None:
                    segment.index.forget(log.number)
        self.sweep()

    def sweep(self) -> None:
        """Remove the segments that no log needs."""
        book = self._book
        dead = [one for one in book.expendable() if not one.live]
        if not dead:
            return
        try:
            self._tail.sync()
        except (StorageError, OSError) as error:
            self._committer.fail_all(error, [])
            return
        for segment in dead:
            book.remove(segment)
            self.removed += 1
            # Whatever is left over goes at the next start.
            with suppress(OSError, StorageError):
                book.files.remove(segment.path)

    # -- moving ----------------------------------------------------------------------------------

    def _empty_sparse_segments(self) -> None:
        """Move live entries out of the sparsest segments, within the limits."""
        budget = min(self._config.move_bytes_max, self._allowance())
        percent = self._config.live_percent_max
        writer = self._tail.writer
        sparse = [
            one
            for one in self._book.expendable()
            if (writer is None or one is not writer.segment) and one.live and 100 * one.live <= percent * one.entries
        ]
        for segment in sorted(sparse, key=lambda one: one.live / one.entries):
            budget -= self._move_out(segment, budget)
            if budget <= 0:
                break
        self.sweep()

    def _allowance(self) -> int:
        allowed = self._committer.entry_bytes * self._config.move_percent_max // 100
        return allowed - self.moved_bytes

    def _move_out(self, segment: SharedSegment, budget: int) -> int:
        """Move entries out of a segment until it is empty or the budget used up.

        Returns the bytes: none if nothing of it can be read now, or is small enough ever to be moved; the budget if
        that is too little, or moving failed."""
        batch: list[LogShare] = []
        spent, stuck = 0, budget >= self._config.move_bytes_max
        for log in list(self._book.logs.values()):
            for extent in [one for one in log.extents if one.segment is segment]:
                try:
                    for entries in self._within_budget(log, extent.first, extent.end, budget - spent):
                        batch.append(LogShare(log, entries))
                        spent += _bytes_of(entries)
                except (StorageError, OSError):
                    # If it is damage, the log has noted it by now, and no longer holds the rest.
                    stuck = True
        if not batch:
            return 0 if stuck else budget
        return spent if self._move(batch, spent) else budget

    def _within_budget(self, log: SharedTabletLog, first: int, end: int, budget: int) -> Iterator[list[Entry]]:
        """Read a range as far as the budget reaches.

        Raises:
            StorageError, OSError: it cannot be read, or not any more.
        """
        while first < end:
            entries = _within(read_from(self._book, log, first, end, budget), budget)
            if not entries:
                return
            yield entries
            budget -= _bytes_of(entries)
            first += len(entries)

    def _move(self, batch: list[LogShare], size: int) -> bool:
        """Write entries once more with one sync, and note their new places; false if that failed."""
        try:
            writer = self._tail.writer_for(size)
            group = RecordGroup(writer.segment.nonce, writer.end, writer.synced)
            orders: dict[int, int] = {}
            for log, entries in batch:
                order = orders.get(log.number, log.order + 1)
                group.add_entries(int(RecordKind.MOVED), log.number, order, entries, 0)
                orders[log.number] = order + len(entries)
            writer.write(group.buffers(), group.size, sync=True)
        except Full:
            # No log fails for it: nothing of theirs was taken away.
            self._committer.settle_full([])
            return False
        except (StorageError, OSError) as error:
            self._committer.fail_all(error, [])
            return False
        with self._book.lock:
            at = 0
            for log, entries in batch:
                _publish(writer.segment, log, entries, group.offsets[at : at + len(entries)])
                at += len(entries)
            writer.segment.end = writer.end
        self._book.settle()
        self.moved_bytes += size
        self.moved_entries += sum(len(entries) for _, entries in batch)
        return True


def _publish(segment: SharedSegment, log: SharedTabletLog, entries: list[Entry], places: list[int]) -> None:
    """Let readers see where entries stand now; the caller holds the lock."""
    assert segment.index is not None
    first = entries[0].op_id.index
    for entry, offset in zip(entries, places, strict=True):
        segment.index.add(log.number, entry.op_id.index, offset, len(entry.body))
    log.move(first, first + len(entries), segment)
    log.order += len(entries)
    segment.entries += len(entries)


def _bytes_of(entries: list[Entry]) -> int:
    return sum(RECORD_BYTES + len(entry.body) for entry in entries)


def _within(entries: list[Entry], budget: int) -> list[Entry]:
    """As many of the entries as the budget has bytes for."""
    found = []
    for entry in entries:
        budget -= RECORD_BYTES + len(entry.body)
        if budget < 0:
            break
        found.append(entry)
    return found
