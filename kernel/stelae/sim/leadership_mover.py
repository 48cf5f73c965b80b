"""Asks leaders to hand over while clients write and faults happen."""

from __future__ import annotations

import random
from typing import Final

from stelae.sim.draw import skewed
from stelae.sim.run_parts import RunParts
from stelae.spi.errors import StelaeError

NUMBER: Final = 71
"""Position of the mover on the network, above all clients."""


class LeadershipMover:
    """Requests transfers at random times until ``stopping``, in runs that have them. It never waits for an answer."""

    def __init__(self, parts: RunParts, rng: random.Random) -> None:
        self._parts = parts
        self._pause_us = parts.profile.transfer_us
        self._rng = rng
        self.stopping = False

    def start(self) -> None:
        """Begin to move leaderships."""
        if self._pause_us is not None:
            self._parts.scheduler.after(skewed(self._rng, *self._pause_us), "leadership.move", self._act)

    def _act(self) -> None:
        if self.stopping:
            return
        leader = self._parts.world.leader()
        if leader is not None:
            self._ask(leader)
        self.start()

    def _ask(self, position: int) -> None:
        node = self._parts.nodes[position]

        def ended(error: StelaeError | None) -> None:
            self._parts.coverage.hit("transfer.done" if error is None else "transfer.refused")

        def arrived() -> None:
            if node.replica is not None:
                node.replica.transfer(None, ended)

        self._parts.network.send((len(self._parts.nodes) + NUMBER, position), "transfer", lambda: node.run(arrived))
