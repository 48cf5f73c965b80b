"""Contract of a tablet store engine (contract version 1).

Scope: tablet. One instance holds the rows of one replica. The kernel owns the directory, the superblock, the retention
of the log and the threads. The engine owns the bytes below the directory.

Ordering and durability
    1. Entries are applied in log order, whole groups at once. The effect depends only on the entries: not on a clock,
       on random numbers or on the configuration. Every replica gets the same rows and the same row errors.
    2. An entry at or below ``applied`` is a no-op. After a restart ``applied`` is at most what was flushed, and the
       kernel applies the log again from there.
    3. Applied rows become durable in three steps: ``flush`` returns an edit, the kernel makes a superblock with this
       edit durable, and the kernel calls ``commit``. After a crash before the second step is complete, the store opens
       from the previous manifest. Only ``commit`` removes obsolete files. An engine without ``durable_flush`` keeps
       nothing and is rebuilt from the whole log.
    4. A cursor pins the state that was applied when it was opened. Later entries, compaction and a raised history floor
       do not change what it returns. A group of entries becomes visible to new cursors as a whole.
    5. A read at a timestamp sees every row as the last entry at or below that timestamp left it. A read below the
       history floor raises ``TooOld``; it never returns wrong rows. A lookup returns the rows that a scan returns.
    6. Columns are known by their ids. A row keeps its values when the schema changes. A row that is older than a column
       has the default with which the column was added; a later change of the default changes no row
       (``stelae.rows.defaults``). Rows made for an earlier schema version may be applied after a schema change; a
       column that they leave out gets the default of their version.

Threads
    A worker thread calls ``apply``, ``flush``, ``compact``, ``commit``, ``set_history_floor``, ``import_`` and
    ``close``, one at a time; all of them may block. The event loop may call ``applies_inline`` instead, and ``apply``
    if that returns true; it does so only while no worker call is running. ``scan``, ``scan_inline``, ``lookup``,
    ``lookup_inline``, ``diff``, ``checksum``, ``export``, ``snapshot``, ``split_keys`` and ``memory_bytes`` may be
    called on any thread at the same time as those. A cursor is used by one thread at a time. Engines start no threads
    and read no clock."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from stelae.spi.errors import SchemaMismatch
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

#: The most rows that one step of a cursor or of a compaction handles, because it holds the interpreter meanwhile.
BATCH_ROWS_MAX = 8192
#: The most bytes of a batch, unless it is a single row.
BATCH_BYTES_MAX = 8 << 20


class ApplyEntry(msgspec.Struct, frozen=True):
    """One committed entry to apply."""

    op_id: OpId
    timestamp: int  #: A hybrid timestamp. It never decreases along the log.
    change: WritePayload | Schema  #: Rows, or the schema that is in force from this entry on.
    #: Numbers of the payload's operations that were applied before or are refused. The store ignores their rows, but
    #: counts them: the other rows keep their numbers.
    skip: frozenset[int] = frozenset()


class RowFault(msgspec.Struct, frozen=True):
    """A row that was not applied, and why."""

    row: int  #: The number of the row within the payload, from 0.
    code: RowCode


class ApplyResult(msgspec.Struct, frozen=True):
    """The result of applying one entry."""

    op_id: OpId
    faults: tuple[RowFault, ...] = ()  #: The rows that were not applied, in row order.


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed new durable state of the store. It takes effect when the kernel has made it durable and commits it."""

    manifest: bytes  #: Opaque to the kernel, which keeps it in the superblock. ``open`` finds everything from it.
    flushed: OpId  #: The last op id that the manifest covers.
    #: Files that ``commit`` removes once the superblock is durable, as paths relative to the directory.
    obsolete: tuple[str, ...] = ()


class StoreSnapshot(ABC):
    """Files that do not change until they are released. Only engines with the capability ``files`` have snapshots."""

    @property
    @abstractmethod
    def files(self) -> Sequence[SnapshotUnit]:
        """The files. Together with the manifest they are the store as of ``edit.flushed``. May block.

        A digest is that of the bytes that were written. A copy of a file that was damaged since does not have it, so
        damage is not copied. ``StorageError``: the files cannot be described."""

    @property
    @abstractmethod
    def edit(self) -> Edit:
        """The manifest and the flushed op id that belong to the files."""

    @abstractmethod
    def release(self) -> None:
        """Allow the engine to remove the files. Releasing twice is harmless.

        Once the store is closed, nothing is removed: another one may have the directory by then, and the same names."""


