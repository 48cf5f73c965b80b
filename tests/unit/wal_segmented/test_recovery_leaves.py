"""What recovery leaves of an open segment: whole groups, durable, whenever power is lost again."""

from __future__ import annotations

from contextlib import suppress

import pytest

from stelae.sim.disk import PowerLost, Survival
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Full, SyncFailed
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entries, entry
from stelae_wal_segmented.format import SEGMENT_HEADER_BYTES
from stelae_wal_segmented.recovery import recover_log
from tests.unit.wal_segmented.scenes import (
    ALL,
    FIRST,
    OVERHEAD_BYTES,
    PLACE,
    assert_opens_with,
    data_end_of,
    filled,
    opened,
    recovered,
    small_harness,
)


@pytest.fixture
def harness() -> VirtualHarness:
    return small_harness()


def test_a_group_of_which_a_part_is_valid_becomes_whole(harness: VirtualHarness) -> None:
    end = opened(harness)
    harness.disk.cut(FIRST, end - 300)
    engine = harness.open()
    check_holds(engine, Model(ZERO, list(ALL[:8])))
    commit(engine, Append(entries=(entry(9, 2),)))
    for _ in range(3):
        harness.crash(engine, Survival.KEPT)
        engine = harness.open()
        check_holds(engine, Model(ZERO, [*ALL[:8], entry(9, 2)]))
    engine.close()


def torn_group(harness: VirtualHarness, at: int) -> None:
    """An open segment whose second group, which begins there, lacks a part of its third entry."""
    engine = harness.open()
    engine.create(LOG, ZERO)
    first = entry(1, 1, at - SEGMENT_HEADER_BYTES - OVERHEAD_BYTES)
    commit(engine, Append(entries=(first,)))
    commit(engine, Append(entries=entries(2, 3, size_bytes=200)))
    harness.crash(engine, Survival.KEPT)
    harness.disk.cut(FIRST, data_end_of(harness) - 100)
    assert recovered(harness).last.index == 3


@pytest.mark.parametrize("at", [600, 512 - 20, 512 - 39, 512 - 4, 512 - 40, 512])
def test_power_lost_while_a_torn_group_is_made_whole_leaves_it_to_the_next_start(
    harness: VirtualHarness, at: int
) -> None:
    """Its header, written again in its place, was once on the disk before the cut behind it: the rest of the group then
    passed for something that had changed. So did a header of which only one of its two sectors was written again."""
    torn_group(harness, at)
    for seed in range(100):
        for operations in range(1, 8):
            twin = harness.fork(seed)
            twin.disk.faults.lose_power_after(operations=operations)
            with suppress(PowerLost):
                recover_log(twin.disk, PLACE, LOG, [1])
            twin.disk.faults.heal()
            twin.crash()
            found = recovered(twin)
            assert found.damage is None, (seed, operations)
            assert found.last.index in (1, 2, 3)


def test_a_whole_group_whose_mark_finds_no_space_is_not_dropped(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been acknowledged, and the mark have changed since: the start ends, and can be repeated."""
    end = opened(harness)
    harness.disk.damage(FIRST, end - 3)

    def no_space(file: VirtualFile, *_: object, **__: object) -> int:
        raise Full("no space left on device", path=file.path)

    with monkeypatch.context() as patch:
        patch.setattr(VirtualFile, "pwritev", no_space)
        with pytest.raises(Full):
            recovered(harness)
    assert recovered(harness).last == ALL[9].op_id


def test_bytes_that_a_failed_sync_left_in_memory_are_made_durable_before_they_are_handed_out(
    harness: VirtualHarness,
) -> None:
    engine = filled(harness, 10)
    engine.commit({LOG: Append(entries=ALL[10:15])}, sync=False)
    harness.disk.faults.fail_syncs(FIRST)
    with pytest.raises(SyncFailed):
        harness.disk.open(FIRST).sync()
    killed = harness.fork(1)
    engine = killed.open()
    assert engine.logs()[LOG].last == OpId(1, 15)
    killed.crash(engine, Survival.LOST)
    assert_opens_with(killed, Model(ZERO, list(ALL[:15])))
