"""What travels on a connection: parcels, the messages they share, and the credit they cost.

A message is the envelope, one frame with all body frames below ``PACK_BELOW`` bytes in a row, and the larger ones as
they are. A frame costs about a microsecond on each side, and a small write has one: packing makes coalescing cheap."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from stelae.spi.errors import TooLarge
from stelae.spi.services import Buffer
from stelae.wire.envelope import Envelope, Kind, Parcel, Row, decode_envelope
from stelae.wire.refusals import Fields, Malformed
from stelae.wire.settings import FRAMES_MAX, PARCEL_COST, PARCELS_MAX, WireSettings

PACK_BELOW: Final = 16 << 10  # bytes of a frame; part of the protocol version
SPARE_FRAMES: Final = 4  # envelope, packed frame, and room


class Credit:
    """Byte credit: how much may be under way on one connection, per direction.

    The receiver says in every header the sum of the bytes it has consumed since hello; the sender may have a window
    more than that under way. Sums make a repeated or reordered report harmless. With less than a quarter of the window
    under way anything may go, or what is larger than it never could: that much may be consumed and not yet reported."""

    __slots__ = ("_consumed", "_freed", "_reported", "_sent", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self._sent = self._freed = self._consumed = self._reported = 0

    def take(self, cost: int) -> bool:
        """Count ``cost`` bytes as sent if they fit; say whether they did."""
        under_way = self._sent - self._freed
        if under_way + cost > self.window_bytes and under_way * 4 >= self.window_bytes:
            return False
        self._sent += cost
        return True

    def adjust(self, cost: int) -> None:
        """Correct the count by bytes that went beside ``take``, or (negative) did not go at all."""
        self._sent += cost

    def freed(self, consumed: int) -> bool:
        """Take the peer's sum; say whether it freed anything. Sums beyond what was sent are cut."""
        before, self._freed = self._freed, max(self._freed, min(consumed, self._sent))
        return self._freed > before

    def consume(self, cost: int) -> bool:
        """Count bytes that arrived; say whether the peer is to be told now, a quarter later."""
        self._consumed += cost
        return (self._consumed - self._reported) * 4 >= self.window_bytes and bool(self.report())

    def report(self) -> int:
        """Return the sum for a header that is being written."""
        self._reported = self._consumed
        return self._consumed


class Batch:
    """Parcels that will be one message. ``cost`` in credit bytes, ``size`` in body bytes."""

    __slots__ = ("cost", "large", "packed", "parcels", "size")

    def __init__(self) -> None:
        self.parcels: list[Row] = []
        self.packed: list[Buffer] = []
        self.large: list[Buffer] = []
        self.cost = self.size = 0

    def body(self) -> list[Buffer]:
        """Return the frames that follow the envelope."""
        return [b"".join(self.packed), *self.large] if self.packed or self.large else []


class Outbox:
    """Collects the parcels for one destination, in order; calls ``filled`` after each."""

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
        self._batches.clear()
        self.cost = 0


def frame_length(frame: Buffer) -> int:
    """Return the bytes of a frame (``len`` of a memoryview counts items)."""
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


def measure(frames: Sequence[Buffer], settings: WireSettings) -> list[int]:
    """Return the lengths in bytes of frames to send; ``TooLarge``: one, or their number, is above what a peer takes."""
    lengths = [frame_length(frame) for frame in frames]
    if lengths and max(lengths) > settings.frame_bytes_max:
        raise TooLarge("body frame", max(lengths), settings.frame_bytes_max)
    if len(lengths) > settings.frames_max - SPARE_FRAMES:
        raise TooLarge("list of body frames", len(lengths), settings.frames_max - SPARE_FRAMES)
    return lengths


def read_message(frames: Sequence[Buffer], settings: WireSettings) -> Envelope:
    """Check the outer limits of a message and read its envelope, ``frames[0]``. ``TooLarge``: header or a frame above
    its limit. ``Malformed``, ``WrongVersion``: see ``decode_envelope``; also too many frames or parcels, or none."""
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
    """Give each parcel its frames back; also return what they cost in credit bytes. ``Malformed``: lengths are not
    exactly as announced, or a kind that has no body has one."""
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
