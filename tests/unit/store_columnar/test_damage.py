"""Blocks that are not what was written: an error that names file and place, never a wrong row."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stelae.spi.errors import Corrupt, FutureVersion, StorageError
from stelae.spi.scan import ScanSpec
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness
from stelae_store_columnar import ColumnarStore
from stelae_store_columnar.block_index import decode_index
from tests.conformance.test_store_columnar import tiny

PARQUET, INDEX = "/data/t/00000001.parquet", "/data/t/00000001.index"
ROWS = [(n, f"name {n}", n * n) for n in range(10)]


@pytest.fixture
def replica() -> HarnessReplica:
    replica = StoreHarness(ColumnarStore, tiny).replica()
    replica.insert(*ROWS)
    replica.flush()
    return replica


def read(replica: HarnessReplica) -> list[Any]:
    """Everything that can be read, after a restart."""
    replica.open()
    rows = replica.rows()
    replica.rows(key_from=b"\x80", key_until=b"\x80" + bytes(6) + b"\x05")
    replica.store.checksum()
    # A plain scan needs no timestamps and no deletion marks; this does.
    assert sum(len(piece.rows) for piece in replica.store.export()) == len(rows)
    return rows


@pytest.mark.parametrize("path", [PARQUET, INDEX])
def test_a_flipped_bit_anywhere_is_an_error_that_names_the_file_or_changes_nothing(
    replica: HarnessReplica, path: str
) -> None:
    size = len(replica.disk.tree()[path])
    rng = random.Random(1)
    harmless = []
    for offset in range(size):
        mask = 1 << int(rng.random() * 8)
        replica.disk.damage(path, offset, mask)
        try:
            assert read(replica) == ROWS
            harmless.append(offset)
        except StorageError as error:
            assert error.path == path
            assert error.offset is not None or isinstance(error, FutureVersion)
        replica.disk.damage(path, offset, mask)
    assert read(replica) == ROWS
    # What is in no column chunk and not in the footer is never read: the first four bytes.
    index = decode_index(replica.disk.tree()[INDEX], INDEX)
    checked = {at for c in (*index.chunks, index.footer) for at in range(c.offset, c.offset + c.size_bytes)}
    assert not checked.intersection(harmless)
    assert path == PARQUET or not harmless


@pytest.mark.parametrize("path", [PARQUET, INDEX])
def test_a_file_that_is_cut_short_or_missing_is_an_error_when_the_store_is_opened(
    replica: HarnessReplica, path: str
) -> None:
    for size in (0, 3, 40):
        replica.disk.cut(path, size)
        with pytest.raises(Corrupt) as caught:
            replica.open()
        assert caught.value.path == path
    replica.disk.remove(path)
    with pytest.raises(StorageError, match="missing"):
        replica.open()


def test_damage_that_shows_while_rows_are_applied_fails_the_entry_and_what_follows(replica: HarnessReplica) -> None:
    index = decode_index(replica.disk.tree()[INDEX], INDEX)
    replica.open()
    replica.disk.damage(PARQUET, index.chunks[0].offset + 9)
    before = replica.store.applied
    with pytest.raises(Corrupt) as caught:
        replica.insert((2, "x", 0))
    assert (caught.value.path, caught.value.offset) == (PARQUET, index.chunks[0].offset)
    assert replica.store.applied == before
    with pytest.raises(StorageError, match="applied only in part"):
        replica.insert((200, "x", 0))
    with pytest.raises(StorageError, match="applied only in part"):
        replica.store.flush()


def test_a_damaged_column_that_a_scan_does_not_read_does_not_stop_it(replica: HarnessReplica) -> None:
    index = decode_index(replica.disk.tree()[INDEX], INDEX)
    replica.open()
    replica.disk.damage(PARQUET, index.chunks[1].offset + 9)
    assert replica.rows(columns=(1, 3)) == [(row[0], row[2]) for row in ROWS]
    with replica.store.scan(ScanSpec()) as cursor, pytest.raises(Corrupt):
        cursor.next_batch()


def test_formats_of_others_and_of_later_releases_are_told_apart(replica: HarnessReplica) -> None:
    data = replica.disk.tree()[INDEX]
    with pytest.raises(FutureVersion, match="format 3"):
        decode_index(data[:3] + b"\x03" + data[4:], INDEX)
    with pytest.raises(Corrupt, match="not the index"):
        decode_index(b"XYZ" + data[3:], INDEX)
    for manifest, error in ((b"\x93\x02\x01\x01", FutureVersion), (b"\xff", Corrupt), (b"\xc0", Corrupt)):
        replica.manifest = manifest
        with pytest.raises(error):
            replica.open()


def test_a_disk_that_cannot_be_read_is_an_error_and_the_store_lives(replica: HarnessReplica) -> None:
    replica.open()
    replica.disk.faults.fail_reads(PARQUET)
    with pytest.raises(StorageError):
        replica.rows()
    assert replica.rows() == ROWS


def test_a_file_that_is_gone_while_the_store_is_open_is_damage_and_not_an_error_of_the_disk(
    replica: HarnessReplica,
) -> None:
    """Every read failed then, for ever, and no copy replaced the replica. Applying raised in the event loop."""
    replica.open()
    replica.disk.remove(PARQUET)
    with pytest.raises(Corrupt) as scanned:
        replica.rows()
    with pytest.raises(Corrupt) as applied:
        replica.insert(ROWS[3])
    assert scanned.value.path == applied.value.path == PARQUET
