"""Parcels into messages and back: what one turn produced for one destination travels together.

A message is the envelope, then one frame in which all body frames below ``PACK_BELOW`` bytes stand
one behind the other, then the larger ones as frames of their own. Which of the two holds for a
frame follows from its length alone. A frame of its own costs about a microsecond on each side,
and a small write has one, so packing is what makes coalescing cheap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from stelae.spi.errors import TooLarge
from stelae.spi.services import Buffer
from stelae.wire.credit import Credit
from stelae.wire.envelope import Envelope, Kind, Parcel, decode_envelope
from stelae.wire.refusals import Fields, Malformed
from stelae.wire.settings import FRAMES_MAX, PARCEL_COST, PARCELS_MAX, WireSettings

PACK_BELOW: Final = 16 << 10
"""Body frames shorter than this many bytes are packed. Part of the protocol version."""

SPARE_FRAMES: Final = 4
"""Frames of a message that are no large body frame: envelope, packed frame, and room."""


class Batch:
    """Parcels that will be one message. ``cost`` in credit bytes, ``size`` in body bytes."""

    __slots__ = ("cost", "large", "packed", "parcels", "size")

    def __init__(self) -> None:
        self.parcels: list[tuple[object, ...]] = []
        self.packed: list[Buffer] = []
        self.large: list[Buffer] = []
        self.cost = self.size = 0

    def body(self) -> list[Buffer]:
        """Return the frames that follow the envelope."""
        return [b"".join(self.packed), *self.large] if self.packed or self.large else []


class Outbox:
    """Collects the parcels for one destination, in order, into batches within the limits.

    ``filled`` is called whenever something was added; ``cost`` is that of all that waits.
    """

    __slots__ = ("_batches", "_bytes_max", "_filled", "_large_max", "_parcels_max", "cost")

    def __init__(self, settings: WireSettings, filled: Callable[[], None]) -> None:
        self._bytes_max, self._parcels_max = settings.message_bytes, settings.parcels_max
        self._large_max = settings.frames_max - SPARE_FRAMES
        self._filled = filled
        self._batches: deque[Batch] = deque()
        self.cost = 0

    def add(
        self,
        kind: str,
        request_id: int = 0,
        deadline_ms: int = 0,
        trace_id: str = "",
        fields: Fields | None = None,
        frames: Sequence[Buffer] = (),
        lengths: Sequence[int] = (),
    ) -> None:
        """Append one parcel; ``lengths`` are those of ``frames`` in bytes."""
        batch = self._batches[-1] if self._batches else None
        if (
            batch is None
            or batch.size >= self._bytes_max
            or len(batch.parcels) >= self._parcels_max
            or len(batch.large) + len(frames) > self._large_max
        ):
            batch = Batch()
            self._batches.append(batch)
        batch.parcels.append((kind, request_id, deadline_ms, trace_id, fields, lengths))
        cost = 0 if kind in Kind.FREE else PARCEL_COST
        for frame, length in zip(frames, lengths, strict=True):
            (batch.packed if length < PACK_BELOW else batch.large).append(frame)
            batch.size += length
            cost += length
        batch.cost += cost
        self.cost += cost
        self._filled()

    def take(self, credit: Credit | None = None) -> Batch | None:
        """Remove and return the oldest batch, if there is one, and ``credit`` has room for it."""
        if not self._batches or (credit and not credit.take(self._batches[0].cost)):
            return None
        batch = self._batches.popleft()
        self.cost -= batch.cost
        return batch

    def clear(self) -> None:
        """Forget everything: the destination is gone."""
        self._batches.clear()
        self.cost = 0


def frame_length(frame: Buffer) -> int:
    """Return the bytes of a frame (``len`` of a memoryview counts items)."""
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


def parcel_cost(lengths: Sequence[int]) -> int:
    """Return what a parcel of an engine or service costs in credit bytes."""
    return PARCEL_COST + sum(lengths)


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


def read_message(frames: Sequence[Buffer], settings: WireSettings) -> Envelope:
    """Check the outer limits of a message and read its envelope, ``frames[0]``.

    Raises:
        TooLarge: header or a frame above its limit.
        Malformed, WrongVersion: see ``decode_envelope``; also too many frames or parcels, or none.
    """
    if not 0 < len(frames) <= FRAMES_MAX:
        raise Malformed(f"a message has a header, and at most {FRAMES_MAX} frames")
    header = bytes(frames[0])
    if len(header) > settings.header_bytes_max:
        raise TooLarge("message header", len(header), settings.header_bytes_max)
    largest = max(map(frame_length, frames))
    if largest > settings.frame_bytes_max:
        raise TooLarge("message frame", largest, settings.frame_bytes_max)
    envelope = decode_envelope(header)
    if len(envelope.parcels) > PARCELS_MAX:
        raise Malformed(f"a message has at most {PARCELS_MAX} parcels")
    return envelope


def unpack(parcels: Sequence[Parcel], body: Sequence[Buffer]) -> tuple[list[list[Buffer]], int]:
    """Give each parcel its frames back; also return what they cost in credit bytes.

    Raises:
        Malformed: the announced lengths are not exactly those of the frames that came, or a kind
            that has no body came with one. Nothing of the message may be used then.
    """
    packed = body[0] if body else b""
    offset = cost = 0
    large = 1
    bodies: list[list[Buffer]] = []
    for parcel in parcels:
        frames: list[Buffer] = []
        for length in parcel.lengths:
            if length < PACK_BELOW:
                frames.append(packed[offset : offset + length])
                offset += length
            else:
                if large >= len(body) or frame_length(body[large]) != length:
                    raise Malformed("a frame is missing or not as long as announced")
                frames.append(body[large])
                large += 1
            cost += length
        if parcel.kind not in Kind.FREE:
            cost += PARCEL_COST
        elif parcel.lengths:
            raise Malformed(f"{parcel.kind} carries no body")
        bodies.append(frames)
    if offset != frame_length(packed) or large < len(body):
        raise Malformed("more or fewer bytes came than the parcels announce")
    return bodies, cost
