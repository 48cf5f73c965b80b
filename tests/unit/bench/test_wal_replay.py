"""Replays write exactly the groups that they are given, and leave nothing behind."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path

import crc32c
import pytest
import rocksdict

from stelae.machine.files import RealFile
from stelae.spi.services import Buffer
from stelae_bench import wal_replay
from stelae_bench.wal_cases import INTERVAL_S, Bodies, SyncMode, SyncPace
from stelae_bench.wal_databases import RocksDb, Sqlite
from stelae_bench.wal_replay import GroupReplay, Raw, RawCrc, RawWritten, replay

BODIES = Bodies(100, 1)


class Noted(GroupReplay):
    """Notes the sizes of groups; each must have been prepared."""

    def __init__(self) -> None:
        self.prepared: list[int] = []
        self.written: list[int] = []
        self.synced: list[bool] = []

    def prepare(self, bodies: Sequence[bytes]) -> None:
        self.prepared.append(len(bodies))

    def write(self, bodies: Sequence[bytes], *, sync: bool = True) -> None:
        assert len(self.prepared) == len(self.written) + 1
        self.written.append(len(bodies))
        self.synced.append(sync)

    def free_space(self) -> None: ...

    def close(self) -> None: ...


def test_groups_are_written_in_turn_and_each_entry_has_the_latency_of_its_group() -> None:
    target = Noted()
    sample = replay(target, [3, 1, 64], BODIES, 0.002)
    assert sample.groups == target.written == target.prepared
    assert target.written[:4] == ([3, 1, 64, 3] if len(target.written) > 3 else target.written)
    assert len(sample.latencies_us) == sum(sample.groups)
    assert sample.latencies_us[0] == sample.latencies_us[2]
    assert sample.seconds >= 0.002


def test_every_group_is_synced_unless_the_mode_says_otherwise() -> None:
    target = Noted()
    replay(target, [3], BODIES, 0.001)
    assert all(target.synced)


@pytest.mark.parametrize("mode", [SyncMode.INTERVAL, SyncMode.NEVER])
def test_what_a_mode_left_unsynced_is_synced_behind_the_slot(mode: SyncMode) -> None:
    target = Noted()
    sample = replay(target, [3], BODIES, 0.001, mode)
    assert target.synced == [False] * len(sample.groups) + [True]
    assert target.written == [*sample.groups, 1]


def test_an_interval_is_over_once_and_then_begins_anew() -> None:
    pace = SyncPace(SyncMode.INTERVAL, 5.0)
    times = (5.0, 5.0 + INTERVAL_S / 2, 5.0 + INTERVAL_S, 5.0 + 1.5 * INTERVAL_S, 5.0 + 2.5 * INTERVAL_S)
    assert [pace.due(now_s) for now_s in times] == [False, False, True, False, True]
    assert SyncPace(SyncMode.ALWAYS, 0.0).due(0.0) and not SyncPace(SyncMode.NEVER, 0.0).due(1e9)


class NotedFile:
    """Notes in which way it was written and synced."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pwritev(self, buffers: Sequence[bytes], offset: int, *, dsync: bool) -> int:
        self.calls.append("dsync" if dsync else "write")
        return sum(map(len, buffers))

    def sync(self) -> None:
        self.calls.append("sync")


def test_the_bare_loop_syncs_the_whole_file_when_something_before_was_not(tmp_path: Path) -> None:
    raw, file = Raw(tmp_path), NotedFile()
    raw._file = file  # type: ignore[assignment]
    for synced in (True, False, False, True, True):
        raw.write(BODIES.some(1), sync=synced)
    assert file.calls == ["dsync", "write", "write", "write", "sync", "dsync"]


def test_one_group_is_written_at_least() -> None:
    assert replay(Noted(), [5, 6], BODIES, 0.0).groups == [5]


