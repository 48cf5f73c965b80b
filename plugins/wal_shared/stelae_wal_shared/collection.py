"""Collects entries, drops logs, and removes segments; moves the live entries out of sparse segments.

A segment can be removed once no log has an entry in it. The record that made it so (a base, a drop, a replacement or a
move) is durable before the file is removed (durability rule 4). The last segment is never removed, because its head has
the state of all logs. A higher number may have been drawn for a segment that could not be made.

A few entries of an idle log would pin a whole segment. So live entries of closed segments that are mostly dead are
written once more at the tail. Such a record voids nothing and only changes where the entry is. The bytes moved since
the start are at most ``move_percent_max`` of the bytes appended, and one call moves at most ``move_bytes_max``. Entries
of a log that has ended never move (``EngineState.expendable``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import OpId
from stelae.spi.log import Entry
from stelae_wal_shared.commit import Committer
from stelae_wal_shared.config import SharedConfig
from stelae_wal_shared.control_records import write_control
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.format import RECORD_BYTES, RecordKind
from stelae_wal_shared.group import RecordGroup
from stelae_wal_shared.reader import read_from
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tablet_log import SharedTabletLog
from stelae_wal_shared.tail import LogTail


class EntriesToMove(NamedTuple):
    """Consecutive entries of one log that are to be moved."""

    log: SharedTabletLog
    entries: list[Entry]


class SegmentCollector:
    """Removes entries, logs and segments. One caller at a time: see ``stelae.spi.wal``.

    Attributes:
        moved_entries: number of entries that were moved since the start.
        moved_bytes: length of their records, bodies included.
        removed: number of segments that were removed since the start.
    """

    def __init__(self, state: EngineState, config: SharedConfig, tail: LogTail, committer: Committer) -> None:
        self._state = state
        self._config = config
        self._tail = tail
        self._committer = committer
        self.moved_entries = 0
        self.moved_bytes = 0
        self.removed = 0

    def collect(self, log: SharedTabletLog, upto: int) -> OpId:
        """Collect every entry up to ``upto``; return the new base.

        Raises:
            StorageError: the base is not durable, and nothing was removed.
        """
        upto = min(upto, log.last.index)
        if upto > log.base.index:
            base = log.op_id_at(upto)
            write_control(self._state, self._tail, self._committer, log, RecordKind.BASE, base)
            with self._state.lock:
                if base.index <= log.last.index:  # A reader may have found damage meanwhile.
                    log.collect(base)
        self.sweep()
        self._empty_sparse_segments()
        return log.base

    def drop(self, log: SharedTabletLog) -> None:
        """Remove a log, durably.

        Raises:
            StorageError: the log still exists.
        """
        write_control(self._state, self._tail, self._committer, log, RecordKind.DROP, log.last)
        with self._state.lock:
            log.release()
            del self._state.logs[log.name]
            for segment in self._state.segments.values():
                if segment.index is not None:
                    segment.index.forget(log.number)
        self.sweep()

    def sweep(self) -> None:
        """Remove the segments that no log needs."""
        state = self._state
        dead = [one for one in state.expendable() if not one.live]
        if not dead:
            return
        try:
            self._tail.sync()
        except (StorageError, OSError) as error:
            self._committer.fail_all(error, [])
            return
        for segment in dead:
            state.remove(segment)
            self.removed += 1
            # The next start removes a file that remains.
            with suppress(OSError, StorageError):
                state.files.remove(segment.path)

    # -- moving ----------------------------------------------------------------------------------

    def _empty_sparse_segments(self) -> None:
        """Move live entries out of the sparsest segments, within the limits."""
        budget = min(self._config.move_bytes_max, self._allowance())
        percent = self._config.live_percent_max
        writer = self._tail.writer
        sparse = [
            one
            for one in self._state.expendable()
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
        """Move entries out of a segment until it is empty or the budget is used up; return the bytes that are spent.

        The result is 0 if no entry of the segment can be read now or is small enough to be moved at all. It is the
        whole budget if the budget is too small for the next entry, or if moving failed."""
        batch: list[EntriesToMove] = []
        spent, stuck = 0, budget >= self._config.move_bytes_max
        for log in list(self._state.logs.values()):
            for extent in [one for one in log.extents if one.segment is segment]:
                try:
                    for entries in self._within_budget(log, extent.first, extent.end, budget - spent):
                        batch.append(EntriesToMove(log, entries))
                        spent += _bytes_of(entries)
                except (StorageError, OSError):
                    # If this is damage, the log has recorded it by now and ends before it.
                    stuck = True
        if not batch:
            return 0 if stuck else budget
        return spent if self._move(batch, spent) else budget

    def _within_budget(self, log: SharedTabletLog, first: int, end: int, budget: int) -> Iterator[list[Entry]]:
        """Read a range as far as the budget reaches.

        Raises:
            StorageError, OSError: the range cannot be read, or is gone.
        """
        while first < end:
            entries = _within(read_from(self._state, log, first, end, budget), budget)
            if not entries:
                return
            yield entries
            budget -= _bytes_of(entries)
            first += len(entries)

    def _move(self, batch: list[EntriesToMove], size: int) -> bool:
        """Write entries once more with one sync, and record their new segment; return false if that failed."""
        full = self._committer.keep_full_segment
        try:
            writer = self._tail.writer_for(size)
            full = self._committer.close_full_segment
            # A reader may have found damage meanwhile. The head of a new segment says so, and recovery skips the move.
            batch = [one for one in batch if not one.log.ended]
            if not batch:
                return True
            group = RecordGroup(writer.segment.nonce, writer.end, writer.synced)
            orders: dict[int, int] = {}
            for log, entries in batch:
                order = orders.get(log.number, log.order + 1)
                group.add_entries(int(RecordKind.MOVED), log.number, order, entries, 0)
                orders[log.number] = order + len(entries)
            writer.write(group.buffers(), group.size, sync=True)
        except Full:
            # No log fails, because none has lost an entry.
            full([])
            return False
        except (StorageError, OSError) as error:
            self._committer.fail_all(error, [])
            return False
        with self._state.lock:
            at = 0
            for log, entries in batch:
                _publish(writer.segment, log, entries, group.offsets[at : at + len(entries)])
                at += len(entries)
            writer.segment.end = writer.end
        self._state.mark_all_durable()
        self.moved_bytes += sum(_bytes_of(entries) for _, entries in batch)
        self.moved_entries += sum(len(entries) for _, entries in batch)
        return True


def _publish(segment: SharedSegment, log: SharedTabletLog, entries: list[Entry], offsets: list[int]) -> None:
    """Show readers the new position of entries. The caller holds the lock."""
    assert segment.index is not None
    first = entries[0].op_id.index
    for entry, offset in zip(entries, offsets, strict=True):
        segment.index.add(log.number, entry.op_id.index, offset, len(entry.body))
    log.move(first, first + len(entries), segment)
    log.order += len(entries)
    segment.entries += len(entries)


def _bytes_of(entries: list[Entry]) -> int:
    return sum(RECORD_BYTES + len(entry.body) for entry in entries)


def _within(entries: list[Entry], budget: int) -> list[Entry]:
    """Return the first entries whose records fit into the budget."""
    found = []
    for entry in entries:
        budget -= RECORD_BYTES + len(entry.body)
        if budget < 0:
            break
        found.append(entry)
    return found
