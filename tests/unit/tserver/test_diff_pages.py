"""Pages of a diff: bounded in rows, in bytes and in what is looked at for them; any replica goes on behind any page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stelae.protocol.codec import decode
from stelae.protocol.tablet_messages import ScanPage
from stelae.rows.changes import changes_layout
from stelae.server.tserver import diff_pages
from stelae.server.tserver.diff_pages import DiffReader
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, insert, upsert
from stelae_store_memory.store import MemoryStore

LAYOUT = changes_layout(SCHEMA, None)


@pytest.fixture
def replica() -> HarnessReplica:
    """Rows 0 to 99, of which some were changed after time 10, and some went."""
    made = StoreHarness(MemoryStore).replica()
    made.write(insert(*((n, "before", n) for n in range(100))), timestamp=10)
    made.write(upsert(*((n, "after", n) for n in range(0, 100, 3))), timestamp=20)
    made.write(delete(*((n,) for n in range(1, 100, 9))), timestamp=30)
    return made


def pages(reader: DiffReader) -> Iterator[tuple[ScanPage, list[tuple[object, ...]]]]:
    while reader.more:
        frames = reader.next()
        page = decode(frames[0], ScanPage)
        rows = RowBatch.from_ipc(LAYOUT, memoryview(frames[1])).to_rows() if len(frames) > 1 else []
        assert page.row_count == len(rows)
        yield page, rows


def every(replica: HarnessReplica) -> list[tuple[object, ...]]:
    return [row for _, rows in pages(DiffReader(replica.store, ScanSpec(), 10, 40, 1000)) for row in rows]


def test_a_page_has_no_more_rows_than_wanted_and_another_reader_goes_on_behind_it(replica: HarnessReplica) -> None:
    found, expected, spec = [], every(replica), ScanSpec()
    assert [row[0] for row in expected] == sorted({*range(0, 100, 3), *range(1, 100, 9)})
    while True:
        page, rows = next(pages(DiffReader(replica.store, spec, 10, 40, 7)))
        assert len(rows) <= 7
        found += rows
        if page.after is None:
            break
        spec = msgspec.structs.replace(spec, after=page.after)
    assert found == expected


def test_large_rows_make_small_pages(replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = every(replica)
    monkeypatch.setattr(diff_pages, "PAGE_BYTES_MAX", 100)
    found = [rows for _, rows in pages(DiffReader(replica.store, ScanSpec(), 10, 40, 1000))]
    assert len(found) > 5 and [row for rows in found for row in rows] == expected


def test_a_limit_ends_it(replica: HarnessReplica) -> None:
    found = [*pages(DiffReader(replica.store, ScanSpec(limit=9), 10, 40, 5))]
    assert [row for _, rows in found for row in rows] == every(replica)[:9] and len(found) == 2


def test_where_nothing_has_changed_a_page_ends_without_rows_and_is_not_the_last(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stelae_store_memory import diff_export

    monkeypatch.setattr(diff_export, "BATCH_ROWS_MAX", 2)
    monkeypatch.setattr(diff_pages, "EMPTY_BATCHES_MAX", 4)
    replica.write(upsert((99, "late", 0)), timestamp=50)
    found = [*pages(DiffReader(replica.store, ScanSpec(), 40, 60, 1000))]
    assert [page.row_count for page, _ in found] == [0] * (len(found) - 1) + [1] and len(found) == 13
    assert all(page.after is not None for page, _ in found[:-1]) and found[-1][0].after is None


def test_what_is_asked_in_vain_is_told_when_the_page_is_read(replica: HarnessReplica) -> None:
    for spec, problem in ((ScanSpec(columns=(1, 77)), SchemaMismatch), (ScanSpec(limit=-1), CallerError)):
        reader = DiffReader(replica.store, spec, 10, 40, 100)
        with pytest.raises(problem):
            reader.next()
    (only,) = pages(DiffReader(replica.store, ScanSpec(limit=0), 10, 40, 100))
    assert only[0].row_count == 0 and only[0].after is None


def test_a_column_that_is_dropped_before_a_thread_reads_the_diff_is_not_asked_for(replica: HarnessReplica) -> None:
    """A client that asks for all columns got ``SchemaMismatch`` for one that it did not name."""
    reader = DiffReader(replica.store, ScanSpec(), 10, 40, 1000)
    replica.change_schema(msgspec.structs.replace(SCHEMA, version=2, columns=SCHEMA.columns[:-1]))
    frames = reader.next()
    page = decode(frames[0], ScanPage)
    rows = RowBatch.from_ipc(changes_layout(replica.store.schema, None), memoryview(frames[1])).to_rows()
    assert (page.schema_version, page.row_count) == (2, len(rows))
    assert len(rows[0]) == len(SCHEMA.columns)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_column_that_is_dropped_while_the_diff_is_opened_is_not_asked_for(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """The store was altered between the look at its schema and the look at its rows."""
    diff, dropped = replica.store.diff, msgspec.structs.replace(SCHEMA, version=2, columns=SCHEMA.columns[:-1])

    def opened(*asked: Any) -> Any:
        monkeypatch.setattr(replica.store, "diff", diff)
        changes = diff(*asked) if is_open else None
        replica.change_schema(dropped)
        return changes or diff(*asked)

    monkeypatch.setattr(replica.store, "diff", opened)
    frames = DiffReader(replica.store, ScanSpec(), 10, 40, 1000).next()
    page = decode(frames[0], ScanPage)
    rows = RowBatch.from_ipc(changes_layout(dropped, None), memoryview(frames[1])).to_rows()
    assert (page.schema_version, page.row_count) == (2, len(rows)) and len(rows) == 34 + 11
