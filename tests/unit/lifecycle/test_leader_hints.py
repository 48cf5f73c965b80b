"""The hint to lead a new tablet, given again while its peers are still being made."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from stelae.lifecycle.leader_hints import PAUSES_US, repeat_hint
from stelae.spi.consensus_events import Campaign, Event
from stelae.spi.ids import NodeId


class World:
    """A clock that is moved by hand, and a replica that notes what it is told."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[tuple[int, Callable[[], None]]] = []
        self.told: list[tuple[int, Event]] = []
        self.status = SimpleNamespace(term=0, leader=None)
        self.failure = ""

    def now_us(self) -> int:
        return self.now

    def call_at(self, when_us: int, call: Callable[[], None]) -> None:
        self.calls.append((when_us, call))

    def deliver(self, event: Event) -> None:
        self.told.append((self.now, event))

    def run(self, until_us: int = sum(PAUSES_US) * 10) -> None:
        while self.calls and self.calls[0][0] <= until_us:
            self.now, call = self.calls.pop(0)
            call()


def hinted() -> Any:
    world = World()
    repeat_hint(world, world)  # type: ignore[arg-type]
    return world


def test_a_tablet_whose_peers_do_not_answer_is_hinted_a_few_times_and_then_left_to_its_election_timeout() -> None:
    world = hinted()
    world.run()
    due = [sum(PAUSES_US[: place + 1]) for place in range(len(PAUSES_US))]
    assert world.told == [(when, Campaign(hinted=True)) for when in due]
    assert not world.calls


def test_a_tablet_that_has_begun_a_term_is_hinted_no_more() -> None:
    world = hinted()
    world.run(PAUSES_US[0])
    world.status.term = 1
    world.run()
    assert len(world.told) == 1


def test_a_tablet_that_heard_of_a_leader_or_has_failed_is_left_alone() -> None:
    led, failed = hinted(), hinted()
    led.status.leader = NodeId("a" * 32)
    failed.failure = "the disk"
    for world in (led, failed):
        world.run()
        assert world.told == [] and not world.calls
