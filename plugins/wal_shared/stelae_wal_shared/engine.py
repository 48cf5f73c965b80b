"""The engine: all logs of a node in one sequence of segments. See the package's README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import ClassVar, Self

from stelae.spi.errors import BadIdentifier, CallerError, Compacted, Full, StorageError
from stelae.spi.ids import LogId, OpId, tablet_id
from stelae.spi.log import Entry
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, Failed, LogState, Outcome, WalEngine, WalSnapshot
from stelae_shared.log_files.directories import make_durable, misplaced
from stelae_wal_shared.collection import SegmentCollector
from stelae_wal_shared.commit import Committer
from stelae_wal_shared.config import SharedConfig
from stelae_wal_shared.control_records import write_control
from stelae_wal_shared.engine_state import EngineState, past_the_end
from stelae_wal_shared.export import export_log, export_part
from stelae_wal_shared.format import RecordKind
from stelae_wal_shared.marker import LOCK_NAME, claim
from stelae_wal_shared.reader import read
from stelae_wal_shared.recovery import recover
from stelae_wal_shared.replay import encode_name
from stelae_wal_shared.snapshot import take_snapshot
from stelae_wal_shared.tablet_log import SharedTabletLog
from stelae_wal_shared.tail import LogTail

ASIDE_BATCH_BYTES = 4 << 20
"""Bytes of entries that are in memory at a time while a log that was set aside is read."""


class SharedEngine(WalEngine):
    """What the plain and the fast class have in common: one log file sequence for the node."""

    name: ClassVar[str] = "shared"
    Config: ClassVar[type[SharedConfig]] = SharedConfig
    capabilities: ClassVar[frozenset[str]] = frozenset({"fake_files", "snapshot"})
    _tail_type: ClassVar[type[LogTail]] = LogTail
    _committer_type: ClassVar[type[Committer]] = Committer

    def __init__(self, directory: str, config: SharedConfig, services: EngineServices, *, beside_others: bool) -> None:
        files = services.files
        make_durable(files, directory)
        self._config = config
        self._services = services
        self._unread: set[LogId] = set()
        self._asides: dict[LogId, SharedEngine] = {}  # Open engines that logs are being copied into.
        self._lock = files.lock(f"{directory}/{LOCK_NAME}")
        self._open = True
        try:
            marker = claim(files, directory, beside_others=beside_others)
            self._state = EngineState(files, directory, config.indexes_max)
            recover(self._state, marker.newest, marker.newest_end)
            self._state.retained_max = self._state.newest
        except BaseException:
            self._lock.release()
            raise
        self._tail = self._tail_type(self._state, config, services.workers, marker)
        self._committer = self._committer_type(self._state, self._tail)
        self._collector = SegmentCollector(self._state, config, self._tail, self._committer)

    @classmethod
    def open(cls, directory: str, config: SharedConfig, services: EngineServices) -> Self:
        """Open the directory and recover every log in it."""
        with misplaced(directory):
            return cls(directory, config, services, beside_others=False)

    def logs(self) -> Mapping[LogId, LogState]:
        """Return the state of every log of the node, damaged logs included."""
        with self._state.lock:
            return {name: log.state() for name, log in self._state.logs.items()}

    def create(self, log: LogId, base: OpId) -> None:
        """Create an empty log that begins after ``base``; durable on return."""
        state = self._state
        if log in state.logs:
            raise CallerError(f"log {log} exists")
        tablet_id(log.tablet_id)
        if not 0 <= log.generation < 1 << 63:
            raise BadIdentifier("generation", str(log.generation), "an integer from 0 to 2**63 - 1")
        made = SharedTabletLog(log, state.next_log, base)
        write_control(state, self._tail, self._committer, made, RecordKind.CREATE, base, encode_name(log))
        with state.lock:
            state.next_log += 1
            state.logs[log] = made

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Append to many logs with one write. With an empty group and ``sync``, sync all earlier commits."""
        return self._committer.commit(group, sync=sync)

    def repair(self, log: LogId) -> OpId:
        """Resume a log after a full disk, once there is space. Sync a log that has not failed.

        Raises:
            Full: there is still no space.
            StorageError: a sync failed, or the log is damaged. It cannot resume.
        """
        known = self._state.known(log)
        corrupt = known.corrupt()
        if corrupt is not None:
            raise corrupt
        if known.failed is None:
            failure = self.commit({}, sync=True).get(log)
            if isinstance(failure, Failed):
                raise failure.error
            return known.durable
        if not isinstance(known.failed.error, Full):
            raise known.failed.error
        try:
            self._tail.make_room()
        except Full:
            raise
        except (StorageError, OSError) as error:
            raise self._committer.fail_all(error, [known]) from error
        known.failed = None
        return known.durable

    def op_id_at(self, log: LogId, index: int) -> OpId:
        """Return the op id at ``index`` from memory."""
        known = self._state.known(log)
        with self._state.lock:
            if index < known.base.index:
                raise Compacted(known.base)
            if index > known.last.index:
                raise past_the_end(known, index)
            return known.op_id_at(index)

    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes."""
        return read(self._state, self._state.known(log), first, end, bytes_max)

    def collect(self, log: LogId, upto: int) -> OpId:
        """Collect every entry up to ``upto``, and remove the segments that no log needs."""
        return self._collector.collect(self._state.known(log), upto)

    def drop(self, log: LogId) -> None:
        """Remove a log and all it holds, durably."""
        known = self._state.logs.get(log)
        if known is not None:
            self._collector.drop(known)

    def copy_aside(self, log: LogId, directory: str) -> bool:
        """Write the next 4 MiB of a log into ``directory``, which this engine can open."""
        known = self._state.logs.get(log)
        if known is None:
            return False
        with suppress(StorageError):
            if export_part(self._state, known, self._aside_of(log, directory)):
                return True
        self._close_aside(log)
        return False

    def set_aside(self, log: LogId, directory: str) -> None:
        """Write a log into ``directory``, which this engine can open, then remove it here. Durable on return.

        ``StorageError``: the disk does not return an entry. If a repeated call fails too, the log is written up to
        that entry."""
        known = self._state.logs.get(log)
        if known is None:
            return
        target = self._aside_of(log, directory)
        try:
            export_log(self._state, known, target, directory, self._unread)
        finally:
            self._asides.pop(log)
            target.close()
        self._collector.drop(known)
        self._unread.discard(log)

    @classmethod
    @contextmanager
    def opened_aside(
        cls, directory: str, log: LogId, config: SharedConfig, services: EngineServices
    ) -> Iterator[tuple[LogState, Iterator[Entry]]]:
        """Open a log that was set aside; yield its state and its entries, checksums verified.

        ``StorageError``: the directory has no such log, or it cannot be read."""
        aside = SharedEngine(directory, config, services, beside_others=True)
        try:
            state = aside.logs().get(log)
            if state is None:
                raise StorageError(f"there is no log {log} here", path=directory)
            yield state, aside._entries_behind(log, state)
        finally:
            aside.close()

    def _aside_of(self, log: LogId, directory: str) -> SharedEngine:
        """Return the engine in ``directory`` that a log is being set aside into. It stays open until that is done."""
        found = self._asides.get(log)
        if found is None or found._state.directory != directory:
            self._close_aside(log)
            found = SharedEngine(directory, self._config, self._services, beside_others=True)
            self._asides[log] = found
        return found

    def _close_aside(self, log: LogId) -> None:
        if (found := self._asides.pop(log, None)) is not None:
            with suppress(StorageError):  # What was copied is durable. The next call opens it again, or says why not.
                found.close()

    def _entries_behind(self, log: LogId, state: LogState) -> Iterator[Entry]:
        """Yield every entry of a log."""
        first = state.base.index + 1
        while first <= state.last.index:
            found = self.read(log, first, state.last.index + 1, ASIDE_BATCH_BYTES)
            yield from found
            first += len(found)

    def cool(self, log: LogId) -> None:
        """Sync the log's earlier appends. A log has no handle or space of its own that could be released."""
        known = self._state.known(log)
        if known.name in self._state.dirty:
            self._sync()

    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """Return an immutable view of the entries from ``first`` to the present last one."""
        return take_snapshot(self._state, self._state.known(log), first)

    def stats(self) -> dict[str, float]:
        """Return how many logs, segments and entries there are, and what was committed, moved and removed."""
        state, committer, collector = self._state, self._committer, self._collector
        with state.lock:
            figures: dict[str, float] = {
                "logs": len(state.logs),
                "logs_damaged": sum(log.damage is not None for log in state.logs.values()),
                "segments": len(state.segments),
                "segment_bytes": sum(one.end for one in state.segments.values()),
                "entries_live": sum(one.live for one in state.segments.values()),
                "entries_held": sum(one.entries for one in state.segments.values()),
            }
        return figures | {
            "groups": committer.groups,
            "entries": committer.entries,
            "entry_bytes": committer.entry_bytes,
            "moved_entries": collector.moved_entries,
            "moved_bytes": collector.moved_bytes,
            "removed_segments": collector.removed,
        }

    def close(self) -> None:
        """Close the open segment and release the lock.

        Raises:
            StorageError: earlier unsynced commits could not be synced. What was acknowledged as durable is durable.
        """
        if not self._open:
            return
        self._open = False
        for log in list(self._asides):
            self._close_aside(log)
        try:
            self._tail.drop_spare()
            self._tail.seal(closing=True)
        except (StorageError, OSError) as error:
            raise self._committer.fail_all(error, []) from error
        finally:
            self._tail.abandon_segment()
            self._lock.release()

    def _sync(self) -> None:
        try:
            self._tail.sync()
        except (StorageError, OSError) as error:
            raise self._committer.fail_all(error, []) from error
