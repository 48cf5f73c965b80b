"""A limit of bytes per second. Pure: the time is an argument."""

from __future__ import annotations

BURST_US = 100_000  #: A bucket that was not used holds what the rate gives in this time.


class TokenBucket:
    """Admits bytes at a rate on average.

    A request is admitted while the bucket is not empty, and may make a debt. So a chunk larger than the bucket is
    admitted too, and the next one waits until the debt is paid.

    Args:
        bytes_per_s: the rate; 0: everything is admitted.
        now_us: the monotonic time in microseconds."""

    def __init__(self, bytes_per_s: int, now_us: int) -> None:
        self._filled_us = now_us
        self._set(bytes_per_s)

    @property
    def bytes_per_s(self) -> int:
        """The rate; 0: everything is admitted."""
        return self._rate

    def change(self, bytes_per_s: int, now_us: int) -> None:
        """Admit at another rate from now on. What is owed at the old rate is forgotten."""
        self._filled_us = max(self._filled_us, now_us)
        self._set(bytes_per_s)

    def _set(self, bytes_per_s: int) -> None:
        self._rate = bytes_per_s
        self._level_max = bytes_per_s * BURST_US
        # In bytes times microseconds per second, so that there is no rounding.
        self._level = self._level_max

    def take(self, size_bytes: int, now_us: int) -> int:
        """Admit bytes and return 0, or admit nothing and return the microseconds after which to ask again."""
        if not self._rate:
            return 0
        passed = max(now_us - self._filled_us, 0)
        self._filled_us = max(self._filled_us, now_us)
        self._level = min(self._level + passed * self._rate, self._level_max)
        if self._level <= 0:
            return -self._level // self._rate + 1
        self._level -= size_bytes * 1_000_000
        return 0
