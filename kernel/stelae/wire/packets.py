"""Packets: collect the messages of a turn into ZeroMQ multipart messages, and split them again on arrival.

The frames of a packet are: the envelope; one frame that contains all body frames shorter than ``PACK_BELOW`` bytes, one
after the other; and the longer body frames. A frame costs about a microsecond on each side, and a small write has one
body frame. Packing small frames together makes it cheap to send many messages in one packet.

A receiver drops a packet whose envelope is above ``header_bytes_max``, with all its messages. So a packet takes no more
messages once its envelope may have half of that."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from stelae.spi.errors import TooLarge
from stelae.spi.services import Buffer
from stelae.wire.credit import Credit
from stelae.wire.envelope import EncodedMessage, Envelope, Message, MessageKind, decode_envelope
from stelae.wire.refusals import Fields, Malformed
from stelae.wire.settings import FRAMES_MAX, MESSAGE_COST, PACKET_MESSAGES_MAX, WireSettings

#: Body frames shorter than this many bytes are packed into one frame. A part of the protocol version.
PACK_BELOW: Final = 16 << 10
#: The most bytes that a message adds to the envelope, besides its fields, with ids of the lengths that peers accept.
MESSAGE_HEADER_BYTES: Final = 256
#: The most bytes that the length of a body frame adds to the envelope.
LENGTH_HEADER_BYTES: Final = 12
#: Frames of a packet that are not body frames: the envelope, the packed frame, and two in reserve.
SPARE_FRAMES: Final = 4


class Packet:
    """The messages that will be sent as one ZeroMQ message. ``cost`` is in credit bytes, ``size`` in body bytes.

    The envelope has at most ``header_size`` bytes of messages."""

    __slots__ = ("cost", "header_size", "large", "messages", "packed", "size")

    def __init__(self) -> None:
        self.messages: list[EncodedMessage] = []
        self.packed: list[Buffer] = []
        self.large: list[Buffer] = []
        self.cost = self.size = self.header_size = 0

    def body(self) -> list[Buffer]:
        """Return the frames that follow the envelope."""
        return [b"".join(self.packed), *self.large] if self.packed or self.large else []


class Outbox:
    """Collects the messages for one destination into packets, in order."""

    __slots__ = ("_filled", "_full_bytes", "_header_max", "_large_max", "_messages_max", "_packets", "cost")

    def __init__(self, settings: WireSettings, filled: Callable[[], None]) -> None:
        """``filled`` is called after each message that is added."""
        self._full_bytes, self._messages_max = settings.packet_bytes, settings.packet_messages_max
        self._large_max = settings.frames_max - SPARE_FRAMES
        self._header_max = settings.header_bytes_max // 2
        self._filled = filled
        self._packets: deque[Packet] = deque()
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
        """Add a message to the newest packet, or to a new one if that is full."""
        packet = self._packets[-1] if self._packets else None
        header = MESSAGE_HEADER_BYTES + LENGTH_HEADER_BYTES * len(lengths)
        if fields:
            header += len(orjson.dumps(fields))  # Rare, and short: those of errors and hellos.
        if (
            packet is None
            or packet.size >= self._full_bytes
            or packet.header_size + header > self._header_max
            or len(packet.messages) >= self._messages_max
            or len(packet.large) + len(frames) > self._large_max
        ):
            packet = Packet()
            self._packets.append(packet)
        packet.header_size += header
        packet.messages.append((kind, request_id, deadline_ms, trace_id, fields, lengths))
        cost = 0 if kind in MessageKind.CREDIT_FREE else MESSAGE_COST
        for frame, length in zip(frames, lengths, strict=True):
            (packet.packed if length < PACK_BELOW else packet.large).append(frame)
            packet.size += length
            cost += length
        packet.cost += cost
        self.cost += cost
        self._filled()

    def take(self, credit: Credit | None = None) -> Packet | None:
        """Remove and return the oldest packet. Return ``None`` if there is none, or ``credit`` has no room for it."""
        if not self._packets or (credit and not credit.take(self._packets[0].cost)):
            return None
        packet = self._packets.popleft()
        self.cost -= packet.cost
        return packet

    def clear(self) -> None:
        """Drop all packets."""
        self._packets.clear()
        self.cost = 0


def frame_length(frame: Buffer) -> int:
    """Return the length of a frame in bytes. (``len`` of a memoryview counts items, not bytes.)"""
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


def measure(frames: Sequence[Buffer], settings: WireSettings) -> list[int]:
    """Return the lengths in bytes of the body frames of a message.

    Raises ``TooLarge`` if a frame, or the number of frames, is above the limit that peers accept."""
    lengths = [frame_length(frame) for frame in frames]
    if lengths and max(lengths) > settings.frame_bytes_max:
        raise TooLarge("body frame", max(lengths), settings.frame_bytes_max)
    if len(lengths) > settings.frames_max - SPARE_FRAMES:
        raise TooLarge("list of body frames", len(lengths), settings.frames_max - SPARE_FRAMES)
    return lengths


def read_packet(frames: Sequence[Buffer], settings: WireSettings) -> Envelope:
    """Check the size limits of a packet and decode its envelope, ``frames[0]``.

    Raises ``TooLarge`` if the envelope or another frame is above its limit. Raises ``Malformed`` if the packet has no
    frame, too many frames or too many messages; ``Malformed`` and ``WrongVersion`` as ``decode_envelope`` does."""
    if not 0 < len(frames) <= FRAMES_MAX:
        raise Malformed(f"a packet has 1 to {FRAMES_MAX} frames; this one has {len(frames)}")
    header = bytes(frames[0])
    if len(header) > settings.header_bytes_max:
        raise TooLarge("packet header", len(header), settings.header_bytes_max)
    largest = max(map(frame_length, frames))
    if largest > settings.frame_bytes_max:
        raise TooLarge("packet frame", largest, settings.frame_bytes_max)
    envelope = decode_envelope(header)
    if len(envelope.messages) > PACKET_MESSAGES_MAX:
        raise Malformed(f"a packet has at most {PACKET_MESSAGES_MAX} messages")
    return envelope


def unpack(messages: Sequence[Message], body: Sequence[Buffer]) -> tuple[list[list[Buffer]], int]:
    """Return the body frames of each message, and the credit bytes that all of them cost.

    ``body`` is the packet's frames after the envelope. Raises ``Malformed`` if their lengths are not exactly those in
    the envelope, or a message of a kind without body has a body."""
    packed = body[0] if body else b""
    offset = cost = 0
    large = 1
    bodies: list[list[Buffer]] = []
    for message in messages:
        frames: list[Buffer] = []
        for length in message.lengths:
            if length < PACK_BELOW:
                frames.append(packed[offset : offset + length])
                offset += length
            else:
                if large >= len(body) or frame_length(body[large]) != length:
                    raise Malformed("a frame is missing, or its length differs from the one in the envelope")
                frames.append(body[large])
                large += 1
            cost += length
        if message.kind not in MessageKind.CREDIT_FREE:
            cost += MESSAGE_COST
        elif message.lengths:
            raise Malformed(f"a message of kind {message.kind} has no body")
        bodies.append(frames)
    if offset != frame_length(packed) or large < len(body):
        raise Malformed("the packet has more or fewer bytes than its envelope lists")
    return bodies, cost
