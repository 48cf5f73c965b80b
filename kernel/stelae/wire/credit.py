"""Byte credit: the flow control of one connection."""


class Credit:
    """Limits how many bytes may be in flight on one connection, in each direction.

    The receiver reports in every envelope the total number of bytes that it has consumed since the hello. The sender
    may be one window ahead of that total. A total, unlike a difference, makes a repeated or reordered report harmless.

    A packet of any size may be sent while less than a quarter of the window is in flight. Two reasons: a packet larger
    than the window could never be sent otherwise, and the receiver reports only each quarter of the window, so up to
    that much may be consumed and not yet reported."""

    __slots__ = ("_consumed", "_freed", "_reported", "_sent", "window_bytes")

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self._sent = self._freed = self._consumed = self._reported = 0

    def take(self, cost: int) -> bool:
        """Count ``cost`` bytes as sent if they fit into the window. Return whether they did."""
        in_flight = self._sent - self._freed
        if in_flight + cost > self.window_bytes and in_flight * 4 >= self.window_bytes:
            return False
        self._sent += cost
        return True

    def adjust(self, cost: int) -> None:
        """Add to the bytes sent: more was sent than ``take`` counted, or (``cost`` is negative) less."""
        self._sent += cost

    def freed(self, consumed: int) -> bool:
        """Take the total that the peer reports. Return whether it freed any credit.

        A total above the number of bytes sent is reduced to that number."""
        before, self._freed = self._freed, max(self._freed, min(consumed, self._sent))
        return self._freed > before

    def consume(self, cost: int) -> bool:
        """Count received bytes. Return whether a report is due: a quarter of the window since the last report."""
        self._consumed += cost
        return (self._consumed - self._reported) * 4 >= self.window_bytes and bool(self.report())

    def report(self) -> int:
        """Return the total to write into an envelope."""
        self._reported = self._consumed
        return self._consumed
