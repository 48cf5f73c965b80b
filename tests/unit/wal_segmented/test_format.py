"""Formats: what is written is read back, and nothing else passes for it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Append
from stelae.testing.conformance.wal_damage import check_damaged
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, Model, commit, entries
from stelae_shared.log_files.page_slots import SLOT_BYTES
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_segmented.base_file import BaseRecord, LogUse, create_base, read_base, write_base
from stelae_wal_segmented.footer import decode_footer, decode_head, decode_trailer, encode_footer
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    SegmentHeader,
    decode_entry_header,
    decode_group_header,
    decode_segment_header,
)
from stelae_wal_segmented.group import decode_entry, encode_group
from stelae_wal_segmented.index import FIRST_OF_GROUP, SegmentIndex
from stelae_wal_segmented.names import LogFileKind, base_name, new_segment_name, parse, segment_name
from stelae_wal_segmented.scan import scan_segment

U64 = st.integers(0, (1 << 64) - 1)
OP_IDS = st.builds(OpId, U64, st.integers(0, (1 << 64) - 2))
TABLETS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True).map(TabletId)
HEADERS = st.builds(
    SegmentHeader,
    log=st.builds(LogId, TABLETS, st.integers(0, (1 << 63) - 1)),
    sequence=U64,
    nonce=U64,
    previous=OP_IDS,
    previous_nonce=U64,
    previous_end=U64,
    commit_hint=U64,
)
ENTRIES = st.builds(Entry, OP_IDS, st.sampled_from(EntryKind), U64, st.binary(max_size=50))


@given(HEADERS)
def test_a_segment_header_is_read_back(header: SegmentHeader) -> None:
    data = header.encode()
    assert len(data) == SEGMENT_HEADER_BYTES
    assert decode_segment_header(data + b"more", "p") == header


@given(HEADERS, st.integers(0, 8 * SEGMENT_HEADER_BYTES - 1))
def test_a_segment_header_with_any_bit_flipped_is_refused(header: SegmentHeader, bit: int) -> None:
    data = bytearray(header.encode())
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StorageError):
        decode_segment_header(bytes(data), "p")


@given(st.lists(ENTRIES, max_size=5), U64, U64, U64, U64)
def test_a_group_is_read_back_and_only_with_its_own_nonce(
    held: list[Entry], nonce: int, other: int, synced: int, hint: int
) -> None:
    encoded = encode_group(held, nonce=nonce, at=100, synced=synced, replace_from=None, commit_hint=hint)
    data = bytes(100) + b"".join(encoded.buffers)
    assert len(data) == 100 + encoded.size
    assert decode_group_header(data[100:], nonce) == GroupHeader(synced, hint, 0, encoded.size, len(held))
    offsets = [offset & ~FIRST_OF_GROUP for offset in encoded.offsets]
    assert [offset != marked for offset, marked in zip(offsets, encoded.offsets, strict=True)] == [
        position == 0 for position in range(len(held))
    ]
    found = [decode_entry(data, at, nonce, "p", at) for at in offsets]
    assert found == held
    if other != nonce:
        assert decode_group_header(data[100:], other) is None


@given(ENTRIES, U64, st.data())
def test_an_entry_with_any_bit_flipped_is_refused(entry: Entry, nonce: int, data: st.DataObject) -> None:
    encoded = encode_group([entry], nonce=nonce, at=0, synced=0, replace_from=7, commit_hint=0)
    raw = bytearray(b"".join(encoded.buffers)[:-END_MARK_BYTES])
    start = encoded.offsets[0] & ~FIRST_OF_GROUP
    bit = data.draw(st.integers(8 * start, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupt, match=f"p@{start}"):
        decode_entry(bytes(raw), start, nonce, "p", start)


@given(st.binary(max_size=400), U64)
def test_garbage_is_refused_everywhere(data: bytes, nonce: int) -> None:
    assert decode_group_header(data, nonce) is None
    assert decode_entry_header(data, nonce & 0xFFFFFFFF) is None
    assert decode_footer(data, nonce) is None
    assert decode_head(data, nonce) is None
    assert decode_trailer(data, nonce) is None
    with pytest.raises(Corrupt):
        decode_segment_header(data, "p")
    disk = VirtualDisk()
    disk.replace("/base", data)
    with pytest.raises(Corrupt):
        read_base(disk, "/base")


@given(HEADERS, st.binary(max_size=3000))
def test_a_scan_of_garbage_ends_and_finds_nothing(header: SegmentHeader, data: bytes) -> None:
    disk = VirtualDisk()
    disk.replace("/segment", header.encode() + data)
    for limit in (None, SEGMENT_HEADER_BYTES + len(data) // 2):
        scan = scan_segment(disk.open("/segment"), header, limit)
        assert scan.index.end == SEGMENT_HEADER_BYTES
        assert not scan.index.offsets


@given(st.integers(1, 1 << 40), st.lists(st.integers(0, 3), max_size=60), U64)
def test_a_footer_gives_back_the_index(first: int, steps: list[int], nonce: int) -> None:
    index = SegmentIndex(first, SEGMENT_HEADER_BYTES, 5)
    for term, step in zip(itertools.accumulate(steps), steps, strict=True):
        index.add(term, index.end)
        index.end += 80 + step
    data = encode_footer(index, nonce)
    found = decode_footer(data, nonce)
    assert found is not None
    assert (found.first, found.end, found.commit_hint) == (first, index.end, 5)
    assert found.offsets == index.offsets
    assert list(found.runs) == list(index.runs)
    assert decode_head(data, nonce) == len(data)
    assert decode_footer(data[:-1], nonce) is None
    assert decode_footer(data, nonce ^ 1) is None


def test_the_newer_slot_of_a_base_file_counts_and_a_torn_one_does_not() -> None:
    disk = VirtualDisk()
    base = BaseRecord(log=LOG, base=OpId(1, 2))
    create_base(disk, "/b", base)
    assert read_base(disk, "/b") == base
    versions = [base]
    for index in range(3, 7):
        versions.append(versions[-1].changed(base=OpId(1, index), first_sequence=index))
        write_base(disk, "/b", versions[-1])
        assert read_base(disk, "/b") == versions[-1]
    disk.damage("/b", versions[-1].version % 2 * SLOT_BYTES + 30)
    assert read_base(disk, "/b") == versions[-2]
    marked = versions[-2].changed(use=LogUse.SYNC_FAILED, durable=OpId(3, 4))
    write_base(disk, "/b", marked)
    assert read_base(disk, "/b") == marked


@pytest.mark.parametrize(
    "name, expected",
    [
        (base_name(0), (LogFileKind.BASE, 0, 0)),
        (base_name(12), (LogFileKind.BASE, 12, 0)),
        (segment_name(3, 7), (LogFileKind.SEGMENT, 3, 7)),
        (segment_name(3, 10**15), (LogFileKind.SEGMENT, 3, 10**15)),
        (new_segment_name(3, 7), (LogFileKind.NEW_SEGMENT, 3, 0)),
        (new_segment_name(3, (1 << 64) - 1), (LogFileKind.NEW_SEGMENT, 3, 0)),
        (".g3.base.tmp", (LogFileKind.TEMPORARY, 3, 0)),
    ],
)
def test_names_tell_what_they_are(name: str, expected: tuple[LogFileKind, int, int]) -> None:
    assert parse(name) == expected


@pytest.mark.parametrize("name", ["", "g.base", "g01.base", "g1.base.bak", "g1-7.seg", "g-1-000000000007.seg", "x"])
def test_other_names_are_not_ours(name: str) -> None:
    assert parse(name) is None


def test_any_flipped_bit_in_a_closed_segment_is_reported() -> None:
    harness = VirtualHarness(SegmentedWal, SegmentedConfig(segment_bytes_first=4096))
    engine = harness.open()
    engine.create(LOG, ZERO)
    held = entries(1, 20, size_bytes=30)
    commit(engine, Append(entries=held[:15], commit_hint=3))
    commit(engine, Append(entries=held[15:], commit_hint=15))
    engine.close()
    ((path, data),) = [item for item in harness.tree().items() if item[0].endswith(".seg")]
    for offset in range(len(data)):
        twin = harness.fork(0)
        twin.disk.damage(path, offset, 1 << offset % 8)
        assert check_damaged(twin, Model(ZERO, list(held)), f"{path}@{offset}"), offset
