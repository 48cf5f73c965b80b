"""How often a node looks at what it may remove when space runs out. Pure."""

from __future__ import annotations

FILL_BYTES_PER_S = 256 << 20
"""A disk that fills at this rate is looked at before it is full."""

PAUSE_US_MIN = 250_000


def next_look_us(free_bytes: int, free_bytes_min: int, interval_ms: int) -> int:
    """Return the pause before the next look, in microseconds. The disk cannot fill in that time.

    Above ``free_bytes_min`` that is the time to get there at ``FILL_BYTES_PER_S``, below it the shortest pause. It is
    never longer than ``interval_ms``."""
    until_us = max(0, free_bytes - free_bytes_min) * 1_000_000 // FILL_BYTES_PER_S
    return min(interval_ms * 1000, max(PAUSE_US_MIN, until_us))
