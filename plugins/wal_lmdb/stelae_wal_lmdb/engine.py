"""The engine: all logs of a node in one environment. See the package's README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import ClassVar, Self

from stelae.spi.errors import BadIdentifier, CallerError, Compacted, Corrupt, Full, StelaeError, StorageError
from stelae.spi.ids import ZERO, LogId, OpId, tablet_id
from stelae.spi.log import Entry
from stelae.spi.services import EngineServices, File, FileLock
from stelae.spi.wal import Append, Durable, Failed, LogState, Outcome, WalEngine, WalSnapshot
from stelae_shared.lmdb_files.library import EXTRA, MODULE
from stelae_shared.lmdb_files.marker import Left
from stelae_shared.log_files.directories import make_durable, misplaced
from stelae_wal_lmdb import reader
from stelae_wal_lmdb.append import Fit, append_all, examine
from stelae_wal_lmdb.config import LmdbConfig
from stelae_wal_lmdb.environment import LogEnvironment
from stelae_wal_lmdb.export import ExportSnapshot, read_export, read_record, write_export
from stelae_wal_lmdb.format import HEADER_KEY, NAMESPACE, LogRecord, encode_header, encode_record, key
from stelae_wal_lmdb.log import EnvironmentLog
from stelae_wal_lmdb.removal import collect, mark_dropping, purge
from stelae_wal_lmdb.spools import remove_spools, spool_path
from stelae_wal_lmdb.startup import LOCK_NAME, LogDirectory, Opened, fresh, open_all


class LmdbWal(WalEngine):
    """One LMDB environment for a node. Created by ``open`` only."""

    name: ClassVar[str] = "lmdb"
    Config: ClassVar[type[LmdbConfig]] = LmdbConfig
    capabilities: ClassVar[frozenset[str]] = frozenset({"snapshot", "always_synced"})
    optional_modules: ClassVar[dict[str, str]] = {MODULE: EXTRA}

    _env: LogEnvironment | None
    _condemned: StorageError | None
    _logs: dict[LogId, EnvironmentLog]
    _leftovers: list[EnvironmentLog]
    _next_number: int

    def __init__(self, place: LogDirectory, opened: Opened, lock: FileLock) -> None:
        self._place = place
        self._lock: FileLock | None = lock
        self._groups = 0
        self._entries = 0
        self._spools = 0
        self._take_over(opened)
        self._purge_leftovers()

    @classmethod
    def open(cls, directory: str, config: LmdbConfig, services: EngineServices) -> Self:
        """Open the directory; after an unclean stop, once a child process has read all of it."""
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
        """A snapshot of every log of the node, damaged ones included."""
        return {name: log.state() for name, log in list(self._logs.items())}

    def create(self, log: LogId, base: OpId) -> None:
        """Create an empty log that begins after ``base``; durable on return."""
        if log in self._logs:
            raise CallerError(f"log {log} exists")
        tablet_id(log.tablet_id)
        if not 0 <= log.generation < 1 << 63:
            raise BadIdentifier("generation", str(log.generation), "an integer from 0 to 2**63 - 1")
        env = self._writable()
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
            self._remove(EnvironmentLog(number, record))
            raise
        self._logs[log] = EnvironmentLog(number, record)

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Append to many logs in one transaction, which is durable with ``sync`` and without.

        LMDB can leave out the sync for an environment only, and a crash may then destroy all of it."""
        outcomes: dict[LogId, Outcome] = {}
        fits: list[Fit] = []
        for name, append in group.items():
            log = self._logs.get(name)
            if log is None:
                outcomes[name] = Failed(self._unknown(name), ZERO)
                continue
            found = self._examine(log, append)
            if isinstance(found, Fit):
                fits.append(found)
            else:
                outcomes[name] = Failed(found, log.last)
        if fits:
            outcomes.update(self._append(fits))
        self._groups += 1
        return outcomes

    def repair(self, log: LogId) -> OpId:
        """Resume a log once there is space, growing a map that is full.

        Readers wait while the map changes, and it changes only while none is under way."""
        found = self._known(log)
        damaged = found.corrupt()
        if damaged is not None:
            raise damaged
        env = self._writable()
        if found.failed is None:
            return found.last
        env.make_room(found.refused_bytes, 2)
        try:
            env.probe(found.refused_bytes)
        except Full:
            with env.lend_reserve():
                pass  # what was collected meanwhile becomes free for use
            self._probe_and_grow(env, found.refused_bytes)
        found.failed = None
        return found.last

    def op_id_at(self, log: LogId, index: int) -> OpId:
        """Return the op id at ``index``: one look-up."""
        found = self._known(log)
        return reader.op_id_at(self._readable(found), found, index)

    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes."""
        found = self._known(log)
        return reader.read(self._readable(found), found, first, end, bytes_max)

    def collect(self, log: LogId, upto: int) -> OpId:
        """Remove the entries at or below ``upto``; return the new base."""
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

        Entries that cannot be removed now are removed later, at the latest when the engine is opened."""
        found = self._logs.get(log)
        if found is None:
            return
        self._remove(found)
        self._logs.pop(log, None)
        if self._condemned is not None and not self._logs:
            self._begin_anew()

    def set_aside(self, log: LogId, directory: str) -> None:
        """Move a log into a file of its own in ``directory``, durably. Repeating it is harmless."""
        found = self._logs.get(log)
        if found is None:
            return
        files = self._place.files
        make_durable(files, directory)
        path = f"{directory}/{log.tablet_id}.{log.generation}.log"
        if files.exists(f"{path}.new"):
            files.remove(f"{path}.new")
        with closing(files.create(f"{path}.new")) as file:
            self._export(found, file, found.record.base.index + 1)
            file.sync()
        files.rename(f"{path}.new", path)
        files.sync_directory(directory)
        self.drop(log)

    @classmethod
    @contextmanager
    def opened_aside(
        cls, directory: str, log: LogId, config: LmdbConfig, services: EngineServices
    ) -> Iterator[tuple[LogState, Iterator[Entry]]]:
        """Open what ``set_aside`` made of a log: how it stood, and its entries behind the base, checksums verified.

        ``StorageError``: it is not there, or cannot be read."""
        path = f"{directory}/{log.tablet_id}.{log.generation}.log"
        if not services.files.exists(path):
            raise StorageError(f"there is no log {log} here", path=directory)
        with closing(services.files.open(path)) as file:
            record = read_record(file, path)
            state = LogState(base=record.base, last=record.last, commit_hint=record.commit_hint)
            yield state, read_export(file, path)

    def cool(self, log: LogId) -> None:
        """Nothing to do: a log holds nothing while it is idle."""
        self._known(log)

    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """A copy of the entries from ``first`` to the present last one, in a file without a name."""
        found = self._known(log)
        self._readable(found)
        files, self._spools = self._place.files, self._spools + 1
        path = spool_path(self._place.directory, found.number, self._spools)
        file = files.create(path)
        try:
            files.remove(path)
            self._export(found, file, first)
        except BaseException:
            file.close()
            raise
        return ExportSnapshot(file)

    def stats(self) -> dict[str, float]:
        """How many logs there are, what was committed since the start, and how large the file is."""
        logs = list(self._logs.values())
        figures: dict[str, float] = {
            "logs": len(logs),
            "logs_damaged": sum(log.damage is not None for log in logs),
            "groups": self._groups,
            "entries": self._entries,
        }
        return figures | (self._env.figures() if self._env is not None and self._lock is not None else {})

    def close(self) -> None:
        """Close the environment, mark it as closed cleanly, release the lock."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if self._env is not None:
                self._env.close()
                if self._condemned is None:
                    self._place.marker.write(Left.CLEAN)
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

    def _take_over(self, opened: Opened) -> None:
        self._env = opened.env
        self._condemned = opened.condemned
        self._logs = opened.logs
        self._leftovers = opened.leftovers
        self._next_number = opened.next_number

    def _examine(self, log: EnvironmentLog, append: Append) -> Fit | StelaeError:
        if self._env is None or self._condemned is not None:
            return log.corrupt() or self._condemned or Corrupt("there is no environment")
        return examine(self._env, log, append)

    def _append(self, fits: Sequence[Fit]) -> dict[LogId, Outcome]:
        """Append all at once; if that does not fit, each by itself, so that only what does not fit fails."""
        env = self._writable()
        try:
            append_all(env, fits)
        except Full as error:
            if len(fits) > 1:
                return {name: outcome for fit in fits for name, outcome in self._append([fit]).items()}
            log = fits[0].log
            log.failed = Failed(error, log.last)
            log.refused_bytes = fits[0].size_bytes
            return {log.name: log.failed}
        except StorageError as error:
            condemned = self._condemn(error)
            return {fit.log.name: Failed(condemned, fit.log.last) for fit in fits}
        self._entries += sum(len(fit.append.entries) for fit in fits)
        return {fit.log.name: Durable(fit.record.last) for fit in fits}

    def _export(self, log: EnvironmentLog, file: File, first: int) -> None:
        """Write a log from ``first`` on to a file, as one transaction sees it."""
        env = self._env
        if env is None:
            write_export(file, log.number, log.record, ())
            return
        with env.read() as txn:
            base, last = log.bounds(txn)
            if first <= base.index:
                raise Compacted(base)
            if first > last.index + 1:
                raise CallerError(f"log {log.name} ends at {last}: no view begins at {first}")
            record = LogRecord(log=log.name, base=base, last=last, commit_hint=log.record.commit_hint)
            write_export(file, log.number, record, reader.stored(env, log, txn, base, first, last.index + 1))

    def _remove(self, log: EnvironmentLog) -> None:
        """Remove a log, its name included; in a condemned environment, the name alone."""
        if self._env is not None and self._condemned is None:
            try:
                mark_dropping(self._env, log)
            except StorageError as error:
                self._judge(error)
                raise
            self._leftovers.append(log)
            self._purge_leftovers()
        else:
            # Never written to again: a start that finds it whole after all must not name the log again.
            self._place.marker.write(Left.DISTRUSTED)
            self._place.names.remove(log.number, log.name)

    def _purge_leftovers(self) -> None:
        """Finish removals, the name before the record; what cannot be removed now is tried again."""
        while self._leftovers and self._env is not None and self._condemned is None:
            log = self._leftovers[-1]
            try:
                self._place.names.remove(log.number, log.name)
            except StorageError:
                return
            try:
                purge(self._env, log, self._place.config.removed_entries_max)
            except StorageError as error:
                self._judge(error)
                return
            self._leftovers.pop()

    def _begin_anew(self) -> None:
        """A fresh environment takes the place of a condemned one in which no log is left."""
        if self._env is not None:
            self._env.close()
        self._env = None
        with suppress(Full):
            self._take_over(fresh(self._place))

    def _judge(self, error: StorageError) -> None:
        """Condemn the environment for an error of a transaction that is not want of space."""
        if not isinstance(error, Full):
            self._condemn(error)

    def _condemn(self, error: StorageError) -> StorageError:
        """Write nothing more, now or after a restart (durability rule 7); return why."""
        if self._condemned is None:
            self._condemned = error
            with suppress(StorageError, OSError):
                self._place.marker.write(Left.DISTRUSTED)
        return self._condemned

    def _writable(self) -> LogEnvironment:
        if self._env is None or self._condemned is not None:
            raise self._condemned or StorageError("the engine is closed", path=self._place.directory)
        return self._env

    def _readable(self, log: EnvironmentLog) -> LogEnvironment:
        if self._env is None:
            raise log.corrupt() or self._condemned or StorageError("there is no environment")
        return self._env

    def _known(self, name: LogId) -> EnvironmentLog:
        log = self._logs.get(name)
        if log is None:
            raise self._unknown(name)
        return log

    def _unknown(self, name: LogId) -> StelaeError:
        return CallerError(f"log {name} does not exist; it has to be created first")
