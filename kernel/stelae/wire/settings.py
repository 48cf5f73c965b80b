"""Settings of messaging: the ``[wire]`` section of ``node.toml``."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from stelae.spi.settings import setting

# These four are part of the protocol. A sender's own limit may be lower, never higher.
INTEGER_MAX: Final = 2**63 - 1
FRAMES_MAX: Final = 4096
PACKET_MESSAGES_MAX: Final = 4096
#: Credit bytes that a message costs in addition to its body.
MESSAGE_COST: Final = 256


class Lane(IntEnum):
    """One of the two connections to a peer. Large transfers use BULK, so that they never delay a heartbeat."""

    CONTROL = 0
    BULK = 1  #: Scans and copies.


def _limit(default: int, low: int, high: int, unit: str, reason: str) -> Any:
    return setting(default, unit=unit, low=low, high=high, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """Limits and periods of messaging. Every queue, size and retry has one."""

    insecure_listen: bool = setting(False, reason="listening beyond loopback must be allowed explicitly")
    header_bytes_max: int = _limit(1 << 20, 4096, 16 << 20, "bytes", "bounds the cost of decoding an envelope")
    frame_bytes_max: int = _limit(65 << 20, 64 << 10, 1 << 30, "bytes", "one frame; a 64 MiB log entry fits")
    frames_max: int = _limit(1024, 8, FRAMES_MAX, "count", "frames of one packet")
    packet_messages_max: int = _limit(1024, 1, PACKET_MESSAGES_MAX, "count", "messages of one packet")
    packet_bytes: int = _limit(1 << 20, 1024, 64 << 20, "bytes", "a packet of this size takes no more messages")
    control_window_bytes: int = _limit(16 << 20, 64 << 10, 1 << 30, "bytes", "per link and direction, lane CONTROL")
    bulk_window_bytes: int = _limit(64 << 20, 64 << 10, 4 << 30, "bytes", "the same for lane BULK")
    reply_backlog_bytes_max: int = _limit(64 << 20, 64 << 10, 4 << 30, "bytes", "more disconnects a slow caller")
    connections_max: int = _limit(4096, 4, 1 << 20, "count", "each peer and each client process has two")
    requests_open_max: int = _limit(16384, 1, 1 << 20, "count", "per connection; more are refused as overload")
    deadline_ms_max: int = _limit(600_000, 30_000, 86_400_000, "ms", "bounds how long a request stays open")
    connect_timeout_ms: int = _limit(500, 10, 60_000, "ms", "for connection and hello together")
    reconnect_ms_min: int = _limit(20, 1, 60_000, "ms", "the first pause before reconnecting")
    reconnect_ms_max: int = _limit(400, 1, 600_000, "ms", "well below an election timeout")
    ping_ms: int = _limit(1000, 10, 60_000, "ms", "how often an idle link is tested")
    silence_ms_max: int = _limit(4000, 20, 600_000, "ms", "after this silence a link reconnects")
    packets_per_turn_max: int = _limit(256, 1, 65536, "count", "packets read in one turn, before other work runs")

    def window_bytes(self, lane: Lane) -> int:
        """Return how many bytes may be in flight on a lane, per direction."""
        return self.bulk_window_bytes if lane is Lane.BULK else self.control_window_bytes

    def messages_max(self, lane: Lane) -> int:
        """Return the socket's high-water mark in packets. It is high enough that the byte credit is used up first."""
        return self.window_bytes(lane) // MESSAGE_COST + 1024
