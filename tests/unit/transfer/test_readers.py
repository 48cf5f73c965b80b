"""Files as numbered rows: what is wrong with a row is told of that row, whatever stands around it."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind
from stelae_transfer import arrow_reader, csv_reader, json_reader
from stelae_transfer.arrow_reader import exact_times
from stelae_transfer.dry_run import check_chunk
from stelae_transfer.files import BrokenInput, FileFormat, Format, NoInput, UnknownFormat, file_format
from stelae_transfer.json_reader import JsonReader
from stelae_transfer.readers import open_reader
from stelae_transfer.row_chunks import BadRow, LateColumns, RowChunk

SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "text", "type": "string", "nullable": True},
            {"name": "x", "type": "double", "nullable": True},
        ],
        "key": ["id"],
    }
)


UNPACKED_ROWS_MAX = (1 << 17) // 6
"""Rows of one piece that is unpacked at a time, at most: of six bytes and more."""


def read(path: Path, after: int = 0, columns: Sequence[str] | None = None, **options: str) -> list[RowChunk]:
    reader = open_reader(path, file_format(path), **options)
    try:
        return [*reader.chunks(SCHEMA, columns or reader.columns, after)]
    finally:
        reader.close()


def rows(chunks: Sequence[RowChunk]) -> dict[int, Any]:
    """Rows by number, as dicts."""
    found: dict[int, Any] = {}
    for chunk in chunks:
        listed = chunk.rows.to_pylist() if hasattr(chunk.rows, "to_pylist") else chunk.rows
        found |= dict(zip(chunk.numbers, listed, strict=True))
    return found


def bad(chunks: Sequence[RowChunk]) -> list[tuple[int, str]]:
    return [(row.row, row.code) for chunk in chunks for row in chunk.bad]


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


_STREAMED = ("csv", "tsv", "jsonl", "arrow")

CSV = b'id,text,x\n1,one,1.5\n2,short\n"3","two\nlines",\n\n4,,nan\n5,"",x\n6,\xff,1\n7,a,b,c\n8,end,-inf\n'


def test_a_csv_with_every_file_format_odd_row_tells_each_and_reads_the_others(tmp_path: Path) -> None:
    chunks = read(write(tmp_path / "a.csv", CSV))
    found = rows(chunks)
    assert [*found] == [1, 3, 4, 8]
    assert found[3] == {"id": 3, "text": "two\nlines", "x": None}
    assert found[4]["text"] is None and str(found[4]["x"]) == "nan"
    assert bad(chunks) == [(2, "RAGGED"), (5, "BAD_VALUE"), (6, "BAD_VALUE"), (7, "RAGGED")]
    reasons = [row.reason for chunk in chunks for row in chunk.bad]
    assert reasons[0] == "expected 3 cells, got 2"
    assert reasons[1] == "column 'x': expected double, got 'x'"
    assert reasons[2] == "column 'text': expected string, got bytes that are not UTF-8"
    assert chunks[-1].last == 8


@pytest.mark.parametrize("after", range(9))
def test_rows_behind_a_number_are_the_same_whatever_came_before(tmp_path: Path, after: int) -> None:
    path = write(tmp_path / "a.csv", CSV)
    whole = read(path)
    rest = read(path, after)
    assert rows(rest).keys() == {number for number in rows(whole) if number > after}
    assert bad(rest) == [(row, code) for row, code in bad(whole) if row > after]


def test_numbers_hold_across_blocks_and_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 128)
    monkeypatch.setattr(csv_reader, "CHUNK_ROWS_MAX", 5)
    lines = [f"{n},t{n},{n}.5" if n % 7 else f"{n},t{n}" for n in range(1, 201)]
    chunks = read(write(tmp_path / "a.csv", "id,text,x\n" + "\n".join(lines) + "\n"))
    assert all(row["id"] == number for number, row in rows(chunks).items())
    assert [row for row, _ in bad(chunks)] == [*range(7, 201, 7)]
    assert {*rows(chunks)} | {row for row, _ in bad(chunks)} == {*range(1, 201)}
    assert [chunk.last for chunk in chunks] == sorted(chunk.last for chunk in chunks)
    assert all(one.done <= other.done for one, other in itertools.pairwise(chunks))


def test_a_file_whose_last_rows_are_ragged_accounts_for_them(tmp_path: Path) -> None:
    chunks = read(write(tmp_path / "a.csv", "id,text,x\n1,a,1\n2\n3\n"))
    assert bad(chunks) == [(2, "RAGGED"), (3, "RAGGED")]
    assert chunks[-1].last == 3


def test_null_and_empty_text_differ(tmp_path: Path) -> None:
    found = rows(read(write(tmp_path / "a.csv", 'id,text\n1,\n2,""\n3,NA\n4,"NA"\n'), null="NA"))
    assert [row["text"] for row in found.values()] == [None, "", None, "NA"]


@pytest.mark.parametrize("text", ["id,text,x\n", "id,text,x", "id,text,x\r\n\r\n", '\ufeffid,"text",x\n\n'], ids=repr)
def test_a_header_alone_has_columns_and_no_rows(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.csv", text)
    packed = write(tmp_path / "a.csv.gz", gzip.compress(text.encode()))
    for one in (path, packed):
        assert read(one) == []
        reader = open_reader(one, file_format(one))
        assert reader.columns == ["id", "text", "x"] and reader.sample() == {"id": [], "text": [], "x": []}
        reader.close()


def test_a_mark_of_utf_8_and_ends_of_lines_of_another_system_are_no_part_of_a_name(tmp_path: Path) -> None:
    assert rows(read(write(tmp_path / "a.csv", b"\xef\xbb\xbfid,text\r\n1,a\r\n"))) == {1: {"id": 1, "text": "a"}}


def test_tabs_and_other_delimiters(tmp_path: Path) -> None:
    assert rows(read(write(tmp_path / "a.tsv", "id\ttext\n1\ta,b\n"))) == {1: {"id": 1, "text": "a,b"}}
    assert rows(read(write(tmp_path / "a.csv", "id;text\n1;a,b\n"), delimiter=";")) == {1: {"id": 1, "text": "a,b"}}


@pytest.mark.parametrize(
    ("name", "data", "error", "says"),
    [
        ("a.csv", b"", NoInput, "is empty"),
        ("a.jsonl", b"", NoInput, "is empty"),
        ("a.parquet", b"", NoInput, "is empty"),
        ("a.arrow", b"", NoInput, "is empty"),
        ("a.tsv", b"", NoInput, "is empty"),
        ("a.csv", b"\xef\xbb\xbf", NoInput, "is empty"),
        *((f"a.{form}.gz", gzip.compress(b"", mtime=0), NoInput, "is an empty gzip file") for form in _STREAMED),
        *(
            (f"a.{form}.zst", pa.compress(b"", "zstd", asbytes=True), NoInput, "is an empty zstd file")
            for form in _STREAMED
        ),
        ("a.csv", b"\nid\n", NoInput, "empty line"),
        ("a.jsonl", b"\n\n", NoInput, "has only empty lines"),
        (
            "a.jsonl",
            b"{}\n",
            BrokenInput,
            r"expected one JSON object on each line, and the first lines have none with a member$",
        ),
        ("a.jsonl", b'\n{"id": "\\ud800"}', BrokenInput, r"; line 1: text with half of a surrogate pair"),
        ("a.csv", b"id,id\n1,2\n", BrokenInput, "names 'id' twice"),
        ("a.csv", b"id,\n1,2\n", BrokenInput, "column without a name.*index=False"),
        ("a.csv", "id\n1\n".encode("utf-16"), BrokenInput, "UTF-16"),
        ("a.csv", b"id,\xff\n1,2\n", BrokenInput, "the header of .* is not UTF-8 text; convert the file with iconv"),
        ("a.jsonl", b"1\n2\n", BrokenInput, "expected one JSON object on each line.*; line 1: .*got `int`"),
        ("a.parquet", b"PAR1 not really", BrokenInput, "cannot be read"),
        ("a.arrow", b"ARROW1 not really", BrokenInput, "is not an Arrow file"),
        ("a.arrow", b"\xff\xff\xff\xff\xff\xff\xff\x7f", BrokenInput, "is not an Arrow file"),
        ("a.csv.gz", b"id\n1\n", BrokenInput, "cannot be read"),
        ("missing.csv", None, NoInput, "no such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_typed_error(
    tmp_path: Path, name: str, data: bytes | None, error: type[Exception], says: str
) -> None:
    if data is not None:
        write(tmp_path / name, data)
    with pytest.raises(error, match=says):
        read(tmp_path / name)


def test_a_compressed_file_that_ends_early_gives_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, but for the last row, which may be half a row. How much it was used to be a matter of time."""
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 1 << 17)
    lines = "".join(f"{n},{n * 7919 % 100_003}\n" for n in range(200_000))
    whole = gzip.compress(f"id,text\n{lines}".encode())
    path = write(tmp_path / "a.csv.gz", whole[: len(whole) * 2 // 3])
    found: dict[int, str] = {}
    reader = open_reader(path, file_format(path))
    with contextlib.closing(reader), pytest.raises(BrokenInput, match=r"the rest of .* cannot be read"):
        for chunk in reader.chunks(SCHEMA, reader.columns, 0):
            found |= {row["id"]: row["text"] for row in chunk.rows.to_pylist()}
    assert found == {n: f"{n * 7919 % 100_003}" for n in range(len(found))}
    # Arrow unpacks piece by piece, and gives up the one in which the stream ends.
    there = zlib.decompressobj(wbits=31).decompress(path.read_bytes()).count(b"\n") - 1
    assert there - UNPACKED_ROWS_MAX < len(found) < there


def test_a_compressed_file_that_breaks_within_its_first_piece_gives_its_first_rows(tmp_path: Path) -> None:
    """The header is looked for in a megabyte; that the file breaks within it is no reason to know no header."""
    lines = "".join(f"{n},{n * 7919 % 100_003}\n" for n in range(60_000))
    whole = gzip.compress(f"id,text\n{lines}".encode())
    path = write(tmp_path / "a.csv.gz", whole[: len(whole) // 2])
    with contextlib.closing(open_reader(path, file_format(path))) as reader:
        chunks = reader.chunks(SCHEMA, reader.columns, 0)
        assert len(next(chunks).rows)
        with pytest.raises(BrokenInput, match=r"the rest of .* cannot be read"):
            assert [*chunks]


def test_a_quote_that_is_never_closed_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 1 << 20)
    path = write(tmp_path / "a.csv", 'id,text\n1,a\n2,"' + "x" * (3 << 20) + "\n")
    with pytest.raises(BrokenInput, match="a quote that is never closed"):
        read(path)


def test_a_quote_that_is_never_closed_in_a_small_file_is_told_by_its_row(tmp_path: Path) -> None:
    """Nearly a thousand rows had become one cell, and nobody was told."""
    lines = ["id,text", "1,a", "2", "3,c", '4,"open', *(f"{n},row{n}" for n in range(5, 1000))]
    chunks = read(write(tmp_path / "a.csv", "\n".join(lines)))
    assert sorted(rows(chunks)) == [1, 3]
    assert [number for number, _ in bad(chunks)] == [2, 4]
    (told,) = [row for chunk in chunks for row in chunk.bad if row.row == 4]
    assert "a quote is never closed" in told.reason
    assert "row999" in str(told.values)


@pytest.mark.parametrize("cut", ['2,"lo', '2,"', '2,"two\nli', '2,"say ""no""', '2,"a,b', '2,"open\n', '2,"a"""'])
def test_a_file_that_ends_within_quotes_has_a_bad_last_row(tmp_path: Path, cut: str) -> None:
    """A row whose quoted cell was cut off within its line was taken for whole."""
    chunks = read(write(tmp_path / "a.csv", f'id,text\n1,"a"\n{cut}'))
    assert (sorted(rows(chunks)), bad(chunks)) == (([1, 2], []) if cut == '2,"a"""' else ([1], [(2, "BAD_VALUE")]))


@pytest.mark.parametrize(
    "text",
    [
        'id,text\n1,5" pipe\n2,b\n',
        'id,text\n1,5" pipe\n2,"two\nlines"\n',
        'id,text\n1,5" pipe\n2,"two\nlines"',
        'id,text\n1,a\n2,5" pipe',
        'id,text\n1,a\n2,"two\nlines"\n',
        'id,text\n1,"say ""no"""\n2,"b"\n',
    ],
)
def test_other_quotes_are_no_reason_to_doubt_a_row(tmp_path: Path, text: str) -> None:
    chunks = read(write(tmp_path / "a.csv", text))
    assert sorted(rows(chunks)) == [1, 2] and bad(chunks) == []


@pytest.mark.parametrize("compression", ["", "gzip", "zstd"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_text_is_read_through_its_compression(tmp_path: Path, form: str, compression: str) -> None:
    data = b"id,text\n1,a\n2,b\n" if form == "csv" else b'{"id":1,"text":"a"}\n{"id":2,"text":"b"}'
    path = tmp_path / f"a.{form}{ {'': '', 'gzip': '.gz', 'zstd': '.zst'}[compression] }"
    path.write_bytes(pa.compress(data, compression, asbytes=True) if compression == "zstd" else data)
    if compression == "gzip":
        path.write_bytes(gzip.compress(data))
    assert rows(read(path)) == {1: {"id": 1, "text": "a"}, 2: {"id": 2, "text": "b"}}


def test_json_lines_are_judged_one_by_one(tmp_path: Path) -> None:
    lines = [b'{"id": 1, "x": 1.5}', b"", b"{", b"[1]", b'{"id": 2, "text": "\xff"}', b'{"id": 3, "x": "Infinity"}']
    chunks = read(write(tmp_path / "a.jsonl", b"\n".join([*lines, b'{"id": 4, "x": "1"}'])))
    assert rows(chunks) == {1: {"id": 1, "x": 1.5}, 5: {"id": 3, "x": float("inf")}}
    assert bad(chunks) == [(2, "BAD_LINE"), (3, "BAD_LINE"), (4, "BAD_LINE"), (6, "BAD_VALUE")]


WIDE = schema_from_plain(
    {"columns": [{"name": "id", "type": "decimal(38,0)"}, {"name": "x", "type": "double"}], "key": ["id"]}
)


@pytest.mark.parametrize("schema", [SCHEMA, WIDE], ids=["without a decimal", "with one"])
def test_a_number_of_json_that_a_double_would_round_makes_its_row_bad(tmp_path: Path, schema: Schema) -> None:
    """It was rounded where it was read, whatever became of it afterwards."""
    texts = ["0.5", "1234567890123456789012345678.01", "0.30000000000000004", "1e-400", "1e400"]
    path = write(tmp_path / "a.jsonl", "\n".join(f'{{"id": {n}, "x": {text}}}' for n, text in enumerate(texts, 1)))
    with contextlib.closing(JsonReader(path)) as reader:
        chunks = [*reader.chunks(schema, ["id", "x"], 0)]
    assert {number: row["x"] for number, row in rows(chunks).items()} == {1: 0.5, 3: 0.1 + 0.2}
    assert [number for number, _ in bad(chunks)] == [2, 4, 5]
    says = "expected double, got 1234567890123456789012345678.01, which a double rounds to 1.2345678901234569e+27"
    assert chunks[0].bad[0].reason == f"column 'x': {says}"


@pytest.mark.parametrize(
    ("late", "third", "fourth"),
    [
        (LateColumns.LOAD, {"id": 3, "x": 0.5}, {"id": 4, "odd": 1}),
        (LateColumns.SKIP_UNKNOWN, {"id": 3, "x": 0.5}, {"id": 4}),
        (LateColumns.SKIP, {"id": 3}, {"id": 4}),
    ],
)
def test_members_behind_the_sample_are_treated_as_those_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: LateColumns, third: dict[str, Any], fourth: dict[str, Any]
) -> None:
    monkeypatch.setattr(json_reader, "SAMPLE_ROWS", 2)
    lines = ['{"id": 1, "text": "a"}', '{"id": 2, "text": "b"}', '{"id": 3, "x": 0.5}', '{"id": 4, "odd": 1}']
    path = write(tmp_path / "a.jsonl", "\n".join(lines))
    with contextlib.closing(open_reader(path, file_format(path), late=late)) as reader:
        found = rows([*reader.chunks(SCHEMA, ["id"], 0)])
    assert found == {1: {"id": 1}, 2: {"id": 2}, 3: third, 4: fourth}


@pytest.mark.parametrize(("words", "bad_rows"), [("--columns id", 0), ("--skip-unknown", 0), ("", 1)])
def test_options_that_choose_columns_hold_for_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, bad_rows: int
) -> None:
    """They held for the members of the first 10,000 rows. A later row with another member was a bad row."""
    monkeypatch.setattr(json_reader, "SAMPLE_ROWS", 2)
    path = write(tmp_path / "a.jsonl", '{"id": 1}\n{"id": 2}\n{"id": 3, "odd": 1}\n')
    words = f"import {path} --dry-run --key id --json {words}"
    done = CliRunner().invoke(build_app("import"), words.split())
    assert json.loads(done.stdout)["bad"] == bad_rows


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_time_with_digits_below_a_microsecond_makes_its_row_bad(tmp_path: Path, name: str) -> None:
    """Those of JSON were cut without a word, while the same text in a CSV file made a bad row."""
    columns = [{"name": "id", "type": "int64"}, {"name": "at", "type": "timestamp"}]
    schema = schema_from_plain({"columns": columns, "key": ["id"]})
    texts = ["01:02:03.123456789", "01:02:03.123456000", "01:02:03.123456", "01:02:03.1234560001", "01:02:03"]
    is_json = name == "a.jsonl"
    lines = [] if is_json else ["id,at"]
    for number, text in enumerate(texts, 1):
        at = f"2026-06-01T{text}"
        lines.append(f'{{"id": {number}, "at": "{at}"}}' if is_json else f"{number},{at}")
    path = write(tmp_path / name, "\n".join(lines))
    with contextlib.closing(open_reader(path, file_format(path))) as reader:
        chunks = [*reader.chunks(schema, ["id", "at"], 0)]
    assert {number: row["at"].microsecond for number, row in rows(chunks).items()} == {2: 123456, 3: 123456, 5: 0}
    assert bad(chunks) == [(1, "BAD_VALUE"), (4, "BAD_VALUE")]


def test_whole_numbers_of_json_beyond_64_bits_come_through(tmp_path: Path) -> None:
    numbers = [12345678901234567890, 10**38 - 1, 10**38]
    path = write(tmp_path / "a.jsonl", "\n".join(f'{{"id": {n}, "x": 1}}' for n in numbers))
    with contextlib.closing(JsonReader(path)) as reader:
        assert isinstance(reader.types()["id"], str)
        (chunk,) = reader.chunks(WIDE, ["id", "x"], 0)
    assert [row["id"] for row in chunk.rows] == numbers
    (told,) = check_chunk(WIDE, OpKind.UPSERT, chunk)
    assert told.row == 3 and "expected decimal(38,0)" in told.reason
    with contextlib.closing(JsonReader(write(path, '{"id": 12345678901234567890, "x": 0.5}'))) as reader:
        assert reader.types() == {"id": pa.decimal128(38, 0), "x": pa.float64()}


@pytest.mark.parametrize("half", ["\\ud800", "\\udc00x", "\\ud800\\u0041"])
def test_a_line_with_half_of_a_surrogate_pair_says_so(tmp_path: Path, half: str) -> None:
    """The decoder said that the line was cut short."""
    lines = ['{"id": 1, "text": "HALF"}', '{"id": 2, "text": "\\ud83d\\ude00"}', '{"id": 3, "HALF": 1}']
    chunks = read(write(tmp_path / "a.jsonl", "\n".join(lines).replace("HALF", half)))
    assert rows(chunks) == {2: {"id": 2, "text": "\U0001f600"}}
    told = [(row.row, row.code, row.reason) for chunk in chunks for row in chunk.bad]
    reason = f"text with half of a surrogate pair ({half[:6]}), which is not a character"
    assert told == [(1, "BAD_LINE", reason), (3, "BAD_LINE", reason)]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.arrows"])
@pytest.mark.parametrize("after", [0, 4, 10, 19, 20])
def test_batches_are_numbered_and_begin_behind_a_row(tmp_path: Path, name: str, after: int) -> None:
    table = pa.table({"id": pa.array(range(1, 21), pa.int64()), "text": [f"t{n}" for n in range(1, 21)]})
    path = tmp_path / name
    if name == "a.parquet":
        parquet.write_table(table, path, row_group_size=6)
    else:
        make = pa.ipc.new_file if name == "a.arrow" else pa.ipc.new_stream
        with make(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=6)
    chunks = read(path, after)
    assert {number: row["id"] for number, row in rows(chunks).items()} == {n: n for n in range(after + 1, 21)}
    assert not chunks or chunks[-1].last == 20


@pytest.mark.parametrize("rows_max", [2, 100])
@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("us", [253_402_214_400_000_000, 1_780_000_000_123_456, None, -62_135_596_800_000_000, 0, -1]),
        ("ns", [1_780_000_000_123_456_789, -1, None, 0]),
    ],
)
def test_int96_times_of_parquet_are_read_at_any_distance_and_with_every_digit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str, times: list[int | None], rows_max: int
) -> None:
    """Spark writes INT96. The end of 9999, which means "still valid" to many, had become a day of 1816."""
    monkeypatch.setattr(arrow_reader, "CHUNK_ROWS_MAX", rows_max)
    table = pa.table({"id": pa.array(range(len(times)), pa.int64()), "at": pa.array(times, pa.timestamp(unit))})
    parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    found: list[int | None] = []
    for chunk in read(tmp_path / "a.parquet"):
        column = chunk.rows.column("at")
        finer = 1000 if unit == "ns" and column.type == pa.timestamp("us") else 1
        coarser = 1000 if unit == "us" and column.type == pa.timestamp("ns") else 1
        found += [one and one * finer // coarser for one in column.cast(pa.int64()).to_pylist()]
    assert found == times


def test_times_that_need_two_units_are_read_in_parts() -> None:
    micros, nanos = pa.array([0, 1, 1 << 62, 2], pa.timestamp("us")), pa.array([1, 1000, 5, 2000], pa.timestamp("ns"))
    batch = pa.record_batch({"id": [1, 2, 3, 4], "at": nanos})
    parts = [*exact_times(batch, {"at": micros})]
    assert [part.column("id").to_pylist() for part in parts] == [[1, 2], [3, 4]]
    assert [part.column("at").cast(pa.int64()).to_pylist() for part in parts] == [[1, 1000], [1 << 62, 2]]


@pytest.mark.parametrize("compression", ["", "gzip", "zstd"])
@pytest.mark.parametrize("is_finished", [True, False])
def test_an_arrow_stream_without_its_end_marker_is_not_taken_for_whole(
    tmp_path: Path, compression: str, is_finished: bool
) -> None:
    """Arrow reads up to the end of the file. A scan that failed had written such a file, and an import was content."""
    table = pa.table({"id": pa.array(range(1, 20), pa.int64())})
    path = tmp_path / f"a.arrow{ {'': '', 'gzip': '.gz', 'zstd': '.zst'}[compression] }"
    with path.open("wb") as file, contextlib.ExitStack() as stack:
        out = stack.enter_context(pa.CompressedOutputStream(file, compression)) if compression else file
        writer = pa.ipc.new_stream(out, table.schema)
        writer.write_table(table, max_chunksize=5)
        if is_finished:
            writer.close()
    found: list[RowChunk] = []
    with contextlib.closing(open_reader(path, file_format(path))) as reader:
        unfinished = pytest.raises(BrokenInput, match="has no end marker: its writer did not finish")
        with contextlib.nullcontext() if is_finished else unfinished:
            found.extend(reader.chunks(SCHEMA, reader.columns, 0))
    assert sorted(rows(found)) == [*range(1, 20)]


@pytest.mark.parametrize("name", ["far.parquet", "far.arrow"])
def test_dates_that_python_does_not_have_are_no_reason_not_to_look_at_a_file(tmp_path: Path, name: str) -> None:
    """The sample of its first values ended in an OverflowError; the rows are judged one by one, as all are."""
    path, kinds = tmp_path / name, (pa.timestamp("us"), pa.timestamp("ns"), pa.date32())
    columns = [pa.array([0, 1 << 62 if kind != pa.date32() else 1 << 30, None], kind) for kind in kinds]
    table = pa.table([pa.array([1, 2, 3]), *columns], names=["id", "us", "ns", "day"])
    if name.endswith("parquet"):
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    reader = open_reader(path, file_format(path))
    sample = reader.sample()
    assert (sample["id"], sample["us"][1], sample["day"][1:]) == ([1, 2, 3], 1 << 62, [1 << 30, None])
    reader.close()


def test_a_hostile_arrow_file_is_told_and_nothing_of_it_is_read(tmp_path: Path) -> None:
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little", signed=True) for n in (0, 1 << 30, 2, 3)))
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3], pa.int64()), text], names=["id", "text"])
    with pa.ipc.new_stream(tmp_path / "a.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    reader = open_reader(tmp_path / "a.arrow", file_format(tmp_path / "a.arrow"))
    assert reader.sample() == {}
    (chunk,) = read(tmp_path / "a.arrow")
    (told,) = check_chunk(SCHEMA, OpKind.UPSERT, chunk)
    assert (told.row, told.rows, told.code) == (1, 3, "BAD_ARROW")
    reader.close()


def test_what_the_client_would_not_send_is_told_without_sending_it(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1, None, 3], pa.int64()), "x": pa.array([1.0, 2.0, float("nan")])})
    parquet.write_table(table, tmp_path / "a.parquet")
    (chunk,) = read(tmp_path / "a.parquet")
    (told,) = check_chunk(SCHEMA, OpKind.UPSERT, chunk)
    assert told == BadRow(2, "BAD_VALUE", "column 'id': expected int64, got null", {"id": None, "x": 2.0})


