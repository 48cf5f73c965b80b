"""Pages as a client reads them: as Arrow, or as they are stored; never a wrong row, whatever came."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from stelae.client.page_rows import STORED_LIMIT_MIN, THREAD_BYTES_MIN, PageRows
from stelae.protocol.tablet_messages import ScanPage
from stelae.rows.batch_building import build_batch
from stelae.rows.parquet_rows import Footer, StoredChunk, StoredRows, footer_id, read_stored
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.scan import IsNull, Order, ScanSpec
from stelae.spi.schema import Layout
from stelae.testing.conformance.store_harness import SCHEMA, StoreHarness
from stelae_store_columnar import ColumnarStore
from tests.conformance.test_store_columnar import tiny

ROWS = [(n, f"name {n}", n) for n in range(12)]


def stored() -> tuple[ScanPage, list[bytes]]:
    """A page of rows as they are stored, and its frames: column chunks, and the footer."""
    replica = StoreHarness(ColumnarStore, tiny).replica()
    replica.insert(*ROWS)
    replica.flush()
    with replica.store.scan(ScanSpec(order=Order.KEY)) as cursor:
        piece = cursor.next_stored(100, 1 << 20)  # type: ignore[attr-defined]
        assert piece is not None
        page = ScanPage(1, 1, piece.row_count, b"", piece.stored)
        return page, [b"".join(piece.data), piece.footer()]


def read(page: ScanPage, *pages: Any, layout: Layout = SCHEMA.layout, reader: PageRows | None = None) -> list[Any]:
    """The rows of a page with these frames."""
    reader = reader or PageRows(ScanSpec())

    async def run() -> RowBatch | None:
        return await reader.read(page, layout, pages)

    rows = asyncio.run(run())
    return [] if rows is None else rows.to_rows()


def test_a_page_of_arrow_is_read_at_once_or_by_a_thread() -> None:
    for count in (3, THREAD_BYTES_MIN // 8):
        rows = [(n, "x", n) for n in range(count)]
        data = build_batch(SCHEMA.layout, rows).to_ipc()
        assert read(ScanPage(1, 1, count, None), data) == rows
        with pytest.raises(Corrupt, match=r"a page announces .* rows and has"):
            read(ScanPage(1, 1, count + 1, None), data)
    assert read(ScanPage(1, 1, 0, None)) == []


def test_rows_as_they_are_stored_come_with_a_footer_once() -> None:
    page, (data, footer) = stored()
    reader = PageRows(ScanSpec())
    assert reader.file == b""
    assert read(page, data, footer, reader=reader) == ROWS
    assert page.stored is not None and reader.file == page.stored.file == footer_id(footer)
    assert read(page, data, reader=reader) == ROWS
    assert read(page, memoryview(data), reader=reader) == ROWS


def test_a_reader_that_counts_decodes_nothing_and_keeps_the_footer() -> None:
    page, (data, footer) = stored()
    reader = PageRows(ScanSpec(), counts=True)
    assert read(page, b"not columns", footer, reader=reader) == []
    assert page.stored is not None and reader.file == page.stored.file
    assert read(page, data, reader=reader) == []
    assert read(ScanPage(1, 1, 3, None), b"not Arrow", reader=reader) == []
    with pytest.raises(Corrupt, match="announces 3 rows and has none"):
        read(ScanPage(1, 1, 3, None), reader=reader)


@pytest.mark.parametrize(
    ("spec", "asks"),
    [
        (ScanSpec(order=Order.KEY, key_from=b"a", key_until=b"b", after=b"a"), True),
        (ScanSpec(limit=STORED_LIMIT_MIN), True),
        (ScanSpec(limit=STORED_LIMIT_MIN - 1), False),
        (ScanSpec(order=Order.KEY_DESCENDING), False),
        (ScanSpec(predicates=(IsNull(2),)), False),
    ],
)
def test_stored_rows_are_asked_for_by_scans_that_may_get_some(spec: ScanSpec, asks: bool) -> None:
    assert PageRows(spec).file == (b"" if asks else None)


def test_a_flipped_bit_anywhere_in_the_rows_or_the_footer_is_an_error() -> None:
    page, frames = stored()
    rng = random.Random(1)
    for number, frame in enumerate(frames):
        for offset in range(len(frame)):
            damaged = bytearray(frame)
            damaged[offset] ^= 1 << int(rng.random() * 8)
            with pytest.raises(Corrupt):
                read(page, *(bytes(damaged) if number == at else other for at, other in enumerate(frames)))


def test_frames_that_are_missing_cut_or_too_long_are_errors() -> None:
    page, (data, footer) = stored()
    for frames in [(), (data,), (data[:-1], footer), (data + b"x", footer), (b"", footer), (footer, data)]:
        with pytest.raises(Corrupt):
            read(page, *frames)


def test_a_page_that_says_something_else_than_its_rows_is_an_error() -> None:
    page, (data, footer) = stored()
    said = page.stored
    assert said is not None
    first = said.chunks[0]
    wrong: list[dict[str, Any]] = [
        {"groups": said.groups[:-1]},
        {"groups": (*said.groups, 7)},
        {"groups": (-1,)},
        {"groups": ()},
        {"places": (0, 1)},
        {"places": (0, 2, 1)},
        {"places": (0, 1, 99)},
        {"places": (0, -1, 2)},
        {"places": (0, 1, None)},
        {"file": b"another"},
        {"chunks": said.chunks[:-1]},
        {"chunks": (StoredChunk(first.offset + 1, first.size_bytes, first.crc), *said.chunks[1:])},
        {"chunks": (StoredChunk(first.offset, -1, first.crc), *said.chunks[1:])},
    ]
    for change in wrong:
        changed = msgspec.structs.replace(page, stored=msgspec.structs.replace(said, **change))
        with pytest.raises(Corrupt):
            read(changed, data, footer)
    with pytest.raises(Corrupt, match=r"a page announces .* rows and has"):
        read(msgspec.structs.replace(page, row_count=11), data, footer)


def test_nulls_where_there_may_be_none_are_an_error() -> None:
    page, (data, footer) = stored()
    layout = SCHEMA.project((1, 3))
    assert page.stored is not None
    width = len(page.stored.chunks) // len(page.stored.groups)
    kept = [chunk for number, chunk in enumerate(page.stored.chunks) if number % width == 0]
    base = page.stored.chunks[0].offset
    starts = [sum(c.size_bytes for c in page.stored.chunks[: n * width]) for n in range(len(page.stored.groups))]
    keys = b"".join(data[at : at + chunk.size_bytes] for at, chunk in zip(starts, kept, strict=True))
    said = StoredRows(page.stored.file, page.stored.groups, (0, None), tuple(kept))
    assert base == kept[0].offset
    with pytest.raises(Corrupt, match="has nulls"):
        read_stored(layout, said, keys, Footer(page.stored.file, footer))
    nullable = SCHEMA.project((1, 2))
    rows = read_stored(nullable, said, keys, Footer(page.stored.file, footer))
    assert rows.to_rows() == [(n, None) for n in range(12)]


def test_what_is_no_footer_is_an_error() -> None:
    page, (data, _) = stored()
    assert page.stored is not None
    for footer in (b"", b"PAR1", b"x" * 100):
        said = msgspec.structs.replace(page.stored, file=footer_id(footer))
        with pytest.raises(Corrupt):
            read(msgspec.structs.replace(page, stored=said), data, footer)
