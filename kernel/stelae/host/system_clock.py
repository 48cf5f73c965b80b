"""The machine's clocks, and the name of its present boot."""

from __future__ import annotations

import time
from pathlib import Path

# Time spent in suspend counts where the system can tell: leases and time-outs mean real time.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """The real ``Clock`` (see ``stelae.spi.services``)."""

    def monotonic_us(self) -> int:
        """Microseconds on a clock that never goes back and runs through suspend."""
        return time.clock_gettime_ns(_MONOTONIC) // 1000

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000


def boot_id(path: Path = _BOOT_ID) -> str:
    """Return the name of the machine's present boot, or ``""`` where the system has none.

    An empty name never equals another one: not knowing counts as a restart of the machine.
    """
    try:
        return path.read_text().strip()
    except OSError:
        return ""
