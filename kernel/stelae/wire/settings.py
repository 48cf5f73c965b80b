"""Settings of messaging: the ``[wire]`` section of ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from stelae.spi.settings import setting

FRAMES_MAX: Final = 4096
"""Frames that a message may have. Part of the protocol: senders may be set lower, not higher."""

PARCELS_MAX: Final = 4096
"""Parcels that a message may have. Part of the protocol, as above."""

PARCEL_COST: Final = 256
"""Bytes that a parcel costs beside its body when credit is counted. Part of the protocol."""


class Lane(IntEnum):
    """Which of the two connections to a peer a message takes.

    Scans and copies travel on BULK, so that they never stand before a heartbeat.
    """

    CONTROL = 0
    BULK = 1


def _limit(default: int, unit: str, low: int, high: int, reason: str) -> Any:
    return setting(default, unit=unit, low=low, high=high, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """Limits and periods of messaging. Every queue, size and retry has one."""

    insecure_listen: bool = setting(
        False, reason="without security only loopback may be listened on, unless said in words"
    )
    header_bytes_max: int = _limit(
        1 << 20,
        "bytes",
        4096,
        16 << 20,
        "a full message of parcels fits many times; parsing stays short",
    )
    frame_bytes_max: int = _limit(
        65 << 20, "bytes", 64 << 10, 1 << 30, "the largest log entry (64 MiB) and what surrounds it"
    )
    frames_max: int = _limit(
        1024, "count", 8, FRAMES_MAX, "frames are bounded in size, so they must be in number"
    )
    parcels_max: int = _limit(
        1024, "count", 1, PARCELS_MAX, "what one turn coalesces; more starts another message"
    )
    message_bytes: int = _limit(
        1 << 20, "bytes", 1024, 64 << 20, "a message closes at this size; the receiver starts"
    )
    control_window_bytes: int = _limit(
        16 << 20,
        "bytes",
        64 << 10,
        1 << 30,
        "bytes under way per link and direction: bounds memory",
    )
    bulk_window_bytes: int = _limit(
        64 << 20, "bytes", 64 << 10, 4 << 30, "as above, on the bulk lane"
    )
    reply_backlog_bytes_max: int = _limit(
        64 << 20,
        "bytes",
        64 << 10,
        4 << 30,
        "replies that wait for a slow caller; above it the connection is dropped",
    )
    connections_max: int = _limit(
        4096, "count", 4, 1 << 20, "two per peer and client process; more are refused at hello"
    )
    requests_open_max: int = _limit(
        16384,
        "count",
        1,
        1 << 20,
        "unanswered requests of one connection; more are refused as overloaded",
    )
    deadline_ms_max: int = _limit(
        600_000,
        "ms",
        1,
        86_400_000,
        "an unanswered request is forgotten after its deadline, so this bounds memory",
    )
    connect_timeout_ms: int = _limit(
        500, "ms", 10, 60_000, "name, connection and hello together; then the socket is opened anew"
    )
    reconnect_ms_min: int = _limit(20, "ms", 1, 60_000, "first pause before a link is opened again")
    reconnect_ms_max: int = _limit(
        400, "ms", 1, 600_000, "a restarted peer is found well within an election timeout"
    )
    ping_ms: int = _limit(1000, "ms", 10, 60_000, "an idle link is proved alive this often")
    silence_ms_max: int = _limit(
        4000, "ms", 20, 600_000, "several pings unanswered: the link is opened again"
    )
    drain_messages_max: int = _limit(
        256,
        "count",
        1,
        65536,
        "messages taken in one turn before timers and other sockets have theirs",
    )

    def window_bytes(self, lane: Lane) -> int:
        """Return how many un-acknowledged bytes a lane may have under way, per direction."""
        return self.bulk_window_bytes if lane is Lane.BULK else self.control_window_bytes

    def messages_max(self, lane: Lane) -> int:
        """Return the socket's mark in messages: finite, and reached after the byte credit."""
        return self.window_bytes(lane) // PARCEL_COST + 1024
