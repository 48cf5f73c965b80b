"""Scenes for tests of files: a log of several segments, and what recovery makes of a copy of it."""

from __future__ import annotations

from stelae.sim.disk import Survival
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append, WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entries
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_segmented.decisions import SegmentFinding
from stelae_wal_segmented.footer import HEAD_BYTES
from stelae_wal_segmented.format import (
    END_MARK_BYTES,
    ENTRY_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
)
from stelae_wal_segmented.names import sequences_of
from stelae_wal_segmented.recovery import RecoveredLog, recover_log

PLACE = "/node/wals/tablet-a"
FIRST = f"{PLACE}/g1-000000000001.seg"
SECOND = f"{PLACE}/g1-000000000002.seg"
BASE = f"{PLACE}/g1.base"

OVERHEAD_BYTES = GROUP_HEADER_BYTES + ENTRY_HEADER_BYTES + END_MARK_BYTES
"""Of a group of one entry."""

ALL = entries(1, 60, size_bytes=200)
"""Three segments' worth of entries, five to a group."""


def small_harness() -> VirtualHarness:
    """A disk on which segments are small, so that every scene has several."""
    config = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=4096)
    return VirtualHarness(SegmentedWal, config)


def filled(harness: VirtualHarness, count: int = 60) -> WalEngine:
    engine = harness.open()
    engine.create(LOG, ZERO)
    for first in range(0, count, 5):
        commit(engine, Append(entries=ALL[first : first + 5], commit_hint=first))
    return engine


def recovered(harness: VirtualHarness) -> RecoveredLog:
    """Recover a copy of the disk, so that a test may look again."""
    disk = harness.disk.clone()
    return recover_log(disk, PLACE, LOG, sequences_of(disk, PLACE, 1))


def header_of(harness: VirtualHarness, path: str) -> SegmentHeader:
    return decode_segment_header(harness.disk.read_bytes(path), path)


def opened(harness: VirtualHarness, count: int = 10) -> int:
    """An open segment with two synced groups; return where its data end."""
    engine = filled(harness, count)
    harness.crash(engine, Survival.KEPT)
    return data_end_of(harness)


def data_end_of(harness: VirtualHarness) -> int:
    """Where the data of the only segment end."""
    return recovered(harness).chain.segments[-1].end


def assert_damage(found: RecoveredLog, row: SegmentFinding, path: str, last_good: OpId) -> None:
    assert found.found[-1] is row
    assert found.damage is not None
    assert found.damage.path == path
    assert found.damage.last_good == last_good == found.last
    assert f"row {row.value.letter}:" in found.damage.detail


def assert_opens_with(harness: VirtualHarness, model: Model) -> None:
    engine = harness.open()
    check_holds(engine, model)
    more = Append(entries=entries(model.last.index + 1, 1, term=9))
    commit(engine, more)
    harness.crash(engine)
    engine = harness.open()
    check_holds(engine, model.append(more))
    engine.close()


def pages_of(harness: VirtualHarness) -> range:
    """Where the offsets stand in the footer of the first segment: opening does not look at them."""
    segment = recovered(harness).chain.segments[0]
    assert segment.summary is not None
    start = segment.end + HEAD_BYTES
    return range(start, start + 8 * (segment.summary.count + 1) + 4)
