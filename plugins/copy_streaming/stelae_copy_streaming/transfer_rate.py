"""The rate of a copy over the last seconds, and the time that the rest will take. Pure."""

from __future__ import annotations

from collections import deque

_WINDOW_US = 10_000_000  #: Older samples do not count, so that a pause is soon forgotten.
_SAMPLES_MAX = 64
_SAMPLE_US = _WINDOW_US // _SAMPLES_MAX


class TransferRate:
    """Bytes received by monotonic time in microseconds. Memory is bounded."""

    def __init__(self, now_us: int) -> None:
        self._samples = deque([(now_us, 0)])
        self.bytes_total = 0

    def add(self, size_bytes: int, now_us: int) -> None:
        """Note that bytes have arrived."""
        self.bytes_total += size_bytes
        if now_us - self._samples[-1][0] >= _SAMPLE_US:
            self._samples.append((now_us, self.bytes_total))
            while len(self._samples) > 2 and now_us - self._samples[1][0] >= _WINDOW_US:
                self._samples.popleft()

    def eta_ms(self, bytes_left: int, now_us: int) -> int | None:
        """Return the expected time for more bytes, or ``None`` if nothing was received yet."""
        since_us, before = self._samples[0]
        received, passed_us = self.bytes_total - before, now_us - since_us
        if not bytes_left:
            return 0
        return bytes_left * passed_us // (received * 1000) if received > 0 and passed_us > 0 else None
