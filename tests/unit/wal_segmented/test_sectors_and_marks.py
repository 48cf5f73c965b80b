"""What a crash leaves of a footer sector by sector, and sectors that hold one byte of a group, entry or footer."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from stelae.sim.disk import PowerLost, Survival
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, commit, entries, entry, observed
from stelae_wal_segmented import SegmentedWal
from stelae_wal_segmented.decisions import SegmentFinding
from stelae_wal_segmented.format import SEGMENT_HEADER_BYTES
from stelae_wal_segmented.marker import NonceSource
from tests.unit.wal_segmented import used
from tests.unit.wal_segmented.scenes import (
    ENTRY_HEADER_BYTES,
    FIRST,
    GROUP_HEADER_BYTES,
    OVERHEAD_BYTES,
    recovered,
    small_harness,
)

SECTOR = 512


def lose_power_at(harness: VirtualHarness, operation: str) -> None:
    """Before the first such operation on a segment."""

    def hook(made: str, path: str) -> None:
        if made == operation and path.endswith(".seg"):
            raise PowerLost(f"before {operation}")

    harness.disk.faults.hook = hook


@pytest.mark.parametrize("closing", [False, True])
def test_a_footer_of_which_a_crash_left_the_ends_is_cut(closing: bool) -> None:
    """It was believed, for its head and its trailer stood there, and the log was damaged when it was read."""
    for seed in range(120):
        harness = VirtualHarness(SegmentedWal, seed=seed)
        engine = used.started(harness)
        commit(engine, Append(entries=entries(1, 400)))
        commit(engine, Append(entries=entries(401, 400)))
        lose_power_at(harness, "sync")
        with suppress(PowerLost):
            if closing:
                engine.close()
            else:
                engine.cool(LOG)
        harness.disk.faults.hook = None
        harness.crash(engine)
        engine = harness.open()
        assert observed(engine).last.index == 800
        commit(engine, Append(entries=entries(801, 1)))


@pytest.mark.parametrize("first_byte", [0x00, *[1 << bit for bit in range(8)], 0x03])
def test_a_sector_with_one_byte_of_a_group_is_told_from_a_blank_one(
    first_byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some nonces that byte was zero, or one bit away from it: any change in the header passed for a tear."""
    draw = NonceSource.draw
    monkeypatch.setattr(NonceSource, "draw", lambda self, purpose: draw(self, purpose) & ~0xFF | first_byte ^ 0x81)
    harness = small_harness()
    engine = harness.open()
    engine.create(LOG, ZERO)
    at = 2 * SECTOR - 1
    commit(engine, Append(entries=(entry(1, 1, at - SEGMENT_HEADER_BYTES - OVERHEAD_BYTES),)))
    commit(engine, Append(entries=entries(2, 3, size_bytes=200)))
    harness.crash(engine, Survival.KEPT)
    assert recovered(harness).last.index == 4
    for offset in range(at, at + GROUP_HEADER_BYTES):
        for bit in range(8):
            twin = harness.fork(0)
            twin.disk.damage(FIRST, offset, 1 << bit)
            found = recovered(twin)
            assert found.damage is not None or found.last.index == 4, (offset - at, bit)


def test_zeros_of_the_entry_before_do_not_make_a_changed_one_look_torn() -> None:
    """One byte of the second entry, the lowest of its size, stood in a sector of zeros, and was one."""
    harness = small_harness()
    engine = harness.open()
    engine.create(LOG, ZERO)
    second_at = 3 * SECTOR - 1
    size = second_at - (SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES) - ENTRY_HEADER_BYTES
    one = replace(entry(1), body=b"y" * (size - 600) + bytes(600))
    commit(engine, Append(entries=(one, replace(entry(2), body=b"z" * 256))))
    harness.crash(engine, Survival.KEPT)
    assert recovered(harness).last.index == 2
    for offset in range(second_at, second_at + ENTRY_HEADER_BYTES + 256):
        twin = harness.fork(0)
        twin.disk.damage(FIRST, offset, 1 << offset % 8)
        assert recovered(twin).damage is not None, offset - second_at


def test_what_a_footer_was_written_behind_was_durable() -> None:
    """The footer is durable, the file not cut yet: a changed entry before it passed for torn, for it has zeros."""
    harness = used.harness_of()
    engine, model = used.in_used_space(harness)
    commit(engine, Append(entries=(replace(entry(model.last.index + 1), body=b"x" * 20 + bytes(1100)),)))
    lose_power_at(harness, "truncate")
    with suppress(PowerLost):
        engine.close()
    harness.disk.faults.hook = None
    harness.crash(engine, Survival.KEPT)
    path = used.newest(harness)
    assert used.recovered(harness).found[-1] is SegmentFinding.UNCUT_FOOTER
    harness.disk.damage(path, harness.disk.read_bytes(path).rfind(b"x" * 20) + 3)
    assert used.recovered(harness).damage is not None
