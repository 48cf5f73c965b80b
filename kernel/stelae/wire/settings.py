"""Settings of messaging: the ``[wire]`` section of ``node.toml``."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from stelae.spi.settings import setting

# These four are part of the protocol: senders may be set lower, never higher.
INTEGER_MAX: Final = 2**63 - 1
FRAMES_MAX: Final = 4096
PARCELS_MAX: Final = 4096
PARCEL_COST: Final = 256  # bytes that a parcel costs beside its body when credit is counted


class Lane(IntEnum):
    """Which of the two connections to a peer a message takes; on BULK nothing can stand before a heartbeat."""

    CONTROL = 0
    BULK = 1  #: Scans and copies.


def _limit(default: int, low: int, high: int, unit: str, reason: str) -> Any:
    return setting(default, unit=unit, low=low, high=high, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """Limits and periods of messaging. Every queue, size and retry has one."""

    insecure_listen: bool = setting(False, reason="beyond loopback only if said in as many words")
    header_bytes_max: int = _limit(1 << 20, 4096, 16 << 20, "bytes", "bounds what parsing costs")
    frame_bytes_max: int = _limit(65 << 20, 64 << 10, 1 << 30, "bytes", "a 64 MiB log entry fits")
    frames_max: int = _limit(1024, 8, FRAMES_MAX, "count", "frames are bounded in number too")
    parcels_max: int = _limit(1024, 1, PARCELS_MAX, "count", "more of a turn is another message")
    message_bytes: int = _limit(1 << 20, 1024, 64 << 20, "bytes", "a message closes at this size")
    control_window_bytes: int = _limit(16 << 20, 64 << 10, 1 << 30, "bytes", "per link and direction: bounds memory")
    bulk_window_bytes: int = _limit(64 << 20, 64 << 10, 4 << 30, "bytes", "as above, on lane BULK")
    reply_backlog_bytes_max: int = _limit(64 << 20, 64 << 10, 4 << 30, "bytes", "above it a slow caller is cut off")
    connections_max: int = _limit(4096, 4, 1 << 20, "count", "two per peer and client process")
    requests_open_max: int = _limit(16384, 1, 1 << 20, "count", "per connection; more is overload")
    deadline_ms_max: int = _limit(600_000, 1, 86_400_000, "ms", "bounds how long a request is kept")
    connect_timeout_ms: int = _limit(500, 10, 60_000, "ms", "name, connection and hello together")
    reconnect_ms_min: int = _limit(20, 1, 60_000, "ms", "first pause before a link is opened again")
    reconnect_ms_max: int = _limit(400, 1, 600_000, "ms", "well within an election timeout")
    ping_ms: int = _limit(1000, 10, 60_000, "ms", "an idle link is proved alive this often")
    silence_ms_max: int = _limit(4000, 20, 600_000, "ms", "then the link is opened again")
    drain_messages_max: int = _limit(256, 1, 65536, "count", "in one turn, before others have theirs")

    def window_bytes(self, lane: Lane) -> int:
        """Return how many un-acknowledged bytes a lane may have under way, per direction."""
        return self.bulk_window_bytes if lane is Lane.BULK else self.control_window_bytes

    def messages_max(self, lane: Lane) -> int:
        """Return the socket's mark in messages: finite, and reached after the byte credit."""
        return self.window_bytes(lane) // PARCEL_COST + 1024
