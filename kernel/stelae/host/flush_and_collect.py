"""Flushing and compacting a store, and collecting the log that a flush makes superfluous.

1. Between two applied groups the store writes out what it holds, or merges what it wrote, and proposes
   an edit; the exactly-once results are dumped at the op id that it flushed.
2. The superblock with the edit and the results is made durable. There is one writer of it, this
   driver, and it writes only while the data are READY (``durability.md`` rule 24).
3. Only now does the store remove what the edit obsoletes, and the log may be collected (rule 4).

A crash after any step leaves the old superblock with the old files, or the new one with the new;
what a store wrote in vain it removes when it is opened. The store never gets ahead of what the own
log holds durably (rule 3). Engines without ``durable_flush`` are never asked to. After each edit comes the next piece
of compaction, until the store has none left."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from stelae.host.apply import Applier
from stelae.host.log_retention import LogRetention
from stelae.host.log_writer import LogWriter
from stelae.host.ports import BlockingPool
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.spi.errors import Corrupt, Full, PluginError, SyncFailed
from stelae.spi.ids import OpId
from stelae.spi.store import Edit

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False, kw_only=True)
class Flusher:
    """Drives the flushes and compactions of one replica, on the event loop."""

    file: SuperblockFile
    superblock: Superblock  #: What is durable.
    applier: Applier
    writer: LogWriter
    pool: BlockingPool  #: Writes metadata.
    retention: LogRetention
    log_base: OpId  #: Of the last entry that was collected.
    flush_bytes: int  #: What rows may hold of memory before they are flushed,
    memory_bytes_max: int  #: and before nothing more is taken.
    on_failed: Callable[[str], None]  #: Hears that store or superblock cannot be written: the replica has failed.

    def __post_init__(self) -> None:
        self._able = "durable_flush" in self.applier.store.capabilities
        self.node_full = False  # All replicas together hold more than they may.
        self.busy = False  # an edit is under way
        self._in_vain = False  # the last flush wrote nothing, for want of rows or of space
        self._collected = 0
        self.unsaved: tuple[Edit, Superblock] | None = None
        self.applier.has_room = self._has_room

    @property
    def full(self) -> bool:
        """Whether the rows that wait for a flush leave no room for more: input is refused until there is."""
        return self._able and (self.node_full or self.applier.store.memory_bytes() >= self.memory_bytes_max)

    def consider(self) -> bool:
        """Flush if the store holds enough, as ``flush``. Cheap otherwise."""
        return self._able and not self.busy and self.applier.store.memory_bytes() >= self.flush_bytes and self.flush()

    def flush(self) -> bool:
        """Flush now; False: work is under way, or the log is not durable that far yet."""
        durable_index = self.applier.cache.settled(self.writer.durable(self.superblock.log_id).index)
        if not self._able or durable_index < self.applier.applied.index or not self.applier.idle:
            return False
        return self._run(self.applier.store.flush, flushes=True)

    def _has_room(self) -> bool:
        """Whether more may be applied: full, the rows are flushed first, if they can be. A backlog may be long."""
        room = not self._able or self.applier.store.memory_bytes() < self.memory_bytes_max
        room = room or self._in_vain or self.unsaved is not None
        if not room:
            self.flush()
        return room

    def compact(self, floor: int = 0) -> bool:
        """Refuse reads below a hybrid timestamp and let the store compact, piece by piece; False: work is under way."""
        store = self.applier.store

        def piece() -> Edit | None:
            if floor:
                store.set_history_floor(floor)
            return store.compact()

        return self._run(piece)

    def _run(self, work: Callable[[], Edit | None], *, flushes: bool = False) -> bool:
        if self.busy:
            return False
        self.busy = True

        def write_out() -> tuple[Edit, Superblock] | None:
            edit = work()
            return None if edit is None else (edit, self._with(edit))

        def proposed(result: Any) -> None:
            self._in_vain = flushes and (result is None or isinstance(result, Full))
            self._proposed(result)

        self.applier.between_groups(write_out, proposed)
        return True

    def _with(self, edit: Edit) -> Superblock:
        """The superblock with an edit. Timestamp, results and schemas are those of the op id that it flushed."""
        found = msgspec.structs.replace(self.superblock, manifest=edit.manifest)
        if edit.flushed == self.superblock.flushed:
            return found
        applied = self.applier.store.applied  # Entries without rows, which no store sees, may be behind it.
        if edit.flushed != applied:
            raise PluginError(f"the store says that {edit.flushed} is flushed; it has applied {applied}")
        applier = self.applier
        # The timestamp may be of an entry without rows behind ``applied``: the rows at that time are the same.
        return msgspec.structs.replace(
            found, flushed=applied, timestamp=applier.timestamp, results=applier.results.dump(), schemas=applier.schemas
        )

    def _proposed(self, result: Any) -> None:
        if result is None or isinstance(result, Full):
            # Nothing to do, or no space: the rows stay in memory and the log stays whole.
            self.busy = False
        elif isinstance(result, Exception):
            self._fail(f"the store cannot flush: {result}")
        elif self.superblock.data_state is not DataState.READY:
            self._fail(f"a {self.superblock.data_state} replica has nothing to flush")
        else:
            self._save(*result)

    def _save(self, edit: Edit, block: Superblock) -> None:
        def saved(result: Any) -> None:
            if isinstance(result, Full):
                self.unsaved = (edit, block)  # The edit stands: ``collect`` tries again, and nothing else begins.
                self.applier.advance()
                return
            if isinstance(result, Exception):
                self._fail(f"the superblock cannot be saved: {result}")
                return
            self.applier.metrics.count("compactions" if block.flushed == self.superblock.flushed else "flushes")
            self.superblock = block
            store = self.applier.store
            self.applier.between_groups(lambda: store.commit(edit), self._committed)

        self.pool.run(f"superblock/{block.tablet_id}", lambda: self.file.save(block), saved)

    def _committed(self, result: Any) -> None:
        self.busy = False
        if isinstance(result, Exception):
            self._fail(f"the store cannot take note of its flush: {result}")
            return
        self.retention.flushed(self.superblock.flushed.index)
        self.collect()
        if not self.consider():
            self.compact()

    def collect(self) -> None:
        """Let go of the log as far as nothing holds it. To be repeated, as peers catch up; cheap if nothing is new."""
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

        self.writer.submit_job(lambda engine: engine.collect(name, upto), collected)

    def _fail(self, reason: str) -> None:
        self.busy = False
        self.applier.halt()
        self.on_failed(reason)
