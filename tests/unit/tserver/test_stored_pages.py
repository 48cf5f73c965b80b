"""Pages of rows as they are stored: which of them are, what travels once, and scans that go on at another replica."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.client.page_rows import PageRows
from stelae.protocol.codec import decode
from stelae.protocol.tablet_messages import ScanPage, ScanRequest
from stelae.server.tserver import scan_pages
from stelae.server.tserver.diff_pages import reader_of
from stelae.server.tserver.open_scans import OpenScans
from stelae.server.tserver.scan_pages import PageReader
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, upsert
from stelae_store_columnar import ColumnarStore
from stelae_store_memory import MemoryStore
from tests.conformance.test_store_columnar import tiny

ROWS = [(n, f"name {n}", n) for n in range(100)]
AT = 1000


def columnar(*, flush_at: Sequence[int] = (1,)) -> HarnessReplica:
    """A replica of a hundred rows, flushed behind some of its entries; rows 50 to 53 are gone, 60 to 69 were written
    again."""
    replica = StoreHarness(ColumnarStore, tiny).replica()
    replica.insert(*ROWS)
    for number in range(1, 4):
        if number == 2:
            replica.write(delete(*((n,) for n in range(50, 54))))
        if number == 3:
            replica.write(upsert(*((n, "again", n) for n in range(60, 70))))
        if number in flush_at:
            replica.flush()
    return replica


EXPECTED = [(n, "again" if 60 <= n < 70 else name, count) for n, name, count in ROWS if not 50 <= n < 54]


class Reading:
    """A scan whose every page may come from another replica, with what its client knows."""

    def __init__(self, spec: ScanSpec | None = None) -> None:
        self.spec = spec or ScanSpec(order=Order.KEY)
        self.client = PageRows(self.spec)
        self.rows: list[Any] = []
        self.pages: list[ScanPage] = []
        self.frames: list[int] = []

    def take(self, frames: Sequence[Any]) -> bool:
        """Read a page as a client does; false at the end."""
        page = decode(frames[0], ScanPage)

        async def run() -> RowBatch | None:
            return await self.client.read(page, SCHEMA.layout, frames[1:])

        rows = asyncio.run(run())
        self.rows += [] if rows is None else rows.to_rows()
        self.pages.append(page)
        self.frames.append(len(frames))
        limit = None if self.spec.limit is None else self.spec.limit - page.row_count
        self.spec = ScanSpec(order=self.spec.order, after=page.after, limit=limit)
        return page.after is not None and limit != 0

    def all_from(self, replica: HarnessReplica, rows_max: int = 10) -> Reading:
        reader = PageReader(replica.store, self.spec, AT, rows_max, self.client.file)
        while self.take(reader.next()):
            assert (reader.spec.after, reader.file) == (self.spec.after, self.client.file)
        return self

    @property
    def stored(self) -> int:
        """Rows that came as they are stored."""
        return sum(page.row_count for page in self.pages if page.stored is not None)


def test_what_is_plain_comes_as_it_is_stored_and_its_footer_once_for_each_file() -> None:
    reading = Reading().all_from(columnar())
    assert reading.rows == EXPECTED
    assert 70 <= reading.stored < 100
    files = [page.stored.file for page in reading.pages if page.stored is not None]
    changes = sum(one != other for one, other in zip([b"", *files], files, strict=False))
    assert sum(count == 3 for count in reading.frames) == changes > 1


def test_engines_that_know_nothing_of_it_answer_as_ever() -> None:
    replica = StoreHarness(MemoryStore).replica()
    replica.insert(*ROWS)
    reading = Reading().all_from(replica)
    assert (reading.rows, reading.stored) == (ROWS, 0)


def test_whoever_does_not_ask_for_stored_rows_gets_none() -> None:
    reading = Reading(ScanSpec(order=Order.KEY, limit=1000))
    reading.client = PageRows(ScanSpec(limit=1))
    assert reading.all_from(columnar()).rows == EXPECTED
    assert reading.stored == 0


def test_a_page_holds_about_as_many_bytes_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_pages, "PAGE_BYTES_MAX", 300)
    reading = Reading().all_from(columnar(), 1000)
    assert reading.rows == EXPECTED and reading.stored > 0
    assert max(page.row_count for page in reading.pages if page.stored is not None) < 20


@pytest.mark.parametrize("limit", [1, 4, 7, 55, 58, 1000])
def test_a_limit_holds(limit: int) -> None:
    reading = Reading(ScanSpec(order=Order.KEY, limit=limit))
    reading.client = PageRows(ScanSpec())
    assert reading.all_from(columnar()).rows == EXPECTED[:limit]


@pytest.mark.parametrize("rows_max", [1, 3, 4, 9, 17])
def test_every_page_may_come_from_another_replica(rows_max: int) -> None:
    """Replicas flush at different moments: what one has in a block, others have in memory or cut elsewhere."""
    replicas = [columnar(), columnar(flush_at=(2, 3)), columnar(flush_at=()), columnar(flush_at=(3,))]
    replicas[1].compact()
    reading = Reading()
    number = 0
    more = True
    while more:
        replica = replicas[number % len(replicas)]
        more = reading.take(PageReader(replica.store, reading.spec, AT, rows_max, reading.client.file).next())
        number += 1
    assert reading.rows == EXPECTED
    assert reading.stored > 0 or rows_max < 4


def test_a_scan_goes_on_in_the_middle_of_what_another_replica_handed_on() -> None:
    first, second = columnar(), columnar(flush_at=(2, 3))
    reading = Reading()
    assert reading.take(PageReader(first.store, reading.spec, AT, 10, reading.client.file).next())
    assert reading.pages[0].stored is not None
    known = reading.client.file
    reading.all_from(second)
    assert reading.rows == EXPECTED
    assert reading.client.file not in (b"", known)


def test_columns_come_in_the_order_in_which_they_are_asked_for() -> None:
    replica = columnar()
    layout = SCHEMA.project((3, 1))
    spec = ScanSpec(order=Order.KEY, columns=layout.ids)
    reader = PageReader(replica.store, spec, AT, 40, b"")
    client = PageRows(spec)
    page, *frames = reader.next()

    async def run() -> RowBatch | None:
        return await client.read(decode(page, ScanPage), layout, frames)

    rows = asyncio.run(run())
    assert rows is not None and rows.to_rows() == [(n, n) for n in range(len(rows))]


def test_one_cursor_serves_all_pages_whatever_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request for the page behind stored rows names their file, and finds the cursor that was kept for it."""
    replica = columnar()
    opened: list[int] = []
    scan = replica.store.scan

    def counted(spec: ScanSpec, at: int | None = None) -> Any:
        opened.append(1)
        return scan(spec, at)

    monkeypatch.setattr(replica.store, "scan", counted)
    pool = SimpleNamespace(run=lambda _key, work, done: done(work()))
    turns = SimpleNamespace(now_us=lambda: 0, call_at=lambda _when, _call: SimpleNamespace(cancel=lambda: None))
    served = OpenScans(SimpleNamespace(scans=pool, turns=turns), reader_of)  # type: ignore[arg-type]
    reading, more = Reading(), True
    while more:
        asked = ScanRequest(TabletId("t"), reading.spec, AT, 10, file=reading.client.file)
        answers: list[Any] = []
        served.read(NodeId("me"), replica.store, asked, AT, answers.append, lambda: True)
        more = reading.take(answers[0])
    assert (reading.rows, len(opened)) == (EXPECTED, 1)
    assert 0 < reading.stored < 100
