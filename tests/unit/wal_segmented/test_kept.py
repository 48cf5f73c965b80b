"""Files of collected segments: which are kept, who may still read them, and when they go."""

from __future__ import annotations

import pytest

from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Full
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, READ_BYTES, check_holds, entries
from stelae_wal_segmented import SegmentedConfig, SegmentedWal, reader
from stelae_wal_segmented.reader import SegmentRead
from tests.unit.wal_segmented.scenes import PLACE
from tests.unit.wal_segmented.used import (
    SEGMENT_BYTES,
    go_on,
    harness_of,
    in_used_space,
    is_used,
    kept,
    model_of,
    newest,
    started,
)


@pytest.fixture
def harness() -> VirtualHarness:
    return harness_of()


def append(engine: WalEngine, count: int, *, sync: bool = True) -> None:
    last = engine.logs()[LOG].last.index
    for one in entries(last + 1, count, size_bytes=150):
        assert isinstance(engine.commit({LOG: Append(entries=(one,))}, sync=sync)[LOG], Durable)


def roll(engine: WalEngine, segments: int = 1) -> None:
    """Append until this many segments more are closed."""
    before = engine.stats()["segments"]
    while engine.stats()["segments"] < before + segments:
        append(engine, 1)


def collected(engine: WalEngine) -> None:
    engine.collect(LOG, engine.logs()[LOG].last.index)


def test_a_log_keeps_the_files_of_collected_segments_up_to_its_limit(harness: VirtualHarness) -> None:
    engine = started(harness)
    roll(engine, 5)
    collected(engine)
    assert kept(harness) == ["g1-000000000001.reuse", "g1-000000000002.reuse"]
    assert engine.stats()["segments_kept"] == 2
    before = len(harness.disk.listdir(PLACE))
    for _ in range(20):
        go_on(engine, 30)
        assert len(harness.disk.listdir(PLACE)) <= before
    assert engine.stats()["segments_reused"] > 10
    check_holds(engine, model_of(engine))
    engine.close()


def test_the_plain_engine_keeps_none_and_makes_a_new_file_for_each_segment() -> None:
    harness = harness_of(engine_type=SegmentedWal)
    engine = started(harness)
    for _ in range(20):
        go_on(engine, 10)
        assert not kept(harness)
        assert not is_used(harness, newest(harness))
    assert "segments_reused" not in engine.stats()
    engine.close()


@pytest.mark.parametrize("prewrite_bytes_min", [4 * SEGMENT_BYTES, 5 * SEGMENT_BYTES])
def test_only_segments_are_kept_that_are_as_long_as_the_next_one_and_large(prewrite_bytes_min: int) -> None:
    config = SegmentedConfig(
        segment_bytes_first=SEGMENT_BYTES, segment_bytes_max=4 * SEGMENT_BYTES, segment_growth=2,
        prewrite_bytes_min=prewrite_bytes_min,
    )  # fmt: skip
    harness = harness_of(config)
    engine = started(harness)
    roll(engine, 3)
    collected(engine)
    assert not kept(harness), "they have 8, 16 and 32 KiB, and the third is open"
    roll(engine)
    collected(engine)
    assert kept(harness) == ([] if prewrite_bytes_min > 4 * SEGMENT_BYTES else ["g1-000000000003.reuse"])
    engine.close()


@pytest.mark.parametrize("end", ["cool", "close", "drop", "set_aside", "crash", "full disk"])
def test_kept_files_go_with_the_end_of_what_they_are_for(harness: VirtualHarness, end: str) -> None:
    engine = started(harness)
    roll(engine, 5)
    collected(engine)
    assert len(kept(harness)) == 2
    match end:
        case "cool":
            engine.cool(LOG)
        case "close":
            engine.close()
        case "drop":
            engine.drop(LOG)
            assert not harness.disk.exists(PLACE)
            return
        case "set_aside":
            engine.set_aside(LOG, "/node/quarantine/a")
            assert not [name for name in harness.disk.listdir("/node/quarantine/a") if name.endswith(".reuse")]
            assert not harness.disk.exists(PLACE)
            return
        case "crash":
            harness.crash(engine)
            engine = harness.open()
        case _:
            limit_space(harness, 0)
            outcome = engine.commit(
                {LOG: Append(entries=entries(engine.logs()[LOG].last.index + 1, 9, 1, 5000))}, sync=True
            )[LOG]
            assert isinstance(outcome, Failed) and isinstance(outcome.error, Full)
    assert not kept(harness)
    assert engine.stats()["segments_kept"] == 0


