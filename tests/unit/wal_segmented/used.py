"""Scenes for tests of space that is used again: a log that is collected as it goes, and stands in a used segment."""

from __future__ import annotations

from msgspec.structs import replace

from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, Model, commit, entries, entry, intact
from stelae_wal_segmented import SegmentedConfig
from stelae_wal_segmented.fast import FastSegmentedWal
from stelae_wal_segmented.format import decode_segment_header
from stelae_wal_segmented.names import segment_name, sequences_of
from stelae_wal_segmented.recovery import RecoveredLog, recover_log
from tests.unit.wal_segmented.scenes import PLACE

SEGMENT_BYTES = 8192
CONFIG = SegmentedConfig(
    segment_bytes_first=SEGMENT_BYTES, segment_bytes_max=SEGMENT_BYTES, prewrite_bytes_min=SEGMENT_BYTES
)
"""All segments are of one length, and their space is used again."""


def harness_of(config: SegmentedConfig = CONFIG, *, engine_type: type[WalEngine] = FastSegmentedWal) -> VirtualHarness:
    return VirtualHarness(engine_type, config)


def started(harness: VirtualHarness) -> WalEngine:
    engine = harness.open()
    engine.create(LOG, ZERO)
    return engine


def go_on(engine: WalEngine, count: int, size_bytes: int = 150) -> None:
    """Append this many entries, each in a group of its own, and let go of all before each."""
    for _ in range(count):
        last = engine.logs()[LOG].last.index
        commit(engine, Append(entries=entries(last + 1, 1, size_bytes=size_bytes), commit_hint=last))
        engine.collect(LOG, last)


def go_on_blank(engine: WalEngine) -> None:
    """As ``go_on``, with one entry of zeros."""
    last = engine.logs()[LOG].last.index
    zeros = replace(entry(last + 1), body=bytes(3000))
    commit(engine, Append(entries=(zeros,), commit_hint=last))
    engine.collect(LOG, last)


def in_used_space(harness: VirtualHarness, *, blank: bool = False) -> tuple[WalEngine, Model]:
    """A log whose newest segment has one group, in the space of a collected segment; and what it holds.

    Args:
        blank: what stood there before is zeros for the most part.
    """
    engine = started(harness)
    while engine.stats()["segments_reused"] < 3:
        if blank:
            go_on_blank(engine)
        else:
            go_on(engine, 1)
    return engine, intact(engine) if blank else model_of(engine)


def model_of(engine: WalEngine) -> Model:
    state = engine.logs()[LOG]
    held = entries(state.base.index + 1, state.last.index - state.base.index, size_bytes=150)
    return Model(state.base, list(held))


def newest(harness: VirtualHarness) -> str:
    """Path of the newest segment."""
    return f"{PLACE}/{segment_name(1, max(sequences_of(harness.disk, PLACE, 1)))}"


def is_used(harness: VirtualHarness, path: str) -> bool:
    """Say whether a segment stands in used space."""
    return decode_segment_header(harness.disk.read_bytes(path), path).space.sectors > 0


def kept(harness: VirtualHarness) -> list[str]:
    return [name for name in harness.disk.listdir(PLACE) if name.endswith(".reuse")]


def recovered(harness: VirtualHarness) -> RecoveredLog:
    """Recover a copy of the disk, so that a test may look again."""
    disk = harness.disk.clone()
    return recover_log(disk, PLACE, LOG, sequences_of(disk, PLACE, 1))