def test_names_say_the_kind(tmp_path: Path) -> None:
    assert file_format(Path("a.b.csv.zst")) == FileFormat(Format.CSV, "zstd")
    assert file_format(Path("a.NDJSON")) == FileFormat(Format.JSONL, "")
    assert file_format(Path("a"), "parquet") == FileFormat(Format.PARQUET, "")
    assert file_format(Path("a.txt.gz"), "csv") == FileFormat(Format.CSV, "gzip")
    for path, says in [
        ("a", "endings: .csv"),
        ("a.xlsx", "endings: .csv"),
        ("a.parquet.gz", "remove the outer gzip compression first"),
    ]:
        with pytest.raises(UnknownFormat, match=says):
            file_format(Path(path))
    with pytest.raises(UnknownFormat, match="known formats: csv, tsv"):
        file_format(Path("a.csv"), "excel")


def test_columns_of_json_lines_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    """A table that was made of them had its columns in another order each time."""
    names = [f"c{n}" for n in range(20)]
    lines = [*(f'{{"{name}": 1, "id": 2}}'.encode() for name in names), b'{"last": 1, "c3": 0}']
    with contextlib.closing(JsonReader(write(tmp_path / "a.jsonl", b"\n".join(lines)))) as reader:
        assert [*reader.columns] == [*reader.types()] == ["c0", "id", *names[1:], "last"]
