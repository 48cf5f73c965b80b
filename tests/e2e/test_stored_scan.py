"""Scans of running nodes whose rows travel as they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stelae.client import page_rows
from stelae.client.connection import ConnectedTablet
from stelae.server.tserver import scan_pages
from stelae.spi.errors import Corrupt
from stelae.spi.scan import Compare, ScanSpec
from stelae.spi.write import OpKind
from tests.e2e.nodes import Cluster, connected, flushed, insert, running
from tests.tablet_rows import write_to

SETTINGS = """
[engines]
store = "columnar"
[maintenance]
flush_bytes = 65536
flush_interval_ms = 10
[store.columnar]
row_group_rows = 64
"""
COUNT = 3000


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows that the client has decoded itself."""
    found: list[int] = []
    read_stored = page_rows.read_stored

    def counting(*given: Any) -> Any:
        rows = read_stored(*given)
        found.append(len(rows))
        return rows

    monkeypatch.setattr(page_rows, "read_stored", counting)
    monkeypatch.setattr(scan_pages, "PAGE_BYTES_MAX", 10_000)
    return found


async def loaded(cluster: Cluster, tablet: ConnectedTablet) -> None:
    """Rows in blocks on every replica."""
    for start in range(0, COUNT, 500):
        await insert(tablet, range(start, start + 500))
    await flushed(cluster)


async def rows_of(batches: AsyncIterator[Any]) -> list[tuple[Any, ...]]:
    return [row async for batch in batches for row in batch.to_rows()]


def on_nodes(path: Path, work: Callable[[Cluster, ConnectedTablet], Any]) -> None:
    async def run() -> None:
        async with running(path, SETTINGS) as cluster, connected(cluster) as tablet:
            await loaded(cluster, tablet)
            await work(cluster, tablet)

    asyncio.run(run())


def test_a_scan_decodes_blocks_itself_and_has_the_rows_of_one_that_does_not(tmp_path: Path, decoded: list[int]) -> None:
    async def work(cluster: Cluster, tablet: ConnectedTablet) -> None:
        everything = [(n, f"row {n}") for n in range(COUNT)]
        assert await rows_of(tablet.scan()) == everything
        assert sum(decoded) > COUNT // 2 and len(decoded) > 2
        decoded.clear()
        # A filter that lets everything pass is answered by the server's own decoder.
        assert await rows_of(tablet.scan(ScanSpec(predicates=(Compare(1, ">=", 0),)))) == everything
        assert decoded == []
        at = cluster.nodes[cluster.ids[0]].time.now()
        await write_to(tablet, OpKind.UPSERT, [(n, "again") for n in range(1000, 1010)])
        await write_to(tablet, OpKind.DELETE, [(n,) for n in range(2000, 2010)])
        changed = [(n, "again" if 1000 <= n < 1010 else name) for n, name in everything if not 2000 <= n < 2010]
        assert await rows_of(tablet.scan()) == changed
        assert await rows_of(tablet.scan(at=at)) == everything

    on_nodes(tmp_path, work)


def test_a_scan_goes_on_when_the_node_that_handed_rows_on_is_gone(tmp_path: Path, decoded: list[int]) -> None:
    async def work(cluster: Cluster, tablet: ConnectedTablet) -> None:
        found: list[tuple[Any, ...]] = []
        batches = tablet.scan()
        while not decoded:
            found += (await anext(batches)).to_rows()
        before = len(decoded)
        leader = await cluster.leading()
        assert 0 < len(found) < COUNT
        await cluster.stop(leader)
        found += await rows_of(batches)
        assert found == [(n, f"row {n}") for n in range(COUNT)]
        assert len(decoded) > before

    on_nodes(tmp_path, work)


def test_bytes_that_were_damaged_on_the_way_are_an_error_of_the_client(
    tmp_path: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(_: Cluster, tablet: ConnectedTablet) -> None:
        stored_page = scan_pages.PageReader._stored_page

        def damaged(reader: Any, piece: Any) -> Any:
            page, data, *footer = stored_page(reader, piece)
            return [page, bytes([data[0] ^ 1]) + data[1:], *footer]

        monkeypatch.setattr(scan_pages.PageReader, "_stored_page", damaged)
        with pytest.raises(Corrupt, match="checksum"):
            await rows_of(tablet.scan())

    on_nodes(tmp_path, work)
