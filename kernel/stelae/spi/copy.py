"""Contract of a copy transport (contract version 0: it may still change until its first engine).

A copy brings a replica into being from a peer's immutable snapshot. The transport moves bytes and
nothing else: it never touches a superblock, consensus metadata, ``wals/`` or ``data/``.

Ordering and durability
    1. ``begin`` is idempotent for the same snapshot and peer; a session lives until ``end`` or
       until its time to live has passed without ``keep_alive`` or ``fetch``.
    2. Every chunk carries a CRC32C, every item a SHA-256. A chunk that arrives damaged is fetched again; an item that
       differs from its digest at the source ends the copy: ``SourceDamaged``. Nothing damaged is reported complete.
    3. What the sink has been given is durable once ``CopySink.finish`` returned, not before.
       ``Partial.have`` names only such items, so a resume after a crash fetches the rest.
    4. ``Complete`` is a claim: the kernel verifies digests and fences again before it makes the replica READY.

Scope and threads: one per node; methods of both sides may block, on kernel threads, several sessions at a time."""

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
    """What the source must be at or past; checked again at each resume and change of source."""

    tombstone: OpId
    config_op_id: OpId


class CopySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a source offers: the log and the store at one moment, pinned while a session lives."""

    tablet_id: TabletId
    log: LogId
    last: OpId
    config_op_id: OpId
    items: tuple[SnapshotUnit, ...]


class CopyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a target is to fetch, from whom, and under which fences."""

    source: NodeId
    snapshot: CopySnapshot
    fences: Fences


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an item at ``offset`` (bytes). ``crc`` is the CRC32C of ``data``."""

    offset: int
    data: bytes
    crc: int


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """Every item of the plan is durable in the sink, and the log reaches ``through``."""

    through: OpId


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """The copy stopped early; ``have`` maps finished items to their digests."""

    have: Mapping[str, str]
    reason: str


class SourceDamaged(msgspec.Struct, frozen=True, kw_only=True):
    """An item at the source does not match its digest: this source cannot be used."""

    item: str
    detail: str


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The source would not serve; ``code`` is the error's stable name."""

    code: str
    reason: str


CopyOutcome: TypeAlias = Complete | Partial | SourceDamaged | Refused


class CopySink(Protocol):
    """Where the kernel lets a target write: the stage of one tablet."""

    def write(self, item: str, offset: int, data: Buffer) -> None:
        """Store a verified piece. Raises ``Full`` when the stage or the disk has no room."""

    def finish(self, item: str) -> None:
        """Make an item durable; raises ``Corrupt`` when its digest is not the plan's."""


class CopySource(ABC):
    """The serving side of a transport on one node."""

    @abstractmethod
    def begin(self, snapshot: CopySnapshot, peer: NodeId, ttl_ms: int) -> str:
        """Open a session, or return the open one; ``Overloaded``: every copy slot is taken."""

    @abstractmethod
    def fetch(self, session: str, item: str, offset: int, bytes_max: int) -> Chunk:
        """Return at least one byte of an item from ``offset``; empty only at its end. ``CallerError``: an unknown
        session or item, or an offset past the end. ``Corrupt``: the source's bytes fail their checksum."""

    @abstractmethod
    def keep_alive(self, session: str) -> None:
        """Start the session's time to live anew. Unknown sessions raise ``CallerError``."""

    @abstractmethod
    def end(self, session: str) -> None:
        """Close a session and let go of its snapshot. Ending an unknown one is harmless."""


class CopyTarget(ABC):
    """The fetching side of a transport on one node."""

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
        """Fetch what the plan names and ``have`` lacks; return how it ended, never raise for that.

        ``have``: digests of the items that are durable in the stage. ``limiter`` is called with the
        bytes about to be fetched, and blocks to hold the rate; ``progress`` with the bytes stored
        so far. ``cancelled`` is asked between chunks: true ends the run with ``Partial``."""


class CopyTransport(Engine):
    """Makes both sides. Subclasses are registered through ``stelae_copy_transports``."""

    contract_version: ClassVar[int] = COPY_CONTRACT_VERSION

    @classmethod
    @abstractmethod
    def source(cls, config: Any, services: EngineServices) -> CopySource:
        """Make the serving side."""

    @classmethod
    @abstractmethod
    def target(cls, config: Any, services: EngineServices, channel: Callable[[NodeId], Channel]) -> CopyTarget:
        """Make the fetching side; ``channel`` gives the way to a peer."""
