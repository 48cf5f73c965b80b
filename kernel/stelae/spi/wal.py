"""Contract of a write-ahead log engine (contract version 1).

Scope: node. One instance serves every log of a node. A log is identified by ``LogId(tablet, generation)``. The kernel
owns group commit (``stelae.host.log_writer``): it fixes the order of appends, bounds the queue, collects the appends of
all logs into groups, and passes each group to ``begin`` or ``commit``.

Ordering and durability
    1. ``commit(group, sync=True)`` returns only when everything that it reports as ``Durable`` is on disk, including
       the names of its files. The entries of a ``begin`` are durable, and visible to readers, once ``finish`` returns.
    2. Within one log, entries become durable in index order. A crash during ``commit`` leaves a prefix of the entries
       that the call was appending: never a gap, never a mixture.
    3. ``replace_from`` replaces a suffix atomically. After a crash the log has the old suffix, or a non-empty prefix of
       the new one. Old entries never follow new ones: a stored entry makes every entry that was written earlier at or
       above its index void.
    4. The *base op id* of a log is durable before an entry at or below it is removed. So a log whose entries were all
       collected never appears to begin at 0.0.
    5. The commit hint is stored with an append and needs no sync of its own. The recovered hint is at most the highest
       hint that was ever passed, and at most ``last.index``.
    6. Damage in a closed file, or before bytes that are known to have been synced, is corruption. It is reported as
       ``Damage``. Only an unsynced tail is cut off silently.

Threads
    ``open``, ``create``, ``commit``, ``repair``, ``collect``, ``drop``, ``copy_aside``, ``set_aside``, ``cool`` and
    ``close`` may block. The event loop calls ``begin``, ``meanwhile`` and ``finish``: they must not block, except for
    ``finish`` after a failed write. Only one of all these methods is called at a time, and no other between a ``begin``
    and its ``finish``. ``op_id_at``, ``read``, ``logs``, ``snapshot`` and ``stats`` may be called on any thread at any
    time, and see durable entries only."""

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
    """The change of one log in one commit: remove a suffix if asked to, then append entries.

    Without ``replace_from`` there is at least one entry, and the first one follows the log's last entry. With it,
    everything at or above that index is removed, and the entries, if any, begin at that index."""

    entries: tuple[Entry, ...]  #: Contiguous, in index order.
    replace_from: int | None = None
    commit_hint: int = 0  #: The leader's commit index as far as the caller knows it; 0 if unknown.


class Durable(msgspec.Struct, frozen=True, gc=False):
    """The append is durable, or, without ``sync``, written."""

    last: OpId  #: The log's last op id now.


class Failed(msgspec.Struct, frozen=True):
    """The append failed. The log refuses further appends until ``repair``."""

    #: ``Full`` if the append may succeed when there is space again. After another ``StorageError`` the log's files must
    #: not be trusted beyond ``durable``.
    error: StelaeError
    #: The last op id that is durable.
    durable: OpId


Outcome: TypeAlias = Durable | Failed


class Write(NamedTuple):
    """One durable write: ``file.pwritev(buffers, offset, dsync=True)``."""

    file: File
    buffers: Sequence[Buffer]
    offset: int
    #: The write consists of whole blocks of 4096 bytes, over space that was written before. Direct I/O is allowed.
    whole_blocks: bool = False

    def failure(self) -> StorageError | None:
        """Make the write. Blocks. Return the error if it failed, else ``None``."""
        try:
            self.file.pwritev(self.buffers, self.offset, dsync=True)
        except StorageError as error:
            return error
        return None


class Begun(NamedTuple):
    """A commit that has begun. The caller makes ``writes``, calls ``meanwhile`` once, then ``finish`` once."""

    #: The writes that remain. They may be made in any order, or in parallel.
    writes: Sequence[Write]
    #: Ends the commit and returns what ``commit`` would. Its argument has, for each write, its error, or ``None`` if
    #: the write is durable. It may block if a write has failed.
    finish: Callable[[Sequence[StorageError | None]], dict[LogId, Outcome]]
    #: Work that no caller waits for. It is called once before ``finish``, best while the disk writes.
    meanwhile: Callable[[], None] = lambda: None

    def perform(self) -> dict[LogId, Outcome]:
        """Make the writes and finish the commit. Blocks."""
        failures = [write.failure() for write in self.writes]
        self.meanwhile()
        return self.finish(failures)


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """Why a log cannot be used after ``last_good``: it is corrupt, or it cannot be read now."""

    path: str
    offset: int
    last_good: OpId  #: The last op id before the damage.
    detail: str
    unread: bool = False  #: The disk did not return the bytes. Nothing is known to be wrong with them.


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one log."""

    base: OpId  #: The op id of the last collected entry, or of the point where the log began.
    last: OpId  #: The op id of the last readable entry. It equals ``base`` for an empty log.
    commit_hint: int = 0  #: The highest commit hint that was stored, at most ``last.index``.
    damage: Damage | None = None  #: If set, the log refuses appends, and reads beyond the last good entry.


class SnapshotUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable file of a snapshot."""

    name: str  #: Relative to the snapshot.
    size_bytes: int
    digest: str  #: SHA-256, hexadecimal.


class WalSnapshot(ABC):
    """An immutable view of a log from an index on. It stays valid after ``collect`` and ``close``."""

    @property
    @abstractmethod
    def units(self) -> Sequence[SnapshotUnit]:
        """The files of the view, for engines with the capability ``files``; otherwise empty."""

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """Return every entry of the view in index order, with verified checksums. May block."""

    @abstractmethod
    def release(self) -> None:
        """Release the view. Releasing twice is harmless."""


