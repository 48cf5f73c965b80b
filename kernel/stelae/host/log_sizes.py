"""The approximate number of bytes of a log after an index. It bounds how much of the log is kept for lagging peers.

Pure. Memory is bounded: at most ``MARKS_MAX`` positions are remembered, at about equal distances in bytes."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from stelae.spi.log import Entry

MARKS_MAX = 512
"""The most positions that are remembered for a log. Above it, every second one is forgotten. A node may have thousands
of logs."""


class LogSizes:
    """Positions of a log, each with the number of bytes up to it. ``base_index`` is the first position.

    A position is the end of a group of entries. Between two positions there are at most a group and ``2 / MARKS_MAX``
    of the bytes that were remembered at the time."""

    def __init__(self, base_index: int) -> None:
        self._indexes = [base_index]
        self._sums = [0]
        self._total = 0
        self._step = 1

    @property
    def first_index(self) -> int:
        """The first position that is remembered."""
        return self._indexes[0]

    def appended(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end."""
        self._total += sum([entry.size_bytes for entry in entries])
        if entries and self._total - self._sums[-1] >= self._step:
            self._indexes.append(entries[-1].op_id.index)
            self._sums.append(self._total)
            if len(self._indexes) > MARKS_MAX:
                self._thin_out()

    def cut(self, from_index: int) -> None:
        """Remove the positions at or above ``from_index``.

        Bytes between the last remaining position and ``from_index`` are not counted any more. So for a while more of
        the log is kept than the bound asks for, never less."""
        kept = bisect_left(self._indexes, from_index)
        del self._indexes[max(kept, 1) :], self._sums[max(kept, 1) :]
        if kept == 0:
            self._indexes[0] = from_index - 1
        self._total = self._sums[-1]

    def keep(self, bytes_max: int) -> None:
        """Forget the positions with more than ``bytes_max`` bytes after them, except for the last position."""
        at = min(bisect_left(self._sums, self._total - bytes_max), len(self._sums) - 1)
        del self._indexes[:at], self._sums[:at]

    def forget(self, upto: int) -> None:
        """Forget the positions before the last one at or below ``upto``."""
        at = max(bisect_right(self._indexes, upto) - 1, 0)
        del self._indexes[:at], self._sums[:at]

    def _thin_out(self) -> None:
        del self._indexes[1::2], self._sums[1::2]
        self._step = max(2 * self._step, (self._total - self._sums[0]) * 2 // MARKS_MAX)
