"""The state of one log in memory.

Threads: the WAL thread replaces ``record`` as a whole, after the transaction that wrote it. Readers on other threads
take the bounds of the log from the environment, in the transaction in which they read."""

from __future__ import annotations

import threading
from typing import Any

from stelae.spi.errors import CallerError, Corrupt, StelaeError
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.wal import Damage, Failed, LogState
from stelae_wal_lmdb.format import NAMESPACE, LogRecord, decode_bounds, key


class EnvironmentLog:
    """One log of the environment.

    Attributes:
        number: the first part of its keys.
        record: the log's record in the environment.
        damage: why the log is corrupt; ``None`` if it is not.
        failed: why the log takes no appends until ``repair``; ``None`` if it does.
        refused_bytes: bytes that the last append needed which found no space.
        repaired_map_bytes: size of the map at the last repair; 0 once an append has succeeded since.
    """

    __slots__ = ("_lock", "damage", "failed", "number", "record", "refused_bytes", "repaired_map_bytes")

    def __init__(self, number: int, record: LogRecord, damage: Damage | None = None) -> None:
        self._lock = threading.Lock()
        self.number = number
        self.record = record
        self.damage = damage
        self.failed: Failed | None = None
        self.refused_bytes = 0
        self.repaired_map_bytes = 0

    @property
    def name(self) -> LogId:
        """The tablet and generation."""
        return self.record.log

    @property
    def last(self) -> OpId:
        """Op id of the last entry that is durable and readable."""
        return self.record.last if self.damage is None else self.damage.last_good

    def state(self) -> LogState:
        """Return the state that ``logs`` reports. Any thread."""
        with self._lock:
            record, last = self.record, self.last
            hint = min(record.commit_hint, last.index)
            return LogState(base=record.base, last=last, commit_hint=hint, damage=self.damage)

    def bounds(self, txn: Any) -> tuple[OpId, OpId]:
        """Return base and last op id as a transaction sees them.

        For a damaged log whose record is lost they are those of ``lost_log``.

        Raises:
            Corrupt: the record fails its checksum.
            CallerError: the log was dropped.
        """
        data = txn.get(key(NAMESPACE, self.number))
        bounds = None if data is None else decode_bounds(self.number, data)
        damage = self.damage
        if damage is not None:
            return (self.record.base if bounds is None else bounds[0]), damage.last_good
        if bounds is not None:
            return bounds
        if data is None:
            raise CallerError(f"log {self.name} was dropped meanwhile")
        raise Corrupt(f"the record of log {self.name} fails its checksum")

    def note_damage(self, damage: Damage) -> Corrupt:
        """Record damage: from now on the log ends before it. Return it as an error. Any thread."""
        with self._lock:
            if self.damage is None or damage.last_good < self.damage.last_good:
                self.damage = damage
        return Corrupt(damage.detail, path=damage.path, offset=damage.offset)

    def corrupt(self) -> Corrupt | None:
        """Return the error of a damaged log; ``None`` if it is not damaged."""
        damage = self.damage
        return None if damage is None else Corrupt(damage.detail, path=damage.path, offset=damage.offset)

    def past_the_end(self, index: int, last: OpId) -> StelaeError:
        """Return the error for a read behind the last entry."""
        return self.corrupt() or CallerError(f"log {self.name} ends at {last}: there is no entry {index}")


def lost_log(number: int, log: LogId, path: str, detail: str) -> EnvironmentLog:
    """Return a log of which only the name is known. It ends at 0.0 and is damaged there."""
    damage = Damage(path=path, offset=0, last_good=ZERO, detail=detail)
    return EnvironmentLog(number, LogRecord(log=log, base=ZERO, last=ZERO), damage)
