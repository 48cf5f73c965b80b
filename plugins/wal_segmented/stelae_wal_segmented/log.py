"""One log: its segments, its active segment, and its state.

Threads: methods that change a log are called one at a time (``stelae.spi.wal``). ``lock`` guards what readers on other
threads read (``last``, ``base``, ``chain``, ``damage``). It is never held during I/O."""

from __future__ import annotations

import threading
from contextlib import suppress

from stelae.spi.append_check import check_append
from stelae.spi.errors import CallerError, Corrupt, Full, StelaeError, StorageError, SyncFailed
from stelae.spi.ids import LogId, OpId
from stelae.spi.wal import Append, Damage, Durable, Failed, LogState, Outcome
from stelae_wal_segmented.active_segment import ActiveSegment
from stelae_wal_segmented.base_file import BaseRecord, LogUse, write_base
from stelae_wal_segmented.group import EncodedGroup
from stelae_wal_segmented.names import base_name, sequences_of
from stelae_wal_segmented.recovery import RecoveredLog, recover_log
from stelae_wal_segmented.segment import SegmentChain
from stelae_wal_segmented.space import SegmentedContext
from stelae_wal_segmented.writer import SegmentWriter


class TabletLog:
    """A log that was recovered or created. See the module for threads.

    Attributes:
        base: contents of the base file.
        chain: the segments.
        active: the segment that takes entries.
        last: op id of the last entry that readers see.
        durable: op id of the last entry that is known to be durable.
        damage: why the log is corrupt; ``None`` if it is not.
        failed: why the log takes no appends until ``repair``; ``None`` if it does.
    """

    base: BaseRecord
    chain: SegmentChain
    last: OpId
    durable: OpId
    damage: Damage | None

    def __init__(self, context: SegmentedContext, directory: str, log: LogId, found: RecoveredLog) -> None:
        self.context = context
        self.directory = directory
        self.log = log
        self.lock = threading.Lock()
        self.active = ActiveSegment(context, directory, log, self.lock)
        self.failed: Failed | None = None
        self._commit_hint = 0
        self._take_over(found)

    # -- state -----------------------------------------------------------------------------------

    def state(self) -> LogState:
        """Return the state that ``logs`` reports. Any thread."""
        with self.lock:
            return self._state()

    def op_id_at(self, index: int) -> OpId:
        """Return the op id of an index that the log holds, or of the base. The caller holds the lock."""
        return self.base.base if index == self.base.base.index else self.chain.op_id_at(index)

    def corrupt(self) -> StorageError | None:
        """Return the error of a log that is damaged or could not be read when the node started; ``None`` for others."""
        damage = self.damage
        if damage is None:
            return None
        kind = StorageError if damage.unread else Corrupt
        return kind(damage.detail, path=damage.path, offset=damage.offset)

    def note_damage(self, error: Corrupt, last_good: OpId) -> None:
        """Record damage: from now on the log ends before its first damage. Any thread that holds the lock."""
        if self.damage is None or last_good.index < self.damage.last_good.index:
            if last_good.index < self.last.index:
                self.last = last_good
            self.damage = Damage(path=error.path, offset=error.offset or 0, last_good=last_good, detail=error.fact)

    def write_base(self, base: BaseRecord) -> None:
        """Write the base file durably, then show the new record to readers."""
        path = f"{self.directory}/{base_name(self.log.generation)}"
        write_base(self.context.files, path, base)
        with self.lock:
            self.base = base

    def _state(self) -> LogState:
        return LogState(base=self.base.base, last=self.last, commit_hint=self._hint(), damage=self.damage)

    def _hint(self) -> int:
        return min(self._commit_hint, self.last.index)

    def _take_over(self, found: RecoveredLog) -> None:
        self.base = found.base
        self.chain = found.chain
        self.last = self.durable = found.last
        self._commit_hint = found.commit_hint
        self.damage = found.damage

    # -- append ----------------------------------------------------------------------------------

    def append(self, append: Append, *, sync: bool) -> Outcome:
        """Do one append of a commit. An operating error is returned, never raised."""
        refusal = self._refusal(append)
        if refusal is not None:
            return Failed(refusal, self.durable)
        try:
            first_sequence = self.base.first_sequence
            writer = self.active.writer_for(self.chain, first_sequence, self.last, self._hint())
            self._note_newest(writer.segment.header.sequence)
            group = self._encode(writer, append)
            writer.write(group, sync=sync)
        except CallerError as error:
            return Failed(error, self.durable)
        except Corrupt as error:  # The last segment could not be opened again: nothing was changed.
            with self.lock:
                self.note_damage(error, self._before(error.path))
            self.durable = self.last
            return Failed(error, self.durable)
        except (StorageError, OSError) as error:
            return self._fail(error)
        return self._written(writer, append, group, sync=sync)

    def _encode(self, writer: SegmentWriter, append: Append) -> EncodedGroup:
        return writer.encode(append.entries, replace_from=append.replace_from, commit_hint=append.commit_hint)

    def _written(self, writer: SegmentWriter, append: Append, group: EncodedGroup, *, sync: bool) -> Outcome:
        with self.lock:
            damaged = self.corrupt()
            if damaged is None:
                self._publish(writer, append, group.offsets)
        if damaged is not None:  # A reader found damage meanwhile: the log ends before it.
            self.durable = min(self.durable, self.last)
            return Failed(damaged, self.durable)
        if writer.synced == writer.end:
            self.durable = self.last
        elif append.replace_from is not None and append.replace_from <= self.durable.index:
            self.durable = self.op_id_at(append.replace_from - 1)
        return Durable(self.last)

    def sync(self) -> Failed | None:
        """Make every earlier append durable; return the failure if that fails."""
        if self.failed is not None or self.active.writer is None:
            return self.failed
        try:
            self.active.writer.sync()
        except StorageError as error:
            return self._fail(error)
        self.durable = self.last
        return None

    def cool(self) -> None:
        """Release the handle, the prepared file and the index. A failed or damaged log releases only the prepared file.

        Raises:
            StorageError: the active segment could not be closed; the log fails.
        """
        if self.failed is not None or self.damage is not None:
            self.active.drop_spare()
            return
        try:
            self.active.seal(self.chain)
            self._note_end()
        except OSError as error:
            raise self._fail(error).error from error
        except StorageError as error:
            self._fail(error)
            raise
        self.durable = self.last

    def close(self) -> None:
        """Close the active segment. A failed log is left as it is, for recovery."""
        self.cool()
        self.active.abandon()

    def _refusal(self, append: Append) -> StelaeError | None:
        if self.damage is not None:
            return self.corrupt()
        if self.failed is not None:
            return self.failed.error
        fact = check_append(self._state(), append)
        if fact is None and append.replace_from is not None and append.entries:
            before = self.op_id_at(append.replace_from - 1)
            if before.term > append.entries[0].op_id.term:
                fact = f"entry {append.entries[0].op_id} goes back from {before}"
        return CallerError(f"log {self.log}: {fact}") if fact is not None else None

    def _note_newest(self, sequence: int) -> None:
        """Record in the base file that a segment exists, before its first group is written.

        Raises:
            StorageError: the base file cannot be written; the segment takes no entries.
        """
        if sequence > self.base.newest_sequence:
            self.write_base(self.base.changed(newest_sequence=sequence))

    def _note_end(self) -> None:
        """Record the length of the newest segment in the base file. All of the segment is durable.

        Without this record, a closed segment that is truncated later would look like one with a tail that a crash left.

        Raises:
            StorageError: the base file cannot be written.
        """
        newest = self.chain.segments[-1] if self.chain.segments else None
        if newest is None or newest.header.sequence != self.base.newest_sequence:
            return
        if newest.end > self.base.newest_end:
            self.write_base(self.base.changed(newest_end=newest.end))

    def _before(self, path: str) -> OpId:
        """Return the op id of the last entry before the segment with this path. The caller holds the lock."""
        first = next(one.first for one in self.chain.segments if one.path == path)
        return self.op_id_at(max(first - 1, self.base.base.index))

    def _publish(self, writer: SegmentWriter, append: Append, offsets: list[int]) -> None:
        index, runs = writer.index, self.chain.runs
        if append.replace_from is not None:
            index.replace(append.replace_from)
            self.chain.void_from(append.replace_from)
        entries = append.entries
        if entries and entries[0].op_id.term == entries[-1].op_id.term:
            runs.add(*reversed(entries[0].op_id))
            index.extend(entries[0].op_id.term, offsets)
        else:
            for entry, offset in zip(entries, offsets, strict=True):
                term, position = entry.op_id
                index.add(term, offset)
                runs.add(position, term)
        index.end = writer.segment.end = writer.end
        index.commit_hint = max(index.commit_hint, append.commit_hint)
        self._commit_hint = max(self._commit_hint, append.commit_hint)
        self.last = self.op_id_at(index.next - 1)

    # -- failure ---------------------------------------------------------------------------------

    def repair(self) -> OpId:
        """Resume after a full disk, in a new segment; return the last durable op id. Sync a log that has not failed.

        Raises:
            SyncFailed, Corrupt: the log cannot resume.
            StorageError: any other: the disk cannot be read now; the caller may try again.
        """
        damaged = self.corrupt()
        if damaged is not None:
            raise damaged
        if self.failed is None:
            failure = self.sync()
            if failure is not None:
                raise failure.error
            return self.durable
        if not isinstance(self.failed.error, Full):
            raise self.failed.error
        try:
            self._settle_after_full()
            self.active.begin_segment(self.chain, self.base.first_sequence, self.last, self._hint())
        except OSError as error:
            raise self._fail(error).error from error
        except (Full, SyncFailed, Corrupt) as error:
            self._fail(error)
            raise
        self.failed = None
        return self.durable

    def fail_permanently(self, error: SyncFailed | OSError) -> StelaeError:
        """Take no more appends, because a file of the log can no longer be trusted; return the error for appends."""
        return self._fail(error).error

    def _fail(self, error: StorageError | OSError) -> Failed:
        """Take no more appends. Readers see only durable entries. A failed sync is recorded in the base file."""
        if isinstance(error, OSError):
            error = SyncFailed(f"the log's files are not usable: {error}", path=self.directory)
        with self.lock:
            self.last = self.durable
        if isinstance(error, Full):
            self.active.drop_spare()
            self._cut_unsynced()
        self.failed = Failed(error, self.durable)
        if not isinstance(error, Full):
            self._record_sync_failure()
        return self.failed

    def _cut_unsynced(self) -> None:
        """After a full disk, cut the part of the group that fitted, and what was not synced.

        Otherwise the next start of the process would take them for entries of the log, which its tombstone may end
        before. The cut is not synced: that may need space, too. The repair cuts again and syncs."""
        writer = self.active.writer
        if writer is not None:
            with suppress(StorageError, OSError):  # Nothing has changed then.
                writer.cut_unsynced()

    def _record_sync_failure(self) -> None:
        """Record durably that a sync failed. If that fails too, recovery writes the tail again and syncs it."""
        self.active.abandon()
        try:
            self.write_base(self.base.changed(use=LogUse.SYNC_FAILED, durable=self.durable))
        except (StorageError, OSError):
            return

    def _settle_after_full(self) -> None:
        """Cut what was not synced, durably, and recover the log again.

        Raises:
            StorageError: as ``Files``, or recovery finds damage.
        """
        writer = self.active.writer
        if writer is not None:
            writer.forget_unsynced()
        self.active.park()
        sequences = sequences_of(self.context.files, self.directory, self.log.generation)
        found = recover_log(self.context.files, self.directory, self.log, sequences)
        with self.lock:
            # Readers that are under way count on the old segment objects. So each new object of such a file gets one
            # reader that never leaves: the file is removed when it is collected, and never used again.
            with_readers = {segment.path for segment in self.chain.segments if segment.has_readers()}
            for segment in found.chain.segments:
                segment.reader_count += segment.path in with_readers
            self._take_over(found)
        damaged = self.corrupt()
        if damaged is not None:
            raise damaged
