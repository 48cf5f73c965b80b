"""The ``Turns`` of a simulated master's driver. Its timers are late while the master is busy."""

from __future__ import annotations

import random
from collections.abc import Callable

from stelae.host.ports import Timer
from stelae.sim.draw import between
from stelae.sim.process import Process


class LateTurns:
    """``Turns`` of one run of a master.

    Attributes:
        late_us: longest time by which a timer is late; 0 while the master is not busy.
    """

    def __init__(self, process: Process, rng: random.Random) -> None:
        self._process = process
        self._rng = rng
        self.late_us = 0

    def now_us(self) -> int:
        """Return the monotonic time of this node in microseconds."""
        return self._process.now_us()

    def defer(self, call: Callable[[], None]) -> None:
        """Run ``call`` at the end of this turn."""
        self._process.defer(call)

    def defer_last(self, call: Callable[[], None]) -> None:
        """Run ``call`` at the end of this turn, after all deferred calls."""
        self._process.defer_last(call)

    def call_at(self, when_us: int, call: Callable[[], None]) -> Timer:
        """Run ``call`` at ``when_us``, or later if the master is busy."""
        late_us = between(self._rng, 0, self.late_us) if self.late_us else 0
        return self._process.call_at(when_us + late_us, call)
