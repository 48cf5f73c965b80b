"""Byte credits: how much may be under way on one connection, per direction.

The receiver counts the bytes it has consumed since hello and says the sum in every header; the
sender may have at most a window more than that under way. Sums instead of increments make a
repeated or reordered report harmless. With less than a quarter of the window under way anything may
go, or a message larger than the window never could: that much may be consumed and not yet reported.
Counting starts anew with each hello.
"""

from __future__ import annotations


class Credit:
    """Both directions of one connection; the window is the smaller of what both sides will take."""

    __slots__ = ("_consumed", "_freed", "_reported", "_sent", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self._sent = self._freed = 0
        self._consumed = self._reported = 0

    def take(self, cost: int) -> bool:
        """Count ``cost`` bytes as sent if they fit; say whether they did."""
        under_way = self._sent - self._freed
        if under_way + cost > self.window_bytes and under_way * 4 >= self.window_bytes:
            return False
        self._sent += cost
        return True

    def adjust(self, cost: int) -> None:
        """Correct the count by bytes that went beside ``take``, or (negative) did not go at all."""
        self._sent += cost

    def freed(self, consumed: int) -> bool:
        """Take the peer's sum; say whether it freed anything. Sums beyond what was sent are cut."""
        before, self._freed = self._freed, max(self._freed, min(consumed, self._sent))
        return self._freed > before

    def consume(self, cost: int) -> bool:
        """Count bytes that arrived; say whether the peer is to be told now, a quarter later."""
        self._consumed += cost
        return (self._consumed - self._reported) * 4 >= self.window_bytes and bool(self.report())

    def report(self) -> int:
        """Return the sum for a header that is being written."""
        self._reported = self._consumed
        return self._consumed
