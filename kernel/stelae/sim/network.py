"""The virtual network: every directed link delays and loses messages, and can be cut.

A message arrives after a drawn delay. It may be duplicated, lost, or overtaken by a later message. A
message is lost if its link is cut when it arrives. A message may arrive after its sender has ended,
and it reaches the process that runs at the target then. Consensus must tolerate that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from stelae.sim.coverage import Coverage
from stelae.sim.draw import chance, skewed
from stelae.sim.profile import Profile
from stelae.sim.scheduler import Scheduler

Deliver: TypeAlias = Callable[[], None]
NetworkLink: TypeAlias = tuple[int, int]
"""Positions of sender and receiver. Clients have positions above those of all nodes."""

SLOW_DELAY_US = 400_000
"""Longest extra delay while links are slow: above the shortest election timeout."""


class Flight(Protocol):
    """One message on the network, as an observer sees it."""

    def arrived(self) -> None:
        """The message, or a duplicate of it, has arrived."""

    def lost(self) -> None:
        """The message, or a duplicate of it, is lost."""


class NetworkObserver(Protocol):
    """Is notified of every message, and of every link that is cut or mended."""

    def sent(self, link: NetworkLink, label: str, message: object) -> Flight:
        """A message was sent. Return an object that is notified of its outcome."""
        ...

    def links_changed(self, links: Sequence[NetworkLink], *, cut: bool) -> None:
        """Links were cut or mended."""


class Network:
    """All links of one run.

    Attributes:
        observer: is notified of messages and links, if set. It does not change the run.

    Args:
        rng: the random stream of the network.
        profile: delays and probabilities while no fault of the links is active.
    """

    def __init__(self, scheduler: Scheduler, rng: random.Random, profile: Profile, coverage: Coverage) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._profile = profile
        self._coverage = coverage
        self._cuts: dict[NetworkLink, int] = {}
        self._newest: dict[NetworkLink, int] = {}
        self._healed = False
        self.lossy = 0
        self.slow = 0
        self.observer: NetworkObserver | None = None

    def send(self, link: NetworkLink, label: str, deliver: Deliver, message: object = None) -> None:
        """Send a message over a link. ``deliver`` runs once for each arrival. ``message`` is for the observer."""
        flight = None if self.observer is None else self.observer.sent(link, label, message)
        if self._is_lost(link):
            self._lose(flight)
            return
        self._launch(link, label, deliver, flight)
        if not self._healed and chance(self._rng, self._profile.duplication):
            self._coverage.hit("network.duplicated")
            self._launch(link, label, deliver, flight)

    def cut(self, links: Iterable[NetworkLink]) -> None:
        """Cut links. A link that was cut twice must be mended twice."""
        with self._observed_links():
            for link in links:
                self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, links: Iterable[NetworkLink]) -> None:
        """Undo one cut of each link."""
        with self._observed_links():
            for link in links:
                self._cuts[link] = max(0, self._cuts.get(link, 0) - 1)

    def is_cut(self, link: NetworkLink) -> bool:
        """Return true while a link is cut."""
        return self._cuts.get(link, 0) > 0

    def heal(self) -> None:
        """End every fault: from now on each message arrives exactly once."""
        with self._observed_links():
            self._cuts.clear()
        self._healed = True
        self.lossy = self.slow = 0

    def _is_lost(self, link: NetworkLink) -> bool:
        if self.is_cut(link):
            return True
        if self._healed:
            return False
        return chance(self._rng, 0.4 if self.lossy else self._profile.loss)

    @contextmanager
    def _observed_links(self) -> Iterator[None]:
        """Notify the observer of the links that the block cuts or mends."""
        before = self._cut_links()
        yield
        after = self._cut_links()
        if self.observer is not None:
            for links, cut in ((after - before, True), (before - after, False)):
                if links:
                    self.observer.links_changed(sorted(links), cut=cut)

    def _cut_links(self) -> set[NetworkLink]:
        return {link for link, count in self._cuts.items() if count > 0}

    def _lose(self, flight: Flight | None) -> None:
        self._coverage.hit("network.lost")
        if flight is not None:
            flight.lost()

    def _launch(self, link: NetworkLink, label: str, deliver: Deliver, flight: Flight | None) -> None:
        low, high = self._profile.delay_us
        delay_us = skewed(self._rng, low, high + (SLOW_DELAY_US if self.slow else 0))
        arrives_us = self._scheduler.now_us + delay_us
        if arrives_us < self._newest.get(link, 0):
            self._coverage.hit("network.reordered")
        else:
            self._newest[link] = arrives_us

        def arrive() -> None:
            if self.is_cut(link):
                self._lose(flight)
                return
            if flight is not None:
                flight.arrived()
            deliver()

        self._scheduler.at(arrives_us, label, arrive)
