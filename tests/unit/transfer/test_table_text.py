"""Tables on a terminal: no line is wider than it, and no value can break one."""

from __future__ import annotations

import io
import string
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from stelae_transfer.sinks import LinesSink, TableSink
from stelae_transfer.table_text import FIRST_ROWS


def shown(batch: pa.RecordBatch, width: int = 80, kept: tuple[str, ...] = ()) -> list[str]:
    out = io.BytesIO()
    sink = TableSink(out, batch.schema, width, kept)
    sink.write(batch)
    sink.finish()
    return out.getvalue().decode().splitlines()


def test_a_table_that_fits_is_shown_whole() -> None:
    batch = pa.record_batch({"id": [1, 200], "name": ["a", None], "ok": [True, False]})
    assert shown(batch) == [" id  name  ok", "  1  a     true", "200  null  false"]


def test_of_300_columns_those_of_the_key_and_as_many_as_fit_are_shown_and_the_rest_is_named() -> None:
    batch = pa.record_batch({f"c{n}": [f"{n} " + "long " * 40, "x"] for n in range(300)})
    lines = shown(batch, kept=("c7",))
    assert all(cell_len(line) <= 80 for line in lines)
    assert "c7" in lines[0] and lines[0].startswith("c0") and lines[0].endswith("…")
    assert lines[1].startswith("0 long") and "…" in lines[1]
    assert lines[-1].startswith("(4 of 300 columns; show more with --columns or --format lines: c")
    assert len(lines) == 4


def test_long_cells_are_cut_and_short_columns_are_not() -> None:
    batch = pa.record_batch({"id": [123456], "text": ["x" * 500], "n": [1.5]})
    header, line = shown(batch)
    assert len(line) == 80 and line.startswith("123456  xxx") and line.endswith("x…  1.5")
    assert header.split() == ["id", "text", "n"]


def test_wide_characters_count_twice() -> None:
    batch = pa.record_batch({"a": ["湖" * 100], "b": ["e\u0301" * 50], "c": [1]})
    assert all(cell_len(line) <= 40 for line in shown(batch, 40))


def test_nothing_that_steers_a_terminal_reaches_it() -> None:
    evil = "".join(map(chr, range(32))) + "\x7f\x9b\u202e\u2028"
    text = "\n".join(shown(pa.record_batch({"a\x1b[2J": [evil]}), 400))
    assert set(text) <= set(string.printable) - set("\x1b\x0b\x0c\r\t")
    assert "\\x1b[2J" in text


def test_widths_are_those_of_the_first_rows_so_that_a_table_streams() -> None:
    out = io.BytesIO()
    names = ["short"] * FIRST_ROWS
    sink = TableSink(out, pa.schema([("name", pa.string())]), 80)
    sink.write(pa.record_batch({"name": names[1:]}))
    assert out.getvalue() == b""
    sink.write(pa.record_batch({"name": names[:1]}))
    assert out.getvalue().count(b"\n") == FIRST_ROWS + 1
    sink.write(pa.record_batch({"name": ["much longer than that"]}))
    assert out.getvalue().decode().splitlines()[-1] == "much…"


def test_a_table_without_rows_has_its_header() -> None:
    out = io.BytesIO()
    TableSink(out, pa.schema([("id", pa.int64()), ("name", pa.string())]), 80).finish()
    assert out.getvalue() == b"id  name\n"


def test_in_lines_every_column_stands_and_long_values_go_on_below() -> None:
    out = io.BytesIO()
    sink = LinesSink(out, pa.schema([("id", pa.int64()), ("text", pa.string())]), 20)
    sink.write(pa.record_batch({"id": [1], "text": ["abcdefghijklmnopqrstuvwxyz"]}))
    sink.finish()
    assert out.getvalue().decode() == "-- row 1\nid    1\ntext  abcdefghijklmn\n      opqrstuvwxyz\n"


@given(
    st.lists(st.lists(st.one_of(st.none(), st.text(max_size=60)), min_size=3, max_size=3), min_size=1, max_size=5),
    st.integers(min_value=20, max_value=120),
)
def test_no_line_is_ever_wider_than_the_terminal(rows: list[list[Any]], width: int) -> None:
    columns = {f"column {n}": pa.array([row[n] for row in rows], pa.string()) for n in range(3)}
    lines = shown(pa.record_batch(columns), width)
    assert all(cell_len(line) <= width for line in lines[: len(rows) + 1])
    assert len(lines) - len(rows) in (1, 2)


@pytest.mark.parametrize("width", [20, 60, 100])
def test_the_footer_fits_where_a_line_of_it_can(width: int) -> None:
    lines = shown(pa.record_batch({f"column_{n}": ["text"] for n in range(50)}), width)
    assert "of 50 columns" in lines[-1]
    assert width < 100 or cell_len(lines[-1]) <= width