def test_a_log_that_is_not_synced_uses_no_space_again(harness: VirtualHarness) -> None:
    engine = started(harness)
    for _ in range(200):
        append(engine, 1, sync=False)
        collected(engine)
    assert (engine.stats()["segments_reused"], kept(harness)) == (0, [])
    engine.close()


def test_a_log_that_is_not_synced_any_more_takes_none_of_the_kept_files(harness: VirtualHarness) -> None:
    engine = started(harness)
    roll(engine, 5)
    append(engine, 1)
    collected(engine)
    for _ in range(100):
        append(engine, 1, sync=False)
    assert engine.stats()["segments_reused"] == 0
    assert len(kept(harness)) == 2
    engine.close()


def test_what_was_synced_unasked_stays_when_the_log_fails_later(harness: VirtualHarness) -> None:
    """Nobody syncs it again, so nothing else would say that it is durable."""
    engine, _ = in_used_space(harness)
    append(engine, 3, sync=False)
    assert engine.commit({}, sync=True) == {}
    last = engine.logs()[LOG].last
    harness.disk.faults.fail_syncs(newest(harness))
    outcome = engine.commit({LOG: Append(entries=entries(last.index + 1, 1))}, sync=True)[LOG]
    assert isinstance(outcome, Failed)
    assert outcome.durable == engine.logs()[LOG].last == last


# -- who still reads -------------------------------------------------------------------------------


def test_a_view_reads_what_it_saw_although_all_of_it_was_collected_and_space_used_again(
    harness: VirtualHarness,
) -> None:
    engine = started(harness)
    roll(engine, 5)
    held = engine.read(LOG, 1, engine.logs()[LOG].last.index + 1, READ_BYTES)
    view = engine.snapshot(LOG, 1)
    go_on(engine, 300)
    assert engine.stats()["segments_reused"] > 3, "what came later is used again all the same"
    assert list(view.entries()) == held
    view.release()
    view.release()
    assert engine.logs()[LOG].damage is None
    engine.close()


def test_a_reader_that_is_under_way_reads_what_it_found_although_it_is_collected(
    harness: VirtualHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once would have met the bytes of another segment, and have called the log damaged."""
    engine = started(harness)
    roll(engine, 3)
    wanted = engine.read(LOG, 5, 9, READ_BYTES)
    original = reader.read_entries
    late: list[SegmentRead] = []

    def slow(file: VirtualFile, piece: SegmentRead) -> object:
        if not late:
            late.append(piece)
            go_on(engine, 300)
        return original(file, piece)

    monkeypatch.setattr(reader, "read_entries", slow)
    assert engine.read(LOG, 5, 9, READ_BYTES) == wanted
    assert late and engine.stats()["segments_reused"] > 3
    assert engine.logs()[LOG].damage is None
    engine.close()


def test_a_segment_that_was_read_is_used_again_afterwards(harness: VirtualHarness) -> None:
    """Nobody goes on holding what was read, what could not be read, or what a view let go of."""
    engine = started(harness)
    roll(engine, 3)
    last = engine.logs()[LOG].last.index
    engine.read(LOG, 1, last + 1, READ_BYTES)
    harness.disk.faults.fail_reads(PLACE, 1)
    with pytest.raises(Exception, match="read failed"):
        engine.read(LOG, 1, last + 1, READ_BYTES)
    engine.snapshot(LOG, 1).release()
    collected(engine)
    assert len(kept(harness)) == 2
    engine.close()


def test_a_kept_file_that_cannot_be_read_costs_the_next_segment_nothing_but_time(harness: VirtualHarness) -> None:
    engine = started(harness)
    roll(engine, 5)
    collected(engine)
    harness.disk.faults.fail_reads(".new", 1)
    roll(engine, 2)
    check_holds(engine, model_of(engine))
    harness.crash(engine)
    engine = harness.open()
    check_holds(engine, model_of(engine))
    assert not [name for name in harness.disk.listdir(PLACE) if name.endswith((".new", ".reuse"))]
    engine.close()
