"""Write requests on the wire: what comes back, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.spi.errors import BadIdentifier, CallerError
from stelae.spi.ids import ClientId, TabletId
from stelae.spi.write import (
    OPS_MAX,
    ROW_FORM_ROWS_LIMIT,
    OpBody,
    OpKind,
    OpResult,
    RowCode,
    RowError,
    StaleSequence,
    WriteOp,
    WriteReply,
    WriteRequest,
    decode_body,
    decode_reply,
    decode_request,
    digest_of,
    encode_body,
    encode_reply,
    encode_request,
    refused,
)

ROW = (1, "a", None, 1.5, True, b"x", "1.50", 18000)


def request(**changes: Any) -> WriteRequest:
    body = encode_body(OpBody(OpKind.UPSERT, [ROW], (1, 2)))
    good = WriteRequest(TabletId("t"), ClientId("c"), 1, 3, [WriteOp(5, body)])
    return msgspec.structs.replace(good, **changes)


def test_a_request_comes_back_with_its_bodies_still_encoded() -> None:
    back = decode_request(encode_request(request()))
    assert (back.tablet_id, back.client_id, back.first_incomplete) == ("t", "c", 1)
    assert (back.schema_version, [op.sequence for op in back.ops]) == (3, [5])
    assert decode_body(back.ops[0].body) == OpBody(OpKind.UPSERT, [ROW], (1, 2))


def test_a_body_may_carry_arrow_bytes_instead_of_rows() -> None:
    body = OpBody(OpKind.INSERT, b"arrow")
    assert decode_body(encode_body(body)) == body


def test_the_digest_tells_bodies_apart_and_survives_the_way() -> None:
    one = encode_body(OpBody(OpKind.INSERT, [(1, "a")]))
    carried = decode_request(encode_request(request(ops=[WriteOp(1, one)]))).ops[0].body
    assert digest_of(carried) == digest_of(one) == digest_of(bytes(one))
    others = [
        OpBody(OpKind.UPSERT, [(1, "a")]),
        OpBody(OpKind.INSERT, [(1, "b")]),
        OpBody(OpKind.INSERT, [(1, "a")], (1, 2)),
    ]
    digests = {digest_of(encode_body(body)) for body in others} | {digest_of(one)}
    assert len(digests) == 4
    assert all(0 <= digest < 1 << 64 for digest in digests)


def test_digest_vector() -> None:
    assert digest_of(b"stelae") == 0x4C67BF9A9D769B6A


def test_a_reply_comes_back() -> None:
    errors = (RowError(3, RowCode.NOT_FOUND), RowError(4, RowCode.BAD_VALUE, "column 'a'"))
    reply = WriteReply([(1, OpResult(7)), (2, OpResult(7, errors)), (3, refused(StaleSequence()))])
    assert decode_reply(encode_reply(reply)) == reply
    assert reply.results[2][1].refusal == "STALE_SEQUENCE"


@pytest.mark.parametrize(
    "changes",
    [
        {"tablet_id": "../x"},
        {"client_id": ""},
        {"first_incomplete": 0},
        {"first_incomplete": 1 << 63},
        {"ops": [WriteOp(0, msgspec.Raw(b"\xc0"))]},
        {"ops": [WriteOp(-4, msgspec.Raw(b"\xc0"))]},
        {"ops": [WriteOp(1, msgspec.Raw(b"\xc0"))] * (OPS_MAX + 1)},
        {"ops": 5},
        {"schema_version": "one"},
    ],
)
def test_a_request_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CallerError) as caught:
        decode_request(encode_request(request(**changes)))
    assert isinstance(caught.value, BadIdentifier) == ("id" in next(iter(changes)).split("_"))


def test_too_many_rows_in_row_form_are_refused() -> None:
    body = encode_body(OpBody(OpKind.INSERT, [(1,)] * (ROW_FORM_ROWS_LIMIT + 1)))
    with pytest.raises(CallerError, match="Arrow"):
        decode_body(body)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for decode in (decode_request, decode_reply, decode_body):
        with pytest.raises(CallerError):
            decode(data)


@pytest.mark.parametrize("value", [[], [9, []], [0, 5], [0, [5]], [0, [[1]], [[1]]], {}, None])
def test_bodies_of_another_shape_are_refused(value: Any) -> None:
    with pytest.raises(CallerError):
        decode_body(msgspec.msgpack.encode(value))


def test_deep_nesting_is_refused() -> None:
    deep = b"\x91" * 100_000
    for decode in (decode_request, decode_reply, decode_body):
        with pytest.raises(CallerError):
            decode(deep)
    with pytest.raises(CallerError):
        decode_body(b"\x92\x00\x91\x91" + deep)


def test_text_that_is_not_utf8_is_refused() -> None:
    data = encode_request(request(client_id="cccc"))
    for decode, message in (
        (decode_request, data.replace(b"cccc", b"c\xff\xffc")),
        (decode_body, bytes(encode_body(OpBody(OpKind.INSERT, [("aaaa",)]))).replace(b"aaaa", b"\xff" * 4)),
        (decode_reply, encode_reply(WriteReply([(1, OpResult(0, (), "aaaa"))])).replace(b"aaaa", b"\xff" * 4)),
    ):
        with pytest.raises(CallerError):
            decode(message)
