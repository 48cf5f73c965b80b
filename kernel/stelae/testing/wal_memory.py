"""The fake log engine: logs in memory, for tests of code that uses a log.

It follows the contract in order, replacement, collection, reading and refusals, and passes ``WalBasics``. Its logs
survive ``close`` but no crash: only ``close`` writes them to the disk. So it does not declare ``fake_files``, and
declares ``volatile``: what it reports as durable is lost with its process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import msgspec

from stelae.spi.append_check import check_append
from stelae.spi.errors import CallerError, Compacted, StelaeError, TooLarge
from stelae.spi.ids import ZERO, LogId, OpId, tablet_id
from stelae.spi.log import ENTRY_BYTES_MAX, Entry
from stelae.spi.services import EngineServices, FileLock, Files
from stelae.spi.wal import Append, Durable, Failed, LogState, Outcome, SnapshotUnit, WalEngine, WalSnapshot

LOGS_NAME = "logs"
LOCK_NAME = "lock"


class StoredLog(msgspec.Struct, frozen=True):
    """One log as ``close`` and ``set_aside`` write it to a file."""

    log: LogId
    base: OpId
    commit_hint: int
    entries: list[Entry]


@dataclass(slots=True)
class MemoryLog:
    """One log. ``entries`` is extended in place or replaced by another list, so that other threads may read it."""

    base: OpId
    commit_hint: int = 0
    entries: list[Entry] = field(default_factory=list)

    def state(self) -> LogState:
        """Return the state that ``logs`` reports."""
        last = self.entries[-1].op_id if self.entries else self.base
        return LogState(base=self.base, last=last, commit_hint=min(self.commit_hint, last.index))

    def refusal(self, append: Append) -> StelaeError | None:
        """Return the error of an append that is refused, or ``None``."""
        fact = check_append(self.state(), append)
        if fact is not None:
            return CallerError(fact)
        for entry in append.entries:
            if len(entry.body) > ENTRY_BYTES_MAX:
                return TooLarge(f"entry {entry.op_id}", len(entry.body), ENTRY_BYTES_MAX)
        if append.replace_from is not None and append.entries:
            before = self.op_id_at(append.replace_from - 1)
            if before.term > append.entries[0].op_id.term:
                return CallerError(f"entry {append.entries[0].op_id} goes back from {before}")
        return None

    def append(self, append: Append) -> None:
        """Do an append for which ``refusal`` returns ``None``."""
        if append.replace_from is None:
            self.entries.extend(append.entries)
        else:
            count = append.replace_from - self.base.index - 1
            self.entries = [*self.entries[:count], *append.entries]
        self.commit_hint = max(self.commit_hint, append.commit_hint)

    def op_id_at(self, index: int) -> OpId:
        """Return the op id at an index of the log, or of its base."""
        return self.base if index == self.base.index else self.entries[index - self.base.index - 1].op_id


class MemorySnapshot(WalSnapshot):
    """A copy of the end of a log."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @property
    def units(self) -> Sequence[SnapshotUnit]:
        """Empty: there are no files."""
        return ()

    def entries(self) -> Iterator[Entry]:
        """Iterate over the entries of the view."""
        return iter(self._entries)

    def release(self) -> None:
        """Do nothing: the view holds only memory."""


