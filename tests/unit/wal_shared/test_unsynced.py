"""Power is lost over groups that were not synced, in space that was written with zeros: no tear passes for damage."""

from __future__ import annotations

from contextlib import suppress

import pytest

from stelae.sim.disk import PowerLost, Survival
from stelae.spi.wal import WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae_shared.log_files.whole_blocks import BLOCK_BYTES
from stelae_wal_shared import SharedConfig
from stelae_wal_shared.fast import FastSharedWal
from tests.unit.wal_shared.scenes import create_logs, extend, log_number, segments

SEGMENT_BYTES = 64 << 10
ZEROS = SharedConfig(
    segment_bytes_first=4096, segment_bytes_max=SEGMENT_BYTES, prewrite_bytes_min=SEGMENT_BYTES, segment_growth=64
)
LOG = log_number(0)


def in_zeros() -> tuple[VirtualHarness, WalEngine]:
    """A log whose newest segment stands in zeros, and which knows what stands in the block where it ends."""
    harness = VirtualHarness(FastSharedWal, ZEROS)
    engine = harness.open()
    create_logs(engine, 1)
    while len(segments(harness.disk)) < 2:
        extend(engine, [LOG], size_bytes=500)
    for _ in range(12):
        extend(engine, [LOG], size_bytes=500)
    while end_of_data(harness) % BLOCK_BYTES > 500:
        extend(engine, [LOG], size_bytes=100)
    return harness, engine


def end_of_data(harness: VirtualHarness) -> int:
    """Where the bytes of the newest segment end that are not zero."""
    return len(harness.disk.read_bytes(segments(harness.disk)[-1]).rstrip(b"\0"))


@pytest.mark.parametrize("sync", [True, False])
def test_what_is_not_durable_is_not_written_once_more(sync: bool) -> None:
    """A tear there would leave part of a group whose other part was lost, and which did not look torn."""
    for cut in range(0, 4096, 64):
        harness, engine = in_zeros()
        last = engine.logs()[LOG].last.index
        extend(engine, [LOG], size_bytes=1400, sync=False)
        harness.disk.faults.lose_power_after(written_bytes=cut)
        with suppress(PowerLost):
            extend(engine, [LOG], size_bytes=1400, sync=sync)
        harness.disk.faults.heal()
        for seed in range(13):
            twin = harness.fork(seed)
            twin.crash(None, Survival.DRAWN if seed < 12 else Survival.KEPT)
            state = twin.open().logs()[LOG]
            assert state.damage is None, state.damage
            assert state.last.index >= last
