"""Parcels into messages and back."""

from __future__ import annotations

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.wire.envelope import Kind, Parcel
from stelae.wire.parcels import PACK_BELOW, SPARE_FRAMES, Batch, Outbox, frame_length, unpack
from stelae.wire.refusals import Malformed
from stelae.wire.settings import PARCEL_COST, WireSettings

LENGTHS = st.one_of(st.integers(0, 60), st.sampled_from([PACK_BELOW - 1, PACK_BELOW, PACK_BELOW + 1]))
BODIES = st.lists(st.lists(LENGTHS, max_size=4), max_size=12)


def outbox(*, batch_bytes: int = 1 << 20, parcels_max: int = 1000, large_max: int = 100) -> Outbox:
    settings = WireSettings(message_bytes=batch_bytes, parcels_max=parcels_max, frames_max=large_max + SPARE_FRAMES)
    return Outbox(settings, lambda: None)


def fill(box: Outbox, bodies: list[list[int]]) -> list[list[bytes]]:
    sent = []
    for number, lengths in enumerate(bodies):
        frames = [bytes([number % 251 + 1]) * length for length in lengths]
        box.add("kind", number, 0, "", None, frames, lengths)
        sent.append(frames)
    return sent


def parcels_of(batch: Batch) -> list[Parcel]:
    return msgspec.json.decode(orjson.dumps(batch.parcels), type=list[Parcel])


def take_all(box: Outbox) -> list[Batch]:
    batches = []
    while (batch := box.take()) is not None:
        batches.append(batch)
    return batches


@given(BODIES, st.integers(1, 40_000), st.integers(1, 5), st.integers(4, 8))
def test_what_went_in_comes_out_in_order_whatever_the_limits(
    bodies: list[list[int]], batch_bytes: int, parcels_max: int, large_max: int
) -> None:
    box = outbox(batch_bytes=batch_bytes, parcels_max=parcels_max, large_max=large_max)
    sent = fill(box, bodies)
    came: list[list[bytes]] = []
    total = box.cost
    for batch in take_all(box):
        assert len(batch.parcels) <= parcels_max
        assert len(batch.large) <= large_max
        unpacked, cost = unpack(parcels_of(batch), batch.body())
        assert cost == batch.cost
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
    (batch,) = take_all(box)
    body = [bytes(frame) for frame in batch.body()]
    injuries = [[*(body or [b""]), b"x"]]
    for position, frame in enumerate(body):
        injuries.append([*body[:position], frame + b"x", *body[position + 1 :]])
        if frame:
            injuries.append([*body[:position], frame[:-1], *body[position + 1 :]])
            injuries.append([*body[:position], *body[position + 1 :]])
    hurt = data.draw(st.sampled_from(injuries))
    with pytest.raises(Malformed):
        unpack(parcels_of(batch), hurt)


def test_small_frames_of_many_parcels_travel_as_one_frame() -> None:
    box = outbox()
    fill(box, [[40]] * 64)
    (batch,) = take_all(box)
    assert [len(frame) for frame in batch.body()] == [64 * 40]


def test_a_message_without_bodies_is_its_header_alone() -> None:
    box = outbox()
    fill(box, [[], []])
    (batch,) = take_all(box)
    assert batch.body() == []


def test_what_keeps_a_link_going_costs_no_credit_and_may_have_no_body() -> None:
    box = outbox()
    box.add(Kind.PING, 0, 0, "", None, (), [])
    assert box.cost == 0
    box.add("kind", 0, 0, "", None, (b"abc",), [3])
    assert box.cost == PARCEL_COST + 3
    ping = Parcel(Kind.PING, 0, 0, "", None, [1])
    with pytest.raises(Malformed, match="no body"):
        unpack([ping], [b"x"])


def test_the_length_of_a_view_is_in_bytes() -> None:
    assert frame_length(memoryview(bytes(16)).cast("Q")) == 16