def test_the_bare_loop_writes_the_bodies_one_after_the_other(tmp_path: Path) -> None:
    raw = Raw(tmp_path)
    for count in (3, 2):
        raw.prepare(BODIES.some(count))
        raw.write(BODIES.some(count))
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    assert data[:500] == b"".join([*BODIES.some(3), *BODIES.some(2)])
    assert len(data) == wal_replay.FILE_BYTES
    raw.close()
    assert list(tmp_path.iterdir()) == []


def test_the_bare_loop_in_written_space_has_written_zeros_all_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[tuple[int, int]] = []
    original = RealFile.pwritev

    def noting(file: RealFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        writes.append((offset, sum(map(len, buffers))))
        return original(file, buffers, offset, dsync=dsync)

    monkeypatch.setattr(RealFile, "pwritev", noting)
    monkeypatch.setattr(wal_replay, "FILE_BYTES", (3 << 20) + 5)
    raw = RawWritten(tmp_path)
    raw.prepare(BODIES.some(3))
    assert writes == [(0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 1 << 20), (3 << 20, 5)]
    raw.write(BODIES.some(3))
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    assert len(data) == wal_replay.FILE_BYTES
    assert data.rstrip(b"\0") == b"".join(BODIES.some(3)).rstrip(b"\0")
    raw.close()


def test_the_bare_loop_with_headers_has_a_checksum_of_each_body(tmp_path: Path) -> None:
    raw = RawCrc(tmp_path)
    bodies = BODIES.some(2000)
    raw.prepare(bodies)
    raw.write(bodies)
    (path,) = tmp_path.iterdir()
    data, header = path.read_bytes(), struct.Struct("<QQQBII")
    for number, body in enumerate(bodies):
        at = number * (header.size + len(body))
        *_, length, checksum = header.unpack_from(data, at)
        assert data[at + header.size : at + header.size + length] == body
        assert checksum == crc32c.crc32c(body)
    raw.close()


def test_a_full_file_of_the_bare_loop_gives_way_to_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_replay, "FILE_BYTES", 1000)
    raw = Raw(tmp_path)
    for _ in range(4):
        raw.prepare(BODIES.some(6))
        raw.write(BODIES.some(6))
        assert len(list(tmp_path.iterdir())) == 1
    raw.prepare(BODIES.some(30))
    raw.write(BODIES.some(30))
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"".join(BODIES.some(30))
    raw.free_space()
    assert list(tmp_path.iterdir()) == []


def test_sqlite_holds_every_body_with_full_sync_and_gives_them_back_after_a_slot(tmp_path: Path) -> None:
    target = Sqlite(tmp_path)
    target.write(BODIES.some(3))
    target.write(BODIES.some(2))
    beside = sqlite3.connect(tmp_path / "log.sqlite")
    rows = beside.execute("SELECT number, body FROM log ORDER BY number").fetchall()
    assert rows == list(enumerate([*BODIES.some(3), *BODIES.some(2)], 1))
    assert target._database.execute("PRAGMA synchronous").fetchone() == (2,)
    assert target._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    for synced, level in ((False, 0), (True, 2)):
        target.write(BODIES.some(1), sync=synced)
        assert target._database.execute("PRAGMA synchronous").fetchone() == (level,)
    target.free_space()
    assert beside.execute("SELECT count(*) FROM log").fetchone() == (0,)
    beside.close()
    target.close()


def test_rocksdb_holds_every_body_in_synced_batches_and_gives_them_back_after_a_slot(tmp_path: Path) -> None:
    target = RocksDb(tmp_path)
    assert target._synced.sync
    assert not target._unsynced.sync
    assert not target._synced.disable_wal and not target._unsynced.disable_wal
    target.write(BODIES.some(3))
    target.write(BODIES.some(2))
    held = list(target._database.items())
    assert held == [(n.to_bytes(8, "big"), body) for n, body in enumerate([*BODIES.some(3), *BODIES.some(2)], 1)]
    target.free_space()
    assert list(target._database.keys()) == []
    target.close()
    rocksdict.Rdict.destroy(str(tmp_path / "rocksdb"))