class MemoryWal(WalEngine):
    """Logs in memory. Only ``open`` creates it."""

    name: ClassVar[str] = "memory"
    capabilities: ClassVar[frozenset[str]] = frozenset({"snapshot", "volatile"})

    def __init__(self, files: Files, directory: str, lock: FileLock) -> None:
        self._files = files
        self._directory = directory
        self._lock: FileLock | None = lock
        self._groups = 0
        self._logs: dict[LogId, MemoryLog] = {}
        with suppress(FileNotFoundError):
            stored = msgspec.msgpack.decode(files.read_bytes(f"{directory}/{LOGS_NAME}"), type=list[StoredLog])
            self._logs = {one.log: MemoryLog(one.base, one.commit_hint, one.entries) for one in stored}

    @classmethod
    def open(cls, directory: str, config: Any, services: EngineServices) -> Self:
        """Open the logs that the last ``close`` wrote."""
        services.files.make_directory(directory)
        lock = services.files.lock(f"{directory}/{LOCK_NAME}")
        try:
            return cls(services.files, directory, lock)
        except BaseException:
            lock.release()
            raise

    def logs(self) -> Mapping[LogId, LogState]:
        """Return the state of every log."""
        return {log: one.state() for log, one in list(self._logs.items())}

    def create(self, log: LogId, base: OpId) -> None:
        """Create an empty log that begins after ``base``."""
        if log in self._logs:
            raise CallerError(f"log {log} exists already")
        tablet_id(log.tablet_id)
        self._logs[log] = MemoryLog(base)

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Append to many logs. An append that is refused does not affect the other logs."""
        self._groups += 1
        return {log: self._append(log, append) for log, append in group.items()}

    def repair(self, log: LogId) -> OpId:
        """Return the last op id. A failure lasts only for one append, so there is nothing to repair."""
        return self._known(log).state().last

    def op_id_at(self, log: LogId, index: int) -> OpId:
        """Return the op id at ``index``."""
        found = self._known(log)
        state = found.state()
        if index < state.base.index:
            raise Compacted(state.base)
        if index > state.last.index:
            raise CallerError(f"log {log} ends at {state.last}: no entry {index}")
        return found.op_id_at(index)

    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes."""
        found = self._known(log)
        state = found.state()
        if end <= first:
            raise CallerError(f"log {log}: the range from {first} to {end} is empty")
        if first <= state.base.index:
            raise Compacted(state.base)
        if end > state.last.index + 1:
            raise CallerError(f"log {log} ends at {state.last}: no entry {end - 1}")
        given: list[Entry] = []
        for entry in found.entries[first - state.base.index - 1 : end - state.base.index - 1]:
            bytes_max -= entry.size_bytes
            if given and bytes_max < 0:
                break
            given.append(entry)
        return given

    def collect(self, log: LogId, upto: int) -> OpId:
        """Remove the entries at or below ``upto``; return the new base."""
        found = self._known(log)
        upto = min(upto, found.state().last.index)
        if upto > found.base.index:
            base = found.op_id_at(upto)
            self._logs[log] = MemoryLog(base, found.commit_hint, found.entries[upto - found.base.index :])
            return base
        return found.base

    def drop(self, log: LogId) -> None:
        """Remove a log."""
        self._logs.pop(log, None)

    def set_aside(self, log: LogId, directory: str) -> None:
        """Write a log to a file in ``directory``, and remove it here."""
        found = self._logs.get(log)
        if found is None:
            return
        self._files.make_directory(directory)
        self._write(f"{directory}/{log.tablet_id}.{log.generation}", {log: found})
        self.drop(log)

    def cool(self, log: LogId) -> None:
        """Do nothing, but refuse an unknown log."""
        self._known(log)

    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """Return a copy of the entries from ``first`` on."""
        found = self._known(log)
        state = found.state()
        if first <= state.base.index:
            raise Compacted(state.base)
        if first > state.last.index + 1:
            raise CallerError(f"log {log} ends at {state.last}: no view can begin at {first}")
        return MemorySnapshot(tuple(found.entries[first - state.base.index - 1 :]))

    def stats(self) -> dict[str, float]:
        """Return the numbers of logs, groups and entries."""
        entries = sum(len(log.entries) for log in list(self._logs.values()))
        return {"logs": len(self._logs), "groups": self._groups, "entries": entries}

    def close(self) -> None:
        """Write all logs to a file, and release the lock."""
        lock, self._lock = self._lock, None
        if lock is not None:
            self._write(f"{self._directory}/{LOGS_NAME}", self._logs)
            lock.release()

    def _append(self, log: LogId, append: Append) -> Outcome:
        found = self._logs.get(log)
        if found is None:
            return Failed(CallerError(f"log {log} does not exist"), ZERO)
        error = found.refusal(append)
        if error is None:
            found.append(append)
            return Durable(found.state().last)
        return Failed(error, found.state().last)

    def _known(self, log: LogId) -> MemoryLog:
        found = self._logs.get(log)
        if found is None:
            raise CallerError(f"log {log} does not exist; create it first")
        return found

    def _write(self, path: str, logs: Mapping[LogId, MemoryLog]) -> None:
        stored = [StoredLog(log, one.base, one.commit_hint, one.entries) for log, one in logs.items()]
        self._files.replace(path, msgspec.msgpack.encode(stored))
