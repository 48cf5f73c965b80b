"""Parcels into messages and back: what one turn produced for one destination travels together.

A message is the envelope, then one frame in which all body frames below ``PACK_BELOW`` bytes stand
one behind the other, then the larger ones as frames of their own. Which of the two holds for a
frame follows from its length alone. A frame of its own costs about a microsecond on each side,
and a small write has one, so packing is what makes coalescing cheap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from stelae.spi.services import Buffer
from stelae.wire.envelope import Parcel
from stelae.wire.refusals import Fields, Malformed
from stelae.wire.settings import PARCEL_COST

PACK_BELOW: Final = 16 << 10
"""Body frames shorter than this many bytes are packed. Part of the protocol version."""

HELLO: Final = "hello"
PING: Final = "wire.ping"
PONG: Final = "wire.pong"
CREDIT: Final = "wire.credit"
CANCEL: Final = "wire.cancel"
REFUSED: Final = "wire.refused"
REPLY: Final = "wire.reply"
ERROR: Final = "wire.error"

FREE_KINDS: Final = frozenset({HELLO, PING, PONG, CREDIT, CANCEL, REFUSED})
"""Kinds that keep a link going; they carry no body and cost no credit."""

RESERVED_PREFIX: Final = "wire."


class Batch:
    """Parcels that will be one message. ``cost`` in credit bytes, ``size`` in body bytes."""

    __slots__ = ("cost", "large", "packed", "parcels", "size")

    def __init__(self) -> None:
        self.parcels: list[tuple[object, ...]] = []
        self.packed: list[Buffer] = []
        self.large: list[Buffer] = []
        self.cost = 0
        self.size = 0

    def body(self) -> list[Buffer]:
        """Return the frames that follow the envelope."""
        if not self.packed:
            return [b"", *self.large] if self.large else []
        return [b"".join(self.packed), *self.large]


class Outbox:
    """Collects the parcels for one destination, in order, into batches within the limits."""

    __slots__ = ("_batch", "_bytes", "_full", "_large_max", "_parcels_max", "cost")

    def __init__(self, *, batch_bytes: int, parcels_max: int, large_max: int) -> None:
        self._bytes = batch_bytes
        self._parcels_max = parcels_max
        self._large_max = large_max
        self._batch = Batch()
        self._full: deque[Batch] = deque()
        self.cost = 0

    def __bool__(self) -> bool:
        return bool(self._full) or bool(self._batch.parcels)

    def add(
        self,
        kind: str,
        request_id: int,
        deadline_ms: int,
        trace_id: str,
        fields: Fields | None,
        frames: Sequence[Buffer],
        lengths: list[int],
    ) -> None:
        """Append one parcel; ``lengths`` are those of ``frames`` in bytes."""
        batch = self._batch
        if batch.size >= self._bytes or len(batch.parcels) >= self._parcels_max:
            batch = self._close_batch()
        if len(batch.large) + len(frames) > self._large_max and batch.parcels:
            batch = self._close_batch()
        batch.parcels.append((kind, request_id, deadline_ms, trace_id, fields, lengths))
        cost = 0 if kind in FREE_KINDS else PARCEL_COST
        for frame, length in zip(frames, lengths, strict=True):
            (batch.packed if length < PACK_BELOW else batch.large).append(frame)
            batch.size += length
            cost += length
        batch.cost += cost
        self.cost += cost

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

    def clear(self) -> None:
        """Forget everything: the destination is gone."""
        self._full.clear()
        self._batch = Batch()
        self.cost = 0

    def _close_batch(self) -> Batch:
        self._full.append(self._batch)
        self._batch = Batch()
        return self._batch


def frame_length(frame: Buffer) -> int:
    """Return the bytes of a frame (``len`` of a memoryview counts items)."""
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


def parcel_cost(lengths: Sequence[int]) -> int:
    """Return what a parcel of an engine or service costs in credit bytes."""
    return PARCEL_COST + sum(lengths)


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
