"""Scans of running nodes by clients with LZ4: the same rows in fewer bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stelae.client import connect, connect_async
from stelae.client.page_rows import PageRows
from tests.e2e.nodes import TABLET, running

UNFLUSHED = """
[engines]
store = "columnar"
[maintenance]
flush_interval_ms = 600000
"""
COUNT = 3000
ROWS = [{"id": n, "text": f"row {n}"} for n in range(COUNT)]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of the frames with rows that clients have received."""
    found: list[int] = []
    read = PageRows.read

    def counting(self: PageRows, page: Any, layout: Any, frames: Sequence[Any]) -> Any:
        found.append(sum(map(len, frames)))
        return read(self, page, layout, frames)

    monkeypatch.setattr(PageRows, "read", counting)
    return found


def taken(received: list[int]) -> int:
    total = sum(received)
    received.clear()
    return total


def test_a_client_with_lz4_reads_the_same_unflushed_rows_in_fewer_bytes(tmp_path: Path, received: list[int]) -> None:
    def blocking(addresses: list[str], compression: Any) -> list[Any]:
        with connect(addresses, compression=compression) as client:
            return client.table(TABLET).scan(order="key").to_pylist()

    async def run() -> None:
        async with running(tmp_path, UNFLUSHED) as cluster:
            sizes: dict[tuple[str, str], int] = {}
            async with await connect_async(cluster.addresses) as client:
                table = await client.table(TABLET)
                before = table.now()
                await table.insert(ROWS)
            for compression in ("none", "lz4"):
                async with await connect_async(cluster.addresses, compression=compression) as client:
                    table = await client.table(TABLET)
                    assert await table.scan(order="key").to_pylist() == ROWS
                    sizes["scan", compression] = taken(received)
                    changes = await table.diff(before).to_pylist()
                    assert len(changes) == COUNT
                    sizes["diff", compression] = taken(received)
                assert await asyncio.to_thread(blocking, cluster.addresses, compression) == ROWS
                sizes["blocking", compression] = taken(received)
        for what in ("scan", "diff", "blocking"):
            assert 0 < sizes[what, "lz4"] < sizes[what, "none"] * 7 / 8

    asyncio.run(run())
