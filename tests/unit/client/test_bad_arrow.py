"""Arrow arrays that are not what their type says: a value that is none fails its row, a layout that is none refuses the
whole, before a value of it is read."""

from __future__ import annotations

import struct
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from stelae.client.arrow_fit import BadArrow
from stelae.spi.errors import SchemaMismatch
from tests.unit.client.tablets import one_column
from tests.unit.client.test_bad_input import arrow, text_of, written

LONG = b"long enough to stand in a buffer of its own"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
def test_text_that_is_no_utf8_fails_its_rows_alone(kind: pa.DataType, encoded: bool) -> None:
    value, bad, kept = (
        text_of(b"a", b"\xff\xfe", b"b", LONG + b"\xc3", LONG, kind=kind),
        (1, 3),
        ["a", "b", LONG.decode()],
    )
    if encoded:
        value = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, 4, None], pa.int8()), value)
        kept.append(None)
    for data in (arrow(value), arrow(value).to_reader(), arrow(value).slice(0)):
        result, rows = written(one_column("value", "string"), data)
        assert [(f.row, f.reason) for f in result.failures] == [
            (place, "column 'value': expected string, got bytes that are not UTF-8") for place in bad
        ]
        assert result.failures[0].values == {"id": 1, "value": b"\xff\xfe"}
        assert [row["value"] for row in rows] == kept


@pytest.mark.parametrize(("kind", "values"), [("string", ["a", "a"]), ("int64", [5, 5])])
def test_an_array_of_runs_is_refused_with_what_decodes_it(kind: str, values: list[object]) -> None:
    encoded = pc.run_end_encode(pa.array(values))
    with pytest.raises(SchemaMismatch, match=r"decode it first with pyarrow\.compute\.run_end_decode"):
        written(one_column("value", kind), arrow(encoded))
    result, rows = written(one_column("value", kind), arrow(pc.run_end_decode(encoded)))
    assert not result.failures and [row["value"] for row in rows] == values


def test_a_dictionary_entry_that_no_row_has_fails_none() -> None:
    value = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1], pa.int8()), text_of(b"a", b"\xff", b"b")).slice(0, 2)
    result, rows = written(one_column("value", "string"), arrow(value))
    assert not result.failures and [row["value"] for row in rows] == ["a", "b"]


DAY_MS = 86_400_000


def test_a_day_that_is_not_whole_fails_its_row_alone() -> None:
    part = 20605 * DAY_MS + 5
    value = pa.array([0, part, None, -DAY_MS], pa.int64()).view(pa.date64())
    for encoded in (value, value.dictionary_encode()):
        for kind in ("date", "timestamp"):
            result, rows = written(one_column("value", kind), arrow(encoded))
            (failure,) = result.failures
            got = f"got {part} of date64[ms], which is not a whole day"
            assert (failure.row, failure.reason) == (1, f"column 'value': expected {kind} or null, {got}")
            assert failure.values == {"id": 1, "value": part}
            assert [row["id"] for row in rows] == [0, 2, 3] and rows[1]["value"] is None


def test_a_decimal_beyond_its_own_precision_fails_its_row_alone() -> None:
    wide = pa.array([Decimal(1), Decimal(10**9), None], pa.decimal128(20, 2))
    value = pa.Array.from_buffers(pa.decimal128(5, 2), 3, wide.buffers())
    result, rows = written(one_column("value", "decimal(20,2)"), arrow(value))
    (failure,) = result.failures
    assert failure.row == 1 and "got Decimal('1000000000.00') (of decimal128(5, 2))" in failure.reason
    assert [row["value"] for row in rows] == [Decimal("1.00"), None]


def offsets(*values: int) -> pa.Buffer:
    return pa.array(values, pa.int32()).buffers()[1]


HOSTILE = {
    "an offset beyond the data": lambda: pa.Array.from_buffers(
        pa.string(), 2, [None, offsets(0, 1 << 30, 2), pa.py_buffer(b"ab")]
    ),
    "an offset that goes back": lambda: pa.Array.from_buffers(
        pa.string(), 2, [None, offsets(0, 2, 1), pa.py_buffer(b"abc")]
    ),
    "a negative offset": lambda: pa.Array.from_buffers(pa.string(), 2, [None, offsets(0, -5, 2), pa.py_buffer(b"abc")]),
    "a view beyond its buffer": lambda: pa.Array.from_buffers(
        pa.string_view(), 1, [None, pa.py_buffer(struct.pack("<i4sii", 40, b"long", 0, 10)), pa.py_buffer(LONG)]
    ),
    "a view of a buffer that is not there": lambda: pa.Array.from_buffers(
        pa.string_view(), 1, [None, pa.py_buffer(struct.pack("<i4sii", 40, b"long", 7, 0)), pa.py_buffer(LONG)]
    ),
    "a dictionary whose entries are not sound": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0], pa.int8()),
        pa.Array.from_buffers(pa.string(), 2, [None, offsets(0, 2, 1), pa.py_buffer(b"abc")]),
        safe=False,
    ),
    "a negative dictionary index": lambda: pa.DictionaryArray.from_arrays(
        pa.array([-1], pa.int8()), pa.array(["a"]), safe=False
    ),
    "a dictionary index without an entry": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 7], pa.int32()), pa.array(["a"]), safe=False
    ),
}
"""What Arrow lets one build; buffers that are too short it refuses itself."""


@pytest.mark.parametrize("what", [*HOSTILE])
def test_a_hostile_layout_is_refused_before_a_value_is_read(what: str) -> None:
    value = HOSTILE[what]()
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(value)), pa.int64()), value], names=["id", "value"])
    with pytest.raises(BadArrow, match="column 'value': the Arrow array is invalid"):
        written(one_column("value", "string"), batch)
