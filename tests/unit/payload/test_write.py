"""Write requests on the wire: what comes back, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stelae.rows.operation_encoding import ROW_FORM_ROWS_LIMIT, decode_rows, operation, sequence_ranges_of
from stelae.spi.errors import BadIdentifier, CallerError
from stelae.spi.ids import ClientId, SourceId, TabletId
from stelae.spi.write import (
    OPS_MAX,
    Answer,
    OpKind,
    OpResult,
    RowCode,
    RowError,
    SequenceRange,
    SourceFence,
    StaleSequence,
    WriteReply,
    WriteRequest,
    decode_reply,
    decode_request,
    digests_of,
    encode_reply,
    encode_request,
    refused,
)

VECTOR = 0xD4C85FB988912722


def run_of(*operations: Any) -> SequenceRange:
    """Operations in one run, of rows in row form or of an Arrow message."""
    return SequenceRange(1, OpKind.INSERT, None, [operation(OpKind.INSERT, rows).rows for rows in operations])


def decode_op(data: bytes) -> Any:
    """Decode the rows of one operation."""
    return decode_rows(SequenceRange(1, OpKind.INSERT, None, [msgspec.Raw(data)]))


ROW = (1, "a", None, 1.5, True, b"x", "1.50", 18000)


def request(**changes: Any) -> WriteRequest:
    run = SequenceRange(5, OpKind.UPSERT, (1, 2), [operation(OpKind.UPSERT, [ROW]).rows])
    good = WriteRequest(TabletId("t"), ClientId("c"), 1, 3, [run])
    return msgspec.structs.replace(good, **changes)


def none(first: int, count: int = 1, fence: SourceFence | None = None) -> SequenceRange:
    """Operations that say nothing."""
    return SequenceRange(first, OpKind.INSERT, None, [msgspec.Raw(b"\x90")] * count, fence)


def test_a_request_comes_back_with_its_rows_still_encoded() -> None:
    back = decode_request(encode_request(request()))
    assert (back.tablet_id, back.client_id, back.first_incomplete) == ("t", "c", 1)
    (run,) = back.sequences
    assert (back.schema_version, run.first_sequence, run.kind, run.columns) == (3, 5, OpKind.UPSERT, (1, 2))
    assert decode_rows(run) == [[ROW]]


def test_the_digest_tells_operations_apart_and_survives_the_way_and_other_company() -> None:
    one = operation(OpKind.INSERT, [(1, "a")])
    others = [
        operation(OpKind.UPSERT, [(1, "a")]),
        operation(OpKind.INSERT, [(1, "b")]),
        operation(OpKind.INSERT, [(1, "a")], (1, 2)),
    ]
    runs = sequence_ranges_of(enumerate([one, one, *others], start=1))
    carried = decode_request(encode_request(request(sequences=runs))).sequences
    found = [digest for run in carried for digest in digests_of(run)]
    assert found == [
        digest for n, op in enumerate([one, one, *others]) for digest in digests_of(sequence_ranges_of([(n, op)])[0])
    ]
    assert found[0] == found[1] and len({*found}) == 4
    assert all(0 <= digest < 1 << 64 for digest in found)


def test_operations_of_other_sources_and_epochs_travel_in_ranges_of_their_own() -> None:
    fences = [None, SourceFence(SourceId("job"), 1), SourceFence(SourceId("job"), 2), SourceFence(SourceId("other"), 2)]
    operations = [operation(OpKind.INSERT, [(n,)], None, fences[n // 2]) for n in range(8)]
    runs = sequence_ranges_of(enumerate(operations, start=1))
    carried = decode_request(encode_request(request(sequences=runs))).sequences
    assert [(run.first_sequence, len(run.ops), run.fence) for run in carried] == [
        (1 + 2 * n, 2, found) for n, found in enumerate(fences)
    ]


def test_digest_vector() -> None:
    assert digests_of(SequenceRange(9, OpKind.UPSERT, (1, 2), [msgspec.Raw(b"stelae")])) == (VECTOR,)


def test_a_reply_comes_back() -> None:
    errors = (RowError(3, RowCode.NOT_FOUND), RowError(4, RowCode.BAD_VALUE, "column 'a'"))
    results = (OpResult(7), OpResult(7, errors), refused(StaleSequence()))
    reply = WriteReply([Answer(1 + 5 * n, 5, result) for n, result in enumerate(results)])
    assert decode_reply(encode_reply(reply)) == reply
    assert reply.answers[2].result.refusal == "STALE_SEQUENCE"


@pytest.mark.parametrize(
    "changes",
    [
        {"tablet_id": "../x"},
        {"client_id": ""},
        {"first_incomplete": 0},
        {"first_incomplete": 1 << 63},
        {"sequences": [none(0)]},
        {"sequences": [none(-4)]},
        {"sequences": [none((1 << 63) - 4, 5)]},
        {"sequences": [none(1, 0)]},
        {"sequences": [none(1, OPS_MAX + 1)]},
        {"sequences": [none(1)] * (OPS_MAX + 1)},
        {"sequences": [none(1, fence=SourceFence(SourceId("job"), -1))]},
        {"sequences": [none(1, fence=SourceFence(SourceId("job"), 1 << 63))]},
        {"sequences": 5},
        {"schema_version": "one"},
    ],
)
def test_a_request_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CallerError) as caught:
        decode_request(encode_request(request(**changes)))
    assert isinstance(caught.value, BadIdentifier) == ("id" in next(iter(changes)).split("_"))


@pytest.mark.parametrize("source", ["", "a\nb", "x" * 201])
def test_a_request_of_a_source_that_cannot_be_printed_is_refused(source: str) -> None:
    with pytest.raises(BadIdentifier, match="1 to 200 printable characters"):
        decode_request(encode_request(request(sequences=[none(1, fence=SourceFence(SourceId(source), 1))])))


def test_too_many_rows_in_row_form_are_refused() -> None:
    few, many = ([(1,)] * count for count in (1, ROW_FORM_ROWS_LIMIT + 1))
    with pytest.raises(CallerError, match="Arrow"):
        decode_rows(run_of(few, many))


def test_an_arrow_message_is_a_run_of_its_own() -> None:
    assert decode_rows(run_of(b"arrow")) == b"arrow"
    with pytest.raises(CallerError, match="the only one of its sequence range"):
        decode_rows(run_of([(1,)], b"arrow"))


def test_operations_become_as_few_runs_as_their_numbers_kinds_and_columns_allow() -> None:
    insert, delete, some = (
        operation(*what) for what in ((OpKind.INSERT, []), (OpKind.DELETE, []), (OpKind.UPDATE, []))
    )
    other = operation(OpKind.UPDATE, [], (1,))
    numbered = [(1, insert), (2, insert), (4, insert), (5, delete), (6, delete), (7, some), (8, other), (9, other)]
    found = [(run.first_sequence, run.kind, run.columns, len(run.ops)) for run in sequence_ranges_of(numbered)]
    assert found == [
        (1, OpKind.INSERT, None, 2),
        (4, OpKind.INSERT, None, 1),
        (5, OpKind.DELETE, None, 2),
        (7, OpKind.UPDATE, None, 1),
        (8, OpKind.UPDATE, (1,), 2),
    ]


@given(st.binary(max_size=80))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with pytest.raises(CallerError):
            decode(data)


@given(st.binary(max_size=80))
@example(b"\x90")
def test_bytes_are_an_operation_exactly_if_they_encode_rows_or_an_arrow_message(data: bytes) -> None:
    """Few bytes can be rows: an empty array is an operation without rows."""
    try:
        value = msgspec.msgpack.decode(data)
    except (ValueError, RecursionError, TypeError):
        value = None
    if isinstance(value, bytes):
        assert decode_op(data) == value
    elif isinstance(value, list) and all(isinstance(row, list) for row in value):
        (rows,) = decode_op(data)
        assert [list(row) for row in rows] == value
    else:
        with pytest.raises(CallerError):
            decode_op(data)


@pytest.mark.parametrize("value", [5, [5], [[1], 5], {}, None, "text"])
def test_operations_of_another_shape_are_refused(value: Any) -> None:
    with pytest.raises(CallerError):
        decode_op(msgspec.msgpack.encode(value))


def test_deep_nesting_is_refused() -> None:
    deep = b"\x91" * 100_000
    for decode in (decode_request, decode_reply, decode_op):
        with pytest.raises(CallerError):
            decode(deep)
    with pytest.raises(CallerError):
        decode_op(b"\x91\x91" + deep)


def test_text_that_is_not_utf8_is_refused() -> None:
    data = encode_request(request(client_id="cccc"))
    for decode, message in (
        (decode_request, data.replace(b"cccc", b"c\xff\xffc")),
        (decode_op, bytes(operation(OpKind.INSERT, [("aaaa",)]).rows).replace(b"aaaa", b"\xff" * 4)),
        (decode_reply, encode_reply(WriteReply([Answer(1, 1, OpResult(0, (), "aaaa"))])).replace(b"aaaa", b"\xff" * 4)),
    ):
        with pytest.raises(CallerError):
            decode(message)
