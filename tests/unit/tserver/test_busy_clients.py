"""When the copy transport is told that clients are busy."""

from __future__ import annotations

from typing import Any

from stelae.server.tserver.busy_clients import BUSY_PER_S, IDLE_LOOKS, LOOK_US, BusyClients
from stelae.server.tserver.load_meter import LoadMeter
from tests.unit.master.driver_on_fakes import ManualTurns

ENOUGH = BUSY_PER_S * LOOK_US // 1_000_000
"""Clients are busy if there are at least this number of operations between two looks."""


class Side:
    def __init__(self) -> None:
        self.told: list[bool] = []

    def beside_clients(self, busy: bool) -> None:
        self.told.append(busy)


class Scene:
    def __init__(self, *sides: Side) -> None:
        self.turns, self.load = ManualTurns(), LoadMeter()
        chosen: list[Any] = list(sides)
        self.service = BusyClients(self.turns, self.load, lambda: chosen)
        self.service.start()

    def look(self, operations: int) -> None:
        self.load.add(operations)
        self.turns.run(self.turns.now_us() + LOOK_US)


def test_each_side_is_told_once_when_clients_become_busy_and_once_when_they_have_paused() -> None:
    sides = Side(), Side()
    scene = Scene(*sides)
    for _ in range(3):
        scene.look(ENOUGH - 1)
    assert sides[0].told == []
    for _ in range(3):
        scene.look(ENOUGH)
    assert [side.told for side in sides] == [[True], [True]]
    for _ in range(IDLE_LOOKS - 1):
        scene.look(0)
    scene.look(ENOUGH)
    for _ in range(IDLE_LOOKS - 1):
        scene.look(ENOUGH - 1)
    assert sides[0].told == [True], "the pause was short"
    scene.look(0)
    assert [side.told for side in sides] == [[True, False], [True, False]]
    scene.look(10 * ENOUGH)
    assert sides[1].told == [True, False, True]


def test_operations_before_the_start_do_not_count() -> None:
    side = Side()
    scene = Scene(side)
    scene.service.stop()
    scene.load.add(100 * ENOUGH)
    scene.service.start()
    scene.look(0)
    assert side.told == []


def test_a_service_that_was_stopped_looks_no_more_and_one_without_a_transport_never_does() -> None:
    side = Side()
    scene = Scene(side)
    scene.service.stop()
    scene.look(10 * ENOUGH)
    assert side.told == []
    scene = Scene()
    assert scene.turns._timers == []
