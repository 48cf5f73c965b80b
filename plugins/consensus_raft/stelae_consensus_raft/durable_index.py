"""The index up to which the log is durable, as ``Persisted`` of whole Readies attests it (durability rule 1)."""

from __future__ import annotations

from collections import deque


class DurableIndex:
    """The durable index of the log, and the appends that are not known to be durable yet.

    A truncation sets a floor, the id of its own Ready. The truncation may replace entries of earlier Readies, so
    ``Persisted`` of an earlier Ready does not count any more. ``Persisted`` of the Ready that truncates attests all
    entries up to its own end, because Readies become durable in order."""

    __slots__ = ("_pending", "floor", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self.floor = 0
        self._pending: deque[tuple[int, int]] = deque()

    def appended(self, ready_id: int, last_index: int) -> None:
        """Note that Ready ``ready_id`` appends up to ``last_index``."""
        if self._pending and self._pending[-1][0] == ready_id:
            self._pending[-1] = (ready_id, last_index)
        else:
            self._pending.append((ready_id, last_index))

    def truncated(self, ready_id: int, index: int) -> None:
        """Note that Ready ``ready_id`` replaces everything at or above ``index``."""
        self.floor = ready_id
        self._pending.clear()
        self.index = min(self.index, index - 1)

    def after(self, ready_id: int) -> int:
        """Return what ``index`` will be once every Ready up to ``ready_id`` is known to be durable."""
        if ready_id < self.floor:
            return self.index
        attested = [last for pending_id, last in self._pending if pending_id <= ready_id]
        return attested[-1] if attested else self.index

    def persisted(self, ready_id: int) -> bool:
        """Note that every Ready up to ``ready_id`` is durable. Returns true if ``index`` rose."""
        if ready_id < self.floor:
            return False
        before = self.index
        while self._pending and self._pending[0][0] <= ready_id:
            self.index = self._pending.popleft()[1]
        return self.index != before

    def failed(self, ready_id: int, index: int) -> None:
        """Note that a write failed: the log ends at ``index``, and earlier Readies do not count any more."""
        self.floor = ready_id
        self._pending.clear()
        self.index = index
