"""The engine: all logs of a node, each in its own segments. See the package's README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import ClassVar, Self

from stelae.spi.errors import BadIdentifier, CallerError, StelaeError, StorageError
from stelae.spi.ids import ZERO, LogId, OpId, tablet_id
from stelae.spi.log import Entry
from stelae.spi.services import EngineServices, FileLock
from stelae.spi.wal import Append, Failed, LogState, Outcome, WalEngine, WalSnapshot
from stelae_shared.log_files.directories import make_durable, misplaced
from stelae_wal_segmented.base_file import BaseRecord, create_base
from stelae_wal_segmented.config import SegmentedConfig
from stelae_wal_segmented.fan_out import FanOut, Task
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.marker import LOCK_NAME, claim
from stelae_wal_segmented.names import base_name
from stelae_wal_segmented.reader import op_id_at, read
from stelae_wal_segmented.recovery import RecoveredLog
from stelae_wal_segmented.removal import collect, drop, set_aside
from stelae_wal_segmented.set_aside_log import open_aside
from stelae_wal_segmented.snapshot import take_snapshot
from stelae_wal_segmented.space import SegmentedContext, SegmentSpace, SpaceOfLog
from stelae_wal_segmented.startup import recover_all


class SegmentedEngine(WalEngine):
    """What the plain and the fast class have in common: one directory of segments for each tablet."""

    name: ClassVar[str] = "segmented"
    Config: ClassVar[type[SegmentedConfig]] = SegmentedConfig
    capabilities: ClassVar[frozenset[str]] = frozenset({"fake_files", "snapshot"})
    _log_type: ClassVar[type[TabletLog]] = TabletLog

    def __init__(self, directory: str, context: SegmentedContext, lock: FileLock) -> None:
        self._directory = directory
        self._context = context
        self._lock: FileLock | None = lock
        self._logs: dict[LogId, TabletLog] = {}
        self._fan_out = FanOut(context.workers, context.config.sync_threads_max)
        self._groups = 0
        self._entries = 0

    @classmethod
    def _space(cls) -> SpaceOfLog:
        """Return the callable that makes the ``SegmentSpace`` of each log."""
        return SegmentSpace

    @classmethod
    def open(cls, directory: str, config: SegmentedConfig, services: EngineServices) -> Self:
        """Open the directory and recover every log in it."""
        with misplaced(directory):
            return cls._opened(directory, config, services)

    @classmethod
    def _opened(cls, directory: str, config: SegmentedConfig, services: EngineServices) -> Self:
        files = services.files
        make_durable(files, directory)
        lock = files.lock(f"{directory}/{LOCK_NAME}")
        try:
            nonces = claim(files, directory)
            context = SegmentedContext(
                files=files, workers=services.workers, config=config, nonces=nonces, space=cls._space()
            )
            engine = cls(directory, context, lock)
            engine._logs = recover_all(context, directory, cls._log_type)
        except BaseException:
            lock.release()
            raise
        return engine

    def logs(self) -> Mapping[LogId, LogState]:
        """Return the state of every log of the node, damaged logs included."""
        return {name: log.state() for name, log in list(self._logs.items())}

    def create(self, log: LogId, base: OpId) -> None:
        """Create an empty log that begins after ``base``; durable on return."""
        if log in self._logs:
            raise CallerError(f"log {log} exists")
        tablet_id(log.tablet_id)
        if not 0 <= log.generation < 1 << 63:
            raise BadIdentifier("generation", str(log.generation), "an integer from 0 to 2**63 - 1")
        files = self._context.files
        directory = f"{self._directory}/{log.tablet_id}"
        make_durable(files, directory)
        record, path = BaseRecord(log=log, base=base), f"{directory}/{base_name(log.generation)}"
        try:
            create_base(files, path, record)
        except StorageError:
            with suppress(OSError, StorageError):  # The caller may never create this generation again.
                files.remove(path)
            raise
        found = RecoveredLog(record, last=base)
        self._logs[log] = self._log_type(self._context, directory, log, found)

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Append to many logs. With an empty group and ``sync``, sync all earlier commits.

        For an empty group the outcomes are those of the logs whose sync failed. The files of a group are written and
        synced in parallel, see ``FanOut``."""
        self._count(group)
        if not group:
            return self._sync_all() if sync else {}
        if len(group) == 1:
            ((name, append),) = group.items()
            return {name: self._append(name, append, sync)}
        outcomes: dict[LogId, Outcome] = {}

        def task(name: LogId, append: Append) -> Task:
            def work() -> None:
                outcomes[name] = self._append(name, append, sync)

            return work

        self._fan_out.run([task(name, append) for name, append in group.items()])
        return {name: outcomes[name] for name in group}

    def _count(self, group: Mapping[LogId, Append]) -> None:
        self._groups += 1
        self._entries += sum([len(append.entries) for append in group.values()])

    def _append(self, name: LogId, append: Append, sync: bool) -> Outcome:
        log = self._logs.get(name)
        return Failed(self._unknown(name), ZERO) if log is None else log.append(append, sync=sync)

    def _sync_all(self) -> dict[LogId, Outcome]:
        failures: dict[LogId, Outcome] = {}

        def task(name: LogId, log: TabletLog) -> Task:
            def work() -> None:
                failure = log.sync()
                if failure is not None:
                    failures[name] = failure

            return work

        self._fan_out.run([task(name, log) for name, log in self._logs.items() if log.active.unsynced])
        return failures

    def repair(self, log: LogId) -> OpId:
        """Resume a log after a full disk, in a fresh segment."""
        return self._known(log).repair()

    def op_id_at(self, log: LogId, index: int) -> OpId:
        """Return the op id at ``index`` from memory."""
        return op_id_at(self._known(log), index)

    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes."""
        return read(self._known(log), first, end, bytes_max)

    def collect(self, log: LogId, upto: int) -> OpId:
        """Remove whole segments at or below ``upto``; return the new base."""
        return collect(self._known(log), upto)

    def drop(self, log: LogId) -> None:
        """Remove a log and all it holds, durably."""
        found = self._logs.get(log)
        if found is not None:
            drop(found)
            del self._logs[log]

    def set_aside(self, log: LogId, directory: str) -> None:
        """Move a log's files into ``directory``, durably."""
        found = self._logs.get(log)
        if found is not None:
            set_aside(found, directory)
            del self._logs[log]

    @classmethod
    @contextmanager
    def opened_aside(
        cls, directory: str, log: LogId, config: SegmentedConfig, services: EngineServices
    ) -> Iterator[tuple[LogState, Iterator[Entry]]]:
        """Open a log that was set aside; yield its state and its entries, checksums verified.

        ``StorageError``: the directory has no such log, or it cannot be read."""
        yield open_aside(directory, log, config, services)

    def cool(self, log: LogId) -> None:
        """Release the buffer, handle, index and prepared file of an idle log."""
        self._known(log).cool()

    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """Return an immutable view of the entries from ``first`` to the present last one."""
        return take_snapshot(self._known(log), first)

    def stats(self) -> dict[str, float]:
        """Return the number of logs, segments and handles, and how much was committed since the start."""
        logs = list(self._logs.values())
        return {
            "logs": len(logs),
            "logs_damaged": sum(log.damage is not None and not log.damage.unread for log in logs),
            "logs_unread": sum(log.damage is not None and log.damage.unread for log in logs),
            "segments": sum(len(log.chain.segments) for log in logs),
            "handles": sum(log.active.writer is not None for log in logs),
            "groups": self._groups,
            "entries": self._entries,
        }

    def close(self) -> None:
        """Close every log and release the lock.

        Raises:
            StorageError: a log could not be closed cleanly. The other logs were closed, and what was acknowledged is
                durable in any case."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        errors: dict[LogId, StorageError] = {}

        def task(name: LogId, log: TabletLog) -> Task:
            def work() -> None:
                try:
                    log.close()
                except StorageError as error:
                    errors[name] = error

            return work

        self._fan_out.run([task(name, log) for name, log in self._logs.items()])
        lock.release()
        if errors:
            raise errors[min(errors)]

    def _known(self, name: LogId) -> TabletLog:
        log = self._logs.get(name)
        if log is None:
            raise self._unknown(name)
        return log

    def _unknown(self, name: LogId) -> StelaeError:
        return CallerError(f"log {name} does not exist; it has to be created first")