class WalEngine(Engine):
    """All logs of a node. Subclasses are registered through the hook ``stelae_wal_engines``.

    A method that gets an unknown log raises ``CallerError``, unless it says otherwise.

    Capabilities:

    - ``snapshot``: ``snapshot`` is supported. Without it, a copy of a replica is made by ``read``, and has to be begun
      again if a suffix is replaced meanwhile.
    - ``files``: a snapshot consists of files.
    - ``fake_files``: all I/O goes through ``Files``.
    - ``always_synced``: a commit without ``sync`` survives a crash too."""

    contract_version: ClassVar[int] = WAL_CONTRACT_VERSION

    @classmethod
    @abstractmethod
    def open(cls, directory: str, config: Any, services: EngineServices) -> Self:
        """Open the engine's directory, or create it. Recovery is complete on return. May block.

        Raises ``Locked``, ``Foreign``, ``FutureVersion``, ``Full``, or ``StorageError`` if the directory cannot be used
        or read now. A corrupt log raises nothing: ``logs`` lists it with its ``Damage``, it refuses appends, and the
        other logs work. If one log cannot be read now and others can, ``logs`` may list it with ``unread``: it refuses
        appends, its files are not changed, and the next ``open`` tries again."""

    @classmethod
    def fast(cls) -> type["WalEngine"] | None:
        """Return the class that ``[log] fast = true`` opens instead of this one, or ``None`` if there is none.

        It uses the same files, supports ``begin``, and may write in other ways. Each of the two classes opens what the
        other one left, also after a kill."""
        return None

    @abstractmethod
    def logs(self) -> Mapping[LogId, LogState]:
        """Return the state of every log of the node, including damaged ones."""

    @abstractmethod
    def create(self, log: LogId, base: OpId) -> None:
        """Create an empty log whose first entry will follow ``base``. Durable on return.

        Raises ``CallerError`` if the log exists, and ``StorageError`` if it cannot be created; it then does not
        exist."""

    @abstractmethod
    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Append to the logs of ``group``. Return one outcome for each of them.

        Operating errors are outcomes and are never raised, and a failed log does not fail the others. The outcome is
        ``Failed`` with ``CallerError`` or ``Corrupt`` for a gap, an overlap, a term that decreases, a replacement at or
        below the base, or an unknown or damaged log. ``commit({}, sync=True)`` makes all earlier commits without
        ``sync`` durable."""

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin ``commit(group, sync=True)`` if it needs only durable writes to open files. Must not block.

        Returns ``None``, and changes nothing, if it needs more than that or would refuse an append. The caller then
        calls ``commit``. An engine may always return ``None``."""
        return None

    @abstractmethod
    def repair(self, log: LogId) -> OpId:
        """Make a log that reported ``Failed`` usable again, in fresh space. Return its last durable op id.

        Everything after that op id is void. A log that has not failed, because it only refused an append, keeps all
        its entries: its earlier commits without ``sync`` are made durable.

        Raises ``Full`` if there is still no space; call it again later. After another
        ``StorageError`` the replica must be replaced."""

    @abstractmethod
    def op_id_at(self, log: LogId, index: int) -> OpId:
        """Return the op id at ``index``, which may be the base's. Does not scan the log.

        Raises ``Compacted`` below the base, and ``CallerError`` beyond the last entry."""

    @abstractmethod
    def read(self, log: LogId, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return the entries ``first <= index < end``: at least one, and no further ones beyond ``bytes_max`` bytes.

        The entries are durable, none of them has been replaced, and their checksums are verified. May block.

        Raises ``Compacted`` if ``first`` is at or below the base, ``Corrupt`` with file and offset if a checksum fails,
        and ``CallerError`` if the range is empty or ends beyond the last entry."""

    @abstractmethod
    def collect(self, log: LogId, upto: int) -> OpId:
        """Remove entries up to index ``upto``, or fewer. Return the new base.

        The new base is durable before any entry is removed. An engine may keep files of which it needs a part.

        After ``SyncFailed`` or ``Corrupt`` nothing was removed, and the log refuses appends and ``repair`` from now on.
        After any other ``StorageError`` nothing was removed, and the call may be repeated."""

    @abstractmethod
    def drop(self, log: LogId) -> None:
        """Remove a log with all its entries. Durable on return. Dropping an unknown log is harmless."""

    def copy_aside(self, log: LogId, directory: str) -> bool:
        """Do a bounded part of what ``set_aside`` will do. Return whether to call again before ``set_aside``.

        Appends to all logs wait for each call. So an engine that must copy the entries of a log copies a few MiB in
        each. The log stays as it is, and takes no appends any more. Errors are left to ``set_aside``."""
        return False

    @abstractmethod
    def set_aside(self, log: LogId, directory: str) -> None:
        """Move a log out of the engine into ``directory``, for the quarantine. Durable on return."""

    @abstractmethod
    def cool(self, log: LogId) -> None:
        """Release the buffers, handles and spare space of an idle log. The next use acquires them again."""

    @abstractmethod
    def snapshot(self, log: LogId, first: int) -> WalSnapshot:
        """Return an immutable view of the entries from ``first`` to the current last one."""

    @abstractmethod
    def stats(self) -> dict[str, float]:
        """Return figures for metrics and for people. Names are lower case, with their unit last."""

    @abstractmethod
    def close(self) -> None:
        """Close cleanly: sync, cut off preallocated space, release the lock. Closing twice is harmless."""
