"""Contract of a copy transport (contract version 1).

A copy makes a replica from the immutable snapshot of a peer. The kernel takes the snapshot, chooses what is copied,
keeps the stage, and installs the replica. It has a session at one source at a time, and chooses the next source. The
transport only moves bytes: it decides when which part of which item is fetched, and who is served. It never touches a
superblock, consensus metadata, ``wals/`` or ``data/``.

Both sides speak the kernel's messages (``SourceRequest``), so nodes with different transports copy from each other.

Ordering and durability
    1. A session pins one snapshot. ``begin`` is idempotent for the same key: a target that lost the answer, or
       crashed, gets the same session and the same snapshot. A session ends with ``end``, or when it was idle for its
       time to live. It is not idle while a request of it is being served, however long that takes. When a session ends,
       its contents are released once, after the requests that are being served. After that it serves nothing.
    2. Every chunk has a CRC32C, and every item a SHA-256 digest. A chunk that arrives damaged is fetched again. An item
       that does not have its digest is not durable. If it was fetched as a whole from one source, that source is
       damaged and is not used any more. A copy with damaged items is never reported as complete.
    3. An item is durable once ``CopySink.finish`` has returned for it, not before. ``have`` names only such items. They
       are not fetched again, whichever source they came from.
    4. A part of an item that an earlier run has stored is used if its checksum equals that of the same bytes at the
       source. Otherwise it is fetched again.
    5. The bytes of an item are written in order and without gaps.
    6. A source whose snapshot is below the fences is not used. The kernel does not rely on it, nor on ``Complete``: it
       verifies fences and digests again before it makes the replica READY.
    7. The limits of a node (slots, bytes per second) hold for every copy of any caller. Those of bytes per second
       can be changed while copies run, and hold at once; the settings hold again after a restart.

Scope: node. There is one ``CopySource`` and one ``CopyTarget`` in a process.

Threads
    All methods may be called on any kernel thread at the same time. ``begin``, ``answer`` and ``run`` may block; the
    others do not. ``run`` blocks until the copy has ended. ``expire`` is called at least every second. Engines start no
    threads; ``Clock`` is for expiry, rates and pauses.

Cost
    ``answer`` reads at most ``bytes_max`` bytes of an item, or, for ``FetchChecksum``, the part that it names. ``run``
    keeps at most its configured number of chunks in memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from stelae.spi.copy_plan import Chunk, CopyOutcome, CopyPlan, CopyProgress, CopySnapshot
from stelae.spi.errors import StelaeError, Unsupported
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.services import Buffer, EngineServices
from stelae.spi.settings import Engine

COPY_CONTRACT_VERSION = 1

_FIXED = "its copy transport has no limit that can be changed while the node runs; set one in node.toml and restart it"


class SessionKey(msgspec.Struct, frozen=True, order=True):
    """What a session is for. There is at most one session for each key."""

    tablet_id: TabletId
    peer: NodeId  #: The target. No other node may use the session.
    form: str  #: Which form of the snapshot the target can use. Opaque to a transport.


class FetchChunk(msgspec.Struct, frozen=True, tag="fetch"):
    """Ask for a part of an item. The answer is a ``Chunk`` with 1 to ``bytes_max`` bytes from ``offset``."""

    session: str
    item: str
    offset: int  #: Below the size of the item.
    bytes_max: int  #: 1 to ``CHUNK_BYTES_MAX``.


class FetchChecksum(msgspec.Struct, frozen=True, tag="checksum"):
    """Ask for the CRC32C of the first ``size_bytes`` bytes of an item. The answer is a ``PrefixChecksum``."""

    session: str
    item: str
    size_bytes: int  #: 1 to the size of the item.


class KeepAlive(msgspec.Struct, frozen=True, tag="keep_alive"):
    """Restart the time to live of a session. The answer is ``Alive``."""

    session: str


SourceRequest: TypeAlias = FetchChunk | FetchChecksum | KeepAlive


class PrefixChecksum(msgspec.Struct, frozen=True, tag="part"):
    """The answer to ``FetchChecksum``."""

    crc: int


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The answer to ``KeepAlive``."""


SourceAnswer: TypeAlias = Chunk | PrefixChecksum | Alive


