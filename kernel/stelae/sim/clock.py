"""A node's virtual clock: monotonic time follows the scheduler, wall time may be wrong.

``jump`` moves the wall clock of one node, and ``undo_jumps`` undoes all jumps. The monotonic clock never shows a time
near 0: a machine runs for a while before a node starts on it. It begins anew only when power is lost, so a process that
was killed and started again finds the time of the machine, not its own."""

from __future__ import annotations

from stelae.sim.scheduler import Scheduler

EPOCH_US = 1_700_000_000_000_000
"""Wall time at the start of every run (microseconds since 1970)."""

UP_US = 3_600_000_000
"""Monotonic time of a machine at the start of a run: longer than any timeout."""

BOOTED_US = 30_000_000
"""Monotonic time of a machine when its node starts after a power loss: less than it may have been before."""


class VirtualClock:
    """The ``Clock`` of one node (see ``stelae.spi.services``)."""

    def __init__(self, scheduler: Scheduler, *, error_us: int, drift_ppm: int = 0) -> None:
        self._scheduler = scheduler
        self._drift_ppm = drift_ppm
        self._error_us = error_us
        self._jumped_us = 0
        self._anchor_us = UP_US
        self._anchored_us = 0
        self._rebooted = False
        self.ahead_us_max = max(0, error_us)
        """Longest time, in microseconds, by which the wall clock was ever ahead of true time."""

    def monotonic_us(self) -> int:
        """Return the microseconds since the machine booted, by its clock, which may run too fast or too slow."""
        passed_us = self._scheduler.now_us - self._anchored_us
        return self._anchor_us + passed_us * (1_000_000 + self._drift_ppm) // 1_000_000

    def true_delay_us(self, until_us: int) -> int:
        """Return after how many microseconds of true time the monotonic clock shows ``until_us``; 0: it does now."""
        left_us = until_us - self.monotonic_us()
        return max(0, -(-left_us * 1_000_000 // (1_000_000 + self._drift_ppm)))

    def wall_us(self) -> int:
        """Return the wall time of this node in microseconds since 1970; at least 1."""
        return max(1, EPOCH_US + self._scheduler.now_us + self._error_us + self._jumped_us)

    def lose_power(self) -> None:
        """Note that the machine loses power. Its monotonic clock begins anew before the next start."""
        self._rebooted = True

    def start(self) -> None:
        """Note that the node's process starts."""
        self._anchor_us = BOOTED_US if self._rebooted else self.monotonic_us()
        self._anchored_us = self._scheduler.now_us
        self._rebooted = False

    def jump(self, by_us: int) -> None:
        """Move the wall clock by ``by_us`` microseconds, forward or (negative) back."""
        self._jumped_us += by_us
        self.ahead_us_max = max(self.ahead_us_max, self._error_us + self._jumped_us)

    def undo_jumps(self) -> None:
        """Undo every jump."""
        self._jumped_us = 0
