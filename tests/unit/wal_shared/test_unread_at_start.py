"""A disk that does not return some pages while the engine opens: permanently, as a worn medium does."""

from __future__ import annotations

import pytest

from stelae.sim.disk import Survival
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO, LogId
from stelae.spi.wal import WalEngine
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import READ_BYTES, Model, check_holds, entries
from tests.unit.unread_pages import PAGE_BYTES, UnreadPages
from tests.unit.wal_shared import scenes

OLD, BUSY, LATE = (scenes.log_number(number) for number in range(3))
"""Entries in the first segment only, in every segment, and in the newest one only."""
MARKER = f"{scenes.PLACE}/shared"


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> UnreadPages:
    return UnreadPages(monkeypatch)


def lived() -> tuple[VirtualHarness, dict[LogId, Model], list[str]]:
    """Three segments, of a process that was killed; what each log has; and the paths of the segments."""
    harness = scenes.harness_of()
    engine = harness.open()
    scenes.create_logs(engine, 3)
    scenes.extend(engine, [OLD, BUSY], 3, size_bytes=300)
    scenes.fill_segments(engine, BUSY, 2)
    scenes.extend(engine, [LATE, BUSY], 2, size_bytes=300)
    models = {
        log: Model(ZERO, list(entries(1, engine.logs()[log].last.index, size_bytes=300))) for log in (OLD, BUSY, LATE)
    }
    harness.crash(engine, Survival.LOST)
    return harness, models, scenes.segments(harness.disk)


def check_all(engine: WalEngine, models: dict[LogId, Model]) -> None:
    for log, model in models.items():
        assert engine.logs()[log].damage is None
        check_holds(engine, model, log)


def test_an_older_segment_whose_head_is_not_read_costs_nothing(unread: UnreadPages) -> None:
    """No log of the node was served, for ever, although every entry could be read."""
    harness, models, paths = lived()
    unread.paths = {paths[0]: (0, 1)}
    engine = harness.open()
    check_all(engine, models)
    scenes.extend(engine, [OLD, LATE])
    engine.close()


def test_an_older_segment_that_is_not_read_at_all_costs_the_entries_in_it_and_no_log(unread: UnreadPages) -> None:
    harness, models, paths = lived()
    unread.paths = {paths[0]: range(1 << 20)}
    engine = harness.open()
    assert all(state.damage is None for state in engine.logs().values())
    check_holds(engine, models[LATE], LATE)
    for log in (OLD, BUSY):
        assert engine.logs()[log].last == models[log].last
        with pytest.raises(StorageError, match="Input/output error") as caught:
            engine.read(log, 1, 2, READ_BYTES)
        assert type(caught.value) is StorageError
        assert caught.value.path == paths[0]
    last = models[BUSY].last.index
    assert engine.read(BUSY, last, last + 1, READ_BYTES) == models[BUSY].held[-1:]
    scenes.extend(engine, [LATE])
    engine.close()
    unread.paths = {}
    del models[LATE]
    check_all(harness.open(), models)


def test_a_footer_that_is_not_read_is_made_up_from_the_records(unread: UnreadPages) -> None:
    """Every read of an entry in the segment failed, and after eight of them the replica."""
    harness = scenes.harness_of()
    engine = harness.open()
    scenes.create_logs(engine, 2)
    for _ in range(8):
        scenes.extend(engine, [OLD], 44, size_bytes=1)
    scenes.fill_segments(engine, BUSY, 1)
    harness.crash(engine, Survival.LOST)
    path = scenes.segments(harness.disk)[0]
    last_page = (len(harness.disk.read_bytes(path)) - 1) // PAGE_BYTES
    assert last_page > scenes.recovered(harness)[0].segments[1].end // PAGE_BYTES, "no record is in that page"
    unread.paths = {path: (last_page,)}
    check_holds(harness.open(), Model(ZERO, list(entries(1, 8 * 44, size_bytes=1))), OLD)


@pytest.mark.parametrize("page", range(2))
@pytest.mark.parametrize("which", ["marker", "oldest", "newest"])
def test_one_unread_page_of_the_marker_or_of_a_head_costs_nothing(unread: UnreadPages, which: str, page: int) -> None:
    harness, models, paths = lived()
    unread.paths = {{"marker": MARKER, "oldest": paths[0], "newest": paths[-1]}[which]: (page,)}
    engine = harness.open()
    check_all(engine, models)
    scenes.extend(engine, [OLD, LATE])
    engine.close()


@pytest.mark.parametrize("which", ["marker", "newest"])
def test_with_both_pages_unread_the_engine_does_not_open_and_nothing_is_lost(unread: UnreadPages, which: str) -> None:
    harness, models, paths = lived()
    path = MARKER if which == "marker" else paths[-1]
    unread.paths = {path: (0, 1)}
    with pytest.raises(StorageError, match="Input/output error") as caught:
        harness.open()
    assert caught.value.path == path
    unread.paths = {}
    check_all(harness.open(), models)
