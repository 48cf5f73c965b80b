"""Tells the copy transport when clients read or write much on this node, so that copies leave them room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stelae.host.ports import Timer, Turns
from stelae.server.tserver.load_meter import LoadMeter
from stelae.spi.copy import CopySource, CopyTarget

LOOK_US = 250_000
"""How often to look, in microseconds."""

BUSY_PER_S = 100
"""The fewest operations per second for which clients count as busy. Fewer operations hardly wait for copies."""

IDLE_LOOKS = 8
"""Looks in a row below that after which clients are not busy any more. So a pause of two seconds ends their work."""


class BusyClients:
    """Looks at the operations of clients. A ``Service`` (``stelae.spi.hooks``).

    Args:
        load: counts the operations.
        sides: returns the sides of the transport; none if the node's settings choose no transport."""

    def __init__(self, turns: Turns, load: LoadMeter, sides: Callable[[], Sequence[CopySource | CopyTarget]]) -> None:
        self._turns = turns
        self._load = load
        self._sides = sides
        self._counted = 0
        self._idle_looks = IDLE_LOOKS
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look from now on, if there is a transport."""
        if self._sides():
            self._counted = self._load.operations
            self._wait()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        counted, was_busy = self._load.operations, self._idle_looks < IDLE_LOOKS
        busy_now = (counted - self._counted) * 1_000_000 >= BUSY_PER_S * LOOK_US
        self._counted = counted
        self._idle_looks = 0 if busy_now else min(self._idle_looks + 1, IDLE_LOOKS)
        busy = self._idle_looks < IDLE_LOOKS
        if busy != was_busy:
            for side in self._sides():
                side.beside_clients(busy)
        self._wait()

    def _wait(self) -> None:
        self._timer = self._turns.call_at(self._turns.now_us() + LOOK_US, self._look)
