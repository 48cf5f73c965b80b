"""The virtual network: every directed link delays and loses messages, and can be cut.

A message arrives after a drawn delay. It may be duplicated, lost, or overtaken by a later message. A
message is lost if its link is cut when it arrives. A message may arrive after its sender has ended,
and it reaches the process that runs at the target then. Consensus must tolerate that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeAlias

from stelae.sim.coverage import Coverage
from stelae.sim.draw import chance, skewed
from stelae.sim.profile import Profile
from stelae.sim.scheduler import Scheduler

Deliver: TypeAlias = Callable[[], None]
Link: TypeAlias = tuple[int, int]
"""Positions of sender and receiver. Clients have positions above those of all nodes."""

SLOW_DELAY_US = 400_000
"""Longest extra delay while links are slow: above the shortest election timeout."""


class Network:
    """All links of one run.

    Args:
        rng: the random stream of the network.
        profile: delays and probabilities while no fault of the links is active.
    """

    def __init__(self, scheduler: Scheduler, rng: random.Random, profile: Profile, coverage: Coverage) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._profile = profile
        self._coverage = coverage
        self._cuts: dict[Link, int] = {}
        self._newest: dict[Link, int] = {}
        self._healed = False
        self.lossy = 0
        self.slow = 0

    def send(self, link: Link, label: str, deliver: Deliver) -> None:
        """Send a message over a link. ``deliver`` runs once for each arrival."""
        if self._is_lost(link):
            self._coverage.hit("network.lost")
            return
        self._launch(link, label, deliver)
        if not self._healed and chance(self._rng, self._profile.duplication):
            self._coverage.hit("network.duplicated")
            self._launch(link, label, deliver)

    def cut(self, links: Iterable[Link]) -> None:
        """Cut links. A link that was cut twice must be mended twice."""
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, links: Iterable[Link]) -> None:
        """Undo one cut of each link."""
        for link in links:
            self._cuts[link] = max(0, self._cuts.get(link, 0) - 1)

    def is_cut(self, link: Link) -> bool:
        """Return true while a link is cut."""
        return self._cuts.get(link, 0) > 0

    def heal(self) -> None:
        """End every fault: from now on each message arrives exactly once."""
        self._cuts.clear()
        self._healed = True
        self.lossy = self.slow = 0

    def _is_lost(self, link: Link) -> bool:
        if self.is_cut(link):
            return True
        if self._healed:
            return False
        return chance(self._rng, 0.4 if self.lossy else self._profile.loss)

    def _launch(self, link: Link, label: str, deliver: Deliver) -> None:
        low, high = self._profile.delay_us
        delay_us = skewed(self._rng, low, high + (SLOW_DELAY_US if self.slow else 0))
        arrives_us = self._scheduler.now_us + delay_us
        if arrives_us < self._newest.get(link, 0):
            self._coverage.hit("network.reordered")
        else:
            self._newest[link] = arrives_us

        def arrive() -> None:
            if self.is_cut(link):
                self._coverage.hit("network.lost")
            else:
                deliver()

        self._scheduler.at(arrives_us, label, arrive)
