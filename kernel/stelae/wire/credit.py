"""Byte credits: how much may be under way on one connection, per direction.

The receiver counts the bytes it has consumed since hello and says the sum in every header; the
sender may have at most a window more than that under way. Sums instead of increments make a
repeated or reordered report harmless. With less than a quarter of the window under way anything may
go, or a message larger than the window never could: that much may be consumed and not yet reported.
Counting starts anew with each hello.
"""

from __future__ import annotations


class SendCredit:
    """What this side may still send."""

    __slots__ = ("_consumed", "_sent", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self._sent = 0
        self._consumed = 0

    @property
    def under_way_bytes(self) -> int:
        """Bytes sent and not yet reported as consumed."""
        return self._sent - self._consumed

    def take(self, cost: int) -> bool:
        """Count ``cost`` bytes as sent if they fit; say whether they did."""
        under_way = self._sent - self._consumed
        if under_way + cost > self.window_bytes and under_way * 4 >= self.window_bytes:
            return False
        self._sent += cost
        return True

    def adjust(self, cost: int) -> None:
        """Correct the count by bytes that went beside ``take``, or (negative) did not go at all."""
        self._sent += cost

    def reported(self, consumed: int) -> bool:
        """Take the peer's sum; say whether it freed anything. Sums beyond what was sent are cut."""
        consumed = min(consumed, self._sent)
        if consumed <= self._consumed:
            return False
        self._consumed = consumed
        return True


class ReceiveCredit:
    """What this side has consumed, and whether the peer should be told now."""

    __slots__ = ("_reported", "_step", "consumed")

    def __init__(self, window_bytes: int) -> None:
        self._step = max(1, window_bytes // 4)
        self._reported = 0
        self.consumed = 0

    def add(self, cost: int) -> None:
        """Count bytes as consumed."""
        self.consumed += cost

    @property
    def report_due(self) -> bool:
        """Whether a quarter of the window was consumed since the last report."""
        return self.consumed - self._reported >= self._step

    def report(self) -> int:
        """Return the sum for a header that is being written."""
        self._reported = self.consumed
        return self.consumed
