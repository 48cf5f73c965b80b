"""Asks leaders to hand over while clients write and faults happen."""

from __future__ import annotations

import random
from typing import Final

from stelae.sim.coverage import Coverage
from stelae.sim.draw import skewed
from stelae.sim.network import Network
from stelae.sim.node import SimNode
from stelae.sim.profile import Profile
from stelae.sim.scheduler import Scheduler
from stelae.sim.world import World
from stelae.spi.errors import StelaeError

NUMBER: Final = 71
"""Position of the mover on the network, above all clients."""


class LeadershipMover:
    """Requests transfers at random times until ``stopping``, in runs that have them. It never waits for an answer."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        nodes: list[SimNode],
        world: World,
        profile: Profile,
        rng: random.Random,
        coverage: Coverage,
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._nodes = nodes
        self._world = world
        self._pause_us = profile.transfer_us
        self._rng = rng
        self._coverage = coverage
        self.stopping = False

    def start(self) -> None:
        """Begin to move leaderships."""
        if self._pause_us is not None:
            self._scheduler.after(skewed(self._rng, *self._pause_us), "leadership.move", self._act)

    def _act(self) -> None:
        if self.stopping:
            return
        leader = self._world.leader()
        if leader is not None:
            self._ask(leader)
        self.start()

    def _ask(self, position: int) -> None:
        node = self._nodes[position]

        def ended(error: StelaeError | None) -> None:
            self._coverage.hit("transfer.done" if error is None else "transfer.refused")

        def arrived() -> None:
            if node.replica is not None:
                node.replica.transfer(None, ended)

        self._network.send((len(self._nodes) + NUMBER, position), "transfer", lambda: node.run(arrived))
