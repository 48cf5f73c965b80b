"""Consensus messages between nodes: malformed ones are the peer's error, whatever they hold."""

from __future__ import annotations

import msgspec
import pytest

from stelae.host.peer_codec import PeerCodec, PeerMessageHeader
from stelae.spi.errors import PeerError
from stelae.spi.ids import OpId, TabletId
from stelae.spi.log import Entry, EntryKind


class Hello(msgspec.Struct):
    text: str


GUARD = PeerMessageHeader(TabletId("t"), 1, OpId(1, 1), OpId(0, 0))
ENTRIES = (Entry(OpId(1, 2), EntryKind.WRITE, 9, b"body"),)


def test_a_message_comes_back_with_its_entries() -> None:
    codec = PeerCodec({"hello": Hello})
    back = codec.decode(codec.encode(GUARD, Hello("abcd"), ENTRIES))
    assert (back.header, back.kind, back.message, back.entries) == (GUARD, "hello", Hello("abcd"), ENTRIES)


@pytest.mark.parametrize("text", [b"\xa4\xff\xff\xff\xff", b"\xc0", b"\x91" * 100_000])
def test_a_message_of_another_shape_is_refused(text: bytes) -> None:
    codec = PeerCodec({"hello": Hello})
    frames = codec.encode(GUARD, Hello("abcd"), ENTRIES)
    message = b"\x81\xa4text\xa4abcd"
    assert message in bytes(frames[0])
    for head in (bytes(frames[0]).replace(message, b"\x81\xa4text" + text), text):
        with pytest.raises(PeerError):
            codec.decode([head, *frames[1:]])


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_entry_with_a_number_that_no_log_can_hold_is_refused(number: int, place: int) -> None:
    """Logs and metadata hold 63 bits. Beyond the codec it would meet them on a thread that serves every tablet."""
    term, index, timestamp = [number if at == place else 2 for at in range(3)]
    codec = PeerCodec({"hello": Hello})
    made = codec.encode(GUARD, Hello("abcd"), [Entry(OpId(term, index), EntryKind.WRITE, timestamp, b"body")])
    with pytest.raises(PeerError, match="out of range"):
        codec.decode(made)
