"""Pages of wide rows: bounded from the first one on, and no row is read twice for it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from stelae.protocol.codec import decode
from stelae.protocol.tablet_messages import ScanPage
from stelae.rows.plain_schema import schema_from_plain
from stelae.server.frames import Frames
from stelae.server.tserver import scan_pages
from stelae.server.tserver.diff_pages import DiffReader
from stelae.server.tserver.scan_pages import PAGE_BYTES_MAX, PageReader
from stelae.spi.scan import ScanSpec
from stelae.spi.store import TabletStore
from stelae.testing.conformance.store_harness import StoreHarness, insert
from stelae_store_columnar import ColumnarStore
from stelae_store_lmdb import LmdbStore
from stelae_store_memory import MemoryStore

AT = 100
HEADER_BYTES_MAX = 4096
WIDE = schema_from_plain(
    {"columns": [{"name": "k", "type": "int32"}, {"name": "v", "type": "string"}, {"name": "w", "type": "int8"}]}
    | {"key": ["k"]}
)


def stored(engine: type[TabletStore]) -> TabletStore:
    """A store with 40 rows of a megabyte each."""
    replica = StoreHarness(engine).replica(WIDE)
    for start in range(0, 40, 10):
        replica.write(insert(*((n, chr(97 + n) * (1 << 20), 0) for n in range(start, start + 10))), timestamp=AT)
    return replica.store


def sizes(reader: PageReader | DiffReader) -> tuple[list[int], int]:
    """Bytes of the pages, and how many rows they have together."""
    found: list[int] = []
    rows = 0
    while reader.more:
        frames: Frames = reader.next()
        page = decode(bytes(frames[0]), ScanPage)
        rows += page.row_count
        found.append(sum(len(frame) for frame in frames[1:]))
    return found, rows


@pytest.mark.parametrize("engine", [MemoryStore, LmdbStore, ColumnarStore])
def test_pages_of_a_scan_are_bounded_and_one_cursor_reads_them_all(
    engine: type[TabletStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = stored(engine), []
    scan = store.scan
    monkeypatch.setattr(store, "scan", lambda *args: opened.append(args) or scan(*args))  # type: ignore[func-returns-value]
    found, rows = sizes(PageReader(store, ScanSpec(), AT, 65_536))
    assert rows == 40
    assert max(found) <= PAGE_BYTES_MAX + HEADER_BYTES_MAX
    assert len(opened) == 1


@pytest.mark.parametrize("engine", [MemoryStore, LmdbStore, ColumnarStore])
def test_pages_of_a_diff_are_bounded(engine: type[TabletStore]) -> None:
    found, rows = sizes(DiffReader(stored(engine), ScanSpec(), 0, AT, 65_536))
    assert rows == 40
    assert max(found) <= PAGE_BYTES_MAX + HEADER_BYTES_MAX


def test_a_first_page_on_the_event_loop_that_is_too_large_is_divided_and_no_row_is_lost_or_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store estimates the size of a scan by the average size of its rows. These ten are far larger."""
    monkeypatch.setattr(scan_pages, "PAGE_BYTES_MAX", 100_000)
    replica = StoreHarness(ColumnarStore).replica(WIDE)
    replica.write(insert(*((n, "x" * (30_000 if n < 10 else 1), 0) for n in range(2_000))), timestamp=AT)
    list(replica.store.scan(ScanSpec(), AT))
    reader, keys, pages = PageReader(replica.store, ScanSpec(limit=10), AT, 65_536), [], 0
    frames = reader.next_inline()
    assert frames is not None
    while True:
        rows = pa.ipc.read_record_batch(pa.py_buffer(frames[1]), WIDE.layout.arrow)
        keys += rows.column("k").to_pylist()
        pages += 1
        if not reader.more:
            break
        frames = reader.next()
    assert keys == [*range(10)] and pages > 1