class CopyContent(Protocol):
    """The bytes of a snapshot at its source. Several threads may read at a time."""

    @property
    def snapshot(self) -> CopySnapshot:
        """The description of the snapshot."""

    def read(self, item: str, offset: int, size_bytes: int) -> bytes:
        """Return bytes of an item: all that were asked for, up to the item's end. May block.

        Raises ``StorageError`` if they cannot be read, and ``Corrupt`` if their checksum is wrong."""

    def release(self) -> None:
        """Release the snapshot, with its anchors and its files. Called once, when no read is running. Must not block
        and must not raise."""


class CopySession(msgspec.Struct, frozen=True, kw_only=True):
    """An open session of a source."""

    id: str  #: At most 64 characters. Never used twice, also after a restart.
    ttl_ms: int
    snapshot: CopySnapshot


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session, for people."""

    id: str
    key: SessionKey
    bytes_sent: int
    idle_ms: int  #: Since the end of its last request; 0 while a request of it is being served.


class CopySource(ABC):
    """The side of a transport that serves snapshots, on one node."""

    @abstractmethod
    def begin(self, key: SessionKey, take: Callable[[], CopyContent]) -> CopySession:
        """Open a session, or return the open one for this key. May block as long as ``take`` does.

        ``take`` takes the snapshot. It is called once, only if there is a free slot and no session for the key. If it
        raises an error, that error is raised here and the slot is free again.

        Raises ``Overloaded`` if all slots are in use, or another call is taking the snapshot for this key."""

    @abstractmethod
    def answer(self, peer: NodeId, request: SourceRequest) -> SourceAnswer:
        """Serve one request of a target. May block for the disk, never for the limit of bytes per second.

        Raises ``CopySessionEnded`` if the session does not exist any more or is another node's. Raises ``CallerError``
        for an unknown item or a range outside of it, ``Overloaded`` if the limit of bytes per second is reached (ask
        again after a pause), and ``StorageError`` if the bytes cannot be read."""

    @abstractmethod
    def end(self, peer: NodeId, session: str) -> None:
        """End a session of a peer. Harmless if there is none."""

    @abstractmethod
    def end_all(self, tablet_id: TabletId | None = None) -> None:
        """End the sessions of a tablet, or all of them."""

    @abstractmethod
    def expire(self) -> None:
        """End the sessions that were idle for their time to live."""

    @abstractmethod
    def sessions(self) -> Sequence[SessionView]:
        """Return the open sessions, oldest first."""

    def bytes_per_s_max(self) -> int | None:
        """Return the limit of all copies from this node, in bytes per second; 0: no limit. ``None``: it has none."""
        return None

    def set_bytes_per_s_max(self, bytes_per_s: int) -> None:
        """Change that limit until the node stops. 0 removes it.

        Raises ``Unsupported`` if the transport cannot do that."""
        raise Unsupported(f"copies from this node cannot be limited to {bytes_per_s} bytes per second: {_FIXED}")

    def beside_clients(self, busy: bool) -> None:  # noqa: B027 - a transport without a limit does nothing.
        """Note whether clients read or write much on this node now, so that copies should leave them room.

        Called on the event loop, when that changes. Must not block."""


class CopySink(Protocol):
    """Where a target stores what it fetches: the stage of one tablet. Only the thread of ``run`` uses it.

    Each method returns well within the time to live of a session, because no session is kept alive meanwhile."""

    def stored(self, item: str) -> int:
        """Return how many bytes of an item that is not durable are stored, from its beginning on without gaps."""

    def checksum(self, item: str) -> int:
        """Return the CRC32C of the stored bytes of an item. May block. Raises ``StorageError``."""

    def write(self, item: str, offset: int, data: Buffer) -> None:
        """Store bytes of an item. ``offset`` equals ``stored(item)``. May block.

        Raises ``Full`` if the stage or the disk has no space, and another ``StorageError`` if it cannot be written."""

    def finish(self, item: str) -> None:
        """Verify the digest of an item, and begin to make it durable. May block.

        The caller of ``run`` waits until it is durable. An error of that may be raised by a later call. Raises
        ``Corrupt`` if the item does not have the digest of the plan; ``stored`` is then 0. Raises as ``write`` does
        otherwise."""

    def discard(self, item: str) -> None:
        """Forget the stored bytes of an item. ``stored`` is then 0. Raises ``StorageError``."""


class CopyNetwork(Protocol):
    """Requests to the source of one run. Only the thread of ``run`` uses it."""

    def ask(self, ticket: int, source: NodeId, request: SourceRequest) -> None:
        """Send a request. Does not block and does not raise. ``wait`` returns exactly one answer to it."""

    def wait(self, timeout_us: int) -> Sequence[tuple[int, SourceAnswer | StelaeError]]:
        """Block until an answer has arrived or the time has passed. Return the answers, each with its ticket.

        An answer that is missing for too long is a ``DeadlineExceeded`` or ``Unavailable``. Answers arrive in any
        order. With nothing asked it returns at the end of the time.

        An error that the source raised arrives with its class if that is a ``CallerError``, ``RetryableError`` or
        ``PeerError``. Any other, such as ``Corrupt``, arrives as a ``PeerError`` whose ``remote_code`` is its code:
        ``"CORRUPT"`` says that the bytes are damaged, and another code of a ``StorageError`` says nothing about
        them."""


class CopyControl(Protocol):
    """How the caller of a copy controls it. Only the thread of ``run`` calls it. No method blocks."""

    def admit(self, size_bytes: int) -> int:
        """Allow the copy to fetch bytes, or return the microseconds after which to ask again.

        0 means that they are allowed and counted. A paused copy is never allowed more. Its session stays open."""

    def cancelled(self) -> bool:
        """Return whether the copy must end. It is asked at least every 100 ms."""

    def progress(self, progress: CopyProgress) -> None:
        """Take note of the progress. Called at the beginning, and after each part that was stored."""


class CopyTarget(ABC):
    """The side of a transport that fetches snapshots, on one node."""

    @abstractmethod
    def reserve(self, tablet_id: TabletId) -> None:
        """Take a slot for the copy of a tablet. Raises ``Overloaded`` if all are taken, or the tablet has one."""

    @abstractmethod
    def release(self, tablet_id: TabletId) -> None:
        """Give the slot of a tablet back. Harmless if it has none."""

    @abstractmethod
    def run(
        self, plan: CopyPlan, *, have: Mapping[str, str], sink: CopySink, network: CopyNetwork, control: CopyControl
    ) -> CopyOutcome:
        """Fetch the items of the plan that are not in ``have``. Return the outcome. Blocks. Raises nothing.

        While it runs it keeps the session alive, also when it is paused. It does not end it: the caller does, when the
        leader's log is known to be kept for the new replica.

        Args:
            plan: what to fetch, from which session.
            have: digests of the items that are durable in the sink. An item counts only if its digest is the plan's.
            sink: where to store the items.
            network: the way to the source.
            control: limits and cancels the copy, and gets its progress."""

    def bytes_per_s_max(self) -> int | None:
        """Return the limit of all copies to this node, in bytes per second; 0: no limit. ``None``: it has none."""
        return None

    def set_bytes_per_s_max(self, bytes_per_s: int) -> None:
        """Change that limit until the node stops. 0 removes it.

        Raises ``Unsupported`` if the transport cannot do that."""
        raise Unsupported(f"copies to this node cannot be limited to {bytes_per_s} bytes per second: {_FIXED}")

    def beside_clients(self, busy: bool) -> None:  # noqa: B027 - a transport without a limit does nothing.
        """Note whether clients read or write much on this node now, so that copies should leave them room.

        Called on the event loop, when that changes. Must not block."""


class CopyTransport(Engine):
    """Makes both sides of a transport. Subclasses are registered through the hook ``stelae_copy_transports``."""

    contract_version: ClassVar[int] = COPY_CONTRACT_VERSION

    @classmethod
    @abstractmethod
    def target_slots(cls, config: Any) -> int:
        """Return how many copies to this node may run at a time, at least 1: what ``CopyTarget.reserve`` admits.

        The kernel has a thread for each of them, on which ``CopyTarget.run`` blocks."""

    @classmethod
    @abstractmethod
    def source(cls, config: Any, services: EngineServices, incarnation: str) -> CopySource:
        """Make the serving side. ``incarnation`` is new at each start of the node: it makes session ids unique."""

    @classmethod
    @abstractmethod
    def target(cls, config: Any, services: EngineServices) -> CopyTarget:
        """Make the fetching side."""
