"""The superblock of a tablet: everything about a replica on this node except consensus.

A tablet without a superblock does not exist on this node. The superblock has one writer, the tablet's lifecycle driver.
A store only proposes an edit, which is written while the replica is READY.

Ordering and durability
    ``save`` replaces the whole record atomically. So the store's manifest, the op id that was flushed with it, its
    timestamp and the exactly-once results as of that op id always belong together. Files that an edit makes obsolete
    may be removed only after ``save`` has returned. The generation never decreases."""

from enum import StrEnum
from typing import Literal

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints, FileKind, TabletFile
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.services import Files


class DataState(StrEnum):
    """The state of a tablet's data. A tablet without superblock does not exist; a ``DELETED`` one is a tombstone."""

    DELETED = "DELETED"
    COPYING = "COPYING"
    READY = "READY"


class PartitionBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The encoded keys that belong to the tablet."""

    hash_buckets: tuple[int, ...] = ()  #: One bucket for each hash level.
    key_low: bytes = b""  #: Inclusive.
    key_high: bytes | None = None  #: Exclusive; ``None``: there is no upper bound.
    scheme: bytes = b""  #: How keys are hashed and compared. Opaque here. If empty, rows are not checked.


class Superblock(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the file.

    Attributes:
        generation: of the tablet's log on this node. It rises when a copy begins.
        consensus_engine: its name. Only ``stelae tablet convert-consensus`` changes it, while the node is stopped.
        store_engine: its name, fixed for the life of the replica.
        schemas: every schema version, ascending, each as the body of its SCHEMA entry.
        manifest: the store engine's list of its live files. Opaque here.
        flushed: the last op id whose effects are in the files of ``manifest``.
        timestamp: the highest hybrid timestamp of the entries that were applied when ``flushed`` was
            written. A read at this timestamp sees exactly the rows of ``manifest``. 0: nothing was flushed yet.
        results: the exactly-once results as of ``flushed``. Opaque here.
        tombstone: the last op id of the log when the tablet was deleted. ``"UNKNOWN"`` if it could not be
            read: this replica never votes again. ``None`` for a live replica, except for a witness that has begun over
            a tombstone: until its log is flushed up to the op id, votes use the larger of the two.
        removed: of a tombstone: the table was deleted for good. No copy brings the replica back.
        quarantine: the directory with the data of a deleted replica, relative to the node's directory. It stays until
            another replica is READY, so that the replica can be restored if a copy is abandoned.
        log_only: the replica has no rows, as that of a witness. ``flushed`` is then how far its log is not needed, and
            the engine of ``store_engine`` has not been opened yet."""

    tablet_id: TabletId
    table_name: str = ""
    generation: int = 1
    data_state: DataState = DataState.READY
    consensus_engine: str = "raft"
    store_engine: str = "memory"
    schemas: tuple[bytes, ...] = ()
    partition: PartitionBounds = PartitionBounds()
    manifest: bytes = b""
    flushed: OpId = ZERO
    timestamp: int = 0
    results: bytes = b""
    tombstone: OpId | Literal["UNKNOWN"] | None = None
    quarantine: str | None = None
    removed: bool = False
    log_only: bool = False

    @property
    def log_id(self) -> LogId:
        """The id of the tablet's log in the node's log engine."""
        return LogId(self.tablet_id, self.generation)


SUPERBLOCK = FileKind("superblock", b"STsb", 1, msgspec.msgpack.Decoder(Superblock))


class SuperblockFile(TabletFile[Superblock]):
    """The superblock of a tablet on disk."""

    def __init__(self, files: Files, layout: DirectoryLayout, tablet: TabletId, crash: CrashPoints = NO_CRASH) -> None:
        super().__init__(files, SUPERBLOCK, layout.superblock_of(tablet), tablet, crash)

    def save(self, block: Superblock) -> None:
        """Replace the file. Durable on return.

        Raises:
            StorageError: the present file cannot be read, or is of another tablet or of a newer generation.
                Nothing was written.
            Full, SyncFailed: as ``metadata_files.save``."""
        known = self._known()
        floor = LogId(self._tablet, known.generation if known is not None else 0)
        if block.tablet_id != floor.tablet_id or block.generation < floor.generation:
            fact = f"the superblock of {block.log_id} cannot replace that of {floor}"
            raise StorageError(fact, path=self._path)
        self._replace(block)
