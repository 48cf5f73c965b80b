"""Encodes consensus messages as frames: a header and the engine's message in one frame, then the bodies of the entries.

The kernel owns the header (tablet, term, last op id, config id) and the entries. The message belongs to the consensus
engine, which registered its types. Bodies are not encoded again: small ones are joined into one frame, and each large
one is a frame of its own."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from stelae.spi.errors import BadIdentifier, PeerError
from stelae.spi.ids import OpId, TabletId, tablet_id
from stelae.spi.log import ENTRY_BYTES_MAX, Entry, EntryKind
from stelae.spi.services import Buffer

OWN_FRAME_BYTES_MIN = 64 << 10
"""A body of at least this many bytes is a frame of its own: to copy it would cost more than a frame."""


NUMBER_MAX = (1 << 63) - 1
"""The largest term, index or timestamp of an entry that logs and metadata can store."""


class PeerMessageHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The kernel's header of every consensus message."""

    tablet_id: TabletId
    term: int
    last: OpId
    config: OpId
    first_schema: int = 0
    """With what the sender's replica was created (``PeerTraffic.first_schema_sum``). 0: it is not compared."""


class _EncodedPeerMessage(msgspec.Struct, frozen=True, array_like=True):
    header: PeerMessageHeader
    kind: str
    message: msgspec.Raw
    entries: tuple[tuple[int, int, int, int, int], ...]
    """``(term, index, kind, timestamp, body bytes)`` of each entry."""


class PeerMessage(msgspec.Struct, frozen=True):
    """A decoded consensus message."""

    header: PeerMessageHeader
    kind: str
    message: msgspec.Struct
    entries: tuple[Entry, ...]


class PeerCodec:
    """Encodes and validates the messages that one consensus engine registered, by kind."""

    def __init__(self, message_types: Mapping[str, type[msgspec.Struct]]) -> None:
        self._kinds = {message_type: kind for kind, message_type in message_types.items()}
        self._decoders = {kind: msgspec.msgpack.Decoder(message_type) for kind, message_type in message_types.items()}
        self._encoder = msgspec.msgpack.Encoder()
        self._head_decoder = msgspec.msgpack.Decoder(_EncodedPeerMessage)

    def encode(self, header: PeerMessageHeader, message: msgspec.Struct, entries: Sequence[Entry]) -> list[Buffer]:
        """Return the frames: the encoded message, then the bodies."""
        head = _EncodedPeerMessage(
            header,
            self._kinds[type(message)],
            msgspec.Raw(self._encoder.encode(message)),
            tuple((e.op_id.term, e.op_id.index, e.kind, e.timestamp, len(e.body)) for e in entries),
        )
        return [self._encoder.encode(head), *_body_frames(entries)]

    def decode(self, frames: Sequence[Buffer]) -> PeerMessage:
        """Decode the frames of :meth:`encode`. Raises ``PeerError`` if they are malformed."""
        try:
            head = self._head_decoder.decode(frames[0])
            tablet_id(head.header.tablet_id)
            decoder = self._decoders.get(head.kind)
            if decoder is None:
                raise PeerError(f"unknown consensus message kind {head.kind[:40]!r}")
            message = decoder.decode(head.message)
            return PeerMessage(head.header, head.kind, message, _entries(head, frames[1:]))
        except (IndexError, ValueError, RecursionError, BadIdentifier) as error:
            raise PeerError(f"malformed consensus message: {error}") from error


def _body_frames(entries: Sequence[Entry]) -> Iterator[Buffer]:
    small: list[bytes] = []
    for entry in entries:
        if len(entry.body) < OWN_FRAME_BYTES_MIN:
            small.append(entry.body)
            continue
        if small:
            yield small[0] if len(small) == 1 else b"".join(small)
            small = []
        yield entry.body
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


def _entries(head: _EncodedPeerMessage, frames: Sequence[Buffer]) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    pieces = iter(frames)
    frame = memoryview(b"")
    offset = 0
    joined = False
    for term, index, kind, timestamp, size in head.entries:
        if min(term, index, timestamp, size) < 0 or max(term, index, timestamp) > NUMBER_MAX or size > ENTRY_BYTES_MAX:
            raise PeerError(f"entry {term}.{index} has a term, index, timestamp or size out of range")
        small = size < OWN_FRAME_BYTES_MIN
        if not (small and joined):
            if offset != len(frame):
                raise PeerError("entry bodies do not fill their frames")
            frame, offset = memoryview(next(pieces, b"")), 0
        joined = small
        if offset + size > len(frame):
            raise PeerError("entry bodies are shorter than the message lists")
        body = bytes(frame[offset : offset + size])
        offset += size
        entries.append(Entry(OpId(term, index), EntryKind(kind), timestamp, body))
    if offset != len(frame) or next(pieces, None) is not None:
        raise PeerError("entry bodies do not fill their frames")
    return tuple(entries)
