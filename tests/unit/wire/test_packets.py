"""Messages into packets and back."""

from __future__ import annotations

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.wire.envelope import Message, MessageKind, encode_envelope
from stelae.wire.packets import PACK_BELOW, SPARE_FRAMES, Outbox, Packet, frame_length, read_packet, unpack
from stelae.wire.refusals import Malformed, RemoteError, error_fields
from stelae.wire.settings import INTEGER_MAX, MESSAGE_COST, WireSettings
from tests.unit.wire.worlds import identity

LENGTHS = st.one_of(st.integers(0, 60), st.sampled_from([PACK_BELOW - 1, PACK_BELOW, PACK_BELOW + 1]))
ME = identity(1)
BODIES = st.lists(st.lists(LENGTHS, max_size=4), max_size=12)


def outbox(*, packet_bytes: int = 1 << 20, packet_messages_max: int = 1000, large_max: int = 100) -> Outbox:
    settings = WireSettings(
        packet_bytes=packet_bytes, packet_messages_max=packet_messages_max, frames_max=large_max + SPARE_FRAMES
    )
    return Outbox(settings, lambda: None)


def fill(box: Outbox, bodies: list[list[int]]) -> list[list[bytes]]:
    sent = []
    for number, lengths in enumerate(bodies):
        frames = [bytes([number % 251 + 1]) * length for length in lengths]
        box.add("kind", number, 0, "", None, frames, lengths)
        sent.append(frames)
    return sent


def messages_of(packet: Packet) -> list[Message]:
    return msgspec.json.decode(orjson.dumps(packet.messages), type=list[Message])


def take_all(box: Outbox) -> list[Packet]:
    packets = []
    while (packet := box.take()) is not None:
        packets.append(packet)
    return packets


@given(BODIES, st.integers(1, 40_000), st.integers(1, 5), st.integers(4, 8))
def test_what_went_in_comes_out_in_order_whatever_the_limits(
    bodies: list[list[int]], packet_bytes: int, packet_messages_max: int, large_max: int
) -> None:
    box = outbox(packet_bytes=packet_bytes, packet_messages_max=packet_messages_max, large_max=large_max)
    sent = fill(box, bodies)
    came: list[list[bytes]] = []
    total = box.cost
    for packet in take_all(box):
        assert len(packet.messages) <= packet_messages_max
        assert len(packet.large) <= large_max
        unpacked, cost = unpack(messages_of(packet), packet.body())
        assert cost == packet.cost
        came.extend([[bytes(frame) for frame in frames] for frames in unpacked])
        total -= cost
    assert came == sent
    assert total == box.cost == 0
    assert box.take() is None


@given(st.lists(st.lists(LENGTHS, max_size=3), min_size=1, max_size=4), st.data())
def test_a_message_with_any_frame_cut_added_or_missing_is_refused_whole(
    bodies: list[list[int]], data: st.DataObject
) -> None:
    box = outbox()
    fill(box, bodies)
    (packet,) = take_all(box)
    body = [bytes(frame) for frame in packet.body()]
    injuries = [[*(body or [b""]), b"x"]]
    for position, frame in enumerate(body):
        injuries.append([*body[:position], frame + b"x", *body[position + 1 :]])
        if frame:
            injuries.append([*body[:position], frame[:-1], *body[position + 1 :]])
            injuries.append([*body[:position], *body[position + 1 :]])
    hurt = data.draw(st.sampled_from(injuries))
    with pytest.raises(Malformed):
        unpack(messages_of(packet), hurt)


def test_small_frames_of_many_messages_travel_as_one_frame() -> None:
    box = outbox()
    fill(box, [[40]] * 64)
    (packet,) = take_all(box)
    assert [len(frame) for frame in packet.body()] == [64 * 40]


def test_a_message_without_bodies_is_its_header_alone() -> None:
    box = outbox()
    fill(box, [[], []])
    (packet,) = take_all(box)
    assert packet.body() == []


def test_what_keeps_a_link_going_costs_no_credit_and_may_have_no_body() -> None:
    box = outbox()
    box.add(MessageKind.PING, 0, 0, "", None, (), [])
    assert box.cost == 0
    box.add("kind", 0, 0, "", None, (b"abc",), [3])
    assert box.cost == MESSAGE_COST + 3
    ping = Message(MessageKind.PING, 0, 0, "", None, [1])
    with pytest.raises(Malformed, match="no body"):
        unpack([ping], [b"x"])


def test_the_length_of_a_view_is_in_bytes() -> None:
    assert frame_length(memoryview(bytes(16)).cast("Q")) == 16


@pytest.mark.parametrize("text", ["x" * 2000, "\u0001" * 2000, "\N{SNOWMAN}" * 2000], ids=["plain", "escaped", "wide"])
def test_refusals_with_long_texts_are_divided_among_envelopes_that_a_receiver_accepts(text: str) -> None:
    """The refusals of one turn were one packet of 2 MB of envelope, which the receiver dropped: all of 1024 calls ended
    at their deadlines."""
    settings = WireSettings()
    box = Outbox(settings, lambda: None)
    fields = error_fields(RemoteError("NO_SUCH_TABLET", text))
    for number in range(settings.packet_messages_max):
        box.add(MessageKind.ERROR, number + 1, fields=fields)
    check_envelopes(box, settings.packet_messages_max, settings)


@pytest.mark.parametrize("length", [0, 999])
def test_many_small_frames_are_divided_among_envelopes_that_a_receiver_accepts(length: int) -> None:
    settings = WireSettings(packet_bytes=64 << 20)
    box, frame, count = Outbox(settings, lambda: None), bytes(length), 1000
    for number in range(200):
        box.add("k" * 64, INTEGER_MAX - number, INTEGER_MAX, "t" * 64, None, [frame] * count, [length] * count)
    check_envelopes(box, 200, settings)


def check_envelopes(box: Outbox, messages: int, settings: WireSettings) -> None:
    """Each packet passes the checks of a receiver, and together they have all messages."""
    packets = take_all(box)
    found = 0
    for packet in packets:
        header = encode_envelope(
            ME, recipient="r" * 32, incarnation="i" * 16, timestamp=1, credit=1, messages=packet.messages
        )
        assert len(orjson.dumps(packet.messages)) <= packet.header_size
        found += len(read_packet([header], settings).messages)
    assert found == messages and len(packets) < 20
