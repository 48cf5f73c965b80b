"""The virtual network between masters, servers and clients. It delays, loses and duplicates messages."""

from __future__ import annotations

import random
from collections.abc import Callable

from stelae.sim.coverage import Coverage
from stelae.sim.draw import chance, skewed
from stelae.sim.scheduler import Scheduler

DELAY_US_MIN = 200
DELAY_US_MAX = 30_000
SLOW_US_MAX = 900_000
LOSS = 0.01
LOSS_WHEN_LOSSY = 0.3
DUPLICATED = 0.03


class SimEndpoint:
    """A named receiver of messages. It may be down or paused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.up = True
        self.paused = False
        self._held: list[Callable[[], None]] = []

    def receive(self, deliver: Callable[[], None]) -> None:
        """Deliver a message now, or after a pause. A message to an endpoint that is down is lost."""
        if self.up and self.paused:
            self._held.append(deliver)
        elif self.up:
            deliver()

    def pause(self) -> None:
        """Hold all messages from now on."""
        self.paused = True

    def resume(self) -> None:
        """End the pause and deliver the held messages."""
        self.paused = False
        held, self._held = self._held, []
        for deliver in held:
            self.receive(deliver)

    def stop(self) -> None:
        """Go down and drop the held messages."""
        self.up, self.paused, self._held = False, False, []


class MastersNetwork:
    """All links of a run.

    Attributes:
        cut: cut links, as pairs of names, the sender first.
        lossy, slow: true while all links are lossy or slow.
    """

    def __init__(self, scheduler: Scheduler, rng: random.Random, coverage: Coverage) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._coverage = coverage
        self.cut: set[tuple[str, str]] = set()
        self.lossy = False
        self.slow = False

    def connected(self, first: str, second: str) -> bool:
        """Return true if no direction between two endpoints is cut."""
        return first == second or ((first, second) not in self.cut and (second, first) not in self.cut)

    def send(self, source: str, target: SimEndpoint, label: str, deliver: Callable[[], None]) -> None:
        """Send one message. ``deliver`` runs at the target once, twice or never."""
        copies = 2 if chance(self._rng, DUPLICATED) else 1
        for _ in range(copies):
            lost = chance(self._rng, LOSS_WHEN_LOSSY if self.lossy else LOSS)
            delay_us = skewed(self._rng, DELAY_US_MIN, SLOW_US_MAX if self.slow else DELAY_US_MAX)
            if lost or (source, target.name) in self.cut:
                self._coverage.hit("network.lost")
                continue
            self._scheduler.after(delay_us, f"{source}>{target.name} {label}", lambda: target.receive(deliver))
        if copies == 2:
            self._coverage.hit("network.duplicated")
