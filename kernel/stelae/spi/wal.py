"""Contract of a write-ahead log engine (contract version 1).

Scope: node. One instance serves every log of a node, each a ``LogId(tablet, generation)``. The kernel owns group
commit: it reserves order, bounds the queue, groups over logs, and gives each group to ``begin`` or ``commit``.

Ordering and durability
    1. ``commit(group, sync=True)`` returns only when all it reports ``Durable`` is on disk, with its files' names.
       What was begun is durable, and shown to readers, from ``finish`` on.
    2. Within one log, entries become durable in index order. A crash inside ``commit`` leaves any
       prefix of what the call was appending, never a gap and never a mixture.
    3. ``replace_from`` replaces a suffix atomically: after a crash one reads the old suffix, or a prefix of the new,
       not an empty one; never old behind new. A stored entry voids every earlier-written one at or above its index.
    4. The *base op id* of a log is durable before an entry at or below it goes: no emptied log claims to begin at 0.0.
    5. The commit hint rides along with an append and costs no sync of its own. What is recovered
       is at most the highest hint ever passed, and at most ``last.index``.
    6. Damage in a closed file, or before bytes that are known to have been synced, is corruption
       and is reported as ``Damage``; only an unsynced tail is ever cut silently.

Threads
    ``open``, ``create``, ``commit``, ``repair``, ``collect``, ``drop``, ``set_aside``, ``cool`` and ``close`` may
    block; ``begin``, ``meanwhile``, and ``finish`` where all is durable, may not: the event loop calls them. Of all
    these one is called at a time, and none else between a ``begin`` and its ``finish``. ``op_id_at``, ``read``,
    ``logs``, ``snapshot`` and ``stats`` may be called from any thread at any time, and see durable entries only."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import msgspec

from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.services import Buffer, EngineServices, File
from stelae.spi.settings import Engine

WAL_CONTRACT_VERSION = 1


class Append(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one commit does to one log: void a suffix if asked to, then append ``entries``.
    Without ``replace_from`` the entries, at least one, begin right after the log's last entry. With it everything at or
    above that index is void, and entries, if any, begin exactly there."""

    entries: tuple[Entry, ...]  #: Contiguous, in index order.
    replace_from: int | None = None
    commit_hint: int = 0  #: The leader's commit index as far as the caller knows it; 0: unknown.


class Durable(msgspec.Struct, frozen=True, gc=False):
    """The append is durable (or, without ``sync``, written); ``last`` is the log's last op id."""

    last: OpId


class Failed(msgspec.Struct, frozen=True):
    """The append failed; ``durable`` is the last op id that is still good, and the log refuses more until ``repair``.
    ``error``: ``Full`` when space may come back; another ``StorageError``: the log's files are not to be trusted."""

    error: StelaeError
    durable: OpId


Outcome: TypeAlias = Durable | Failed


class Write(NamedTuple):
    """One durable write: ``file.pwritev(buffers, offset, dsync=True)``."""

    file: File
    buffers: Sequence[Buffer]
    offset: int
    whole_blocks: bool = False  #: Of 4096 bytes, over space that was written before: direct I/O is allowed.

    def failure(self) -> StorageError | None:
        """Make it, blocking; what it failed with."""
        try:
            self.file.pwritev(self.buffers, self.offset, dsync=True)
        except StorageError as error:
            return error
        return None


class Begun(NamedTuple):
    """A commit of which only these writes are left, in any order or at once; then ``finish``, once, with the failure
    of each, or ``None`` for one that is durable, returns what ``commit`` would. After a failure it may block."""

    writes: Sequence[Write]
    finish: Callable[[Sequence[StorageError | None]], dict[LogId, Outcome]]
    meanwhile: Callable[[], None] = lambda: None  #: Called once between, best while the disk writes: nobody waits.

    def perform(self) -> dict[LogId, Outcome]:
        """Make the writes, blocking, and finish."""
        failures = [write.failure() for write in self.writes]
        self.meanwhile()
        return self.finish(failures)


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """Where a log is corrupt behind ``last_good``; or ``unread``: not readable now, nothing is known to be wrong."""

    path: str
    offset: int
    last_good: OpId
    detail: str
    unread: bool = False


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """What recovery found of one log."""

    base: OpId  #: Of the last entry that was collected (or the log's starting point).
    last: OpId  #: Of the last readable entry; equals ``base`` for an empty log.
    commit_hint: int = 0  #: Highest commit index recorded, at most ``last.index``.
    damage: Damage | None = None  #: If corrupt: such a log refuses appends and reads past it.


class SnapshotUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable piece of a snapshot: relative name, length in bytes, hex SHA-256 digest."""

    name: str
    size_bytes: int
    digest: str


class WalSnapshot(ABC):
    """An immutable view of a log from some index on; survives collection and ``close``."""

    @property
    @abstractmethod
    def units(self) -> Sequence[SnapshotUnit]:
        """The pieces, for engines that declare the capability ``files``; else empty."""

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """Every entry of the view in index order, checksums verified."""

    @abstractmethod
    def release(self) -> None:
        """Let go of whatever the view holds. Releasing twice is harmless."""


class WalEngine(Engine):
    """All logs of a node; hook ``stelae_wal_engines``. Capabilities: ``snapshot``: supported; ``files``: made of files;
    ``fake_files``: all I/O is by ``Files``; ``always_synced``: any commit survives. ``CallerError``: an unknown log."""

    contract_version: ClassVar[int] = WAL_CONTRACT_VERSION

    @classmethod
    @abstractmethod
    def open(cls, directory: str, config: Any, services: EngineServices) -> Self:
        """Open the engine's directory, made when missing; recovery is complete on return. Only ``Locked``, ``Foreign``,
        ``FutureVersion`` and ``Full`` are raised, and ``StorageError`` for what cannot be used or read now. Damage is
        what was read and is wrong: ``logs`` lists such a log with it; the others work. One that cannot be read where
        others can may be listed as ``unread``: it refuses, and is not changed; the next ``open`` looks again."""

    @classmethod
    def fast(cls) -> type["WalEngine"] | None:
        """The class that ``[log] fast = true`` opens in place of this one, for the same files: it has ``begin``, and
        may write in other ways. Each opens what the other left, also after a kill. ``None``: there is no such class."""
        return None

    @abstractmethod
    def logs(self) -> Mapping[LogId, LogState]:
        """A snapshot of every log of the node, damaged ones included."""

    @abstractmethod
    def create(self, log: LogId, base: OpId) -> None:
        """Create an empty log behind ``base``, durably. ``CallerError``: it exists; ``StorageError``: it does not."""

    @abstractmethod
    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Append to many logs: one outcome for each of ``group``; a bad log does not fail others; no operating error is
        raised. ``commit({}, sync=True)`` makes all earlier unsynced commits durable. A gap, overlap or lower term, a
        replacement at or below the base, an unknown or damaged log: ``Failed`` with ``CallerError`` or ``Corrupt``."""

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin ``commit(group, sync=True)`` if durable writes are all that it needs of the disk; changes nothing.
        ``None``: it needs more, or refuses a part, and is left to ``commit``; so is all with engines that have none."""
        return None

    @abstractmethod
    def repair(self, log: LogId) -> OpId:
        """Make a log that reported ``Failed`` usable again, in fresh space. Returns the last durable op id; everything
        after it is void. ``Full``: try again later; another ``StorageError``: the replica must be replaced."""

    @abstractmethod
    def op_id_at(self, log: LogId, index: int) -> OpId:
        """The op id at ``index``; scans nothing. ``Compacted``: below the base. ``CallerError``: past the end."""

    @abstractmethod
    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes; durable winners only,
        checksums verified. ``Compacted``: ``first`` is at or below the base. ``Corrupt``, with
        file and offset: a checksum fails. ``CallerError``: the range is empty, or ends past the last entry."""

    @abstractmethod
    def collect(self, log: LogId, upto: int) -> OpId:
        """Let entries up to ``upto`` go; return the new base, durable before any goes. Whole files may stay longer.
        ``SyncFailed``, ``Corrupt``: nothing goes, and the log refuses appends and ``repair`` from now on. Any other
        ``StorageError``: nothing goes; to be repeated."""

    @abstractmethod
    def drop(self, log: LogId) -> None:
        """Remove a log and all it holds, durably. Dropping an unknown log is harmless."""

    @abstractmethod
    def set_aside(self, log: LogId, directory: str) -> None:
        """Move a log out of the engine into ``directory`` (for quarantine), durably."""

    @abstractmethod
    def cool(self, log: LogId) -> None:
        """Keep no buffer, handle or spare space for an idle log; the next use warms it up."""

    @abstractmethod
    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """An immutable view of the entries from ``first`` to the present last one."""

    @abstractmethod
    def stats(self) -> dict[str, float]:
        """Figures for people and metrics: names lower case, units last."""

    @abstractmethod
    def close(self) -> None:
        """Close cleanly: sync, cut preallocated space, release the lock. Closing twice is fine."""
