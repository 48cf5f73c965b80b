"""Entries of a replicated log, as consensus, log engines and stores all see them."""

from enum import IntEnum

import msgspec

from stelae.spi.ids import OpId

ENTRY_BYTES_MAX = 64 << 20  #: Largest body in bytes; a larger one is refused with both sizes.
ENTRY_OVERHEAD_BYTES = 64  #: What an entry is charged besides its body in queues and caches.


class EntryKind(IntEnum):
    """What the body of an entry means. Stored as one byte; numbers are never reused."""

    NOOP = 0  #: Empty: the first entry of a term after the first.
    CONFIG = 1  #: A ``TabletConfig`` (see ``stelae.spi.consensus``).
    WRITE = 2  #: A ``WritePayload`` (see ``stelae.spi.payload``).
    SCHEMA = 3  #: A schema version (see ``stelae.spi.schema``).


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a replicated log, immutable, its body never re-encoded. Indexes are contiguous; terms and
    ``timestamp`` (hybrid, by the leader's driver; 0: not stamped yet, and never stored) never decrease."""

    op_id: OpId
    kind: EntryKind
    timestamp: int
    body: bytes  #: At most ``ENTRY_BYTES_MAX`` bytes, may be empty.

    @property
    def size_bytes(self) -> int:
        """Bytes that the entry is charged in queues and windows."""
        return len(self.body) + ENTRY_OVERHEAD_BYTES
