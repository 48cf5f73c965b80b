"""Pages for clients that take LZ4: compressed where that saves enough, and bounded as plain pages are."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from stelae.client.page_rows import PageRows
from stelae.protocol.codec import decode, encode
from stelae.protocol.tablet_messages import ScanPage, ScanRequest
from stelae.rows.changes import changes_layout
from stelae.server.tserver import diff_pages, scan_pages
from stelae.server.tserver.diff_pages import DiffReader, reader_of
from stelae.server.tserver.scan_pages import PageReader
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.testing.conformance.store_harness import SCHEMA, StoreHarness
from stelae_store_columnar import ColumnarStore
from stelae_store_memory import MemoryStore
from tests.conformance.test_store_columnar import tiny
from tests.unit.tserver.scan_world import World

AT = 1000
ROWS = [(n, f"name {n}", n) for n in range(3000)]
ASKED = ScanRequest(TabletId("t"), ScanSpec(order=Order.KEY), AT)
SINCE = msgspec.structs.replace(ASKED, since=0)


def pages(asked: ScanRequest) -> tuple[list[Any], list[int]]:
    """The rows of all pages, as a client reads them, and the bytes of the rows of each."""
    replica = StoreHarness(MemoryStore).replica()
    replica.insert(*ROWS)
    reader = reader_of(replica.store, asked, AT)
    client, rows, sizes = PageRows(asked.spec, asked.since), [], []
    layout = SCHEMA.layout if asked.since is None else changes_layout(SCHEMA, None)

    async def read(page: ScanPage, frames: Any) -> RowBatch | None:
        return await client.read(page, layout, frames)

    while reader.more:
        page, *frames = reader.next()
        found = asyncio.run(read(decode(bytes(page), ScanPage), frames))
        rows += [] if found is None else found.to_rows()
        sizes.append(sum(map(len, frames)))
    return rows, sizes


@pytest.mark.parametrize("asked", [ASKED, SINCE], ids=["scan", "diff"])
def test_a_client_that_takes_lz4_gets_the_same_rows_in_fewer_bytes(asked: ScanRequest) -> None:
    plain, plain_sizes = pages(asked)
    rows, sizes = pages(msgspec.structs.replace(asked, lz4=True))
    assert rows == plain and len(rows) == len(ROWS)
    assert sum(sizes) < sum(plain_sizes) * 7 / 8


@pytest.mark.parametrize("asked", [ASKED, SINCE], ids=["scan", "diff"])
def test_pages_are_divided_by_their_plain_bytes(asked: ScanRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client holds the plain rows, so they are what must be bounded."""
    for module in (scan_pages, diff_pages):
        monkeypatch.setattr(module, "PAGE_BYTES_MAX", 20_000)
    plain, plain_sizes = pages(asked)
    rows, sizes = pages(msgspec.structs.replace(asked, lz4=True))
    assert rows == plain
    assert len(sizes) == len(plain_sizes) > 3


def test_a_request_without_the_field_is_answered_with_plain_rows() -> None:
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(encode(ASKED))[:-1])
    asked = decode(older, ScanRequest)
    assert asked == ASKED
    replica = StoreHarness(MemoryStore).replica()
    replica.insert(*ROWS)
    frames = reader_of(replica.store, asked, AT).next()
    plain = PageReader(replica.store, ASKED.spec, AT, len(ROWS)).next()
    assert frames == plain != reader_of(replica.store, msgspec.structs.replace(asked, lz4=True), AT).next()


def test_rows_that_travel_as_they_are_stored_stay_so() -> None:
    replica = StoreHarness(ColumnarStore, tiny).replica()
    replica.insert(*ROWS)
    replica.flush()
    with_lz4 = PageReader(replica.store, ASKED.spec, AT, len(ROWS), b"", lz4=True).next()
    page = decode(bytes(with_lz4[0]), ScanPage)
    assert page.stored is not None
    assert with_lz4 == PageReader(replica.store, ASKED.spec, AT, len(ROWS), b"").next()


def test_an_empty_page_has_no_rows_to_compress() -> None:
    store = StoreHarness(MemoryStore).replica().store
    readers = [PageReader(store, ASKED.spec, AT, 10, lz4=True), DiffReader(store, ASKED.spec, 0, AT, 10, lz4=True)]
    assert [len(reader.next()) for reader in readers] == [1, 1]


@pytest.mark.parametrize("lz4", [True, False])
def test_a_page_that_was_read_ahead_is_for_a_client_that_takes_its_form(lz4: bool) -> None:
    world = World()
    found, _ = world.page(ScanSpec(), lz4=lz4)
    behind = ScanSpec(after=found.after)
    assert world.page(behind, lz4=not lz4)[1] == [3, 4, 5]
    assert world.store.opened == 2
    assert world.page(behind, lz4=lz4)[1] == [3, 4, 5]
    assert world.store.opened == 2
