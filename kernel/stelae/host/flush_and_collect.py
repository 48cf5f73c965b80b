"""Flushes and compacts the store of a replica, and collects the log entries that are no longer needed.

A flush or a compaction has three steps:

1. Between two groups of applied entries, the store writes its rows to files (flush) or merges files (compaction), and
   returns an edit. With a flush, the exactly-once results are saved as of the op id that was flushed.
2. A superblock with the edit and the results is made durable. This driver is the only writer of the superblock, and it
   writes only while the data state is READY (``durability.md`` rule 24).
3. The store removes the files that the edit makes obsolete, and the log may be collected (rule 4).

The order matters: a crash after any step leaves the old superblock with the old files, or the new one with the new
files. Files of an edit that did not become durable are removed when the store is opened. The store never flushes beyond
what the replica's own log has durably (rule 3). An engine without ``durable_flush`` is never asked to flush. After each
edit the next step of compaction follows, until there is none left.

A replica without rows is flushed for the bytes of its log, which is not collected otherwise. Its store uses no memory,
so it is never full."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from stelae.host.apply import Applier
from stelae.host.log_only import LogOnlyStore
from stelae.host.log_retention import LogRetentionLimit
from stelae.host.log_writer import LogWriter
from stelae.host.ports import BlockingPool
from stelae.host.read_faults import READ_ERRORS_MAX
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.spi.errors import Corrupt, Full, PluginError, StorageError, SyncFailed
from stelae.spi.ids import OpId
from stelae.spi.store import Edit

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False, kw_only=True)
class Flusher:
    """Drives the flushes and compactions of one replica, on the event loop."""

    file: SuperblockFile
    superblock: Superblock  #: The durable superblock.
    applier: Applier
    writer: LogWriter
    pool: BlockingPool  #: Writes the superblock.
    retention: LogRetentionLimit
    log_base: OpId  #: The op id of the last collected entry.
    flush_bytes: int  #: At this many ``unflushed_bytes`` the replica is flushed.
    memory_bytes_max: int  #: At this much memory the replica accepts no input.
    #: Called with a reason, and the error of the store or ``None``, if the replica must fail (``ReadFaults``).
    on_failed: Callable[[str, object], None]

    def __post_init__(self) -> None:
        self._able = "durable_flush" in self.applier.store.capabilities
        self.node_full = False  #: All replicas of the node together use more memory than the limit.
        self.busy = False  #: A flush or a compaction is in progress.
        self._in_vain = False  # The last flush wrote nothing: there were no rows, or there was no space.
        self._failed_reads = 0  # Flushes and merges that failed in a row because of a failed read.
        self._collected = 0
        #: An edit and its superblock that could not be saved because the disk is full. ``collect`` tries again.
        self.unsaved: tuple[Edit, Superblock] | None = None
        self.saving = False  #: A superblock is being saved.
        self._halted = False
        self.applier.has_room = self._has_room

    def halt(self) -> None:
        """Do nothing more, because the replica is shut down: its files may be moved. A save goes on to its end.

        The result of work that has begun is not used."""
        self._halted = True

    @property
    def full(self) -> bool:
        """Whether the rows that are not flushed use too much memory. The replica then refuses input."""
        return self._able and (self.node_full or self.applier.store.memory_bytes() >= self.memory_bytes_max)

    @property
    def waits_for_log(self) -> bool:
        """Whether no flush may begin, because entries are applied that the log does not have durably (rule 3).

        An append that fails after its entries were applied leaves a replica so. Only the same entries, sent again by
        the leader, end it."""
        return (
            self.applier.cache.settled(self.writer.durable(self.superblock.log_id).index) < self.applier.applied.index
        )

    @property
    def unflushed_bytes(self) -> int:
        """The memory of the rows that are not flushed; without rows, the bytes of the entries that are not flushed."""
        store = self.applier.store
        return store.passed_bytes if isinstance(store, LogOnlyStore) else store.memory_bytes()

    def consider(self) -> bool:
        """Flush if there are enough bytes to flush. Return what ``flush`` returns. Cheap if there are not."""
        return self._able and not self.busy and self.unflushed_bytes >= self.flush_bytes and self.flush()

    def flush(self) -> bool:
        """Start a flush.

        Return False if the log is not durable up to the applied index, or other work is in progress."""
        if not self._able or self.waits_for_log or not self.applier.idle:
            return False
        return self._run(self.applier.store.flush, flushes=True)

    def _has_room(self) -> bool:
        """Return whether more entries may be applied. If the memory is full, flush first if possible.

        A replica that catches up may have many entries to apply."""
        room = not self._able or self.applier.store.memory_bytes() < self.memory_bytes_max
        room = room or self._in_vain or self.unsaved is not None
        if not room:
            self.flush()
        return room

    def compact(self, floor: int = 0) -> bool:
        """Raise the history floor to a hybrid timestamp (0: do not), and start a compaction.

        Return False if other work is in progress."""
        store = self.applier.store

        def compact_once() -> Edit | None:
            if floor:
                store.set_history_floor(floor)
            return store.compact()

        return self._run(compact_once)

    def _run(self, work: Callable[[], Edit | None], *, flushes: bool = False) -> bool:
        if self.busy or self._halted:
            return False
        self.busy = True

        def write_out() -> tuple[Edit, Superblock] | None:
            edit = work()
            return None if edit is None else (edit, self._with(edit))

        def proposed(result: Any) -> None:
            self._in_vain = flushes and (result is None or isinstance(result, Full) or type(result) is StorageError)
            if not self._is_tried_again(result, flushes=flushes):
                self._proposed(result, "flush" if flushes else "merge its files")

        self.applier.between_groups(write_out, proposed)
        return True

    def _with(self, edit: Edit) -> Superblock:
        """Return the superblock with an edit. Timestamp, results and schemas are those of the flushed op id."""
        found = msgspec.structs.replace(self.superblock, manifest=edit.manifest)
        if edit.flushed == self.superblock.flushed:
            return found
        applied = self.applier.store.applied  # Entries without rows, which no store sees, may follow it.
        if edit.flushed != applied:
            raise PluginError(f"the store reports {edit.flushed} as flushed, but has applied {applied}")
        applier = self.applier
        # The timestamp may be of an entry without rows after ``applied``: the rows at that time are the same.
        had = found.tombstone
        return msgspec.structs.replace(
            found,
            flushed=applied,
            timestamp=applier.timestamp,
            results=applier.results.dump(),
            schemas=applier.schemas,
            tombstone=None if isinstance(had, OpId) and had <= applied else had,  # The log is durable up to there.
        )

    def _is_tried_again(self, result: Any, *, flushes: bool) -> bool:
        """Return whether work of the store failed because of a failed read, and begins again later (ADR 56).

        A failed read says nothing about the bytes on disk. The store shows nothing of work that is not complete. After
        too many failures in a row the replica fails."""
        if type(result) is not StorageError:
            if not flushes:  # A flush may read nothing, so it does not show that the files can be read.
                self._failed_reads = 0
            return False
        self._failed_reads += 1
        if self._failed_reads >= READ_ERRORS_MAX:
            return False
        self.busy = False
        log.warning("flush or merge failed, and is tried again log=%s reason=%s", self.superblock.log_id, result)
        return True

    def _proposed(self, result: Any, work: str) -> None:
        if self._halted:
            self.busy = False
        elif result is None or isinstance(result, Full):
            # There is nothing to do, or no space: the rows stay in memory, and the log is not collected.
            self.busy = False
        elif isinstance(result, Exception):
            self._fail(f"the store cannot {work}: {result}", result)
        elif self.superblock.data_state is not DataState.READY:
            self._fail(f"a flush in data state {self.superblock.data_state}; only READY replicas flush")
        else:
            self._save(*result)

    def _save(self, edit: Edit, block: Superblock) -> None:
        def saved(result: Any) -> None:
            self.saving = False
            if self._halted:
                self.busy = False
                return
            if isinstance(result, Full):
                self.unsaved = (edit, block)  # ``collect`` saves it again. Until then no other work starts.
                self.applier.advance()
                return
            if isinstance(result, Exception):
                self._fail(f"the superblock cannot be saved: {result}")
                return
            self.applier.metrics.count("compactions" if block.flushed == self.superblock.flushed else "flushes")
            self.superblock = block
            store = self.applier.store
            self.applier.between_groups(lambda: store.commit(edit), self._committed)

        self.saving = True
        self.pool.run(f"superblock/{block.tablet_id}", lambda: self.file.save(block), saved)

    def _committed(self, result: Any) -> None:
        self.busy = False
        if isinstance(result, Exception):
            self._fail(f"the store cannot commit its edit: {result}")
            return
        self.retention.flushed(self.superblock.flushed.index)
        self.collect()
        if not self.consider():
            self.compact()

    def collect(self) -> None:
        """Collect the log as far as ``LogRetentionLimit`` allows.

        It must be called again and again, because peers catch up. It is cheap if nothing has changed. It also repeats a
        save of the superblock that failed because the disk was full."""
        if self._halted:
            return
        if self.unsaved is not None:
            unsaved, self.unsaved = self.unsaved, None
            self._save(*unsaved)
        upto, name = self.retention.collectable(), self.superblock.log_id
        if upto <= self._collected:
            return
        before, self._collected = self._collected, upto

        def collected(result: object) -> None:
            if isinstance(result, SyncFailed | Corrupt):
                self._fail(f"the log cannot be trusted beyond {self.writer.durable(name)}: {result}")
            elif isinstance(result, Exception):
                log.warning("log not collected log=%s reason=%s", name, result)
                self._collected = before  # The next call tries again.
            elif isinstance(result, OpId):
                self.log_base = result

        # A job that waited until the replica was shut down does nothing: its superblock may be a tombstone by then.
        self.writer.submit_job(lambda engine: None if self._halted else engine.collect(name, upto), collected)

    def _fail(self, reason: str, store_error: object = None) -> None:
        self.busy = False
        if not isinstance(store_error, Corrupt):  # A leader with damaged rows hands over before it ends.
            self.applier.halt()
        self.on_failed(reason, store_error)
