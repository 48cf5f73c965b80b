"""The payload of a write entry: bytes and back, and bytes that lie."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import Corrupt, SchemaMismatch
from stelae.spi.ids import ClientId
from stelae.spi.payload import (
    OpGroup,
    PayloadClient,
    PayloadSequenceRange,
    WritePayload,
    decode_payload,
    encode_payload,
)
from stelae.spi.rows import RowBatch
from stelae.spi.write import OpKind, RowCode, RowError

SCHEMA = schema_from_plain(
    {"columns": [{"name": "id", "type": "int64"}, {"name": "name", "type": "string", "nullable": True}], "key": ["id"]}
)


def payload() -> WritePayload:
    whole = RowBatch.from_equal_rows(SCHEMA.layout, [(1, "a"), (2, None), (3, "ccc")])
    keys = RowBatch.from_equal_rows(SCHEMA.project((1,)), [(9,)])
    error = RowError(1, RowCode.BAD_VALUE, "column 'id': expected int64, got str 'x'")
    return WritePayload(
        4,
        (PayloadClient(ClientId("alice"), 3), PayloadClient(ClientId("bob"), 1)),
        (
            PayloadSequenceRange(0, 3, (1, 1), (2**64 - 1, 4)),
            PayloadSequenceRange(1, 1, (1,), (5,), ((0, error),)),
            PayloadSequenceRange(0, 5, (1,), (6,)),
        ),
        (OpGroup(OpKind.UPSERT, None, 3, whole.to_ipc()), OpGroup(OpKind.DELETE, (1,), 1, keys.to_ipc())),
    )


def test_a_payload_comes_back_whole() -> None:
    back = decode_payload(encode_payload(payload()))
    assert (back.schema_version, back.clients, back.sequences) == (4, payload().clients, payload().sequences)
    assert [(g.kind, g.columns, g.row_count) for g in back.groups] == [
        (OpKind.UPSERT, None, 3),
        (OpKind.DELETE, (1,), 1),
    ]
    assert [g.rows(SCHEMA).to_rows() for g in back.groups] == [[(1, "a"), (2, None), (3, "ccc")], [(9,)]]
    assert back.row_count == 4


def test_equal_payloads_give_equal_bytes() -> None:
    assert encode_payload(payload()) == encode_payload(payload())
    assert encode_payload(decode_payload(encode_payload(payload()))) == encode_payload(payload())


def test_an_empty_payload_comes_back() -> None:
    empty = WritePayload(1, (), (), ())
    assert decode_payload(encode_payload(empty)) == empty


def test_batches_begin_at_multiples_of_eight() -> None:
    body = encode_payload(payload())
    for group in payload().groups:
        assert body.index(bytes(group.body)) % 8 == 0


def test_a_cut_at_any_byte_is_corrupt() -> None:
    body = encode_payload(payload())
    for cut in range(len(body)):
        with pytest.raises(Corrupt):
            decode_payload(body[:cut])
    with pytest.raises(Corrupt, match="follow"):
        decode_payload(body + bytes(8))


@given(st.binary(max_size=60))
def test_bytes_that_are_no_payload_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_payload(data)


def test_another_magic_or_version_is_corrupt() -> None:
    body = encode_payload(payload())
    for other in (b"XWP" + body[3:], body[:3] + b"\x02" + body[4:]):
        with pytest.raises(Corrupt, match="version 1"):
            decode_payload(other)


def _with_header(header: Any) -> bytes:
    data = msgspec.msgpack.encode(header)
    return struct.pack("<3sBI", b"SWP", 1, len(data)) + data + bytes(-len(data) % 8)


@pytest.mark.parametrize(
    "header",
    [
        [1, [], [[0, 1, [0], [0], []]], []],
        [1, [["c", 1]], [[-1, 1, [0], [0], []]], []],
        [1, [["c", 1]], [[0, 0, [0], [0], []]], []],
        [1, [["c", 1]], [[0, 1, [-1], [0], []]], [[0, None, -1, 0]]],
        [1, [["c", 1]], [[0, 1, [1, -1], [0, 0], []]], []],
        [1, [["c", 1]], [[0, 1, [5], [0], []]], []],
        [1, [["c", 1]], [[0, 1, [], [], []]], []],
        [1, [["c", 1]], [[0, 1, [0], [0, 0], []]], []],
        [1, [["c", 1]], [[0, 1, [0], [0], [[1, [0, 3, ""]]]]], []],
        [1, [["c", 1]], [[0, 1, [0], [0], [[-1, [0, 3, ""]]]]], []],
        [1, [], [], [[0, None, 1, 0]]],
        [1, [], [], [[0, None, 0, -8]]],
        [1, [], [], [[0, None, 0, 2**62]]],
        [1, [], [], [[99, None, 0, 0]]],
        [1, [], []],
        {},
    ],
)
def test_a_header_that_contradicts_itself_is_corrupt(header: Any) -> None:
    with pytest.raises(Corrupt):
        decode_payload(_with_header(header))


def test_deep_nesting_in_the_header_is_corrupt() -> None:
    deep = b"\x91" * 50_000
    with pytest.raises(Corrupt):
        decode_payload(struct.pack("<3sBI", b"SWP", 1, len(deep)) + deep)


def test_groups_that_are_not_what_the_header_says_are_refused() -> None:
    group = payload().groups[0]
    with pytest.raises(Corrupt, match="contains 3"):
        OpGroup(OpKind.UPSERT, None, 2, group.body).rows(SCHEMA)
    with pytest.raises(SchemaMismatch):
        OpGroup(OpKind.UPSERT, (1, 77), 3, group.body).rows(SCHEMA)
    with pytest.raises(Corrupt):
        OpGroup(OpKind.UPSERT, (1,), 3, b"").rows(SCHEMA)


def test_damaged_payloads_are_refused_or_read_but_never_a_crash() -> None:
    body = encode_payload(payload())
    rng = random.Random(2)
    for _ in range(3000):
        data = bytearray(body)
        for _ in range(1 + int(rng.random() * 3)):
            data[int(rng.random() * len(data))] = rng.getrandbits(8)
        try:
            for group in decode_payload(bytes(data)).groups:
                group.rows(SCHEMA).to_rows()
        except (Corrupt, SchemaMismatch):
            continue
