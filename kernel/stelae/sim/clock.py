"""A node's virtual clock: monotonic time follows the scheduler, wall time may be wrong.

``jump`` moves the wall clock of one node, and ``undo_jumps`` undoes all jumps. The monotonic clock
restarts with each start of the node's process, as on a rebooted machine."""

from __future__ import annotations

from stelae.sim.scheduler import Scheduler

EPOCH_US = 1_700_000_000_000_000
"""Wall time at the start of every run (microseconds since 1970)."""


class VirtualClock:
    """The ``Clock`` of one node (see ``stelae.spi.services``)."""

    def __init__(self, scheduler: Scheduler, *, error_us: int, drift_ppm: int = 0) -> None:
        self._scheduler = scheduler
        self._drift_ppm = drift_ppm
        self._error_us = error_us
        self._jumped_us = 0
        self._booted_us = 0
        self.ahead_us_max = max(0, error_us)
        """Longest time, in microseconds, by which the wall clock was ever ahead of true time."""

    def monotonic_us(self) -> int:
        """Return the microseconds since this node last started, by its clock, which may run too fast or too slow."""
        return self._since_boot(self._scheduler.now_us)

    def _since_boot(self, true_us: int) -> int:
        return (true_us - self._booted_us) * (1_000_000 + self._drift_ppm) // 1_000_000

    def true_delay_us(self, until_us: int) -> int:
        """Return after how many microseconds of true time the monotonic clock shows ``until_us``; 0: it does now."""
        left_us = until_us - self.monotonic_us()
        return max(0, -(-left_us * 1_000_000 // (1_000_000 + self._drift_ppm)))

    def wall_us(self) -> int:
        """Return the wall time of this node in microseconds since 1970; at least 1."""
        return max(1, EPOCH_US + self._scheduler.now_us + self._error_us + self._jumped_us)

    def reboot(self) -> None:
        """Restart the monotonic clock, because the node's process starts."""
        self._booted_us = self._scheduler.now_us

    def jump(self, by_us: int) -> None:
        """Move the wall clock by ``by_us`` microseconds, forward or (negative) back."""
        self._jumped_us += by_us
        self.ahead_us_max = max(self.ahead_us_max, self._error_us + self._jumped_us)

    def undo_jumps(self) -> None:
        """Undo every jump."""
        self._jumped_us = 0
