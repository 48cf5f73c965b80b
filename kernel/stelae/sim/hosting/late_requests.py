"""Repeats some requests for new replicas late.

A leader asks again only while the peer does not host the tablet. So without these repetitions, few requests would reach
a node that creates its replica at the moment, that has it, or that was removed from the tablet again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from stelae.host.new_replica import NewReplica
from stelae.sim.draw import chance, skewed
from stelae.sim.process import Process
from stelae.spi.ids import NodeId

SHARE: Final = 0.4
"""Share of the requests that are sent once more."""

DELAY_US: Final = (500, 4_000_000)
"""Shortest and longest delay of the repetition: from the time of one creation to that of several changes of members."""


class LateRequests:
    """Sends requests for new replicas, and some of them twice.

    Args:
        process: the process of the leader. It sends nothing more once it has ended.
        send: sends one request.
    """

    def __init__(self, process: Process, rng: random.Random, send: Callable[[NodeId, NewReplica], None]) -> None:
        self._process = process
        self._rng = rng
        self._send = send

    def send(self, to: NodeId, new: NewReplica) -> None:
        """Send a request."""
        self._send(to, new)
        if chance(self._rng, SHARE):
            delay_us = skewed(self._rng, *DELAY_US)
            self._process.schedule(delay_us, "new_replica.again", lambda: self._send(to, new))
