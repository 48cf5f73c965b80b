"""Messages into packets and back."""

from __future__ import annotations

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.wire.envelope import Message, MessageKind
from stelae.wire.packets import PACK_BELOW, SPARE_FRAMES, Outbox, Packet, frame_length, unpack
from stelae.wire.refusals import Malformed
from stelae.wire.settings import MESSAGE_COST, WireSettings

LENGTHS = st.one_of(st.integers(0, 60), st.sampled_from([PACK_BELOW - 1, PACK_BELOW, PACK_BELOW + 1]))
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
