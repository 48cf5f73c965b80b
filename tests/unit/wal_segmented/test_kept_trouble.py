"""Files of collected segments when something fails: who still reads them, and that none is left behind."""

from __future__ import annotations

import pytest

from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Full
from stelae.spi.wal import Append, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_room
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, entries
from stelae_wal_segmented import SegmentedConfig, reader
from stelae_wal_segmented.reader import Piece
from tests.unit.wal_segmented.test_kept import roll
from tests.unit.wal_segmented.used import CONFIG, SEGMENT_BYTES, go_on, harness_of, started

GROWING = SegmentedConfig(
    segment_bytes_first=SEGMENT_BYTES, segment_bytes_max=4 * SEGMENT_BYTES, segment_growth=4,
    prewrite_bytes_min=4 * SEGMENT_BYTES,
)  # fmt: skip


def fill_and_repair(harness: VirtualHarness, engine: WalEngine) -> None:
    limit_room(harness, 0)
    last = engine.logs()[LOG].last
    outcome = engine.commit({LOG: Append(entries=entries(last.index + 1, 9, 1, 9000))}, sync=True)[LOG]
    assert isinstance(outcome, Failed) and isinstance(outcome.error, Full)
    limit_room(harness, None)
    engine.repair(LOG)


# -- who reads over a repair -----------------------------------------------------------------------


@pytest.mark.parametrize("config", [CONFIG, GROWING])
def test_a_view_reads_what_it_saw_although_the_log_was_repaired_and_collected(config: SegmentedConfig) -> None:
    """The segments that the repair had read anew once counted nobody."""
    harness = harness_of(config)
    engine = started(harness)
    roll(engine, 5)
    held = engine.read(LOG, 1, engine.logs()[LOG].last.index + 1, READ_BYTES)
    view = engine.snapshot(LOG, 1)
    fill_and_repair(harness, engine)
    fill_and_repair(harness, engine)
    go_on(engine, 1500)
    assert engine.stats()["segments_reused"] > 0, "what came later is used again all the same"
    assert list(view.entries()) == held
    view.release()
    assert engine.logs()[LOG].damage is None
    engine.close()


def test_a_reader_that_is_under_way_reads_what_it_found_although_the_log_is_repaired_and_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It once met the bytes of another segment, and called the log damaged."""
    harness = harness_of()
    engine = started(harness)
    roll(engine, 5)
    wanted = engine.read(LOG, 40, 44, READ_BYTES)
    original = reader.read_piece
    late: list[Piece] = []

    def slow(file: VirtualFile, piece: Piece) -> object:
        if not late:
            late.append(piece)
            fill_and_repair(harness, engine)
            go_on(engine, 300)
        return original(file, piece)

    monkeypatch.setattr(reader, "read_piece", slow)
    assert engine.read(LOG, 40, 44, READ_BYTES) == wanted
    assert late and engine.stats()["segments_reused"] > 0
    assert engine.logs()[LOG].damage is None
    engine.close()


def test_segments_that_nobody_read_during_a_repair_are_used_again() -> None:
    harness = harness_of()
    engine = started(harness)
    roll(engine, 5)
    fill_and_repair(harness, engine)
    roll(engine)
    engine.collect(LOG, engine.logs()[LOG].last.index)
    assert engine.stats()["segments_kept"] == 2
    engine.close()
