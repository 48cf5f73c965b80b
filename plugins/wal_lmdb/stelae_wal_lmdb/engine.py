"""The engine: all logs of a node in one environment. See the package's README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar, Self

from stelae.spi.errors import BadIdentifier, CallerError, Corrupt, Full, StelaeError, StorageError
from stelae.spi.ids import ZERO, LogId, OpId, tablet_id
from stelae.spi.log import Entry
from stelae.spi.services import EngineServices, FileLock
from stelae.spi.wal import Append, Durable, Failed, LogState, Outcome, WalEngine, WalSnapshot
from stelae_shared.lmdb_files.library import EXTRA, MODULE
from stelae_shared.lmdb_files.marker import ShutdownState
from stelae_shared.log_files.directories import make_durable, misplaced
from stelae_wal_lmdb import reader
from stelae_wal_lmdb.append import AcceptedAppend, append_all, examine
from stelae_wal_lmdb.aside import open_aside, write_aside
from stelae_wal_lmdb.config import LmdbConfig
from stelae_wal_lmdb.environment import LogEnvironment
from stelae_wal_lmdb.export import ExportSnapshot, export_view
from stelae_wal_lmdb.format import HEADER_KEY, NAMESPACE, LogRecord, RecordUse, encode_header, encode_record, key
from stelae_wal_lmdb.log import EnvironmentLog
from stelae_wal_lmdb.removal import collect, mark_dropping, purge
from stelae_wal_lmdb.spools import remove_spools, spool_path
from stelae_wal_lmdb.startup import LOCK_NAME, LogDirectory, OpenedEnvironment, fresh, open_all


class LmdbWal(WalEngine):
    """One LMDB environment for a node. Created by ``open`` only."""

    name: ClassVar[str] = "lmdb"
    Config: ClassVar[type[LmdbConfig]] = LmdbConfig
    capabilities: ClassVar[frozenset[str]] = frozenset({"snapshot", "always_synced"})
    optional_modules: ClassVar[dict[str, str]] = {MODULE: EXTRA}

    _env: LogEnvironment | None
    _refusal: StorageError | None
    _logs: dict[LogId, EnvironmentLog]
    _leftovers: list[EnvironmentLog]
    _next_number: int

    def __init__(self, place: LogDirectory, opened: OpenedEnvironment, lock: FileLock) -> None:
        self._place = place
        self._lock: FileLock | None = lock
        self._groups = 0
        self._entries = 0
        self._spools = 0
        self._take_over(opened)
        self._purge_leftovers()

    @classmethod
    def open(cls, directory: str, config: LmdbConfig, services: EngineServices) -> Self:
        """Open the directory. After an unclean stop, a child process reads all of it first."""
        with misplaced(directory):
            return cls._opened(directory, config, services)

    @classmethod
    def _opened(cls, directory: str, config: LmdbConfig, services: EngineServices) -> Self:
        files = services.files
        make_durable(files, directory)
        lock = files.lock(f"{directory}/{LOCK_NAME}")
        try:
            place = LogDirectory(files, directory, config)
            left = place.marker.claim()
            make_durable(files, f"{directory}/names")
            remove_spools(files, directory)
            return cls(place, open_all(place, left), lock)
        except BaseException:
            lock.release()
            raise

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
        env = self._writable()
        for left in self._leftovers:
            if left.name == log:
                self._mark_dropping(
                    left
                )  # Two live records of one log would be taken for each other at the next start.
        number, record = self._next_number, LogRecord(log=log, base=base, last=base)
        env.make_room(0, 2)
        try:
            with env.write() as txn:
                txn.put(HEADER_KEY, encode_header(number + 1))
                txn.put(key(NAMESPACE, number), encode_record(number, record))
        except StorageError as error:
            self._judge(error)
            raise
        self._next_number = number + 1
        try:
            self._place.names.add(number, log)
        except StorageError:
            self._leftovers.append(EnvironmentLog(number, record))
            self._purge_leftovers()
            raise
        self._logs[log] = EnvironmentLog(number, record)

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Append to many logs in one transaction, which is durable even without ``sync``.

        LMDB can omit the sync only for a whole environment, and a crash may then destroy all of it."""
        outcomes: dict[LogId, Outcome] = {}
        accepted: list[AcceptedAppend] = []
        for name, append in group.items():
            log = self._logs.get(name)
            if log is None:
                outcomes[name] = Failed(self._unknown(name), ZERO)
                continue
            found = self._examine(log, append)
            if isinstance(found, AcceptedAppend):
                accepted.append(found)
            else:
                outcomes[name] = Failed(found, log.last)
        if accepted:
            outcomes.update(self._append(accepted))
        self._groups += 1
        return outcomes

    def repair(self, log: LogId) -> OpId:
        """Resume a log once there is space. Grows a map that is full.

        The map changes only while no read is under way, and new reads wait for it."""
        found = self._known(log)
        damaged = found.corrupt()
        if damaged is not None:
            raise damaged
        env = self._writable()
        if found.failed is None:
            return found.last
        env.make_room(found.refused_bytes, 2)
        if found.repaired_map_bytes == env.map_bytes:
            env.grow()  # A probe needs fewer pages than an append: the last repair of this log has not helped.
        try:
            env.probe(found.refused_bytes)
        except Full:
            with env.lend_reserve():
                pass  # Space that was collected meanwhile becomes available.
            self._probe_and_grow(env, found.refused_bytes)
        found.repaired_map_bytes = env.map_bytes
        found.failed = None
        return found.last

    def op_id_at(self, log: LogId, index: int) -> OpId:
        """Return the op id at ``index``. One lookup."""
        found = self._known(log)
        return reader.op_id_at(self._readable(found), found, index)

    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes."""
        found = self._known(log)
        return reader.read(self._readable(found), found, first, end, bytes_max)

    def collect(self, log: LogId, upto: int) -> OpId:
        """Remove entries at or below ``upto``, a bounded number; return the new base."""
        found = self._known(log)
        if upto <= found.record.base.index:
            return found.record.base
        env = self._writable()
        self._purge_leftovers()
        try:
            return collect(env, found, upto, self._place.config.removed_entries_max)
        except StorageError as error:
            if found.damage is None:
                self._judge(error)
            raise

    def drop(self, log: LogId) -> None:
        """Remove a log and all it holds, durably.

        Entries that are not removed now are removed by later collections and removals, and by starts."""
        found = self._logs.get(log)
        if found is None:
            return
        self._remove(found)
        self._logs.pop(log, None)
        if self._refusal is not None and not self._logs:
            self._begin_anew()

    def set_aside(self, log: LogId, directory: str) -> None:
        """Move a log into its own file in ``directory``, durably. Repeating it is harmless.

        A damaged log is written up to the damage. A log whose record is lost is written without entries."""
        found = self._logs.get(log)
        if found is not None:
            write_aside(self._place.files, directory, self._env, found)
            self.drop(log)

    @classmethod
    @contextmanager
    def opened_aside(
        cls, directory: str, log: LogId, config: LmdbConfig, services: EngineServices
    ) -> Iterator[tuple[LogState, Iterator[Entry]]]:
        """Open a log that was set aside; yield its state and its entries, checksums verified.

        ``StorageError``: the directory has no such log, or it cannot be read."""
        with open_aside(services.files, directory, log) as opened:
            yield opened

    def cool(self, log: LogId) -> None:
        """Do nothing: an idle log uses no resources."""
        self._known(log)

    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """Copy the entries from ``first`` to the present last one to a file without a name, and return it as a view."""
        found = self._known(log)
        env = self._readable(found)
        files, self._spools = self._place.files, self._spools + 1
        path = spool_path(self._place.directory, found.number, self._spools)
        file = files.create(path)
        try:
            files.remove(path)
            export_view(env, found, file, first)
        except BaseException:
            file.close()
            raise
        return ExportSnapshot(file)

    def stats(self) -> dict[str, float]:
        """Return the number of logs, what was committed since the start, and the size of the file."""
        logs = list(self._logs.values())
        figures: dict[str, float] = {
            "logs": len(logs),
            "logs_damaged": sum(log.damage is not None for log in logs),
            "groups": self._groups,
            "entries": self._entries,
        }
        return figures | (self._env.figures() if self._env is not None and self._lock is not None else {})

    def close(self) -> None:
        """Close the environment, mark it as closed cleanly, and release the lock."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if self._env is not None:
                self._env.close()
                if self._refusal is None:
                    self._place.marker.write(ShutdownState.CLEAN)
        finally:
            lock.release()

    # -- inside ----------------------------------------------------------------------------------

    def _probe_and_grow(self, env: LogEnvironment, size_bytes: int) -> None:
        """Grow the map until an append of that size fits; ``Full`` if it cannot."""
        while True:
            try:
                return env.probe(size_bytes)
            except Full:
                if not env.grow():
                    raise

    def _take_over(self, opened: OpenedEnvironment) -> None:
        self._env = opened.env
        self._refusal = opened.refusal
        self._logs = opened.logs
        self._leftovers = opened.leftovers
        self._next_number = opened.next_number

    def _examine(self, log: EnvironmentLog, append: Append) -> AcceptedAppend | StelaeError:
        if self._env is None or self._refusal is not None:
            return log.corrupt() or self._refusal or Corrupt("there is no environment")
        return examine(self._env, log, append)

    def _append(self, accepted: Sequence[AcceptedAppend]) -> dict[LogId, Outcome]:
        """Append all in one transaction. If that does not fit, append each alone, so that only some of them fail."""
        env = self._writable()
        try:
            append_all(env, accepted)
        except Full as error:
            if len(accepted) > 1:
                return {name: outcome for fit in accepted for name, outcome in self._append([fit]).items()}
            log = accepted[0].log
            log.failed = Failed(error, log.last)
            log.refused_bytes = accepted[0].size_bytes
            return {log.name: log.failed}
        except StorageError as error:
            refusal = self._refuse_writes(error)
            return {fit.log.name: Failed(refusal, fit.log.last) for fit in accepted}
        self._entries += sum(len(fit.append.entries) for fit in accepted)
        return {fit.log.name: Durable(fit.record.last) for fit in accepted}

    def _remove(self, log: EnvironmentLog) -> None:
        """Remove a log and its name. If nothing may be written to the environment, remove only the name."""
        if self._env is not None and self._refusal is None:
            self._mark_dropping(log)
            self._leftovers.append(log)
            self._purge_leftovers()
        else:
            # Nothing is written to it again. A later start that finds it valid must not restore the name.
            self._place.marker.write(ShutdownState.DISTRUSTED)
            self._place.names.remove(log.number, log.name)

    def _mark_dropping(self, log: EnvironmentLog) -> None:
        """Record durably that a log is being removed, unless it is recorded already."""
        if log.record.use is RecordUse.DROPPING:
            return
        try:
            mark_dropping(self._writable(), log)
        except StorageError as error:
            self._judge(error)
            raise

    def _purge_leftovers(self) -> None:
        """Continue removals: the mark, the name, then the entries and the record. What remains is removed later."""
        while self._leftovers and self._env is not None and self._refusal is None:
            log = self._leftovers[-1]
            try:
                self._mark_dropping(log)
                self._place.names.remove(log.number, log.name)
            except StorageError:
                return
            try:
                if not purge(self._env, log, self._place.config.removed_entries_max):
                    return
            except StorageError as error:
                self._judge(error)
                return
            self._leftovers.pop()

    def _begin_anew(self) -> None:
        """Replace an environment that may not be written and has no log left by a new one."""
        if self._env is not None:
            self._env.close()
        self._env = None
        with suppress(Full):
            self._take_over(fresh(self._place))

    def _judge(self, error: StorageError) -> None:
        """Refuse further writes to the environment after a failed transaction, unless there was no space."""
        if not isinstance(error, Full):
            self._refuse_writes(error)

    def _refuse_writes(self, error: StorageError) -> StorageError:
        """Refuse all further writes, also after a restart (durability rule 7); return the reason."""
        if self._refusal is None:
            self._refusal = error
            with suppress(StorageError, OSError):
                self._place.marker.write(ShutdownState.DISTRUSTED)
        return self._refusal

    def _writable(self) -> LogEnvironment:
        if self._env is None or self._refusal is not None:
            raise self._refusal or StorageError("the engine is closed", path=self._place.directory)
        return self._env

    def _readable(self, log: EnvironmentLog) -> LogEnvironment:
        if self._env is None:
            raise log.corrupt() or self._refusal or StorageError("there is no environment")
        return self._env

    def _known(self, name: LogId) -> EnvironmentLog:
        log = self._logs.get(name)
        if log is None:
            raise self._unknown(name)
        return log

    def _unknown(self, name: LogId) -> StelaeError:
        return CallerError(f"log {name} does not exist; it has to be created first")
