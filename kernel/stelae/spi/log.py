"""The entries of a replicated log. Consensus, log engines and stores share these types."""

from enum import IntEnum

import msgspec

from stelae.spi.ids import OpId

ENTRY_BYTES_MAX = 64 << 20  #: The largest body of an entry, in bytes.
ENTRY_OVERHEAD_BYTES = 64  #: What queues and caches charge for an entry in addition to its body.


class EntryKind(IntEnum):
    """What the body of an entry contains. It is stored as one byte; numbers are never reused."""

    NOOP = 0  #: Nothing. Each term after the first begins with such an entry.
    CONFIG = 1  #: A ``TabletConfig`` (``stelae.spi.consensus``).
    WRITE = 2  #: A ``WritePayload`` (``stelae.spi.payload``).
    SCHEMA = 3  #: A schema version (``stelae.spi.schema``).


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a replicated log. It is immutable, and its body is never encoded again.

    Along a log, indexes are contiguous, and terms and timestamps never decrease."""

    op_id: OpId
    kind: EntryKind
    #: The hybrid timestamp from the leader's driver. 0 means that the driver has not set it yet; 0 is never stored.
    timestamp: int
    body: bytes  #: At most ``ENTRY_BYTES_MAX`` bytes; may be empty.

    @property
    def size_bytes(self) -> int:
        """The bytes that queues and windows charge for the entry."""
        return len(self.body) + ENTRY_OVERHEAD_BYTES
