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
from stelae.wire.envelope import FREE_KINDS, Envelope, Parcel, decode_envelope
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
        if not self.packed and not self.large:
            return []
        return [b"".join(self.packed), *self.large]


class Outbox:
    """Collects the parcels for one destination, in order, into batches within the limits.

    ``filled`` is called whenever something was added.
    """

    __slots__ = ("_batch", "_bytes_max", "_filled", "_full", "_large_max", "_parcels_max", "cost")

    def __init__(self, settings: WireSettings, filled: Callable[[], None]) -> None:
        self._bytes_max, self._parcels_max = settings.message_bytes, settings.parcels_max
        self._large_max = settings.frames_max - SPARE_FRAMES
        self._filled = filled
        self.clear()

    def clear(self) -> None:
        """Forget everything: the destination is gone."""
        self._full: deque[Batch] = deque()
        self._batch = Batch()
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
        batch = self._batch
        if batch.parcels and (
            batch.size >= self._bytes_max
            or len(batch.parcels) >= self._parcels_max
            or len(batch.large) + len(frames) > self._large_max
        ):
            self._full.append(batch)
            batch = self._batch = Batch()
        batch.parcels.append((kind, request_id, deadline_ms, trace_id, fields, lengths))
        cost = 0 if kind in FREE_KINDS else PARCEL_COST
        for frame, length in zip(frames, lengths, strict=True):
            (batch.packed if length < PACK_BELOW else batch.large).append(frame)
            batch.size += length
            cost += length
        batch.cost += cost
        self.cost += cost
        self._filled()

    def take(self) -> Batch | None:
        """Remove and return the oldest batch, if there is one."""
        batch = self.peek()
        if batch is None:
            return None
        if self._full:
            self._full.popleft()
        else:
            self._batch = Batch()
        self.cost -= batch.cost
        return batch

    def peek(self) -> Batch | None:
        """Return the oldest batch without removing it. Adding may still make it grow."""
        if self._full:
            return self._full[0]
        return self._batch if self._batch.parcels else None


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
        if parcel.kind not in FREE_KINDS:
            cost += PARCEL_COST
        elif parcel.lengths:
            raise Malformed(f"{parcel.kind} carries no body")
        bodies.append(frames)
    if offset != frame_length(packed) or large < len(body):
        raise Malformed("more or fewer bytes came than the parcels announce")
    return bodies, cost
