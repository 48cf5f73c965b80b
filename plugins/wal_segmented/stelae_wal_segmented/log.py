"""One log: its segments, its open end, and what it knows of itself.

Threads: what changes a log is called one at a time (``stelae.spi.wal``). ``lock`` guards what readers
on other threads look at (``last``, ``base``, ``chain``, ``damage``); it is never held over I/O."""

from __future__ import annotations

import threading

from stelae.spi.append_check import check_append
from stelae.spi.errors import CallerError, Corrupt, Full, StelaeError, StorageError, SyncFailed
from stelae.spi.ids import LogId, OpId
from stelae.spi.wal import Append, Damage, Durable, Failed, LogState, Outcome
from stelae_wal_segmented.base import Base, LogUse, write_base
from stelae_wal_segmented.group import EncodedGroup
from stelae_wal_segmented.names import base_name, sequences_of
from stelae_wal_segmented.open_end import OpenEnd
from stelae_wal_segmented.recovery import RecoveredLog, recover_log
from stelae_wal_segmented.segment import Chain
from stelae_wal_segmented.space import Setting
from stelae_wal_segmented.writer import SegmentWriter


class TabletLog:
    """A log that was recovered or created. See the module for threads.

    Attributes:
        base: contents of the base file.
        chain: the segments.
        last: op id of the last entry that readers see.
        durable: op id of the last entry that is known to be durable.
        damage: why the log is corrupt, if it is.
        failed: why it takes no appends until ``repair``, if so.
    """

    base: Base
    chain: Chain
    last: OpId
    durable: OpId
    damage: Damage | None

    def __init__(self, setting: Setting, directory: str, log: LogId, found: RecoveredLog) -> None:
        self.setting = setting
        self.directory = directory
        self.log = log
        self.lock = threading.Lock()
        self.end = OpenEnd(setting, directory, log, self.lock)
        self.failed: Failed | None = None
        self._commit_hint = 0
        self._take_over(found)

    # -- state -----------------------------------------------------------------------------------

    def state(self) -> LogState:
        """What ``logs`` says of it. Any thread."""
        with self.lock:
            return self._state()

    def op_id_at(self, index: int) -> OpId:
        """Op id of an index from the base's on; the caller holds the lock and knows it is there."""
        return self.base.base if index == self.base.base.index else self.chain.op_id_at(index)

    def corrupt(self) -> StorageError | None:
        """The error of a log that is damaged, or that could not be read when the node started."""
        damage = self.damage
        if damage is None:
            return None
        kind = StorageError if damage.unread else Corrupt
        return kind(damage.detail, path=damage.path, offset=damage.offset)

    def note_damage(self, error: Corrupt, last_good: OpId) -> None:
        """Take note of damage that a reader met: the log ends before it, or where earlier damage is. Any thread."""
        with self.lock:
            if self.damage is None or last_good.index < self.damage.last_good.index:
                if last_good.index < self.last.index:
                    self.last = last_good
                self.damage = Damage(path=error.path, offset=error.offset or 0, last_good=last_good, detail=error.fact)

    def write_base(self, base: Base) -> None:
        """Replace what the base file says, durably, then what readers see of it."""
        path = f"{self.directory}/{base_name(self.log.generation)}"
        write_base(self.setting.files, path, base)
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
        """Do one append of a commit. Never raises for an operating error."""
        refusal = self._refusal(append)
        if refusal is not None:
            return Failed(refusal, self.durable)
        try:
            first_sequence = self.base.first_sequence
            writer = self.end.writer_for(self.chain, first_sequence, self.last, self._hint())
            self._note_newest(writer.segment.header.sequence)
            group = self._encode(writer, append)
            writer.write(group, sync=sync)
        except CallerError as error:
            return Failed(error, self.durable)
        except Corrupt as error:  # The segment that was to go on: nothing was changed.
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
        if damaged is not None:  # Met by a reader meanwhile: the log ends before that.
            self.durable = min(self.durable, self.last)
            return Failed(damaged, self.durable)
        if writer.synced == writer.end:
            self.durable = self.last
        elif append.replace_from is not None and append.replace_from <= self.durable.index:
            self.durable = self.op_id_at(append.replace_from - 1)
        return Durable(self.last)

    def sync(self) -> Failed | None:
        """Make every earlier append durable; the failure if that fails."""
        if self.failed is not None or self.end.writer is None:
            return self.failed
        try:
            self.end.writer.sync()
        except StorageError as error:
            return self._fail(error)
        self.durable = self.last
        return None

    def cool(self) -> None:
        """Keep no handle, spare space or index; a failed or damaged log gives back its spare space, and no more.

        Raises:
            StorageError: the open segment could not be settled; the log fails.
        """
        if self.failed is not None or self.damage is not None:
            self.end.drop_spare()
            return
        try:
            self.end.seal(self.chain)
            self._note_end()
        except OSError as error:
            raise self._fail(error).error from error
        except StorageError as error:
            self._fail(error)
            raise
        self.durable = self.last

    def close(self) -> None:
        """Settle the open segment for good; a failed log is left as it is for recovery."""
        self.cool()
        self.end.abandon()

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
        """Have the base file say that a segment is there, before its first group is written.

        Raises:
            StorageError: it cannot be written; the segment takes no entries.
        """
        if sequence > self.base.newest_sequence:
            self.write_base(self.base.changed(newest_sequence=sequence))

    def _note_end(self) -> None:
        """Have the base file say how long the newest segment is: all of it is durable, and stays so.

        Without that, a closed segment that is cut later would look like one whose tail a crash left.

        Raises:
            StorageError: it cannot be written.
        """
        newest = self.chain.segments[-1] if self.chain.segments else None
        if newest is None or newest.header.sequence != self.base.newest_sequence:
            return
        if newest.end > self.base.newest_end:
            self.write_base(self.base.changed(newest_end=newest.end))

    def _before(self, path: str) -> OpId:
        """Op id of the last entry before the segment of this path."""
        with self.lock:
            first = next(one.first for one in self.chain.segments if one.path == path)
            return self.op_id_at(max(first - 1, self.base.base.index))

    def _publish(self, writer: SegmentWriter, append: Append, offsets: list[int]) -> None:
        index, runs = writer.index, self.chain.runs
        if append.replace_from is not None:
            index.replace(append.replace_from)
            self.chain.replaced(append.replace_from)
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
        """Resume after a full disk, in a fresh segment; return the last durable op id.

        Raises:
            StorageError: it cannot resume at all; or, if neither ``SyncFailed`` nor ``Corrupt``, the disk does not read
                now: it may be tried again.
        """
        damaged = self.corrupt()
        if damaged is not None:
            raise damaged
        if self.failed is None:
            return self.durable
        if not isinstance(self.failed.error, Full):
            raise self.failed.error
        try:
            self._settle_after_full()
            self.end.fresh(self.chain, self.base.first_sequence, self.last, self._hint())
        except OSError as error:
            raise self._fail(error).error from error
        except (Full, SyncFailed, Corrupt) as error:
            self._fail(error)
            raise
        self.failed = None
        return self.durable

    def fail_for_good(self, error: SyncFailed | OSError) -> StelaeError:
        """Take no more appends, since one of the log's files can no longer be trusted; return what appends get."""
        return self._fail(error).error

    def _fail(self, error: StorageError | OSError) -> Failed:
        """Take no more appends. Readers see what is durable; a failed sync is remembered."""
        if isinstance(error, OSError):
            error = SyncFailed(f"the log's files are not usable: {error}", path=self.directory)
        with self.lock:
            self.last = self.durable
        self.failed = Failed(error, self.durable)
        if isinstance(error, Full):
            self.end.drop_spare()
        else:
            self._distrust()
        return self.failed

    def _distrust(self) -> None:
        """Remember durably that a sync failed; if even that fails, recovery proves the tail."""
        self.end.abandon()
        try:
            self.write_base(self.base.changed(use=LogUse.SYNC_FAILED, durable=self.durable))
        except (StorageError, OSError):
            return

    def _settle_after_full(self) -> None:
        """Cut what was not synced, and see again what the log holds.

        Raises:
            StorageError: as ``Files``, or the log turns out to be damaged.
        """
        writer = self.end.writer
        if writer is not None:
            writer.forget_unsynced()
            self.end.park()
        sequences = sequences_of(self.setting.files, self.directory, self.log.generation)
        found = recover_log(self.setting.files, self.directory, self.log, sequences)
        with self.lock:
            # Whoever still reads counts, and gives back, on the segments as they were known before. In their place
            # these are held for good: such a file is removed when it is collected, never used again.
            held = {segment.path for segment in self.chain.segments if segment.held()}
            for segment in found.chain.segments:
                segment.holders += segment.path in held
            self._take_over(found)
        damaged = self.corrupt()
        if damaged is not None:
            raise damaged
