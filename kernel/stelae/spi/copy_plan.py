"""What a copy of a tablet consists of: the snapshot of a source, what a target must fetch, and how a copy ends.

A copy is divided into *items*: files of rows, and pieces of the log. The kernel names the items and knows what is in
them (``stelae.lifecycle.copy_items``). A transport sees names, sizes and digests. This module is pure."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from stelae.spi.errors import CallerError
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.wal import SnapshotUnit

CHUNK_BYTES_MAX = 16 << 20
"""The most bytes of a chunk. It bounds the memory of both sides, and how long one message occupies the lane."""


class CopySessionEnded(CallerError, code="COPY_SESSION_ENDED"):
    """The session does not exist, or not any more. Begin a new one; items that are durable stay usable."""


class CopySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A replica at one moment. Nothing in it changes as long as its session exists.

    Rows, facts and log belong together: the rows are as of ``base``, and the log continues them."""

    tablet_id: TabletId
    log: LogId  #: The log of the source.
    base: OpId  #: The op id after which the copied log begins. The copied rows are as of this op id.
    last: OpId  #: The last op id of the copied log: the last one that was durable at the source.
    term: int  #: The term of the source when the snapshot was taken, at least ``last.term``.
    committed_config: TabletConfig  #: The newest config that the source knew to be committed. Not above ``last``.
    facts: bytes  #: The superblock as of ``base`` (``stelae.lifecycle.copy_facts``). Opaque to a transport.
    items: tuple[SnapshotUnit, ...]  #: Names are unique. A name never changes its meaning between sources.


class CopyOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a source to ``begin``: an open session, and the snapshot that it pins."""

    source: NodeId
    session: str
    ttl_ms: int  #: The session ends if the source hears nothing of it for this time.
    snapshot: CopySnapshot


class Fences(msgspec.Struct, frozen=True, kw_only=True):
    """Op ids that a source must have reached (``durability.md`` rule 18).

    They are checked at the beginning and at each resume, for each source."""

    tombstone: OpId  #: The last op id that the target's replica ever had. The source's last op id must not be lower.
    config_op_id: OpId  #: The target's committed config. The source's committed config must not be older.

    def refusal(self, snapshot: CopySnapshot) -> str | None:
        """Return why a snapshot must not be used, or ``None`` if it may be used."""
        if snapshot.last < self.tombstone:
            return f"the source ends at {snapshot.last}, but this replica once had entries up to {self.tombstone}"
        if snapshot.committed_config.op_id < self.config_op_id:
            config = snapshot.committed_config.op_id
            return f"the source knows config {config} as committed, but this replica knows {self.config_op_id}"
        return None


class CopyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a target must fetch, from which source, and under which fences."""

    offer: CopyOffer  #: An open session, and the snapshot that is copied.
    items: tuple[SnapshotUnit, ...]  #: Those of the snapshot that are wanted, in the order of fetching.
    fences: Fences

    @property
    def bytes_total(self) -> int:
        """The bytes of all items of the plan."""
        return sum(item.size_bytes for item in self.items)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an item."""

    offset: int  #: In bytes, from the beginning of the item.
    data: bytes
    crc: int  #: The CRC32C of ``data``.


class CopyProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a copy is."""

    bytes_done: int  #: Bytes of the plan that are stored, including those of earlier runs.
    bytes_total: int
    bytes_fetched: int  #: Bytes that this run has received, including those that it fetched again.
    eta_ms: int | None  #: The expected time to the end, from the rate of this run; ``None`` while it is unknown.


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """Every item of the plan is durable in the sink."""

    bytes_fetched: int


class Interruption(StrEnum):
    """Why a copy ended early. In each case a later run continues from what is durable."""

    CANCELLED = "CANCELLED"  #: The caller cancelled it.
    SOURCE_LOST = "SOURCE_LOST"  #: The source does not answer any more: try another one, or the same one later.
    SESSION_ENDED = "SESSION_ENDED"  #: The source has ended the session: begin another one.
    NO_SPACE = "NO_SPACE"  #: The stage or its disk is full.
    STAGE_FAILED = "STAGE_FAILED"  #: The stage cannot be written.


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """The copy ended early."""

    why: Interruption
    reason: str  #: For people.


class SourceDamaged(msgspec.Struct, frozen=True, kw_only=True):
    """A source serves bytes that do not have their digest, or finds them damaged itself. It must not be used again.

    A source whose disk failed to read is not damaged: the outcome is ``Refused`` if nothing was fetched, otherwise
    ``SOURCE_LOST``."""

    source: NodeId
    item: str
    detail: str


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The source may not be used for this copy, or cannot serve it. Nothing was fetched."""

    code: str  #: ``FENCED``, or the stable code of the error with which the source refused.
    reason: str


CopyOutcome: TypeAlias = Complete | Partial | SourceDamaged | Refused
