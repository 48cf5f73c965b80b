"""The rows of a page as a message: the same rows with LZ4 as without, and no message that expands without bounds."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from stelae.rows import arrow_page
from stelae.rows.arrow_page import LZ4_BYTES_MIN, LZ4_SAVES_MIN, decoded_rows, encoded_rows, plain_bytes
from stelae.rows.batch_building import build_batch
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout

TYPES: dict[str, Any] = {
    "bool": lambda n: n % 2 == 0,
    "int8": lambda n: n % 100,
    "int16": lambda n: -n,
    "int32": lambda n: n,
    "int64": lambda n: n << 40,
    "float": lambda n: n / 2,
    "double": lambda n: n / 4,
    "string": lambda n: f"name {n % 7}",
    "binary": lambda n: bytes([n % 5]) * (n % 9),
    "date": lambda n: n,
    "timestamp": lambda n: 1_000_000 * n,
    "decimal(12,2)": lambda n: Decimal(n).scaleb(-2),
}
COUNT = 3000


def layout_of(kind: str) -> Layout:
    columns = [{"name": "k", "type": "int64"}, {"name": "v", "type": kind, "nullable": True}]
    return schema_from_plain({"columns": columns, "key": ["k"]}).layout


TEXT = layout_of("string")


def both_forms(rows: RowBatch) -> tuple[bytes, bytes]:
    """The plain message of rows, and the one for a client that takes LZ4. Both are these rows again."""
    plain, packed = bytes(encoded_rows(rows)), bytes(encoded_rows(rows, lz4=True))
    for data in (plain, packed):
        assert decoded_rows(rows.layout, data).arrow.equals(rows.arrow, check_metadata=True)
    assert len(plain) == plain_bytes(rows)
    return plain, packed


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("nulls", ["none", "some", "all"])
def test_rows_of_every_type_are_the_same_with_lz4_as_without(kind: str, nulls: str) -> None:
    keep = {"none": lambda _: True, "some": lambda n: n % 3, "all": lambda _: False}[nulls]
    rows = build_batch(layout_of(kind), [(n, TYPES[kind](n) if keep(n) else None) for n in range(COUNT)])
    plain, packed = both_forms(rows)
    assert len(packed) <= len(plain) * (1 - LZ4_SAVES_MIN)
    both_forms(rows.slice(13, COUNT // 2))


def test_wide_text_is_the_same_and_smaller() -> None:
    rows = build_batch(TEXT, [(n, None if n == 3 else chr(0x3B1 + n) * 100_000) for n in range(5)])
    plain, packed = both_forms(rows)
    assert len(packed) < len(plain) // 50


def test_the_metadata_of_a_message_says_that_it_is_compressed_and_nothing_follows_it() -> None:
    rows = build_batch(TEXT, [(n, "x") for n in range(COUNT)])
    source = pa.BufferReader(encoded_rows(rows, lz4=True))
    assert pa.ipc.read_message(source).type == "record batch"
    assert source.tell() == source.size()


@pytest.mark.parametrize("count", [0, 1, 20])
def test_few_rows_are_plain(count: int) -> None:
    rows = build_batch(TEXT, [(n, "x" * 50) for n in range(count)])
    plain, packed = both_forms(rows)
    assert plain == packed and len(plain) < LZ4_BYTES_MIN


def test_rows_that_lz4_does_not_make_much_smaller_are_plain() -> None:
    rng = random.Random(1)
    rows = build_batch(layout_of("binary"), [(rng.getrandbits(63), rng.randbytes(40)) for _ in range(COUNT)])
    plain, packed = both_forms(rows)
    assert plain == packed


def test_rows_that_a_reader_would_refuse_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_page, "LZ4_BYTES_MAX", 50_000)
    rows = build_batch(TEXT, [(1, "x" * 49_000)])
    plain, packed = both_forms(rows)
    assert len(packed) < len(plain)
    plain, packed = both_forms(build_batch(TEXT, [(1, "x" * 50_000)]))
    assert plain == packed


def test_a_message_that_declares_terabytes_is_refused_before_they_are_allocated() -> None:
    rows = build_batch(TEXT, [(n, "x") for n in range(COUNT)])
    data = bytearray(encoded_rows(rows, lz4=True))
    body = len(data) - pa.ipc.read_message(pa.py_buffer(data)).body.size
    # The body begins with the first column that has bytes. Each compressed buffer begins with its size before.
    assert int.from_bytes(data[body : body + 8], "little") == 8 * COUNT
    data[body : body + 8] = (4 << 40).to_bytes(8, "little")
    with pytest.raises(Corrupt, match=r"a page of rows has 43980\d{8} bytes; at most 68157440 are accepted"):
        decoded_rows(TEXT, bytes(data))


def test_damaged_messages_are_corrupt_or_rows_but_never_a_crash() -> None:
    rng, refused = random.Random(1), 0
    whole = encoded_rows(build_batch(TEXT, [(n, f"name {n % 10}") for n in range(500)]), lz4=True)
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(1 + int(rng.random() * 4)):
            data[int(rng.random() * len(data))] = rng.getrandbits(8)
        cut = len(data) if rng.random() < 0.7 else int(rng.random() * len(data))
        try:
            rows = decoded_rows(TEXT, bytes(data[:cut]))
            assert len(rows.to_rows()) == len(rows)
        except Corrupt:
            refused += 1
    assert 300 < refused < 2000
