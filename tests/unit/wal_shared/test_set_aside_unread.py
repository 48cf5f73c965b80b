"""A log of which the disk does not return a part: it still leaves the engine, and so its tablet can be deleted."""

from __future__ import annotations

import pytest

from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO
from stelae.spi.wal import WalEngine
from stelae.testing.wal_harness import VirtualHarness, fake_services
from stelae.testing.wal_model import READ_BYTES, Model, check_holds, entries
from stelae_wal_shared import SharedConfig, SharedWal
from tests.unit.wal_shared.scenes import create_logs, extend, fill_segments, harness_of, log_number, segments

A, B = log_number(0), log_number(1)
ASIDE = "/node/quarantine/a"


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of()


def opened(harness: VirtualHarness) -> tuple[WalEngine, int]:
    """Return an engine with entries of two logs in its second segment, and how many A has in the first one."""
    engine = harness.open()
    create_logs(engine, 2)
    fill_segments(engine, A, 1)
    first = engine.logs()[A].last.index - 1
    extend(engine, [A, B], 5, size_bytes=300)
    return engine, first


def test_a_log_with_an_unread_segment_is_set_aside_up_to_it_at_the_second_attempt(harness: VirtualHarness) -> None:
    engine, first = opened(harness)
    unread = segments(harness.disk)[1]
    last = engine.logs()[A].last
    harness.disk.faults.fail_reads(unread, 1 << 30)
    with pytest.raises(StorageError, match="read failed"):
        engine.set_aside(A, ASIDE)
    assert engine.logs()[A].last == last, "the disk may return the entries later"
    engine.set_aside(A, ASIDE)
    assert set(engine.logs()) == {B}
    note = harness.disk.read_bytes(f"{ASIDE}/damage.txt").decode()
    assert unread in note
    assert f"1.{first}" in note
    config = harness.config
    assert isinstance(config, SharedConfig)
    with SharedWal.opened_aside(ASIDE, A, config, fake_services(harness.disk)) as (state, found):
        assert state.last.index == first
        assert list(found) == list(entries(1, first, size_bytes=300))
    harness.disk.faults.heal()
    check_holds(engine, Model(ZERO, list(entries(1, 5, size_bytes=300))), B)
    engine.close()


def test_a_log_that_can_be_read_again_is_set_aside_whole(harness: VirtualHarness) -> None:
    engine, _ = opened(harness)
    last = engine.logs()[A].last
    harness.disk.faults.fail_reads(segments(harness.disk)[1], 1)
    with pytest.raises(StorageError, match="read failed"):
        engine.set_aside(A, ASIDE)
    engine.set_aside(A, ASIDE)
    assert not harness.disk.exists(f"{ASIDE}/damage.txt")
    config = harness.config
    assert isinstance(config, SharedConfig)
    with SharedWal.opened_aside(ASIDE, A, config, fake_services(harness.disk)) as (state, _found):
        assert state.last == last
    engine.close()


def test_a_damaged_log_with_an_unread_segment_before_the_damage_is_set_aside_too(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export once took any error for the damage that was known already, and tried again without end."""
    engine, first = opened(harness)
    unread, last = segments(harness.disk)[1], engine.logs()[A].last.index
    body = entries(last, 1, size_bytes=300)[0].body
    harness.disk.damage(unread, harness.disk.read_bytes(unread).index(body))
    with pytest.raises(StorageError):
        engine.read(A, 1, last + 1, READ_BYTES)
    assert engine.logs()[A].damage is not None
    original, reads = VirtualFile.pread, 0

    def failing(file: VirtualFile, size: int, offset: int) -> bytes:
        nonlocal reads
        if file.path == unread:
            reads += 1
            assert reads < 100, "set_aside never ends"
            raise StorageError("the disk fails", path=unread)
        return original(file, size, offset)

    monkeypatch.setattr(VirtualFile, "pread", failing)
    with pytest.raises(StorageError, match="the disk fails"):
        engine.set_aside(A, ASIDE)
    engine.set_aside(A, ASIDE)
    monkeypatch.undo()
    assert set(engine.logs()) == {B}
    assert f"1.{first}" in harness.disk.read_bytes(f"{ASIDE}/damage.txt").decode()
    engine.close()
