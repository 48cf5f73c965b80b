"""For faults that strike while a voter is copied: the voter is cut off until it needs a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from stelae.sim.network import Network, NetworkLink
from stelae.sim.scheduler import Scheduler

LAG_US: Final = 2_500_000
"""For how long the voter is cut off. The others flush and collect their logs meanwhile."""

LOOK_US: Final = 1_000
"""Time between two looks whether the copy has begun."""

LOOKS_MAX: Final = 3_000
"""How often the fault looks before it gives up: the voter did not need a copy, or has got it."""


class FollowingVoters(Protocol):
    """The state of the cluster that decides which voter is cut off."""

    def voters_that_follow(self) -> Sequence[int]:
        """Return the positions of the voters that do not lead."""
        ...


class CopyOfVoter:
    """Brings about the copy of a voter, and waits for a moment in it.

    Args:
        is_over: returns true once all faults are healed.
        links_of: returns all links of a node.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        world: FollowingVoters,
        is_over: Callable[[], bool],
        links_of: Callable[[int], list[NetworkLink]],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._world = world
        self._is_over = is_over
        self._links_of = links_of

    def begin(self, number: int, is_time: Callable[[], bool], strike: Callable[[], None]) -> None:
        """Cut a voter off, and call ``strike`` once ``is_time`` returns true. ``number`` chooses the voter."""
        voters = self._world.voters_that_follow()
        if not voters:
            return
        links = self._links_of(voters[number % len(voters)])
        self._network.cut(links)

        def mend() -> None:
            if not self._is_over():
                self._network.mend(links)
                self._look(LOOKS_MAX, is_time, strike)

        self._scheduler.after(LAG_US, "fault.lagged", mend)

    def _look(self, left: int, is_time: Callable[[], bool], strike: Callable[[], None]) -> None:
        if self._is_over() or left == 0:
            return
        if is_time():
            strike()
        else:
            self._scheduler.after(LOOK_US, "fault.look", lambda: self._look(left - 1, is_time, strike))
