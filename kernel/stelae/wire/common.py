"""What the two halves of a messenger share: identity, time, chance, counters, limits."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from stelae.spi.errors import StelaeError, TooLarge
from stelae.spi.ids import ClusterId, NodeId
from stelae.spi.services import Buffer, Clock, Metrics
from stelae.wire.credit import SendCredit
from stelae.wire.envelope import Envelope, Identity, decode_envelope, encode_envelope
from stelae.wire.faults import Direction, Faults
from stelae.wire.parcels import Batch, Outbox, frame_length
from stelae.wire.refusals import Malformed
from stelae.wire.settings import FRAMES_MAX, PARCELS_MAX, WireSettings

SPARE_FRAMES: Final = 4
"""Frames of a message that are no large body frame: envelope, packed frame, and room."""


class TimeSource(Protocol):
    """The node's hybrid clock, as headers need it."""

    def now(self) -> int:
        """Return a hybrid timestamp for a message that leaves."""
        ...

    def observe(self, timestamp: int) -> None:
        """Take notice of a timestamp that arrived.

        Raises:
            ClockError: it is too far ahead; the clock has not moved, and the message is refused.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Common:
    """Handed to every part of one messenger. ``identity`` changes once, if it had no cluster."""

    identity: Identity
    settings: WireSettings
    clock: Clock
    time: TimeSource
    metrics: Metrics
    faults: Faults | None
    rng: random.Random
    call_later: Callable[[float, Callable[[], None]], object]

    def now_us(self) -> int:
        """Monotonic microseconds."""
        return self.clock.monotonic_us()

    def outbox(self) -> Outbox:
        """Return an empty outbox with the configured limits."""
        settings = self.settings
        return Outbox(
            batch_bytes=settings.message_bytes,
            parcels_max=settings.parcels_max,
            large_max=settings.frames_max - SPARE_FRAMES,
        )

    def message(
        self, batch: Batch, *, recipient: str, recipient_incarnation: str, credit: int
    ) -> list[Buffer]:
        """Return the frames of a message that carries ``batch``."""
        header = encode_envelope(
            self.identity,
            recipient=recipient,
            recipient_incarnation=recipient_incarnation,
            timestamp=self.time.now(),
            credit=credit,
            parcels=batch.parcels,
        )
        return [header, *batch.body()]

    def send_through(
        self, peer: NodeId | None, cost: int, credit: SendCredit, put: Callable[[], None]
    ) -> None:
        """Put a message on the wire as the fault seam decides.

        What it loses was never under way, and what it repeats is under way twice, so ``credit``,
        from which ``cost`` was taken, still agrees with what the peer will count.
        """
        if self.faults is None or not self.faults.active or peer is None:
            put()
            return
        delays_ms = self.faults.judge(peer, Direction.OUTBOUND)
        credit.adjust((len(delays_ms) - 1) * cost)
        self._deliver(delays_ms, put)

    def receive_through(self, peer: NodeId, use: Callable[[], None]) -> None:
        """Use a message that arrived, and was counted, as the fault seam decides."""
        if self.faults is None or not self.faults.active:
            use()
            return
        self._deliver(self.faults.judge(peer, Direction.INBOUND), use)

    def _deliver(self, delays_ms: Sequence[int], put: Callable[[], None]) -> None:
        if not delays_ms:
            self.metrics.count("wire_faults_dropped")
        for delay_ms in delays_ms:
            if delay_ms:
                self.call_later(delay_ms / 1000, put)
            else:
                put()

    def refused(self, error: StelaeError) -> None:
        """Count something that arrived and was not accepted, in all and by code."""
        self.metrics.count("wire_refused_total")
        self.metrics.count(f"wire_refused_{error.code.lower()}")

    def learn_cluster(self, cluster_id: str) -> None:
        """Take the cluster id of a first hello, if this process does not have one."""
        if not self.identity.cluster_id and cluster_id:
            self.identity = replace(self.identity, cluster_id=ClusterId(cluster_id))


def read_message(frames: Sequence[Buffer], settings: WireSettings) -> Envelope:
    """Check the outer limits of a message and read its envelope, ``frames[0]``.

    Raises:
        TooLarge: header or a frame above its limit.
        Malformed, WrongVersion: see ``decode_envelope``; also too many frames or parcels.
    """
    if len(frames) > FRAMES_MAX:
        raise Malformed(f"a message has at most {FRAMES_MAX} frames")
    if not frames:
        raise Malformed("a message has at least a header")
    header = bytes(frames[0])
    if len(header) > settings.header_bytes_max:
        raise TooLarge("message header", len(header), settings.header_bytes_max)
    for frame in frames:
        if frame_length(frame) > settings.frame_bytes_max:
            raise TooLarge("message frame", frame_length(frame), settings.frame_bytes_max)
    envelope = decode_envelope(header)
    if len(envelope.parcels) > PARCELS_MAX:
        raise Malformed(f"a message has at most {PARCELS_MAX} parcels")
    return envelope


def measure(frames: Sequence[Buffer], settings: WireSettings) -> list[int]:
    """Return the lengths in bytes of body frames that are to be sent.

    Raises:
        TooLarge: a frame, or their number, is above what a peer would accept.
    """
    lengths = [frame_length(frame) for frame in frames]
    if lengths and max(lengths) > settings.frame_bytes_max:
        raise TooLarge("body frame", max(lengths), settings.frame_bytes_max)
    if len(lengths) > settings.frames_max - SPARE_FRAMES:
        raise TooLarge("list of body frames", len(lengths), settings.frames_max - SPARE_FRAMES)
    return lengths
