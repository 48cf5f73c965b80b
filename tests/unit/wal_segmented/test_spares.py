"""Segments in the making: several may be under way at once, and each keeps to its own file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.spi.errors import Full
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import QueuedWorkers, VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, commit, entries
from stelae_shared.log_files import spare_file
from stelae_wal_segmented import SegmentedConfig, SegmentedWal

PLACE = "/node/wals/tablet-a"


def started() -> tuple[VirtualHarness, WalEngine]:
    config = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=4096)
    harness = VirtualHarness(SegmentedWal, config)
    harness.workers.at_once = False
    engine = harness.open()
    engine.create(LOG, ZERO)
    return harness, engine


def fill(engine: WalEngine, last: int) -> None:
    for index in range(engine.logs()[LOG].last.index + 1, last + 1):
        commit(engine, Append(entries=entries(index, 1, size_bytes=500)))


def check(harness: VirtualHarness, engine: WalEngine, last: int) -> None:
    check_holds(engine, Model(ZERO, list(entries(1, last, size_bytes=500))))
    engine.close()
    harness.workers.run()
    assert not [name for name in harness.disk.listdir(PLACE) if name.endswith(".new")]
    reopened = harness.open()
    check_holds(reopened, Model(ZERO, list(entries(1, last, size_bytes=500))))
    reopened.close()


class Halfway:
    """Stops the making of a spare behind the creation of its file, and does something meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: QueuedWorkers) -> None:
        self._monkeypatch = monkeypatch
        self._workers = workers

    def run(self, meanwhile: Callable[[], None]) -> None:
        make_file = spare_file.make_file

        def interrupted(*args: Any) -> Any:
            file = make_file(*args)
            self._monkeypatch.setattr(spare_file, "make_file", make_file)
            meanwhile()
            return file

        self._monkeypatch.setattr(spare_file, "make_file", interrupted)
        assert self._workers.run() >= 1


def test_a_spare_that_was_given_up_half_way_does_not_take_the_file_of_a_fresh_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, engine = started()
    fill(engine, 7)

    def fill_the_disk_and_repair() -> None:
        limit_space(harness, 100)
        outcome: object = None
        while not isinstance(outcome, Failed):
            last = engine.logs()[LOG].last.index
            outcome = engine.commit({LOG: Append(entries=entries(last + 1, 1, size_bytes=500))}, sync=True)[LOG]
        assert isinstance(outcome.error, Full)
        limit_space(harness, None)
        before = len(made)
        engine.repair(LOG)
        (fresh,) = made[before:]
        assert fresh not in made[:before], "the spare under way has another name"

    made: list[str] = []
    create = harness.disk.create

    def created(path: str) -> Any:
        made.append(path)
        return create(path)

    monkeypatch.setattr(harness.disk, "create", created)
    Halfway(monkeypatch, harness.workers).run(fill_the_disk_and_repair)
    last = engine.logs()[LOG].last.index
    fill(engine, last + 10)
    check(harness, engine, last + 10)


def test_a_spare_that_was_given_up_half_way_does_not_take_the_file_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness, engine = started()
    fill(engine, 3)
    engine.cool(LOG)
    fill(engine, 7)

    def another_spare() -> None:
        """Give the first up, and have the second made, while the first is under way."""
        engine.cool(LOG)
        fill(engine, 14)
        assert harness.workers.run() == 1

    Halfway(monkeypatch, harness.workers).run(another_spare)
    fill(engine, 30)
    check(harness, engine, 30)


@pytest.mark.parametrize("end", ["drop", "set_aside"])
def test_a_spare_that_goes_by_itself_does_not_disturb_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    harness, engine = started()
    fill(engine, 7)
    listdir = harness.disk.listdir

    def stale(path: str) -> list[str]:
        """What a listing says that was made just before the worker removed its file."""
        names = listdir(path)
        return [*names, "g1-00000000000000ff.new"] if "g1.base" in names and path == PLACE else names

    monkeypatch.setattr(harness.disk, "listdir", stale)
    if end == "drop":
        engine.drop(LOG)
    else:
        engine.set_aside(LOG, "/node/quarantine/a.1")
        assert [n for n in harness.disk.listdir("/node/quarantine/a.1") if n.endswith(".new")] == []
    assert LOG not in engine.logs()
    assert not harness.disk.exists(PLACE)
    assert isinstance(engine.commit({}, sync=True), dict)
    engine.create(LOG, ZERO)
    assert isinstance(engine.commit({LOG: Append(entries=entries(1, 1))}, sync=True)[LOG], Durable)
    engine.close()
