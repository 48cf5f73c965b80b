"""The engine: all logs of a node in one sequence of segments. See the package's README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Self

from stelae.spi.errors import BadIdentifier, CallerError, Compacted, Full, StorageError
from stelae.spi.ids import LogId, OpId, tablet_id
from stelae.spi.log import Entry
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, LogState, Outcome, WalEngine, WalSnapshot
from stelae_shared.log_files.directories import make_durable, misplaced
from stelae_wal_shared.book import Book, past_the_end
from stelae_wal_shared.commit import Committer
from stelae_wal_shared.config import SharedConfig
from stelae_wal_shared.control import write_control
from stelae_wal_shared.export import export_log
from stelae_wal_shared.format import RecordKind
from stelae_wal_shared.marker import LOCK_NAME, claim
from stelae_wal_shared.reader import read
from stelae_wal_shared.recovery import recover
from stelae_wal_shared.replay import encode_name
from stelae_wal_shared.snapshot import take_snapshot
from stelae_wal_shared.tablet_log import SharedTabletLog
from stelae_wal_shared.tail import Tail
from stelae_wal_shared.upkeep import SegmentUpkeep

ASIDE_BATCH_BYTES = 4 << 20
"""Bytes of entries that reading a log back holds at a time."""


class SharedWal(WalEngine):
    """One log for the node. Created by ``open`` only."""

    name: ClassVar[str] = "shared"
    Config: ClassVar[type[SharedConfig]] = SharedConfig
    capabilities: ClassVar[frozenset[str]] = frozenset({"fake_files", "snapshot"})
    _tail_type: ClassVar[type[Tail]] = Tail
    _committer_type: ClassVar[type[Committer]] = Committer

    def __init__(self, directory: str, config: SharedConfig, services: EngineServices, *, beside_others: bool) -> None:
        files = services.files
        make_durable(files, directory)
        self._config = config
        self._services = services
        self._lock = files.lock(f"{directory}/{LOCK_NAME}")
        self._open = True
        try:
            marker = claim(files, directory, beside_others=beside_others)
            self._book = Book(files, directory, config.indexes_max)
            recover(self._book, marker.newest, marker.newest_end)
            self._book.kept = self._book.newest
        except BaseException:
            self._lock.release()
            raise
        self._tail = self._tail_type(self._book, config, services.workers, marker)
        self._committer = self._committer_type(self._book, self._tail)
        self._upkeep = SegmentUpkeep(self._book, config, self._tail, self._committer)

    @classmethod
    def fast(cls) -> type[WalEngine]:
        """The engine of ``[log] fast = true``; it is not imported before."""
        from stelae_wal_shared.fast import FastSharedWal

        return FastSharedWal

    @classmethod
    def open(cls, directory: str, config: SharedConfig, services: EngineServices) -> Self:
        """Open the directory and recover every log in it."""
        with misplaced(directory):
            return cls(directory, config, services, beside_others=False)

    def logs(self) -> Mapping[LogId, LogState]:
        """A snapshot of every log of the node, damaged ones included."""
        with self._book.lock:
            return {name: log.state() for name, log in self._book.logs.items()}

    def create(self, log: LogId, base: OpId) -> None:
        """Create an empty log that begins after ``base``; durable on return."""
        book = self._book
        if log in book.logs:
            raise CallerError(f"log {log} exists")
        tablet_id(log.tablet_id)
        if not 0 <= log.generation < 1 << 63:
            raise BadIdentifier("generation", str(log.generation), "an integer from 0 to 2**63 - 1")
        made = SharedTabletLog(log, book.next_log, base)
        write_control(book, self._tail, self._committer, made, RecordKind.CREATE, base, encode_name(log))
        with book.lock:
            book.next_log += 1
            book.logs[log] = made

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Append to many logs with one write; with an empty group and ``sync``, sync what was not."""
        return self._committer.commit(group, sync=sync)

    def repair(self, log: LogId) -> OpId:
        """Resume a log after a full disk, in a fresh segment.

        Raises:
            Full: there is still no space.
            StorageError: a sync failed, or the log is damaged: it does not resume.
        """
        known = self._book.known(log)
        corrupt = known.corrupt()
        if corrupt is not None:
            raise corrupt
        if known.failed is None:
            return known.durable
        if not isinstance(known.failed.error, Full):
            raise known.failed.error
        if self._tail.writer is None:
            self._tail.fresh()
        known.failed = None
        return known.durable

    def op_id_at(self, log: LogId, index: int) -> OpId:
        """Return the op id at ``index`` from memory."""
        known = self._book.known(log)
        with self._book.lock:
            if index < known.base.index:
                raise Compacted(known.base)
            if index > known.last.index:
                raise past_the_end(known, index)
            return known.op_id_at(index)

    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes."""
        return read(self._book, self._book.known(log), first, end, bytes_max)

    def collect(self, log: LogId, upto: int) -> OpId:
        """Let every entry up to ``upto`` go, and with them the segments that nobody needs any more."""
        return self._upkeep.collect(self._book.known(log), upto)

    def drop(self, log: LogId) -> None:
        """Remove a log and all it holds, durably."""
        known = self._book.logs.get(log)
        if known is not None:
            self._upkeep.drop(known)

    def set_aside(self, log: LogId, directory: str) -> None:
        """Write a log into ``directory``, which this engine can open, then remove it here; durably."""
        known = self._book.logs.get(log)
        if known is None:
            return
        target = SharedWal(directory, self._config, self._services, beside_others=True)
        try:
            export_log(self._book, known, target, directory)
        finally:
            target.close()
        self._upkeep.drop(known)

    @classmethod
    @contextmanager
    def opened_aside(
        cls, directory: str, log: LogId, config: SharedConfig, services: EngineServices
    ) -> Iterator[tuple[LogState, Iterator[Entry]]]:
        """Open what ``set_aside`` made of a log: how it stood, and its entries behind the base, checksums verified.

        ``StorageError``: it is not there, or cannot be read."""
        aside = SharedWal(directory, config, services, beside_others=True)
        try:
            state = aside.logs().get(log)
            if state is None:
                raise StorageError(f"there is no log {log} here", path=directory)
            yield state, aside._entries_behind(log, state)
        finally:
            aside.close()

    def _entries_behind(self, log: LogId, state: LogState) -> Iterator[Entry]:
        """Every entry of a log behind its base."""
        first = state.base.index + 1
        while first <= state.last.index:
            found = self.read(log, first, state.last.index + 1, ASIDE_BATCH_BYTES)
            yield from found
            first += len(found)

    def cool(self, log: LogId) -> None:
        """Make durable what was not synced. A log has no handle or space of its own to give back."""
        known = self._book.known(log)
        if known.name in self._book.dirty:
            self._sync()

    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """An immutable view of the entries from ``first`` to the present last one."""
        return take_snapshot(self._book, self._book.known(log), first)

    def stats(self) -> dict[str, float]:
        """How much there is, and what was committed, moved and removed since the start."""
        book, committer, upkeep = self._book, self._committer, self._upkeep
        with book.lock:
            figures: dict[str, float] = {
                "logs": len(book.logs),
                "logs_damaged": sum(log.damage is not None for log in book.logs.values()),
                "segments": len(book.segments),
                "segment_bytes": sum(one.end for one in book.segments.values()),
                "entries_live": sum(one.live for one in book.segments.values()),
                "entries_held": sum(one.entries for one in book.segments.values()),
            }
        return figures | {
            "groups": committer.groups,
            "entries": committer.entries,
            "entry_bytes": committer.entry_bytes,
            "moved_entries": upkeep.moved_entries,
            "moved_bytes": upkeep.moved_bytes,
            "removed_segments": upkeep.removed,
        }

    def close(self) -> None:
        """Close the open segment and release the lock.

        Raises:
            StorageError: what was not synced could not be; what was acknowledged as durable is.
        """
        if not self._open:
            return
        self._open = False
        try:
            self._tail.drop_spare()
            self._tail.seal(closing=True)
        except (StorageError, OSError) as error:
            raise self._committer.fail_all(error, []) from error
        finally:
            self._tail.distrust()
            self._lock.release()

    def _sync(self) -> None:
        try:
            self._tail.sync()
        except (StorageError, OSError) as error:
            raise self._committer.fail_all(error, []) from error
