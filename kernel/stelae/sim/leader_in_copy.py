"""The fault ``leader_in_copy``: a voter is cut off until it needs a copy, and the leader is lost while it is copied."""

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


class CopiedVoters(Protocol):
    """The state of the cluster that the fault looks at."""

    def voters_that_follow(self) -> Sequence[int]:
        """Return the positions of the voters that do not lead."""
        ...

    def is_voter_copied(self) -> bool:
        """Return true if the replica of a voter is a tombstone."""
        ...


class LeaderInCopy:
    """Waits for the copy of a voter, which it brings about.

    Args:
        is_over: returns true once all faults are healed.
        links_of: returns all links of a node.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        world: CopiedVoters,
        is_over: Callable[[], bool],
        links_of: Callable[[int], list[NetworkLink]],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._world = world
        self._is_over = is_over
        self._links_of = links_of

    def begin(self, number: int, strike: Callable[[], None]) -> None:
        """Cut a voter off, and call ``strike`` once it is being copied. ``number`` chooses the voter."""
        voters = self._world.voters_that_follow()
        if not voters:
            return
        links = self._links_of(voters[number % len(voters)])
        self._network.cut(links)

        def mend() -> None:
            if not self._is_over():
                self._network.mend(links)
                self._look(LOOKS_MAX, strike)

        self._scheduler.after(LAG_US, "fault.lagged", mend)

    def _look(self, left: int, strike: Callable[[], None]) -> None:
        if self._is_over() or left == 0:
            return
        if self._world.is_voter_copied():
            strike()
        else:
            self._scheduler.after(LOOK_US, "fault.look", lambda: self._look(left - 1, strike))
