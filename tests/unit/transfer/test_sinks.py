"""What is written can be read again, and gives the same rows."""

from __future__ import annotations

import asyncio
import io
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import Unavailable
from stelae.spi.rows import RowBatch
from stelae_transfer.files import FileFormat, Format
from stelae_transfer.readers import open_reader
from stelae_transfer.sinks import CsvSink, JsonSink, TextSink, file_sink

TYPES = ["bool", "int8", "int64", "float", "double", "decimal(10,3)", "string", "binary", "date", "timestamp"]
SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int32"},
            *({"name": kind, "type": kind, "nullable": True} for kind in TYPES),
        ],
        "key": ["id"],
    }
)
ROWS: list[tuple[Any, ...]] = [
    (1, True, -128, 2**63 - 1, 0.5, 1e300, Decimal("1.250"), "", b"", date(1, 1, 1), datetime(2026, 6, 1, 10, 0, 0, 5)),
    (
        2,
        False,
        127,
        -(2**63),
        -1.5,
        0.1,
        Decimal("-9.999"),
        'a"b,\n\t\\',
        b"\xff\0",
        date(9999, 12, 31),
        datetime(1969, 1, 1),
    ),
    (3, *([None] * 10)),
    (
        4,
        True,
        0,
        0,
        float("inf"),
        float("-inf"),
        Decimal("0.000"),
        "null",
        b"null",
        date(1970, 1, 1),
        datetime(1970, 1, 1),
    ),
    (
        5,
        True,
        0,
        0,
        float("nan"),
        float("nan"),
        Decimal("0.000"),
        "ü湖 ",
        b"x",
        date(2024, 2, 29),
        datetime(2024, 2, 29),
    ),
]


def batch() -> pa.RecordBatch:
    columns = [list(values) for values in zip(*ROWS, strict=True)]
    arrays = [pa.array(v, f.type) for v, f in zip(columns, SCHEMA.layout.arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.layout.arrow)


@pytest.mark.parametrize("form", Format)
def test_every_value_of_every_type_comes_back_from_every_format(tmp_path: Path, form: Format) -> None:
    path = tmp_path / "rows"
    with path.open("wb") as out:
        sink = file_sink(form, out, SCHEMA.layout.arrow)
        sink.write(batch())
        sink.write(batch().slice(0, 0))
        sink.finish()
    reader = open_reader(path, FileFormat(form))
    (chunk,) = reader.chunks(SCHEMA, reader.columns, 0)
    reader.close()
    assert not chunk.bad
    listed = chunk.rows.to_pylist() if hasattr(chunk.rows, "to_pylist") else chunk.rows
    found = [tuple(row[name] for name in ["id", *TYPES]) for row in listed]
    assert list(map(repr, found)) == list(map(repr, ROWS))  # as text, in which NaN equals NaN


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Unavailable("no replica could serve"), "UNAVAILABLE", "no replica could serve"),
        (OSError(28, "No space left on device"), "STORAGE", "[Errno 28] No space left on device"),
        (asyncio.CancelledError(), "INTERRUPTED", "INTERRUPTED"),
        (ZeroDivisionError("division by zero"), "INTERNAL", "division by zero"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_json_is_one_document_also_when_it_breaks_off(error: BaseException, code: str, text: str) -> None:
    out = io.BytesIO()
    sink = JsonSink(out, SCHEMA.layout.arrow)
    sink.write(batch())
    sink.finish(error)
    document = msgspec.json.decode(out.getvalue())
    assert document["columns"][0] == "id" and len(document["rows"]) == 5
    assert (document["code"], document["error"]) == (code, text)
    assert document["rows"][3][4:6] == ["Infinity", "-Infinity"] and document["rows"][4][4] == "NaN"


def test_lines_of_text_cannot_be_broken_by_a_value() -> None:
    out = io.BytesIO()
    sink = TextSink(out, pa.schema([("a", pa.string()), ("b", pa.int64())]))
    sink.write(pa.record_batch({"a": ["x\ty\nz\\", None], "b": [1, 2]}))
    assert out.getvalue() == b"a\tb\nx\\ty\\nz\\\\\t1\n\t2\n"


def test_types_that_only_queries_have_are_text_in_csv() -> None:
    out = io.BytesIO()
    rows = pa.record_batch({"l": [[1, 2], None], "s": [{"x": 1}, None], "t": pa.array([1, 2], pa.time64("us"))})
    sink = CsvSink(out, rows.schema)
    sink.write(rows)
    sink.finish()
    assert out.getvalue().decode().splitlines()[1] == '"[1, 2]","{\'x\': 1}","00:00:00.000001"'


def test_rows_of_a_scan_are_batches_that_every_sink_takes() -> None:
    rows = RowBatch.from_arrays(SCHEMA.layout, batch().columns)
    out = io.BytesIO()
    sink = file_sink(Format.ARROW, out, SCHEMA.layout.arrow)
    sink.write(rows.arrow)
    sink.finish()
    assert pa.ipc.open_stream(out.getvalue()).read_all().num_rows == 5
