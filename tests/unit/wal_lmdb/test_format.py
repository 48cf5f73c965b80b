"""Keys, values, marker and exported logs: what was written comes back, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.machine.files import RealFiles
from stelae.spi.errors import Corrupt, Foreign, FutureVersion
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.testing.wal_model import LOG, entries, entry
from stelae_shared.lmdb_files.marker import EnvironmentMarker, ShutdownState
from stelae_wal_lmdb import format
from stelae_wal_lmdb.export import read_export, write_export
from stelae_wal_lmdb.format import LogRecord, RecordUse, decode_entry, decode_head, decode_record, encode_record, key
from stelae_wal_lmdb.startup import OWNER
from tests.unit.wal_files import of_slot_version

AT = key(3, 1 << 40)


def one(body: bytes = b"body") -> Entry:
    return Entry(OpId(1 << 50, 1 << 40), EntryKind.CONFIG, (1 << 62) + 1, body)


@pytest.mark.parametrize("body", [b"", b"\0", b"x" * 70_000])
def test_an_entry_comes_back_from_under_its_key(body: bytes) -> None:
    assert decode_entry(AT, format.encode_entry(AT, one(body))) == one(body)


def test_an_entry_under_another_key_fails_its_checksum() -> None:
    value = format.encode_entry(AT, one())
    for other in (key(3, (1 << 40) + 1), key(4, 1 << 40)):
        assert decode_head(other, value) is None
        assert decode_entry(other, value) is None


def test_any_flipped_bit_of_an_entry_is_noticed() -> None:
    value = format.encode_entry(AT, one())
    for bit in range(8 * len(value)):
        changed = bytearray(value)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode_entry(AT, bytes(changed)) is None


def test_an_entry_cut_anywhere_is_noticed() -> None:
    value = format.encode_entry(AT, one())
    assert all(decode_entry(AT, value[:size]) is None for size in range(len(value)))


def test_a_record_comes_back_and_any_flipped_bit_of_it_is_noticed() -> None:
    log = LogId(TabletId("t" * 64), (1 << 63) - 1)
    record = LogRecord(
        log=log, base=OpId(1, 2), last=OpId(1 << 60, 1 << 61), commit_hint=1 << 40, use=RecordUse.DROPPING
    )
    data = encode_record(7, record)
    assert len(data) == format.RECORD_BYTES
    assert decode_record(7, data) == record
    assert decode_record(8, data) is None
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode_record(7, bytes(changed)) is None


def test_keys_sort_by_log_and_then_by_index() -> None:
    numbers = [(0, 0), (0, 9), (1, 1), (1, 255), (1, 256), (1, 1 << 40), (2, 0), (256, 1)]
    assert sorted(key(*pair) for pair in numbers) == [key(*pair) for pair in numbers]


def test_a_newer_header_is_refused_and_a_damaged_one_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert format.decode_header(format.encode_header(9), "data.mdb") == 9
    with pytest.raises(Corrupt):
        format.decode_header(format.encode_header(9)[:-1] + b"\0", "data.mdb")
    monkeypatch.setattr(format, "FORMAT_VERSION", 2)
    newer = format.encode_header(9)
    monkeypatch.undo()
    with pytest.raises(FutureVersion):
        format.decode_header(newer, "data.mdb")


def test_a_marker_says_how_the_environment_was_left(tmp_path: Path) -> None:
    files, data = RealFiles(), tmp_path / "data.mdb"
    marker = EnvironmentMarker(files, str(tmp_path), str(data), OWNER)
    assert marker.claim() is ShutdownState.OPEN
    data.write_bytes(b"x" * 9000)
    for left in (ShutdownState.CLEAN, ShutdownState.DISTRUSTED, ShutdownState.OPEN, ShutdownState.CLEAN):
        marker.write(left)
        assert marker.claim() is left
    data.write_bytes(b"x" * 8999 + b"y")
    assert marker.claim() is ShutdownState.OPEN


def test_a_directory_of_somebody_else_or_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    marker = EnvironmentMarker(RealFiles(), str(tmp_path), str(tmp_path / "data.mdb"), OWNER)
    (tmp_path / "photos").mkdir()
    with pytest.raises(Foreign, match="photos"):
        marker.claim()
    (tmp_path / "lmdb").write_bytes(b"something else")
    with pytest.raises(Foreign):
        marker.claim()
    (tmp_path / "photos").rmdir()
    (tmp_path / "lmdb").unlink()
    assert marker.claim() is ShutdownState.OPEN
    newer = of_slot_version(99)((tmp_path / "lmdb").read_bytes())
    assert newer is not None
    (tmp_path / "lmdb").write_bytes(newer)
    with pytest.raises(FutureVersion, match="99"):
        marker.claim()


def test_an_exported_log_is_read_back_and_damage_in_it_noticed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.log")
    held = [*entries(5, 40, term=2, size_bytes=90_000), entry(45, 3, 0)]
    values = [(e.op_id.index, memoryview(format.encode_entry(key(8, e.op_id.index), e))) for e in held]
    file = RealFiles().create(path)
    end = write_export(file, 8, LogRecord(log=LOG, base=OpId(1, 4), last=OpId(3, 45)), values)
    assert file.size() == end
    assert list(read_export(file, path)) == held
    file.pwritev([b"?"], end - 1)
    with pytest.raises(Corrupt, match="checksum"):
        list(read_export(file, path))
    file.pwritev([b"?"], 0)
    with pytest.raises(Corrupt, match="not an exported log"):
        list(read_export(file, path))
    file.close()
