"""Repeats some requests for new or copied replicas late.

A leader asks again only while the peer does not answer. So without these repetitions, few requests would reach a node
that creates its replica at the moment, that has it, or that was removed from the tablet again. A repetition is for the
process that ran when the request was sent first: an envelope names the process that it is for, and another one refuses
it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from stelae.sim.draw import chance, skewed
from stelae.sim.process import Process
from stelae.spi.ids import NodeId

SHARE: Final = 0.4
"""Share of the requests that are sent once more."""

DELAY_US: Final = (500, 4_000_000)
"""Shortest and longest delay of the repetition: from the time of one creation to that of several changes of members."""


_Asked = TypeVar("_Asked")


class LateRequests(Generic[_Asked]):
    """Sends requests for replicas, and some of them twice.

    Args:
        process: the process of the leader. It sends nothing more once it has ended.
        kind: the kind of the message.
        send: sends one request.
        starts: returns the number of the process of a node.
    """

    def __init__(
        self,
        process: Process,
        kind: str,
        rng: random.Random,
        send: Callable[[NodeId, _Asked], None],
        starts: Callable[[NodeId], int],
    ) -> None:
        self._process = process
        self._kind = kind
        self._rng = rng
        self._send = send
        self._starts = starts

    def send(self, to: NodeId, asked: _Asked) -> None:
        """Send a request."""
        self._send(to, asked)
        if chance(self._rng, SHARE):
            delay_us = skewed(self._rng, *DELAY_US)
            process = self._starts(to)

            def again() -> None:
                if self._starts(to) == process:
                    self._send(to, asked)

            self._process.schedule(delay_us, f"{self._kind}.again", again)
