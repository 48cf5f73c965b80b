"""Superblock of a tablet: that it exists here, what of it is durable, and in which files.

A tablet whose superblock is missing does not exist on this node. There is one writer, the tablet's
lifecycle driver; a store only proposes an edit, which is taken while the replica is READY.

Ordering and durability
    ``save`` replaces the whole record atomically, so a store's manifest, the op id flushed with it,
    its timestamp and the exactly-once results of that same op id always belong together. Files that an edit
    obsoletes may be removed only after ``save`` returned. The generation never goes back."""

from enum import StrEnum
from typing import Literal

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints, FileKind, TabletFile
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.services import Files


class DataState(StrEnum):
    """State of a tablet's data; no superblock is ``DOES_NOT_EXIST``, ``DELETED`` a tombstone."""

    DELETED = "DELETED"
    COPYING = "COPYING"
    READY = "READY"


class PartitionBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Which encoded keys the tablet holds: one bucket per hash level, ``key_high`` exclusive."""

    hash_buckets: tuple[int, ...] = ()
    key_low: bytes = b""
    key_high: bytes | None = None
    scheme: bytes = b""  #: How keys are hashed and compared, opaque here; empty: rows are not checked.


class Superblock(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds.

    Attributes:
        generation: of the tablet's log on this node; rises when a copy begins.
        consensus_engine, store_engine: names, fixed for the life of the replica.
        schemas: every schema version, ascending, each as the body of its SCHEMA entry.
        manifest: the store engine's own list of what is live, opaque here.
        flushed: last op id whose effects are in the files of ``manifest``.
        timestamp: highest hybrid timestamp of the entries that were applied when ``flushed`` was
            written; a read at it sees exactly the rows of ``manifest``. 0: nothing was flushed yet.
        results: exactly-once results as of ``flushed``, opaque here.
        tombstone: last op id of the log when the tablet was deleted; ``"UNKNOWN"`` when it could
            not be read, after which this replica never votes; ``None`` for a live replica.
        quarantine: directory where deletion set the data aside, relative to the node's directory."""

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

    @property
    def log_id(self) -> LogId:
        """Name of the tablet's log in the node's log engine."""
        return LogId(self.tablet_id, self.generation)


SUPERBLOCK = FileKind("superblock", b"STsb", 1, msgspec.msgpack.Decoder(Superblock))


class SuperblockFile(TabletFile[Superblock]):
    """A tablet's superblock on disk."""

    def __init__(self, files: Files, layout: DirectoryLayout, tablet: TabletId, crash: CrashPoints = NO_CRASH) -> None:
        super().__init__(files, SUPERBLOCK, layout.superblock_of(tablet), tablet, crash)

    def save(self, block: Superblock) -> None:
        """Replace the file; durable on return.

        Raises:
            StorageError: what is there cannot be read, or is of another tablet or of a newer
                generation: nothing was written; ``Full``, ``SyncFailed``: as ``metadata.save``."""
        known = self._known()
        floor = LogId(self._tablet, known.generation if known is not None else 0)
        if block.tablet_id != floor.tablet_id or block.generation < floor.generation:
            fact = f"superblock of {block.log_id} may not replace that of {floor}"
            raise StorageError(fact, path=self._path)
        self._replace(block)
