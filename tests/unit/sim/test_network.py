"""The virtual network loses, duplicates and reorders messages, and cuts directed links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stelae.sim.coverage import Coverage
from stelae.sim.draw import stream
from stelae.sim.network import Network
from stelae.sim.profile import Profile, draw_profile
from stelae.sim.scheduler import Scheduler


class Rig:
    """A network, and the messages that arrived on it."""

    def __init__(self, profile: Profile, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.coverage = Coverage()
        self.network = Network(self.scheduler, stream(seed, "network"), profile, self.coverage)
        self.arrived: list[int] = []

    def send(self, count: int, link: tuple[int, int] = (0, 1)) -> None:
        for number in range(count):
            self.network.send(link, "m", lambda number=number: self.arrived.append(number))

    def drain(self) -> list[int]:
        while self.scheduler.run_one():
            pass
        return self.arrived


@pytest.fixture
def calm() -> Profile:
    return replace(draw_profile(1), loss=0.0, duplication=0.0, delay_us=(100, 100))


def test_a_calm_link_delivers_everything_once_in_order(calm: Profile) -> None:
    rig = Rig(calm)
    rig.send(20)
    assert rig.drain() == list(range(20))


def test_loss_and_duplication_happen_at_their_rates(calm: Profile) -> None:
    rig = Rig(replace(calm, loss=0.5, duplication=0.5))
    rig.send(400)
    arrived = rig.drain()
    assert 120 < len(set(arrived)) < 280
    assert len(arrived) > len(set(arrived))
    assert rig.coverage.counts["network.lost"] + len(set(arrived)) == 400


def test_varying_delays_reorder(calm: Profile) -> None:
    rig = Rig(replace(calm, delay_us=(100, 50_000)))
    rig.send(50)
    arrived = rig.drain()
    assert sorted(arrived) == list(range(50)) != arrived
    assert rig.coverage.counts["network.reordered"] > 0


def test_a_cut_affects_one_direction_and_also_messages_under_way(calm: Profile) -> None:
    rig = Rig(calm)
    rig.send(1)
    rig.network.cut([(0, 1)])
    assert rig.drain() == []
    rig.send(1, link=(1, 0))
    assert rig.drain() == [0]


def test_a_link_that_was_cut_twice_must_be_mended_twice(calm: Profile) -> None:
    rig = Rig(calm)
    rig.network.cut([(0, 1)])
    rig.network.cut([(0, 1)])
    rig.network.mend([(0, 1)])
    assert rig.network.is_cut((0, 1))
    rig.network.mend([(0, 1)])
    rig.network.mend([(0, 1)])
    assert not rig.network.is_cut((0, 1))


def test_a_healed_network_loses_and_duplicates_nothing(calm: Profile) -> None:
    rig = Rig(replace(calm, loss=0.9, duplication=0.9))
    rig.network.cut([(0, 1)])
    rig.network.lossy = 1
    rig.network.heal()
    rig.send(30)
    assert rig.drain() == list(range(30))