class Cursor(ABC):
    """The rows of a scan, batch by batch. It is a context manager that releases its view on exit."""

    @abstractmethod
    def next_batch(self, rows_max: int = BATCH_ROWS_MAX) -> RowBatch | None:
        """Return the next batch of up to ``rows_max`` rows, or ``None`` at the end. May block.

        A batch has fewer rows if they are wide, and none if none of the rows looked at match."""

    @property
    @abstractmethod
    def resume_token(self) -> bytes | None:
        """The encoded key after which another scan can continue, on any replica and any engine.

        It also advances with empty batches. It is ``None`` before the first batch, and with order ``ANY`` if the engine
        has no such key."""

    @abstractmethod
    def close(self) -> None:
        """Release the view. Closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[RowBatch]:
        yield from filter(len, iter(self.next_batch, None))


class FoundRows(msgspec.Struct, frozen=True):
    """The rows of some keys, as of one time."""

    schema: Schema  #: The schema in force. The rows have the values of its columns, in their order.
    #: For each key, in the order of the keys, a row of plain values (``RowBatch.to_rows``), or ``None``: no such row.
    rows: Sequence[tuple[Any, ...] | None]
    #: Positions of keys that ``lookup_inline`` did not look up, ascending. Their rows are ``None``.
    unread: Sequence[int] = ()


class FoundBatch(msgspec.Struct, frozen=True):
    """The rows of many keys, as of one time, as one batch. An engine may return it instead of ``FoundRows``."""

    schema: Schema  #: The schema in force.
    rows: RowBatch  #: The rows of the keys, each once and no other, in any order. It has the layout of the schema.
    #: For each key, in the order of the keys, the position of its row in ``rows``; -1: it has no row, or is not read.
    positions: Sequence[int]
    unread: Sequence[int] = ()  #: As in ``FoundRows``.


class Changes(msgspec.Struct, frozen=True):
    """One batch of the net changes between two times, in key order."""

    changed: RowBatch  #: Rows with their values at the later time.
    deleted: RowBatch  #: The keys of deleted rows.
    #: The batch is complete up to this encoded key; ``None`` means to the end of the key range.
    through: bytes | None = None


class VersionedRows(msgspec.Struct, frozen=True):
    """One batch of an export: versions of rows, or deletions, of which ``rows`` has the key columns only."""

    schema_version: int  #: Version of the schema of ``rows``.
    deleted: bool  #: Whether the batch is of deletions.
    timestamps: tuple[int, ...]  #: One hybrid timestamp for each row.
    rows: RowBatch


class TabletStore(Engine):
    """The rows of one replica. Subclasses are registered through the hook ``stelae_store_engines``.

    Capabilities:

    - ``durable_flush``: ``flush`` and ``compact`` return edits.
    - ``files``: ``snapshot`` is supported and consists of files.
    - ``history``: reads in the past and ``diff`` are supported, and exports contain versions.
    - ``fake_files``: all I/O goes through ``Files``."""

    contract_version: ClassVar[int] = STORE_CONTRACT_VERSION
    key_bytes_max: ClassVar[int | None] = None  #: The longest encoded key that the store accepts; ``None``: no limit.

    files_format: ClassVar[str] = "1"
    """Names the format of manifest and files, of an engine with ``files``. It changes when a store of the former format
    could not read them. A copy has files only if this is equal at both ends, and otherwise an export. 64 characters at
    most."""

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
        """Open the store that a committed edit describes. May block.

        A new store has an empty manifest. ``schemas`` has all schema versions in the superblock, at least one. Files
        that the manifest does not name are left over from edits without effect; the store removes them.

        Raises ``StorageError`` if files cannot be read or are not as the manifest says."""

    @property
    @abstractmethod
    def applied(self) -> OpId:
        """The last op id that was applied. After ``open`` it is what the store has without a replay."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The schema in force: that of the last applied schema change."""

    @abstractmethod
    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        """Apply entries in log order. Return one result for each entry. May block.

        A row that cannot be applied is a ``RowFault`` in the result, not an exception.

        Raises ``Corrupt`` if rows cannot be read or have an unknown schema version, or if a schema changes the key or a
        type, or adds a column for which old rows have no value. The store is then as before that entry, and the kernel
        fails the replica."""

    def applies_inline(self, entries: Sequence[ApplyEntry]) -> bool:
        """Return whether the event loop itself may apply these entries now. Must not block.

        True only if ``apply`` would open no file and take less time than passing the work to a worker and back."""
        return False

    @abstractmethod
    def scan(self, spec: ScanSpec, at: int | None = None) -> Cursor:
        """Open a cursor over the rows as of hybrid timestamp ``at``, or over all applied rows with ``None``. May block.

        Raises ``TooOld`` if ``at`` is below the history floor or the engine keeps no history. Raises ``SchemaMismatch``
        for an unknown column, or a value in a predicate that does not fit its column."""

    def scan_inline(self, spec: ScanSpec, at: int | None = None) -> Cursor | None:
        """Open a cursor over few rows, which are in memory, as ``scan`` does. ``None``: call ``scan``. Must not block.

        Neither does such a cursor block, up to the limit of the scan. To read all of its rows takes less time than
        passing the work to a worker and back."""
        return None

    def lookup(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows | FoundBatch:
        """Return the rows of some encoded keys as of hybrid timestamp ``at``. May block.

        The keys may be in any order and may repeat. Bytes that are not an encoded key of the schema have no row. With
        ``None``, each row is as an entry left it that was the last applied one at some time during the call.

        Raises ``TooOld`` as ``scan`` does. An engine overrides this body only if it finds rows faster than by scans."""
        while True:
            schema = self.schema
            try:
                return FoundRows(schema, [self._scanned(key, schema, at) for key in keys])
            except SchemaMismatch:
                if self.schema is schema:
                    raise  # Otherwise a column was dropped between two scans.

    def lookup_inline(self, keys: Sequence[bytes], at: int | None = None) -> FoundRows | FoundBatch:
        """Look up those keys whose rows are in memory, as ``lookup`` does. Must not block, so it opens no file.

        It leaves a key to ``lookup`` if that key needs more time than passing the work to a worker and back."""
        return FoundRows(self.schema, [None] * len(keys), range(len(keys)))

    def _scanned(self, key: bytes, schema: Schema, at: int | None) -> tuple[Any, ...] | None:
        spec = ScanSpec(columns=schema.layout.ids, key_from=key, key_until=key + b"\0", limit=1)
        with self.scan(spec, at) as cursor:
            return next((row for batch in cursor for row in batch.to_rows()), None)

    @abstractmethod
    def diff(self, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
        """Return the net changes by entries with ``after < timestamp <= until``, in batches. May block.

        ``spec`` gives the columns, the key range and the resume token. A row that was written in between and exists at
        ``until`` is among the changes, even if it was written with the values that it had before: an overwrite deletes
        the other rows. For one batch about ``BATCH_ROWS_MAX`` keys are looked at, even if it is empty.

        Raises ``TooOld`` if ``after`` is below the history floor, and ``Unsupported`` without ``history``."""

    @abstractmethod
    def flush(self) -> Edit | None:
        """Write the applied rows to files. Return the edit, or ``None`` if there is nothing to flush. May block.

        Raises ``Full`` if there is no space: the durable state and the rows in memory are then unchanged, and ``flush``
        may be called again. After any other error the kernel fails the replica."""

    @abstractmethod
    def compact(self) -> Edit | None:
        """Do one bounded step of compaction. Return an edit if files changed, else ``None``. May block.

        Cheap if there is nothing to do. The kernel calls it between groups of entries. It removes versions that no read
        at or above the history floor and no open cursor can see. Raises as ``flush`` does."""

    @abstractmethod
    def commit(self, edit: Edit) -> None:
        """Make an edit the store's state: the superblock with this edit is durable. Remove its obsolete files.

        May block. After any error the kernel fails the replica."""

    @property
    @abstractmethod
    def history_floor(self) -> int:
        """The hybrid timestamp below which reads are refused; 0: none was set. An edit keeps it. Must not block.

        An engine that cannot keep all versions of a key may raise it by itself, before it drops any."""

    @abstractmethod
    def set_history_floor(self, timestamp: int) -> None:
        """Refuse reads below a hybrid timestamp from now on. A lower floor than the present one is ignored."""

    @abstractmethod
    def checksum(self, at: int | None = None) -> str:
        """Return the logical checksum of the rows as of a hybrid timestamp (``stelae.rows.checksum``). May block.

        It is equal on all replicas and engines. Raises ``TooOld`` as ``scan`` does."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Return an estimate of the memory that rows use which are applied and not flushed. Must not block."""

    def split_keys(self, key_from: bytes | None, key_until: bytes | None, bytes_max: int) -> list[bytes]:
        """Return encoded keys that divide a key range into parts of about ``bytes_max`` bytes of rows. May block.

        The keys increase, and all are above ``key_from`` and below ``key_until``; ``None`` is no bound. They are an
        estimate: rows may be counted that no read sees any more. An engine that cannot tell returns nothing. It reads
        no rows."""
        return []

    @abstractmethod
    def snapshot(self) -> StoreSnapshot:
        """Pin the files of the last committed edit. Raises ``Unsupported`` without ``files``."""

    @abstractmethod
    def export(self) -> Iterator[VersionedRows]:
        """Return every version at or above the history floor, in order of timestamp. May block.

        A row that has not changed since the floor comes with the timestamp of its last change. Copies between different
        engines use this form. An export pins its view, as a cursor does."""

    @abstractmethod
    def import_(self, batches: Iterator[VersionedRows], applied: OpId) -> None:
        """Load an export into an empty store, as the state after ``applied``. May block.

        An export does not say its history floor. The caller sets that of the source, before or after the import.

        Raises ``CallerError`` if the store is not empty, and ``Corrupt`` if timestamps decrease or a schema version is
        unknown."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources without flushing. Closing twice is harmless.

        Readers of other threads may come later: every read of a closed store raises ``Unavailable``. A cursor, diff or
        export that is open raises it as well, or goes on with all that it has to return. It never ends early."""
