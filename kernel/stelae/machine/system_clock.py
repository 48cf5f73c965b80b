"""The machine's clocks."""

import time

# The clock includes time in suspend where the system supports that, because leases and timeouts mean real time.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The real ``Clock`` (see ``stelae.spi.services``)."""

    def monotonic_us(self) -> int:
        """Microseconds on a clock that never goes back and runs through suspend."""
        return time.clock_gettime_ns(_MONOTONIC) // 1000

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1000
