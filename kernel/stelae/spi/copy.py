"""Contract of a copy transport (contract version 0: it may change until the first engine exists).

A copy makes a replica from the immutable snapshot of a peer. The transport only moves bytes. It never touches a
superblock, consensus metadata, ``wals/`` or ``data/``.

Ordering and durability
    1. ``begin`` is idempotent for the same snapshot and peer. A session ends with ``end``, or when its time to live has
       passed without ``keep_alive`` or ``fetch``.
    2. Every chunk has a CRC32C, and every item a SHA-256 digest. A chunk that arrives damaged is fetched again. If an
       item differs from its digest at the source, the copy ends with ``SourceDamaged``. A copy with damaged items is
       never reported as complete.
    3. An item is durable once ``CopySink.finish`` has returned for it, not before. ``Partial.have`` names only such
       items, so a copy that resumes after a crash fetches the others.
    4. The kernel does not rely on ``Complete``: it verifies digests and fences again before it makes the replica READY.

Scope: node. The methods of both sides are called on kernel threads and may block. Several sessions may run at a
time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.services import Buffer, Channel, EngineServices
from stelae.spi.settings import Engine
from stelae.spi.wal import SnapshotUnit

COPY_CONTRACT_VERSION = 0


class Fences(msgspec.Struct, frozen=True, kw_only=True):
    """Op ids that the source must have reached. They are checked again at each resume and each change of the source."""

    tombstone: OpId  #: The last op id in the target's tombstone. The source's last op id must not be lower.
    config_op_id: OpId  #: The target's committed config. The source's committed config must not be older.


class CopySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot of a source: its log and its store at one moment. It is pinned as long as a session exists."""

    tablet_id: TabletId
    log: LogId
    last: OpId
    config_op_id: OpId
    items: tuple[SnapshotUnit, ...]


class CopyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a target must fetch, from which source, and under which fences."""

    source: NodeId
    snapshot: CopySnapshot
    fences: Fences


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an item."""

    offset: int  #: In bytes, from the beginning of the item.
    data: bytes
    crc: int  #: The CRC32C of ``data``.


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """Every item of the plan is durable in the sink. ``through`` is the last op id of the copied log."""

    through: OpId


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """The copy ended early."""

    have: Mapping[str, str]  #: The digests of the items that are durable in the sink, by item.
    reason: str


class SourceDamaged(msgspec.Struct, frozen=True, kw_only=True):
    """An item at the source does not have its digest. This source cannot be used."""

    item: str
    detail: str


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The source refused to serve the copy."""

    code: str  #: The stable code of the error.
    reason: str


CopyOutcome: TypeAlias = Complete | Partial | SourceDamaged | Refused


class CopySink(Protocol):
    """The place where a target stores what it fetches: the stage of one tablet."""

    def write(self, item: str, offset: int, data: Buffer) -> None:
        """Store a verified chunk. May block. Raises ``Full`` if the stage or the disk has no space."""

    def finish(self, item: str) -> None:
        """Make an item durable. May block. Raises ``Corrupt`` if its digest is not the one in the plan."""


class CopySource(ABC):
    """The side of a transport that serves snapshots, on one node."""

    @abstractmethod
    def begin(self, snapshot: CopySnapshot, peer: NodeId, ttl_ms: int) -> str:
        """Open a session and return its id; return the open one if there is one for this snapshot and peer.

        Raises ``Overloaded`` if all copy slots are in use."""

    @abstractmethod
    def fetch(self, session: str, item: str, offset: int, bytes_max: int) -> Chunk:
        """Return a chunk of an item from ``offset``, with 1 to ``bytes_max`` bytes; it is empty only at the item's end.

        Raises ``CallerError`` for an unknown session or item or an offset beyond the end, and ``Corrupt`` if the
        source's bytes fail their checksum."""

    @abstractmethod
    def keep_alive(self, session: str) -> None:
        """Restart the session's time to live. Raises ``CallerError`` for an unknown session."""

    @abstractmethod
    def end(self, session: str) -> None:
        """Close a session and release its snapshot. Ending an unknown session is harmless."""


class CopyTarget(ABC):
    """The side of a transport that fetches snapshots, on one node."""

    @abstractmethod
    def run(
        self,
        plan: CopyPlan,
        *,
        have: Mapping[str, str],
        sink: CopySink,
        limiter: Callable[[int], None],
        progress: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> CopyOutcome:
        """Fetch the items of the plan that are not in ``have``. Return the outcome; an outcome is never raised. Blocks.

        Args:
            plan: what to fetch.
            have: digests of the items that are durable in the stage.
            sink: where to store the items.
            limiter: called with the number of bytes about to be fetched; it blocks to limit the rate.
            progress: called with the number of bytes stored so far.
            cancelled: asked between chunks; if it returns true, the copy ends with ``Partial``."""


class CopyTransport(Engine):
    """Makes both sides of a transport. Subclasses are registered through the hook ``stelae_copy_transports``."""

    contract_version: ClassVar[int] = COPY_CONTRACT_VERSION

    @classmethod
    @abstractmethod
    def source(cls, config: Any, services: EngineServices) -> CopySource:
        """Make the serving side."""

    @classmethod
    @abstractmethod
    def target(cls, config: Any, services: EngineServices, channel: Callable[[NodeId], Channel]) -> CopyTarget:
        """Make the fetching side. ``channel`` returns the channel to a peer."""
