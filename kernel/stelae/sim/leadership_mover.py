"""Asks leaders to hand over while clients write and faults happen.

Some leaders hear nothing from their peers for a while after they have asked a successor to campaign. They do not learn
that it leads, and what they answer meanwhile must be right without that knowledge."""

from __future__ import annotations

import random
from typing import Final

from stelae.sim.draw import between, chance, skewed
from stelae.sim.handover_watch import HandoverWatch
from stelae.sim.run_parts import RunParts
from stelae.spi.errors import StelaeError

NUMBER: Final = 71
"""Position of the mover on the network, above all clients."""

DEAF: Final = 0.4
"""Share of the leaders that hear nothing from their peers after they have handed over."""


class LeadershipMover:
    """Requests transfers at random times until ``stopping``, in runs that have them. It never waits for an answer.

    Args:
        parts: the run.
        rng: draws times and leaders.
        watch: reports the handovers of the run; ``None``: no leader is cut off after one.
    """

    def __init__(self, parts: RunParts, rng: random.Random, watch: HandoverWatch | None) -> None:
        self._parts = parts
        self._pause_us = parts.profile.transfer_us
        self._rng = rng
        self.stopping = False
        if watch is not None:
            watch.handed_over = self._handed_over

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

    def _handed_over(self, position: int) -> None:
        """Cut the links from all peers of some leaders for up to two election timeouts: longer than a lease lasts."""
        if self.stopping or not chance(self._rng, DEAF):
            return
        timeout_us = self._parts.profile.election_timeout_ms * 1_000
        links = [(peer, position) for peer in range(len(self._parts.nodes)) if peer != position]
        self._parts.coverage.hit("transfer.deaf")
        self._parts.network.cut(links)
        mend_us = between(self._rng, timeout_us // 4, 2 * timeout_us)
        self._parts.scheduler.after(mend_us, "leadership.heard", lambda: self._parts.network.mend(links))
