"""What a log engine has set aside it reads back, entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stelae.convert.offline import InlineWorkers
from stelae.machine.files import RealFiles
from stelae.machine.metrics import NodeMetrics
from stelae.machine.system_clock import SystemClock
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append
from stelae_wal_lmdb import LmdbWal
from stelae_wal_segmented import SegmentedWal
from stelae_wal_shared import SharedWal

LOG, OTHER = LogId(TabletId("t"), 3), LogId(TabletId("u"), 1)
ENGINES = [SegmentedWal, SharedWal, LmdbWal]


def services() -> EngineServices:
    return EngineServices(files=RealFiles(), clock=SystemClock(), metrics=NodeMetrics(), workers=InlineWorkers())


def entries(first: int, count: int) -> tuple[Entry, ...]:
    return tuple(
        Entry(OpId(2, index), EntryKind.WRITE, index << 12, bytes([index % 251]) * 900)
        for index in range(first, first + count)
    )


def set_aside(engine: Any, tmp_path: Path, prepare: Callable[[Any], None]) -> str:
    """A log of the engine, moved into a directory; another log stays."""
    wal = engine.open(str(tmp_path / "wals"), engine.Config(), services())
    place = str(tmp_path / "quarantine/t.1/wals")
    for log in (LOG, OTHER):
        wal.create(log, ZERO)
    prepare(wal)
    wal.set_aside(LOG, place)
    wal.close()
    return place


@pytest.mark.parametrize("engine", ENGINES)
def test_every_entry_comes_back_with_base_and_hint_and_may_be_read_again(engine: Any, tmp_path: Path) -> None:
    def prepare(wal: Any) -> None:
        for first in range(1, 201, 40):
            wal.commit({LOG: Append(entries=entries(first, 40), commit_hint=first)}, sync=True)

    place = set_aside(engine, tmp_path, prepare)
    for _ in range(2):
        with engine.opened_aside(place, LOG, engine.Config(), services()) as (state, found):
            assert (state.base, state.last) == (ZERO, OpId(2, 200)) and state.commit_hint <= 161
            assert list(found) == list(entries(1, 200))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_log_without_entries_comes_back_as_one(engine: Any, tmp_path: Path) -> None:
    place = set_aside(engine, tmp_path, lambda wal: None)
    with engine.opened_aside(place, LOG, engine.Config(), services()) as (state, found):
        assert (state.base, state.last, list(found)) == (ZERO, ZERO, [])


@pytest.mark.parametrize("engine", ENGINES)
def test_another_log_is_not_there(engine: Any, tmp_path: Path) -> None:
    place = set_aside(engine, tmp_path, lambda wal: None)
    with pytest.raises(StorageError, match="no log"), engine.opened_aside(place, OTHER, engine.Config(), services()):
        pass
