"""Contract of a tablet store engine (contract version 1).

Scope: tablet. One instance holds the rows of one replica. The kernel owns its directory, its
superblock, retention and threads; the engine owns the bytes below the directory.

Ordering and durability
    1. Entries are applied in log order, whole groups at once; the effect depends on nothing but the entries: no clock,
       no randomness, no configuration. Every replica gets the same rows and the same row errors.
    2. An entry at or below what is applied is a no-op. After a restart ``applied`` is at most
       what was flushed, and the kernel applies the log from there again.
    3. Nothing is durable before ``flush`` made an edit, the kernel made the superblock durable
       that carries it, and ``commit`` was called. Until then a crash falls back to the manifest before. Only ``commit``
       removes obsolete files. An engine without ``durable_flush`` keeps nothing and is rebuilt from the whole log.
    4. A cursor pins what was applied when it was opened: entries applied later, compaction and a
       raised floor do not change what it returns. A group becomes visible to new cursors whole.
    5. A read at a timestamp sees every row as the last entry at or below it left it; a read below
       the history floor raises ``TooOld`` and never returns wrong rows.
    6. Columns are known by id. A row keeps its values over changes of the schema: one that is older than a column has
       the default with which the column was added, and a later default changes no row (``stelae.rows.defaults``). Rows
       made for an earlier schema version may be applied after a change; what they leave out has the default of theirs.

Threads
    ``apply``, ``flush``, ``compact``, ``commit``, ``set_history_floor``, ``import_`` and ``close`` are called one at a
    time by a worker, ``applies_inline`` and then ``apply`` by the event loop, too. ``scan``, ``diff``, ``checksum``,
    ``export``, ``snapshot`` and ``memory_bytes`` are called from any thread beside them; a cursor belongs to one thread
    at a time. Engines start no threads and read no clock."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from stelae.spi.ids import OpId
from stelae.spi.payload import WritePayload
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.services import EngineServices
from stelae.spi.settings import Engine
from stelae.spi.wal import SnapshotUnit
from stelae.spi.write import RowCode

STORE_CONTRACT_VERSION = 1

BATCH_ROWS_MAX = 8192  #: Most rows that a step of a cursor or compaction handles while it holds the interpreter.
BATCH_BYTES_MAX = 8 << 20  #: Bytes that a batch or a piece has at most, unless it is a single row.


class ApplyEntry(msgspec.Struct, frozen=True):
    """One committed entry to apply: rows, or the schema that holds from here on. ``skip`` numbers the payload's
    operations that were applied before or are refused: their rows are passed over, but keep their row numbers."""

    op_id: OpId
    timestamp: int  #: Hybrid; never decreases with the index.
    change: WritePayload | Schema
    skip: frozenset[int] = frozenset()


class RowFault(msgspec.Struct, frozen=True):
    """A row that was not taken: its number within the payload, and why."""

    row: int
    code: RowCode


class ApplyResult(msgspec.Struct, frozen=True):
    """What applying one entry gave: the rows not taken, in row order."""

    op_id: OpId
    faults: tuple[RowFault, ...] = ()


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed change of what is durable; takes effect when the kernel commits it."""

    manifest: bytes  #: Opaque, for the superblock; from it ``open`` finds everything.
    flushed: OpId  #: The last op id that the manifest covers.
    obsolete: tuple[str, ...] = ()  #: Files, relative to the directory, that may go once the superblock is durable.


class StoreSnapshot(ABC):
    """Files that stay as they are until released; for engines that declare ``files``."""

    @property
    @abstractmethod
    def files(self) -> Sequence[SnapshotUnit]:
        """The files; with the manifest they make up the store as of ``flushed``."""

    @property
    @abstractmethod
    def edit(self) -> Edit:
        """Manifest and flushed op id that belong to the files."""

    @abstractmethod
    def release(self) -> None:
        """Let the files go. Releasing twice is harmless."""


