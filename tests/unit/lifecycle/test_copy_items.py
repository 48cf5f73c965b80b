"""The items of a copy: their names, the pieces of a log and of an export, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.host.superblock import Superblock
from stelae.lifecycle.copy_facts import CopyFacts, RowsForm, facts_of_export, facts_of_files
from stelae.lifecycle.copy_items import (
    LOG_PIECE_BYTES,
    LOG_PIECE_ENTRIES,
    check_items,
    checked_name,
    log_item,
    log_range,
    rows_item,
)
from stelae.lifecycle.copy_log import decode_entries, log_pieces
from stelae.lifecycle.copy_rows import decode_rows, export_pieces
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Schema
from stelae.spi.store import BATCH_ROWS_MAX, VersionedRows
from stelae.spi.wal import SnapshotUnit

SCHEMA = Schema(1, (Column(id=1, name="k", type="int64"), Column(id=2, name="v", type="string", nullable=True)), (1,))
DIGEST = "0" * 64


def entries(first: int, last: int, body: bytes = b"body", term: int = 3) -> list[Entry]:
    return [Entry(OpId(term, index), EntryKind.WRITE, index, body) for index in range(first, last + 1)]


def unit(name: str) -> SnapshotUnit:
    return SnapshotUnit(name=name, size_bytes=1, digest=DIGEST)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "rows",
        "rows/",
        "rows/..",
        "rows/../x",
        "rows/a/b",
        "rows/.hidden",
        "/rows/a",
        "other/a",
        "export/1",
        "export/000000001",
        "log/0-1",
        "log/2-1",
        "log/01-2",
        "log/1-2-3",
        "log/1",
        "rows/" + "a" * 129,
        "rows/a\n",
    ],
)
def test_a_name_that_could_leave_the_stage_or_names_nothing_is_refused(name: str) -> None:
    with pytest.raises(Corrupt):
        checked_name(name)


@pytest.mark.parametrize("name", ["rows/00000001.parquet", "export/00000000", "log/1-1", "log/17-9000000000"])
def test_the_names_of_items_are_accepted(name: str) -> None:
    assert checked_name(name) == name


def test_the_items_of_a_snapshot_must_have_the_log_without_a_gap() -> None:
    good = [unit("rows/a.parquet"), unit("export/00000000"), unit("log/5-7"), unit("log/8-9")]
    check_items(good, OpId(1, 4), OpId(2, 9))
    check_items([], OpId(1, 4), OpId(1, 4))
    for bad in (
        [unit("log/6-9")],
        [unit("log/5-7"), unit("log/9-9")],
        [unit("log/5-8")],
        [unit("log/5-10")],
        [*good, unit("rows/a.parquet")],
        [unit("export/00000001"), *good[2:]],
        [SnapshotUnit(name="log/5-9", size_bytes=-1, digest=DIGEST)],
        [SnapshotUnit(name="log/5-9", size_bytes=1, digest="ABC")],
    ):
        with pytest.raises(Corrupt):
            check_items(bad, OpId(1, 4), OpId(2, 9))


@settings(max_examples=15)
@given(
    st.integers(0, 2 * LOG_PIECE_ENTRIES),
    st.integers(0, 2 * LOG_PIECE_ENTRIES),
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
)
def test_two_sources_cut_the_same_log_at_the_same_indexes_after_their_first_multiple(
    base: int, other_base: int, sizes: list[int]
) -> None:
    last = 3 * LOG_PIECE_ENTRIES + 5
    log = [
        Entry(OpId(1, i), EntryKind.NOOP, 1, b"x" * sizes[i % len(sizes)])
        for i in range(min(base, other_base) + 1, last + 1)
    ]
    both = [dict(log_pieces(e for e in log if e.op_id.index > begin)) for begin in (base, other_base)]
    aligned = -(-max(base, other_base) // LOG_PIECE_ENTRIES) * LOG_PIECE_ENTRIES
    tails = [{n: d for n, d in pieces.items() if log_range(n)[0] > aligned} for pieces in both]
    assert tails[0] == tails[1]
    assert tails[0]


def test_a_piece_ends_when_it_is_large_enough() -> None:
    pieces = list(log_pieces(entries(1, 5, bytes(LOG_PIECE_BYTES // 2))))
    assert [name for name, _ in pieces] == ["log/1-2", "log/3-4", "log/5-5"]


def test_the_pieces_of_a_log_give_back_its_entries() -> None:
    log = [*entries(8, 9, term=2), *entries(10, LOG_PIECE_ENTRIES + 20, b"", term=5)]
    found, after = [], OpId(2, 7)
    for name, data in log_pieces(log):
        found += decode_entries(name, data, after)
        after = found[-1].op_id
    assert found == log
    assert not list(log_pieces([]))


@pytest.mark.parametrize("cut", [0, 4, 5, 6, 30, -1])
def test_a_piece_of_a_log_that_was_cut_is_refused(cut: int) -> None:
    ((_, data),) = log_pieces(entries(1, 2))
    with pytest.raises(Corrupt):
        decode_entries(log_item(1, 2), data[:cut], ZERO)


def test_a_piece_of_a_log_must_be_the_piece_that_its_name_says() -> None:
    ((_, data),) = log_pieces(entries(4, 6))
    decode_entries("log/4-6", data, OpId(3, 3))
    for name, after in (("log/4-5", OpId(3, 3)), ("log/4-7", OpId(3, 3)), ("log/4-6", OpId(4, 3)), ("log/4-6", ZERO)):
        with pytest.raises(Corrupt):
            decode_entries(name, data, after)
    with pytest.raises(Corrupt, match="cannot be read"):
        decode_entries("log/4-6", data[:21] + b"\x09" + data[22:], OpId(3, 3))


def versions() -> Iterator[VersionedRows]:
    rows = RowBatch.from_equal_rows(SCHEMA.layout, [(key, f"v{key}") for key in range(BATCH_ROWS_MAX + 10)])
    yield VersionedRows(1, False, tuple(range(10, 10 + len(rows))), rows)
    yield VersionedRows(1, True, (99999, 99999), RowBatch.from_equal_rows(SCHEMA.key_layout, [(1,), (2,)]))


def test_the_pieces_of_an_export_give_back_its_versions() -> None:
    found = [
        (batch.deleted, stamp, row)
        for name, data in export_pieces(versions())
        for batch in decode_rows(name, data, {1: SCHEMA})
        for stamp, row in zip(batch.timestamps, batch.rows.to_rows(), strict=True)
    ]
    wanted = [
        (batch.deleted, stamp, row)
        for batch in versions()
        for stamp, row in zip(batch.timestamps, batch.rows.to_rows(), strict=True)
    ]
    assert found == wanted


def test_a_damaged_export_is_refused() -> None:
    [(name, data)] = export_pieces(versions())
    for bad in (data[:3], data[:-1], data[:30], b"STcf" + data[4:], data[:9] + b"\x02" + data[10:]):
        with pytest.raises(Corrupt):
            list(decode_rows(name, bad, {1: SCHEMA}))
    with pytest.raises(Corrupt, match="schema version 1"):
        list(decode_rows(name, data, {2: SCHEMA}))


def test_the_facts_survive_and_say_as_of_when_they_are() -> None:
    block = Superblock(
        tablet_id=TabletId("t1"),
        table_name="orders",
        store_engine="columnar",
        schemas=(b"s1",),
        manifest=b"files",
        flushed=OpId(2, 7),
        timestamp=70,
        results=b"r7",
    )
    files = CopyFacts.from_bytes(facts_of_files(block, "2.1").to_bytes())
    assert (files.rows_form, files.manifest, files.flushed, files.results) == (
        RowsForm.FILES,
        b"files",
        OpId(2, 7),
        b"r7",
    )
    later = Superblock(tablet_id=TabletId("t1"), schemas=(b"s1", b"s2"), flushed=OpId(2, 9), timestamp=90, results=b"r")
    export = CopyFacts.from_bytes(facts_of_export(block, later, 60).to_bytes())
    assert (export.rows_form, export.manifest, export.flushed) == (RowsForm.EXPORT, b"", OpId(2, 9))
    assert (export.table_name, export.schemas, export.timestamp) == ("orders", (b"s1", b"s2"), 90)
    assert (files.floor, export.floor) == (0, 60)
    assert (files.store_format, export.store_format) == ("2.1", "")
    with pytest.raises(Corrupt):
        CopyFacts.from_bytes(b"\x91")


def test_a_file_of_a_store_with_an_unusable_name_is_refused_by_the_source() -> None:
    assert rows_item("00000001.parquet") == "rows/00000001.parquet"
    with pytest.raises(Corrupt):
        rows_item("a/b")
