"""Byte order marks at the beginning of JSON lines, as Windows programs write them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from stelae_transfer.files import BrokenInput, NoInput, file_format
from stelae_transfer.readers import open_reader
from tests.unit.transfer.test_readers import SCHEMA, bad, read, rows, write

LINES = b'{"id": 1, "text": "a"}\r\n{"id": 2, "text": "b"}\r\n'
ROWS = {1: {"id": 1, "text": "a"}, 2: {"id": 2, "text": "b"}}
MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("begin", [MARK, MARK + b"\r\n"])
def test_a_utf_8_mark_is_no_part_of_the_first_row(tmp_path: Path, begin: bytes) -> None:
    """The first row was bad: malformed JSON at byte 0. A file of one row was refused."""
    found = read(write(tmp_path / "a.jsonl", begin + LINES))
    assert rows(found) == ROWS and bad(found) == []
    one = LINES.splitlines()[0]
    assert rows(read(write(tmp_path / "one.jsonl", begin + one))) == {1: ROWS[1]}
    assert rows(read(tmp_path / "a.jsonl", after=1)) == {2: ROWS[2]}


def test_a_mark_that_comes_in_pieces_is_left_out(tmp_path: Path) -> None:
    """A compressed file of several members: a read may end with each."""
    data = MARK + LINES
    pieces = b"".join(gzip.compress(data[n : n + 1], mtime=0) for n in range(len(data)))
    assert rows(read(write(tmp_path / "a.jsonl.gz", pieces))) == ROWS


def test_a_mark_elsewhere_makes_its_row_bad(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.jsonl", LINES + MARK + LINES))
    assert bad(found) == [(3, "BAD_LINE")]


@pytest.mark.parametrize("text", [b"1\n2", b"1\n2\n", b"1\n\n2"])
def test_lines_shorter_than_a_mark_are_lines(tmp_path: Path, text: bytes) -> None:
    path = write(tmp_path / "a.jsonl", LINES)
    reader = open_reader(path, file_format(path))
    path.write_bytes(text)
    found = [*reader.chunks(SCHEMA, ["id"], 0)]
    reader.close()
    assert bad(found) == [(1, "BAD_LINE"), (2, "BAD_LINE")]


def test_a_mark_alone_is_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(NoInput, match="there is nothing to read"):
        read(write(tmp_path / "a.jsonl", MARK))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_named_with_the_step_to_take(tmp_path: Path, name: str, order: str) -> None:
    text = ("\ufeff" + LINES.decode()).encode(order)
    with pytest.raises(BrokenInput, match=r"is UTF-16, and only UTF-8 can be read; convert it with iconv"):
        read(write(tmp_path / name, text))
