"""The head of a segment and pages of 4 KiB, which a disk and the system's cache write, lose and tear as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from stelae.sim.disk import Survival
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Foreign
from stelae.spi.ids import LogId
from stelae.spi.services import Buffer
from stelae.spi.wal import WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae_wal_shared import SharedWal
from stelae_wal_shared.fast import FastSharedWal
from stelae_wal_shared.head import read_head
from tests.unit.wal_shared import scenes

PAGE_BYTES = 4096
COUNTS = (2, 150)
"""Logs whose image has room beside the fixed part, and logs whose image takes several pages."""
LARGE = scenes.SharedConfig(segment_bytes_first=64 << 10, segment_bytes_max=64 << 10, prewrite_bytes_min=32 << 10)


def start_of(harness: VirtualHarness, path: str) -> int:
    """Where the head of a segment ends."""
    with closing(harness.disk.open(path)) as file:
        head = read_head(file, image=True)
    assert head is not None and head.image is not None
    return head.start


def lived(harness: VirtualHarness, count: int) -> dict[LogId, int]:
    """So many logs with entries in three segments; return the last index of each."""
    engine = harness.open()
    logs = scenes.create_logs(engine, count)
    scenes.extend(engine, logs)
    scenes.fill_segments(engine, logs[0], 2)
    scenes.extend(engine, logs[:2])
    last = {log: engine.logs()[log].last.index for log in logs}
    harness.crash(engine, Survival.LOST)
    return last


def spoil(harness: VirtualHarness, path: str, pages: Sequence[int], filling: bytes) -> None:
    data = bytearray(harness.disk.read_bytes(path))
    for page in pages:
        data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = filling * PAGE_BYTES
    harness.write(path, bytes(data))


@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
@pytest.mark.parametrize("count", COUNTS)
def test_any_page_of_any_head_may_be_lost(count: int, filling: bytes) -> None:
    """Both copies were in one page, and with them every log of the node."""
    harness = scenes.harness_of()
    last = lived(harness, count)
    paths = scenes.segments(harness.disk)
    assert len(paths) > 2
    for path in (paths[0], paths[-1]):
        start = start_of(harness, path)
        assert start % PAGE_BYTES == 0, "records begin in a page of their own"
        for page in range(start // PAGE_BYTES):
            twin = harness.fork(page)
            spoil(twin, path, [page], filling)
            engine = twin.open()
            states = engine.logs()
            assert {log: states[log].last.index for log in last} == last
            assert not [log for log in last if states[log].damage is not None]
            scenes.extend(engine, list(last)[:2])
            engine.close()


@pytest.mark.parametrize("engine_type", [SharedWal, FastSharedWal])
@pytest.mark.parametrize("count", COUNTS)
def test_what_is_appended_never_writes_a_page_of_a_head_again(
    engine_type: type[WalEngine], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = scenes.harness_of(LARGE, engine_type=engine_type)
    touched: dict[str, list[int]] = {}
    original = VirtualFile.pwritev

    def pwritev(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        touched.setdefault(file.path, []).append(offset // PAGE_BYTES)
        return original(file, buffers, offset, dsync=dsync)

    monkeypatch.setattr(VirtualFile, "pwritev", pwritev)
    for _ in range(3):
        lived(harness, count) if not harness.disk.exists(scenes.PLACE) else harness.open().close()
    written = {path: pages for path, pages in touched.items() if path in scenes.segments(harness.disk)}
    assert len(written) > 2
    for path, pages in written.items():
        assert min(pages) >= start_of(harness, path) // PAGE_BYTES


@pytest.mark.parametrize("count", COUNTS)
def test_with_both_copies_of_the_newest_head_every_log_is_damaged_and_none_is_empty(count: int) -> None:
    harness = scenes.harness_of()
    last = lived(harness, count)
    path = scenes.segments(harness.disk)[-1]
    pages = start_of(harness, path) // PAGE_BYTES
    for lost in (range(2), range(pages)):
        twin = harness.fork(0)
        spoil(twin, path, lost, b"\0")
        states = twin.open().logs()
        assert set(states) == set(last)
        assert all(state.damage is not None for state in states.values())


def test_with_both_copies_of_the_only_head_the_engine_does_not_open() -> None:
    harness = scenes.harness_of()
    engine = harness.open()
    scenes.extend(engine, scenes.create_logs(engine, 2))
    harness.crash(engine, Survival.LOST)
    (path,) = scenes.segments(harness.disk)
    spoil(harness, path, range(2), b"\0")
    with pytest.raises(Foreign, match="row C"):
        harness.open()


@pytest.mark.parametrize("filling", [b"\0", b"\xff"])
def test_no_single_page_hides_that_a_log_exists(filling: bytes) -> None:
    """Both copies of the record that begins a log were in one page, and mostly in one sector."""
    harness = scenes.harness_of(LARGE)
    engine = harness.open()
    logs = scenes.create_logs(engine, 5)
    for _ in range(20):
        scenes.extend(engine, logs)
    harness.crash(engine, Survival.LOST)
    (path,) = scenes.segments(harness.disk)
    state, _ = scenes.recovered(harness)
    pages = range(start_of(harness, path) // PAGE_BYTES, -(-state.segments[1].end // PAGE_BYTES))
    assert len(pages) > 5
    for page in pages:
        twin = harness.fork(page)
        spoil(twin, path, [page], filling)
        assert set(twin.open().logs()) == set(logs), page
