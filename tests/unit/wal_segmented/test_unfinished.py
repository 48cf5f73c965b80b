"""Power is lost over bytes that nobody was told of: what was acknowledged stands, and nothing is called damaged.

And the other way round: a segment with what was acknowledged is missed, once it is gone."""

from __future__ import annotations

from contextlib import suppress

import pytest

from stelae.sim.disk import PowerLost, Survival
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, entries
from stelae_shared.log_files.whole_blocks import BLOCK_BYTES
from stelae_wal_segmented import SegmentedConfig
from stelae_wal_segmented.fast import FastSegmentedWal
from tests.unit.wal_segmented.used import go_on, harness_of, newest, recovered, started

SEGMENT_BYTES = 64 << 10
USED = SegmentedConfig(
    segment_bytes_first=SEGMENT_BYTES, segment_bytes_max=SEGMENT_BYTES, prewrite_bytes_min=SEGMENT_BYTES
)
ZEROS = SegmentedConfig(
    segment_bytes_first=4096, segment_bytes_max=SEGMENT_BYTES, prewrite_bytes_min=SEGMENT_BYTES, segment_growth=64
)


def append_to(engine: WalEngine, count: int, size_bytes: int, *, sync: bool = True) -> None:
    group = {LOG: Append(entries=entries(engine.logs()[LOG].last.index + 1, count, size_bytes=size_bytes))}
    engine.commit(group, sync=sync)


def in_written_space(config: SegmentedConfig) -> tuple[VirtualHarness, WalEngine]:
    """A log whose newest segment stands in the space of a collected one, or in zeros."""
    harness = VirtualHarness(FastSegmentedWal, config)
    engine = started(harness)
    if config is USED:
        while engine.stats()["segments_reused"] < 2:
            go_on(engine, 1, 3000)
    while engine.stats()["segments"] < 2:
        append_to(engine, 1, 500)
    return harness, engine


def newest_end(harness: VirtualHarness) -> int:
    """Where the data of the newest segment end."""
    return recovered(harness).chain.segments[-1].end


def judge(harness: VirtualHarness, acknowledged: int, copies: int) -> None:
    """In each of some states in which the disk may be after a loss of power."""
    for seed in range(copies + 1):
        copy = harness.fork(seed)
        copy.crash(None, Survival.DRAWN if seed < copies else Survival.KEPT)
        found = recovered(copy)
        assert found.damage is None, found.damage
        assert found.last.index >= acknowledged


@pytest.mark.parametrize("config", [USED, ZEROS], ids=["used", "zeros"])
@pytest.mark.parametrize("landed", [True, False])
def test_a_footer_torn_over_a_group_that_nobody_finished_is_a_tail(config: SegmentedConfig, landed: bool) -> None:
    """A node that ends for a defect does not wait to hear of its last group, and closes its logs."""
    for cut in range(0, 8000, 97):
        harness, engine = in_written_space(config)
        append_to(engine, 200, 0)
        last = engine.logs()[LOG].last.index
        begun = engine.begin({LOG: Append(entries=entries(last + 1, 3, size_bytes=2500))})
        assert begun is not None
        if landed:
            assert [write.failure() for write in begun.writes] == [None]
        harness.disk.faults.lose_power_after(written_bytes=cut)
        with suppress(PowerLost):
            engine.close()
        harness.disk.faults.heal()
        judge(harness, last, 4)


@pytest.mark.parametrize("sync", [True, False])
def test_what_is_not_durable_is_not_written_once_more(sync: bool) -> None:
    """A tear there left part of a group whose other part was lost, and which did not look torn."""
    for cut in range(0, 4096, 64):
        harness, engine = in_written_space(ZEROS)
        for _ in range(12):  # They cross a block: what stands in its beginning is known.
            append_to(engine, 1, 500)
        while newest_end(harness) % BLOCK_BYTES > 500:
            append_to(engine, 1, 100)
        last = engine.logs()[LOG].last.index
        append_to(engine, 1, 1400, sync=False)
        harness.disk.faults.lose_power_after(written_bytes=cut)
        with suppress(PowerLost):
            append_to(engine, 1, 1400, sync=sync)
        harness.disk.faults.heal()
        judge(harness, last, 12)


def test_a_segment_is_remembered_before_a_group_in_it_is_begun() -> None:
    """After a repair a fresh segment stands there of which the base file does not know yet."""
    harness = harness_of()
    engine = started(harness)
    append_to(engine, 3, 24)
    limit_space(harness, 0)
    full = engine.commit({LOG: Append(entries=entries(4, 1, size_bytes=90_000))}, sync=True)[LOG]
    assert isinstance(full, Failed)
    limit_space(harness, None)
    engine.repair(LOG)
    group = {LOG: Append(entries=entries(4, 1))}
    begun = engine.begin(group)
    outcomes = begun.perform() if begun is not None else engine.commit(group, sync=True)
    assert isinstance(outcomes[LOG], Durable)
    harness.crash(engine, Survival.KEPT)
    harness.disk.remove(newest(harness))
    assert recovered(harness).damage is not None, "an entry was acknowledged there"