class Cursor(ABC):
    """Rows of a scan, batch by batch; a context manager that lets its view go on exit."""

    @abstractmethod
    def next_batch(self, rows_max: int = BATCH_ROWS_MAX) -> RowBatch | None:
        """Return up to ``rows_max`` more rows, fewer if they are wide, none where nothing matched; ``None``: end."""

    @property
    @abstractmethod
    def resume_token(self) -> bytes | None:
        """Encoded key behind which another scan goes on, on any replica and engine; it moves on with empty batches,
        too. ``None`` before the first batch, or when the order is ``ANY`` and the engine cannot say."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the view. Closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[RowBatch]:
        yield from filter(len, iter(self.next_batch, None))


class Changes(msgspec.Struct, frozen=True):
    """Net changes between two times, in key order: rows as they are now, and keys that went."""

    changed: RowBatch
    deleted: RowBatch
    through: bytes | None = None  #: Up to this encoded key all is told; ``None``: to the end of the range of keys.


class VersionedRows(msgspec.Struct, frozen=True):
    """A piece of an export: versions of rows, or (key columns only) deletions."""

    schema_version: int  #: The schema of ``rows``.
    deleted: bool
    timestamps: tuple[int, ...]  #: One per row.
    rows: RowBatch


class TabletStore(Engine):
    """The rows of one replica. Subclasses are registered through ``stelae_store_engines``.

    Capabilities: ``durable_flush``: ``flush`` makes edits; ``files``: snapshots are of files; ``history``: reads in the
    past, ``diff``, versions in exports; ``fake_files``: all I/O by ``Files``."""

    contract_version: ClassVar[int] = STORE_CONTRACT_VERSION
    key_bytes_max: ClassVar[int | None] = None  #: Longest encoded key taken, if there is a limit.

    @classmethod
    @abstractmethod
    def open(
        cls,
        directory: str,
        manifest: bytes,
        flushed: OpId,
        schemas: Mapping[int, Schema],
        config: Any,
        services: EngineServices,
    ) -> Self:
        """Open what a committed edit describes; a new store has an empty manifest. ``schemas``: all, at least one, that
        the superblock knows. ``StorageError``: files that are not as the manifest says, or unreadable."""

    @property
    @abstractmethod
    def applied(self) -> OpId:
        """The last op id applied; after ``open``, what the store holds without any replay."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The schema in force: what the last applied schema change said."""

    @abstractmethod
    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        """Apply entries in log order; one result each, rows that are not taken being values.

        ``Corrupt``: rows cannot be read or are of an unknown schema version; or a schema changes the key or a type, or
        adds a column that old rows cannot fill. The store is as before that entry, and the replica has failed."""

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        """Whether to apply these now is short, less than a hand-over to a worker and back, and opens no file."""
        return False

    @abstractmethod
    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        """Open a cursor over the rows as of hybrid timestamp ``at``; ``None``: all applied. ``TooOld``: below the
        history floor, or no history is kept. ``SchemaMismatch``: an unknown column, or an unfit value."""

    @abstractmethod
    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        """Return net changes by entries with ``after < timestamp <= until``, of the columns and keys of ``spec`` behind
        its token; rows equal at both times may be among them. About ``BATCH_ROWS_MAX`` keys are looked at for a piece,
        even if it is empty. ``TooOld``: ``after`` is below the history floor. ``Unsupported``: without ``history``."""

    @abstractmethod
    def flush(self) -> Edit | None:
        """Write out what is applied and propose it; ``None`` when there is nothing to propose."""

    @abstractmethod
    def compact(self) -> Edit | None:
        """Do one bounded piece of upkeep; propose an edit if files changed. Cheap when idle. The kernel calls it
        between groups; it lets go of versions that no read at or above the history floor and no open cursor can see."""

    @abstractmethod
    def commit(self, edit: Edit) -> None:
        """Take note that the superblock with this edit is durable; remove its obsolete files."""

    @abstractmethod
    def set_history_floor(self, timestamp: int) -> None:
        """Refuse reads below a hybrid timestamp from now on. A lower one than before is ignored."""

    @abstractmethod
    def checksum(self, at: int | None = None) -> str:
        """Return the logical checksum of the rows at a time (``stelae.rows.checksum``)."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Estimate the memory that applied rows hold until they are flushed."""

    @abstractmethod
    def snapshot(self) -> StoreSnapshot:
        """Pin the files of the last committed edit; ``Unsupported`` without ``files``."""

    @abstractmethod
    def export(self) -> Iterator[VersionedRows]:
        """Return every version at or above the history floor in order of timestamp, unchanged rows with the one of
        their last change. What crosses between different engines; pins its view like a cursor."""

    @abstractmethod
    def import_(self, pieces: Iterator[VersionedRows], applied: OpId) -> None:
        """Take over an export as the state after ``applied``; ``CallerError`` unless empty. ``Corrupt``: timestamps go
        back, or a schema version is unknown."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything without flushing. Closing twice is harmless."""
