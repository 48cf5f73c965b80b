"""Up to where the log is durable, learned from ``Persisted`` of whole Readies."""

from __future__ import annotations

from collections import deque


class Watermark:
    """The durable end of the log, and the appends whose durability is not attested yet.

    A truncation sets a *floor*: what was appended in earlier Readies may be gone again when they
    become durable, so their completion says nothing any more. The Ready that truncated attests
    everything below its own end, because Readies become durable in order."""

    __slots__ = ("_pending", "floor", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self.floor = 0
        self._pending: deque[tuple[int, int]] = deque()

    def appended(self, ready_id: int, last_index: int) -> None:
        """Ready ``ready_id`` appends up to ``last_index``."""
        if self._pending and self._pending[-1][0] == ready_id:
            self._pending[-1] = (ready_id, last_index)
        else:
            self._pending.append((ready_id, last_index))

    def truncated(self, ready_id: int, index: int) -> None:
        """Ready ``ready_id`` voids everything at or above ``index``."""
        self.floor = ready_id
        self._pending.clear()
        self.index = min(self.index, index - 1)

    def after(self, ready_id: int) -> int:
        """Where the durable end will be once every Ready up to ``ready_id`` is known to be durable."""
        attested = [last for known, last in self._pending if known <= ready_id] if ready_id >= self.floor else []
        return attested[-1] if attested else self.index

    def persisted(self, ready_id: int) -> bool:
        """Every Ready up to ``ready_id`` is durable; true if the durable end moved."""
        if ready_id < self.floor:
            return False
        before = self.index
        while self._pending and self._pending[0][0] <= ready_id:
            self.index = self._pending.popleft()[1]
        return self.index != before

    def failed(self, ready_id: int, index: int) -> None:
        """Readies before ``ready_id`` say nothing more, and the log ends at ``index``."""
        self.floor = ready_id
        self._pending.clear()
        self.index = index
