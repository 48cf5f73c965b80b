"""The facts of a copied replica: what its superblock says as of the op id of its copied rows.

Rows, results and timestamp belong to one op id, ``base`` of the snapshot. So they are read at one moment between two
groups of applied entries, or they are those of one durable superblock. Pure."""

from enum import StrEnum

import msgspec

from stelae.host.superblock import PartitionBounds, Superblock
from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId, TabletId


class RowsForm(StrEnum):
    """How the rows of a snapshot are encoded in its items."""

    FILES = "FILES"  #: The files of the store, as they are. Only for a target with the same store engine and format.
    EXPORT = "EXPORT"  #: Arrow batches with versions, for ``TabletStore.import_`` of any engine.


class CopyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The encoded facts are ``CopySnapshot.facts``."""

    tablet_id: TabletId
    table_name: str
    partition: PartitionBounds
    consensus_engine: str
    store_engine: str  #: The source's. The target uses its own if the form is ``EXPORT``.
    store_format: str  #: ``files_format`` of that engine. Empty for an export.
    rows_form: RowsForm
    schemas: tuple[bytes, ...]  #: Every schema version up to ``flushed``, as in the superblock.
    manifest: bytes  #: Of the files. Empty for an export, or if nothing was flushed yet.
    flushed: OpId  #: Equal to the snapshot's ``base``.
    timestamp: int
    results: bytes  #: The exactly-once results as of ``flushed``.
    #: The history floor of an export: older versions may be missing (``durability.md`` rule 32). 0 for files, whose
    #: manifest has it, and for a copy without rows, whose log is whole.
    floor: int

    def to_bytes(self) -> bytes:
        """Return the encoded facts."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "CopyFacts":
        """Decode facts. Raises ``Corrupt`` if the bytes are not facts."""
        try:
            return _DECODER.decode(data)
        except (ValueError, RecursionError) as error:
            raise Corrupt(f"the facts of a copy cannot be read: {error}") from error


_DECODER = msgspec.msgpack.Decoder(CopyFacts)


def facts_of_files(block: Superblock, store_format: str) -> CopyFacts:
    """Return the facts of a snapshot that has the store files of a durable superblock, which are of this format."""
    return _facts(block, RowsForm.FILES, block, 0, store_format)


def facts_of_export(block: Superblock, as_of: Superblock, floor: int) -> CopyFacts:
    """Return the facts of an export. ``as_of`` has op id, timestamp, schemas and results of the exported rows.

    ``floor`` is the history floor of the store at that moment, as a hybrid timestamp."""
    return _facts(block, RowsForm.EXPORT, msgspec.structs.replace(as_of, manifest=b""), floor, "")


def _facts(block: Superblock, form: RowsForm, rows: Superblock, floor: int, store_format: str) -> CopyFacts:
    return CopyFacts(
        tablet_id=block.tablet_id,
        table_name=block.table_name,
        partition=block.partition,
        consensus_engine=block.consensus_engine,
        store_engine=block.store_engine,
        store_format=store_format,
        rows_form=form,
        schemas=rows.schemas,
        manifest=rows.manifest,
        flushed=rows.flushed,
        timestamp=rows.timestamp,
        results=rows.results,
        floor=floor,
    )
