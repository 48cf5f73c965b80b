"""Settings of messaging: the ``[wire]`` section of ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """Limits and periods of messaging. Every queue, size and retry has one."""

    insecure_listen: bool = setting(
        False,
        reason="without security, only loopback may be listened on unless this is said in words",
    )
    header_bytes_max: int = setting(
        1 << 20,
        unit="bytes",
        low=4096,
        high=16 << 20,
        reason="a full message of parcels fits many times; parsing stays short",
    )
    frame_bytes_max: int = setting(
        65 << 20,
        unit="bytes",
        low=64 << 10,
        high=1 << 30,
        reason="the largest log entry (64 MiB) and what surrounds it",
    )
    frames_max: int = setting(
        1024,
        unit="count",
        low=8,
        high=FRAMES_MAX,
        reason="the library bounds the size of a frame but not how many a message has",
    )
    parcels_max: int = setting(
        1024,
        unit="count",
        low=1,
        high=PARCELS_MAX,
        reason="what one turn of the loop coalesces; more starts another message",
    )
    message_bytes: int = setting(
        1 << 20,
        unit="bytes",
        low=1024,
        high=64 << 20,
        reason="a coalesced message closes at this size, so that the receiver can start",
    )
    control_window_bytes: int = setting(
        16 << 20,
        unit="bytes",
        low=64 << 10,
        high=1 << 30,
        reason="un-acknowledged bytes per control link and direction: bounds memory",
    )
    bulk_window_bytes: int = setting(
        64 << 20,
        unit="bytes",
        low=64 << 10,
        high=4 << 30,
        reason="un-acknowledged bytes per bulk link and direction: bounds memory",
    )
    reply_backlog_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        low=64 << 10,
        high=4 << 30,
        reason="replies that wait for a slow caller's credit; above it the connection is dropped",
    )
    connections_max: int = setting(
        4096,
        unit="count",
        low=4,
        high=1 << 20,
        reason="two per peer and client process; more are refused at hello",
    )
    requests_open_max: int = setting(
        16384,
        unit="count",
        low=1,
        high=1 << 20,
        reason="unanswered requests of one connection; more are refused as overloaded",
    )
    deadline_ms_max: int = setting(
        600_000,
        unit="ms",
        low=1,
        high=86_400_000,
        reason="an unanswered request is forgotten after its deadline, so this bounds memory",
    )
    connect_timeout_ms: int = setting(
        500,
        unit="ms",
        low=10,
        high=60_000,
        reason="name, connection and hello together; then the socket is opened anew",
    )
    reconnect_ms_min: int = setting(
        20, unit="ms", low=1, high=60_000, reason="first pause before a link is opened again"
    )
    reconnect_ms_max: int = setting(
        400,
        unit="ms",
        low=1,
        high=600_000,
        reason="a restarted peer is found well within an election timeout",
    )
    ping_ms: int = setting(
        1000, unit="ms", low=10, high=60_000, reason="an idle link is proved alive this often"
    )
    silence_ms_max: int = setting(
        4000,
        unit="ms",
        low=20,
        high=600_000,
        reason="several pings unanswered: the link is opened again",
    )
    drain_messages_max: int = setting(
        256,
        unit="count",
        low=1,
        high=65536,
        reason="messages taken in one turn before timers and other sockets have theirs",
    )

    def window_bytes(self, lane: Lane) -> int:
        """Return how many un-acknowledged bytes a lane may have under way, per direction."""
        return self.bulk_window_bytes if lane is Lane.BULK else self.control_window_bytes

    def messages_max(self, lane: Lane) -> int:
        """Return the socket's mark in messages: finite, and reached after the byte credit."""
        return self.window_bytes(lane) // PARCEL_COST + 1024
