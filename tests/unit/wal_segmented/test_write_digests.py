"""What is written in used space is noted, and rightly: it need not be read when the space is used again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from stelae.spi.services import File
from stelae.spi.wal import Append, Begun
from stelae.testing.begun_commits import with_begun_commits
from stelae.testing.wal_model import LOG, commit, entries
from stelae_wal_segmented.fast import FastSegmentedWal
from stelae_wal_segmented.fast import engine as fast_engine
from stelae_wal_segmented.fast.kept_files import ReusedFile
from stelae_wal_segmented.fast.reused_segments import DIGESTED_SEGMENTS_MAX, ReusedSegments
from stelae_wal_segmented.fast.write_digests import DigestPool, WriteDigests
from stelae_wal_segmented.format import SEGMENT_HEADER_BYTES
from stelae_wal_segmented.sectors import DIGEST_BYTES, SECTOR_BYTES, digests_of
from tests.unit.wal_segmented.used import SEGMENT_BYTES, go_on, harness_of, started

READ_BYTES_MAX = SEGMENT_BYTES // 4
"""What is read of a file of which the rest is noted: its footer, and the sector before it that was not whole."""


class Reads:
    """A file, and how much of it is read."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.bytes = 0

    def pread(self, size: int, offset: int) -> bytes:
        self.bytes += size
        return self._file.pread(size, offset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much was read for each table that was made. All of them have to say what stands in their file."""
    found: list[int] = []
    note = ReusedFile._note

    def checked(used: ReusedFile, file: Any, wanted: Callable[[], bool]) -> None:
        before, reads = file.pread(file.size(), 0), Reads(file)
        note(used, reads, wanted)  # type: ignore[arg-type]
        space = used.space
        table = file.pread(space.sectors * DIGEST_BYTES, SEGMENT_HEADER_BYTES)
        assert table == digests_of(before[space.data_start : space.end])
        found.append(reads.bytes)

    monkeypatch.setattr(ReusedFile, "_note", checked)
    return found


ENGINES = {"committed": FastSegmentedWal, "begun": with_begun_commits(FastSegmentedWal)}


@pytest.mark.parametrize("how", ENGINES)
@pytest.mark.parametrize("size_bytes", [0, 150, 700, 2100])
def test_only_the_ends_of_a_file_are_read_that_was_written_in_used_space(
    how: str, size_bytes: int, read_bytes: list[int]
) -> None:
    engine = started(harness_of(engine_type=ENGINES[how]))
    while engine.stats()["segments_reused"] < 7:
        go_on(engine, 1, size_bytes)
    assert read_bytes[0] > READ_BYTES_MAX, "the first one was only reserved"
    assert max(read_bytes[1:]) < READ_BYTES_MAX
    engine.close()


def test_what_a_begun_write_does_not_note_is_read(monkeypatch: pytest.MonkeyPatch, read_bytes: list[int]) -> None:
    begin = FastSegmentedWal.begin
    rng = random.Random(1)

    def forgetful(self: FastSegmentedWal, group: Any) -> Begun | None:
        begun = begin(self, group)
        return begun._replace(meanwhile=lambda: None) if begun is not None and rng.random() < 0.2 else begun

    monkeypatch.setattr(FastSegmentedWal, "begin", forgetful)
    engine = started(harness_of(engine_type=with_begun_commits(FastSegmentedWal)))
    while engine.stats()["segments_reused"] < 12:
        go_on(engine, 1)
    assert max(read_bytes[3:]) > READ_BYTES_MAX
    engine.close()


def test_what_failed_to_be_begun_and_is_committed_then_is_noted_once(read_bytes: list[int]) -> None:
    """As when the ring is full: the group is begun, and made by the thread after all."""
    engine = started(harness_of())
    while engine.stats()["segments_reused"] < 7:
        last = engine.logs()[LOG].last.index
        append = Append(entries=entries(last + 1, 2, size_bytes=150), commit_hint=last)
        begun = engine.begin({LOG: append})
        if begun is not None and last % 3 == 0:
            begun.meanwhile()
        commit(engine, append)
        engine.collect(LOG, last)
    engine.close()


def noted_of(engine: FastSegmentedWal) -> list[WriteDigests | None]:
    """What the log remembers of its segments."""
    space = engine._logs[LOG].active.space
    assert isinstance(space, ReusedSegments)
    return list(space._noted.values())


def test_a_log_that_is_not_collected_remembers_little() -> None:
    engine = started(harness_of())
    while engine.stats()["segments_reused"] < 3:
        go_on(engine, 1)
    for _ in range(400):
        last = engine.logs()[LOG].last.index
        commit(engine, Append(entries=entries(last + 1, 1, size_bytes=150), commit_hint=last))
    assert isinstance(engine, FastSegmentedWal)
    segments = engine._logs[LOG].chain.segments
    assert len(segments) > DIGESTED_SEGMENTS_MAX + 2
    assert 0 < len(noted_of(engine)) <= DIGESTED_SEGMENTS_MAX
    engine.close()


def test_a_cold_log_remembers_nothing() -> None:
    engine = started(harness_of())
    while engine.stats()["segments_reused"] < 5:
        go_on(engine, 1)
    assert isinstance(engine, FastSegmentedWal)
    assert any(noted_of(engine))
    engine.cool(LOG)
    assert not noted_of(engine)
    engine.close()


def test_all_logs_together_remember_no_more_than_a_bound(
    monkeypatch: pytest.MonkeyPatch, read_bytes: list[int]
) -> None:
    size = 100 * SECTOR_BYTES
    pool = DigestPool(bytes_max=2 * 100 * DIGEST_BYTES)
    one, two = pool.make(0, size), pool.make(0, size)
    assert one is not None and two is not None
    assert pool.make(0, size) is None
    del one
    assert pool.make(0, size) is not None, "what nobody has counts no more"
    monkeypatch.setattr(fast_engine, "NOTED_BYTES_MAX", 0)
    engine = started(harness_of())
    while engine.stats()["segments_reused"] < 5:
        go_on(engine, 1)
    assert min(read_bytes) > READ_BYTES_MAX, "what is not noted is read"
    engine.close()


def test_sectors_are_noted_without_a_gap_and_the_last_word_counts() -> None:
    rng = random.Random(2)
    data = rng.randbytes(10 * SECTOR_BYTES)
    start = 3 * SECTOR_BYTES
    noted = WriteDigests(start, 1 << 20)
    noted.note(data[:100], start)
    assert noted.end == start, "no whole sector"
    noted.note(data[: SECTOR_BYTES + 1], start + 1)
    assert noted.end == start, "what begins within a sector does not say what that holds"
    assert WriteDigests(start - 1, 1 << 20).start == WriteDigests(start - SECTOR_BYTES + 1, 1 << 20).start == start
    within = WriteDigests(start, 1 << 20)
    within.note(data[100:], start - SECTOR_BYTES + 100)
    assert within.between(start, within.end) == digests_of(data)[DIGEST_BYTES:]
    noted.note(data[: 2 * SECTOR_BYTES + 1], start)
    noted.note(data, start + 3 * SECTOR_BYTES)
    assert noted.end == start + 2 * SECTOR_BYTES, "what stands behind a gap is not known to follow"
    noted.note(data[SECTOR_BYTES:], start + SECTOR_BYTES)
    assert noted.between(start, noted.end) == digests_of(data)
    assert noted.between(start + SECTOR_BYTES, start + 3 * SECTOR_BYTES) == digests_of(data)[DIGEST_BYTES:][: 2 * 4]
    assert noted.between(start, noted.end + SECTOR_BYTES) == digests_of(data)
    assert noted.between(noted.end, noted.end) == noted.between(start - SECTOR_BYTES, noted.end) == b""
    other = rng.randbytes(SECTOR_BYTES)
    noted.note(other, start)
    assert noted.between(start, noted.end) == digests_of(other + data[SECTOR_BYTES:])
